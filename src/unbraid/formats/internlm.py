"""Shanghai AI Lab: InternLM 2, 2.5, 3 and Intern-S1. Calls as JSON between special tokens, on ChatML.

    One call.<|action_start|><|plugin|>
    {"name": "t", "parameters": {"z": "UTC"}}
    <|action_end|><|im_end|>

A blank between the two opening tokens comes from detokenisers. `<|action_end|>` is a stop token and may be missing. Intern-S1 thinks:
it writes `<think>` itself. With `<|interpreter|>` in place of `<|plugin|>` the body is code, not a call: it stays text. Sources: the
engines' parsers.
"""

from unbraid.codecs import JsonObject
from unbraid.formats.chatml import NEWLINE, TURNS
from unbraid.table import (
    ANY, CONTENT, REASONING, ROLE, START, WAITING, Format, Special, Start, Thinking, calling, sequence, special, usual,
)  # fmt: skip

ACTION, PLUGIN = Special("<|action_start|>"), Special("<|plugin|>")
CALL = sequence((ACTION, PLUGIN), (ACTION, " ", PLUGIN), before="\n", after=ANY)
UNCALL = special("<|action_end|>", before=ANY)
CALLING = calling(JsonObject(arguments=("parameters", "arguments")))

INTERNLM2 = Format(
    name="internlm2",
    about="InternLM 2, 2.5, 3: never thinks; calls as JSON",
    aliases=("internlm",),
    models=("internlm/internlm2*", "internlm/internlm3*"),
    states={**usual(None, (CALL, UNCALL), CALLING), ROLE: {NEWLINE: START}},
    turns=TURNS,
)

THINK, UNTHINK = special("<think>", after="\n"), special("</think>", before="\n", after="\n\n")

INTERNS1 = INTERNLM2.replace(
    name="interns1",
    about="Intern-S1: thinks by a switch, opens the thought itself; calls as JSON",
    aliases=("intern_s1",),
    models=("internlm/Intern-S1*",),
    states={
        **usual((THINK, UNTHINK), (CALL, UNCALL), CALLING, waits=True),
        ROLE: {NEWLINE: START, THINK: REASONING, UNTHINK: CONTENT},
    },
    thinking=Thinking(("enable_thinking",), default=True),
    start=Start(on=WAITING, unknown=REASONING),
)
