"""OLMo 3 (AllenAI): Python calls, one a line, in a section; its markers are ordinary text. ChatML turns.

    Let me look.
    <function_calls>
    tide(port='Brest', days=[1, 2])
    moon()
    </function_calls><|im_end|>

A string may hold a newline or a bracket: lines aren't split, calls are read. Without the section, lines are calls only if all of
the answer is. The Think models start in a thought that ends at `</think>`, and have no tools; the Instruct models don't think.
Source: the models' cards, vLLM 0.32.
"""

from unbraid.codecs import PythonCalls
from unbraid.formats.chatml import NEWLINE, TURNS
from unbraid.table import (
    ANY, CONTENT, ENDED, REASONING, ROLE, START, Format, Start, State, Thinking, calling, text, unmarked,
)  # fmt: skip

THINK, UNTHINK = text("<think>", after="\n", trail=""), text("</think>", before="\n", after="\n\n", lead="", trail="")
CALLS, UNCALLS = (
    text("<function_calls>", before="\n", after="\n", lead=""),
    text("</function_calls>", before=ANY, after="\n", lead="\n", trail=""),
)

OPENING = State("opening", "content", otherwise=CONTENT)
LINES = calling(PythonCalls(layout="lines"))
BARE_LINES = calling(PythonCalls(layout="lines"), "bare lines", then=CONTENT)

OLMO3 = Format(
    name="olmo3",
    about="OLMo 3 Instruct: Python calls, one a line",
    models=("*Olmo-3-*", "*Olmo-3.1-*"),
    states={
        OPENING: {unmarked(trial="alone"): BARE_LINES, CALLS: LINES, THINK: REASONING, UNTHINK: CONTENT},
        REASONING: {THINK: REASONING, UNTHINK: CONTENT, CALLS: LINES},
        CONTENT: {THINK: REASONING, UNTHINK: CONTENT, CALLS: LINES},
        LINES: {UNCALLS: CONTENT},
        BARE_LINES: {},
        ROLE: {NEWLINE: START, THINK: REASONING, UNTHINK: CONTENT},
        ENDED: {},
    },
    turns=TURNS,
    thinking=Thinking((), default=False),
    start=Start(on=REASONING, off=OPENING),
)

OLMO3_THINK = OLMO3.replace(
    name="olmo3_think",
    about="OLMo 3 Think: starts in its thought, has no tools",
    models=("*Olmo-3-*Think*", "*Olmo-3.1-*Think*"),
    thinking=Thinking((), default=True),
)
