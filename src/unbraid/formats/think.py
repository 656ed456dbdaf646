"""Models that think and have no call syntax of their own, or whose syntax is the tokenizer's to say.

    <think>
    Two ports.
    </think>

    Brest.

The thought is opened by the prompt or by the model; the first `</think>` ends it, what comes later is text. Without one, all is thought.
The newlines are a habit of all these models; no template defines them. `kimi_vl` spells its tags with triangles, in ordinary
tokens: `◁think▷`. Turn tokens are those of the bases such models are made from.
"""

from unbraid.codecs import Choice, JsonObject, XmlParameters
from unbraid.formats.chatml import NEWLINE, TURNS
from unbraid.table import (
    CONTENT, ENDED, REASONING, ROLE, START, VERBATIM, WAITING, Format, Start, State, Thinking, calling, special, text, turn,
)  # fmt: skip

THINK, UNTHINK = special("<think>", after="\n"), special("</think>", before="\n", after="\n\n")
HEADER_END = special("<|end_header_id|>", after="\n\n")
EITHER = State("waiting", "content", otherwise=VERBATIM, undecided=True)
ROLE_ROW = {NEWLINE: START, HEADER_END: START, THINK: REASONING}
ALL_TURNS = {
    **TURNS,
    turn("<|start_header_id|>"): ROLE, turn("<|eot_id|>"): ENDED,
    turn("<｜User｜>"): ROLE, turn("<｜Assistant｜>"): START, turn("<｜end▁of▁sentence｜>"): ENDED,
    turn("<start_of_turn>"): ROLE, turn("<end_of_turn>"): ENDED,
}  # fmt: skip

THINK_ONLY = Format(
    name="think",
    about="any model with a think block and no call syntax of its own",
    aliases=("think_only",),
    models=("XiaomiMiMo/MiMo-7B-*", "microsoft/Phi-4-*reasoning*"),
    states={
        EITHER: {THINK: REASONING, UNTHINK: VERBATIM},
        REASONING: {THINK: REASONING, UNTHINK: VERBATIM},
        VERBATIM: {},
        ROLE: {**ROLE_ROW, UNTHINK: VERBATIM},
        ENDED: {},
    },
    turns=ALL_TURNS,
    thinking=Thinking((), default=True),
    start=Start(on=EITHER, off=VERBATIM, unknown=REASONING),
)

PLAIN = Format(
    name="plain",
    about="any model that neither thinks nor calls: all of it is content",
    aliases=("content_only",),
    states={VERBATIM: {}, ROLE: {NEWLINE: START, HEADER_END: START}, ENDED: {}},
    turns=ALL_TURNS,
    start=Start(on=VERBATIM, off=VERBATIM),
)

CALL, UNCALL = special("<tool_call>", before="\n", after="\n"), special("</tool_call>", before="\n")
CALLING = calling(Choice((JsonObject(), XmlParameters(frame="\n"))))

HF = Format(
    name="hf",
    about="any model: a think block and Hermes' calls; where the tokenizer has a response template, that is read instead",
    aliases=("response_template",),
    models=("HuggingFaceTB/SmolLM3-*", "NousResearch/Hermes-4-*", "XiaomiMiMo/MiMo-VL-*"),
    states={
        WAITING: {THINK: REASONING, UNTHINK: CONTENT, CALL: CALLING},
        REASONING: {THINK: REASONING, UNTHINK: CONTENT, CALL: CALLING},
        CONTENT: {UNTHINK: CONTENT, CALL: CALLING, UNCALL: CONTENT},
        CALLING: {UNCALL: CONTENT, CALL: CALLING},
        ROLE: {**ROLE_ROW, UNTHINK: CONTENT},
        ENDED: {},
    },
    turns=ALL_TURNS,
    thinking=Thinking(("enable_thinking",), default=True),
    start=Start(on=WAITING),
)

HOLO2 = Format(
    name="holo2",
    about="Holo2 (on Qwen3-VL): thinks by a switch, the prompt opens the thought; calls as JSON",
    models=("Hcompany/Holo2-*",),
    states={
        REASONING: {THINK: REASONING, UNTHINK: CONTENT, CALL: CALLING},
        CONTENT: {THINK: REASONING, UNTHINK: CONTENT, CALL: CALLING, UNCALL: CONTENT},
        CALLING: {UNCALL: CONTENT, CALL: CALLING},
        ROLE: {NEWLINE: START, THINK: REASONING, UNTHINK: CONTENT},
        ENDED: {},
    },
    turns=TURNS,
    thinking=Thinking(("thinking", "enable_thinking"), default=True),
    start=Start(on=REASONING),
)

TRIANGLE, UNTRIANGLE = text("◁think▷"), text("◁/think▷")

KIMI_VL = Format(
    name="kimi_vl",
    about="Kimi-VL Thinking: opens the thought itself, with tags of ordinary text; no calls",
    aliases=("kimi",),
    models=("moonshotai/Kimi-VL-*Thinking*",),
    states={
        EITHER: {TRIANGLE: REASONING, UNTRIANGLE: VERBATIM},
        REASONING: {TRIANGLE: REASONING, UNTRIANGLE: VERBATIM},
        VERBATIM: {},
        ROLE: {special("<|im_middle|>"): START, TRIANGLE: REASONING, UNTRIANGLE: VERBATIM},
        ENDED: {},
    },
    turns={
        turn("<|im_assistant|>"): ROLE, turn("<|im_user|>"): ROLE, turn("<|im_system|>"): ROLE, turn("<|im_end|>", "[EOS]"): ENDED,
    },
    thinking=Thinking((), default=True),
    start=Start(on=EITHER, off=VERBATIM),
)  # fmt: skip
