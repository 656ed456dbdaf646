"""AI21 Jamba 1.5 and later: calls as one JSON array between special tokens.

     <tool_calls>[
        {"name": "q", "arguments": {"k": "v"}}
    ]</tool_calls><|eom|>

The blank in front is the model's habit, not content. Jamba Reasoning writes a think block (unverified). Source: vLLM's parser.
"""

from unbraid.codecs import JsonArray
from unbraid.table import (
    ANY, CONTENT, ENDED, REASONING, ROLE, START, WAITING, Format, Start, Thinking, calling, special, turn,
)  # fmt: skip

CALLS, UNCALLS = special("<tool_calls>", before=ANY), special("</tool_calls>", before=ANY)
CALLING = calling(JsonArray())
ASSISTANT = special("<|assistant|>", after=" ")

JAMBA = Format(
    name="jamba",
    about="Jamba 1.5, 1.6, 1.7: never thinks; calls as a JSON array",
    models=("ai21labs/*Jamba*",),
    states={
        CONTENT: {CALLS: CALLING, UNCALLS: CONTENT},
        CALLING: {UNCALLS: CONTENT},
        ROLE: {ASSISTANT: START},
        ENDED: {},
    },
    turns={turn("<|bom|>"): ROLE, turn("<|eom|>", "<|endoftext|>"): ENDED},
)

THINK, UNTHINK = special("<think>", after="\n"), special("</think>", before="\n", after="\n\n")

JAMBA_REASONING = JAMBA.replace(
    name="jamba_reasoning",
    about="Jamba Reasoning: thinks, opens the thought itself; calls as a JSON array",
    models=("ai21labs/*Jamba-Reasoning*",),
    states={
        REASONING: {THINK: REASONING, UNTHINK: CONTENT, CALLS: CALLING},
        CONTENT: {THINK: REASONING, UNTHINK: CONTENT, CALLS: CALLING, UNCALLS: CONTENT},
        WAITING: {THINK: REASONING, UNTHINK: CONTENT, CALLS: CALLING},
        CALLING: {UNCALLS: CONTENT},
        ROLE: {ASSISTANT: START, THINK: REASONING, UNTHINK: CONTENT},
        ENDED: {},
    },
    thinking=Thinking((), default=True),
    start=Start(on=WAITING, unknown=REASONING),
)
