"""LFM2 and LFM2.5 (Liquid AI): a list of Python calls between two tokens, ChatML turns.

    <think>Which port?</think><|tool_call_start|>[tide(port='Brest', note='it's spring')]<|tool_call_end|>The tide comes.<|im_end|>

The template writes strings between single quotes without escaping them, so a quote ends a string only if a comma or a bracket follows.
If the system prompt asks for it, the body is a JSON list. Some checkpoints write the body once more as text behind the closing
token, and close it again. Source: the models' templates at huggingface.co/LiquidAI.
"""

from unbraid.codecs import JsonArray, PythonCalls, Repetition
from unbraid.formats.chatml import NEWLINE, TURNS
from unbraid.table import (
    ANY, CONTENT, ENDED, REASONING, ROLE, START, Format, State, Thinking, calling, special, unmarked,
)  # fmt: skip

THINK, UNTHINK = (
    special("<think>", after="\n", trail=""),
    special("</think>", before="\n", after="\n\n", lead="", trail=""),
)
CALL = special("<|tool_call_start|>", before="\n", after=ANY, lead="")
UNCALL = special("<|tool_call_end|>", before=ANY, after=ANY)

BEHIND = State("behind", "content", otherwise=CONTENT)
CALLING = calling(PythonCalls(loose=True, json=JsonArray(unit=True)))
AGAIN, REPEATING = unmarked(trial="closed"), calling(Repetition(), "repeating")

LFM2 = Format(
    name="lfm2",
    about="LFM2, LFM2.5: calls as a list of Python calls; the thinking ones open the thought themselves",
    models=("LiquidAI/LFM2*", "*LFM2-*", "*LFM2.5-*"),
    states={
        REASONING: {THINK: REASONING, UNTHINK: CONTENT, CALL: CALLING},
        CONTENT: {THINK: REASONING, UNTHINK: CONTENT, CALL: CALLING, UNCALL: CONTENT},
        CALLING: {UNCALL: BEHIND, CALL: CALLING},
        BEHIND: {AGAIN: REPEATING, CALL: CALLING, UNCALL: BEHIND, THINK: REASONING},
        REPEATING: {UNCALL: BEHIND},
        ROLE: {NEWLINE: START, THINK: REASONING, UNTHINK: CONTENT},
        ENDED: {},
    },
    turns=TURNS,
    thinking=Thinking((), default=False),
)
