"""iFlytek Spark X2.5: GLM's calls written without any newline, values typed by the tool's schema alone.

    Look.</think>Ok.<tool_call>f<arg_key>n</arg_key><arg_value>3</arg_value></tool_call><｜end▁of▁sentence｜>

The text `null` is null only where the schema allows it. Another tokenizer setup spells the wrapper `<|tool_call|>`, `<|/tool_call|>`.
Switched off, the prompt ends in `</think>`. Sources: SGLang's parser, llama.cpp's tests; the end token is unverified.
"""

from unbraid.codecs import KeyValueTags
from unbraid.table import (
    ANY, CONTENT, ENDED, REASONING, ROLE, START, WAITING, Format, Special, Start, Thinking, calling, special, turn,
)  # fmt: skip

ASSISTANT, USER, SYSTEM, TOOL = turn("<|Bot|>"), turn("<|User|>"), turn("<|System|>"), turn("<|Tool|>")
END = turn("<｜end▁of▁sentence｜>", "<end>")

THINK, UNTHINK = special("<think>", after="\n"), special("</think>", before="\n", after="\n")
CALL, UNCALL = (
    special("<tool_call>", "<|tool_call|>", before=ANY),
    special("</tool_call>", "<|/tool_call|>", before=ANY),
)
CALLING = calling(
    KeyValueTags(
        key=(Special("<arg_key>"),), unkey=(Special("</arg_key>"),),
        value=(Special("<arg_value>"),), unvalue=(Special("</arg_value>"),), untyped="string",
    )
)  # fmt: skip

SPARK25 = Format(
    name="spark25",
    about="Spark X2.5: thinks by a switch; calls as key and value elements",
    models=("XHToken/Spark-X2.5*", "*Spark-X2.5*"),
    states={
        REASONING: {THINK: REASONING, UNTHINK: CONTENT, CALL: CALLING},
        CONTENT: {THINK: REASONING, UNTHINK: CONTENT, CALL: CALLING, UNCALL: CONTENT},
        WAITING: {THINK: REASONING, UNTHINK: CONTENT, CALL: CALLING},
        CALLING: {UNCALL: CONTENT, CALL: CALLING},
        ROLE: {},
        ENDED: {},
    },
    turns={ASSISTANT: START, USER: ROLE, SYSTEM: ROLE, TOOL: ROLE, END: ENDED},
    thinking=Thinking(("enable_thinking",), default=True),
    start=Start(on=WAITING, unknown=REASONING),
)
