"""MiniMax M1: a thought, an answer, calls as JSON objects, one a line, in a section.

    <think>
    Ask both.
    </think>

    One moment.
    <tool_calls>
    {"name": "weather", "arguments": {"city": "Ulm"}}
    {"name": "tide", "arguments": {}}
    </tool_calls><end_of_sentence>

The model opens its thought itself. The tags are ordinary text, and a role's line says more than the role (`ai name=assistant`).
Source: the chat template and the function calling guide at huggingface.co/MiniMaxAI.
"""

from unbraid.codecs import JsonObject
from unbraid.table import (
    ANY, CONTENT, ENDED, REASONING, ROLE, SECTION, START, WAITING, Format, Start, Thinking, calling, text, turn,
)  # fmt: skip

TURN, END = turn("<beginning_of_sentence>"), turn("<end_of_sentence>")
NEWLINE = text("\n")
THINK, UNTHINK = text("<think>", after="\n"), text("</think>", before="\n", after="\n\n")
CALLS, UNCALLS = (
    text("<tool_calls>", before="\n", after=ANY, trail="\n"),
    text("</tool_calls>", before=ANY, lead="\n"),
)
OBJECT = text("{", before=ANY, lead="\n", peek=True)
CALLING = calling(JsonObject())

MINIMAX_M1 = Format(
    name="minimax_m1",
    about="MiniMax M1: always thinks, opens the thought itself; calls as JSON objects in a section",
    models=("*MiniMax-M1-*",),
    states={
        WAITING: {THINK: REASONING, UNTHINK: CONTENT, CALLS: SECTION},
        REASONING: {THINK: REASONING, UNTHINK: CONTENT, CALLS: SECTION},
        CONTENT: {CALLS: SECTION},
        SECTION: {text("{", peek=True): CALLING, UNCALLS: CONTENT},
        CALLING: {OBJECT: CALLING, UNCALLS: CONTENT},
        ROLE: {NEWLINE: START},
        ENDED: {},
    },
    turns={TURN: ROLE, END: ENDED},
    thinking=Thinking((), default=True),
    start=Start(on=WAITING, unknown=WAITING),
)
