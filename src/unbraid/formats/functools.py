"""Phi-4-mini and Firefunction v2: the word `functools`, then the calls as a JSON list. Nothing closes it.

    functools[{"name": "tide", "arguments": {"port": "Brest"}}, {"name": "moon", "arguments": {}}]<|end|>

The word alone is prose (`functools.partial`): only a list behind it makes it a marker. Arguments hold lists of their own, so the first
bracket that closes isn't the end. Source: the model's template at huggingface.co/microsoft/Phi-4-mini-instruct; Firefunction's
in llama.cpp.
"""

from unbraid.codecs import JsonArray
from unbraid.formats.llama import ROLE_ROW, TURNS
from unbraid.table import CONTENT, ENDED, ROLE, START, Format, State, calling, text, turn

FUNCTOOLS = text("functools", after="\n", trail="")
BEHIND = State("behind", "content", otherwise=CONTENT)
CALLING = calling(JsonArray(), then=BEHIND)

PHI4_MINI = Format(
    name="phi4_mini_json",
    about="Phi-4-mini: calls as a JSON list behind the word functools",
    aliases=("phi4_mini",),
    models=("*Phi-4-mini-instruct*", "*Phi-4-multimodal-instruct*"),
    states={
        CONTENT: {FUNCTOOLS: CALLING},
        CALLING: {},
        BEHIND: {FUNCTOOLS: CALLING},
        ROLE: {},
        ENDED: {},
    },
    turns={
        turn("<|assistant|>"): START, turn("<|user|>"): ROLE, turn("<|system|>"): ROLE, turn("<|tool|>"): ROLE,
        turn("<|end|>"): ENDED, turn("<|endoftext|>"): ENDED,
    },
)  # fmt: skip

FIREFUNCTION_V2 = PHI4_MINI.replace(
    name="firefunction_v2",
    about="Firefunction v2: as Phi-4-mini, on Llama 3's turns",
    aliases=(),
    models=("*firefunction-v2*",),
    states={**PHI4_MINI.states, ROLE: ROLE_ROW},
    turns=TURNS,
)
