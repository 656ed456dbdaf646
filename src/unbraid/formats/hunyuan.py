"""Tencent Hunyuan A13B and the dense models of its time: tags of ordinary text, calls as one JSON array. HY v3 and v4: hy.py.

    <think>
    Short.
    </think>
    <answer>
    Ok <tool_calls>[{"name": "p", "arguments": {"n": 1}}, {"name": "q", "arguments": {}}]</tool_calls>
    </answer><|eos|>

No marker is a token of its own, and the newlines belong to them. The model opens the thought itself; switched off, the prompt ends in
`<think>\\n\\n</think>\\n` and the output begins with `<answer>\\n`. The answer's tags may be missing. A section inside the thought is
no call. Sources: the engines' parsers; the template wasn't seen.
"""

from unbraid.codecs import JsonArray
from unbraid.table import (
    ANY, CONTENT, ENDED, REASONING, ROLE, START, Format, Start, State, Thinking, calling, text, turn,
)  # fmt: skip

THINK, UNTHINK = text("<think>", after="\n"), text("</think>", before="\n", after="\n")
ANSWER, UNANSWER = text("<answer>", after="\n"), text("</answer>", before="\n")
CALLS, UNCALLS = text("<tool_calls>", after=ANY), text("</tool_calls>", before=ANY)
CALLING = calling(JsonArray())
WAITING = State("waiting", "content", otherwise=CONTENT, undecided=True)
ANSWERING = State("answer expected", "content", otherwise=CONTENT)

HUNYUAN_A13B = Format(
    name="hunyuan_a13b",
    about="Hunyuan A13B and the dense models of its time: thinks by a switch; calls as a JSON array",
    models=("*Hunyuan-A13B-*", "tencent/Hunyuan-*B-Instruct*"),
    states={
        WAITING: {THINK: REASONING, UNTHINK: ANSWERING, ANSWER: CONTENT, CALLS: CALLING},
        REASONING: {THINK: REASONING, UNTHINK: ANSWERING},
        ANSWERING: {ANSWER: CONTENT, CALLS: CALLING},
        CONTENT: {UNANSWER: CONTENT, CALLS: CALLING},
        CALLING: {UNCALLS: CONTENT},
        ROLE: {},
        ENDED: {},
    },
    turns={
        turn("<|startoftext|>"): ROLE, turn("<|extra_4|>"): ROLE, turn("<|extra_0|>", "<｜hy_Assistant｜>"): START,
        turn("<｜hy_User｜>"): ROLE, turn("<|eos|>"): ENDED,
    },
    thinking=Thinking(("enable_thinking",), default=True),
    start=Start(on=WAITING, off=ANSWERING, unknown=WAITING),
)  # fmt: skip
