"""Reka Edge: Hermes' calls and a think block between plain-text roles.

    I'm thinking
    </think>

    <tool_call>
    {"name": "f", "arguments": {"a": 1}}
    </tool_call>

    <sep>

Roles are words (`human: `, `assistant: `) behind `<sep>`, which also ends the answer; white space before it is the format's. The prompt
ends in `assistant: <think>\\n`, or in `assistant:`, so that the answer's first blank is the format's, too. Source: the template in
llama.cpp.
"""

from unbraid.codecs import JsonObject
from unbraid.table import (
    ANY, ENDED, REASONING, ROLE, START, Format, Special, Start, Thinking, calling, sequence, special, turn, usual,
)  # fmt: skip

SEPARATOR = Special("<sep>")
ASSISTANT = sequence((SEPARATOR, "assistant:"), (SEPARATOR, " assistant:"), before=ANY, after=" ")
HUMAN = sequence((SEPARATOR, "human:"), (SEPARATOR, " human:"), before=ANY)
END = turn("<sep>", "<|endoftext|>", before=ANY)
THINK, UNTHINK = special("<think>", before=" ", after="\n"), special("</think>", before="\n", after="\n\n")
CALL, UNCALL = special("<tool_call>", before="\n", after="\n"), special("</tool_call>", before="\n")
CALLING = calling(JsonObject())

REKA_EDGE = Format(
    name="reka_edge",
    about="Reka Edge: thinks where the prompt opens the thought; calls as JSON",
    models=("RekaAI/*",),
    states=usual((THINK, UNTHINK), (CALL, UNCALL), CALLING),
    turns={ASSISTANT: START, HUMAN: ROLE, END: ENDED},
    thinking=Thinking(("enable_thinking",), default=False),
    start=Start(on=REASONING),
)
