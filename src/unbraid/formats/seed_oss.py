"""Seed-OSS (ByteDance): a thought that the model opens itself, an answer, calls in Qwen's XML with inline values.

    <seed:think>Save it.</seed:think>
    <seed:tool_call>
    <function=save>
    <parameter=text>two words</parameter>
    </function>
    </seed:tool_call><seed:eos>

Notes on the thinking budget, `<seed:cot_budget_reflect>...</seed:cot_budget_reflect>`, stand inside the thought and are part of it.
With a budget of 0 the prompt ends inside such a note. Source: the chat template at huggingface.co/ByteDance-Seed.
"""

from unbraid.codecs import XmlParameters
from unbraid.table import (
    ANY, CONTENT, ENDED, REASONING, ROLE, START, WAITING, Format, Start, Thinking, calling, special, text, turn, usual,
)  # fmt: skip

TURN, END = turn("<seed:bos>"), turn("<seed:eos>")
NEWLINE = text("\n")

THINK = special("<seed:think>", after="\n")
UNTHINK = special("</seed:think>", before="\n", after="\n")
CALL = special("<seed:tool_call>", before=ANY, lead="\n", after="\n")
UNCALL = special("</seed:tool_call>", before="\n")
FUNCTION = text("<function=", peek=True)
CALLING = calling(XmlParameters())

SEED_OSS = Format(
    name="seed_oss",
    about="Seed-OSS 36B: thinks, the model opens the thought itself; calls as XML with inline values",
    models=("*Seed-OSS*",),
    states={
        **usual((THINK, UNTHINK), (CALL, UNCALL), CALLING, announced=FUNCTION, waits=True),
        ROLE: {NEWLINE: START, THINK: REASONING, UNTHINK: CONTENT},
    },
    turns={TURN: ROLE, END: ENDED},
    thinking=Thinking(("enable_thinking",), default=True),
    start=Start(on=WAITING, unknown=REASONING),
    visible=("<seed:cot_budget_reflect>", "</seed:cot_budget_reflect>"),
)
