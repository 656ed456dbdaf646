"""Inkling, Inkling-Small: blocks of a kind; the kind's token says what a block is.

    <|content_thinking|>Two dice.<|end_message|><|message_model|>roll<|content_invoke_tool_json|>{"args":{"n":2},"name":"roll"}
    <|end_message|><|message_model|><|content_text|>Rolling.<|end_message|><|content_model_end_sampling|>

(on one line; the prompt ends in `<|message_model|>`). Between a block's opener and its kind stands the author's name: of a call, the
tool's name once more. Where no kind follows, that text was no name but the answer. Blocks come in any order and number. Bodies are
verbatim. Source: the response template in the repositories at huggingface.co/thinkingmachines.
"""

from unbraid.codecs import JsonObject
from unbraid.table import ENDED, REASONING, Format, Frame, Special, Start, State, Thinking, calling, special, turn

CONTENT = State("content", "content")
UNSTRUCTURED = State("unstructured", "content", odd="unstructured_call")
"""Free text for a tool, or a tool's error: no call could hold it."""
AUTHOR = State("author", "markup", capture="head", otherwise=CONTENT, cut="name", undecided=True)
BETWEEN = State("between", "markup", otherwise=CONTENT, undecided=True)
SAID = State("said", "markup", otherwise=CONTENT)
"""Between blocks, an answer or a call having been said."""
OTHERS = State("others", "markup", header=True)
"""The block of somebody else."""
TOLD = State("told", "content", undecided=True)
CALLING = calling(JsonObject(arguments=("args", "arguments", "parameters")))

MODEL, END = turn("<|message_model|>"), turn("<|end_message|>")
USER, SYSTEM, TOOL = turn("<|message_user|>"), turn("<|message_system|>"), turn("<|message_tool|>")
STOP, EOS = turn("<|content_model_end_sampling|>"), turn("<|endoftext|>")
THINKING, TEXT = special("<|content_thinking|>"), special("<|content_text|>")
CALL_JSON, CALL_TEXT = special("<|content_invoke_tool_json|>"), special("<|content_invoke_tool_text|>")
ERROR = special("<|content_tool_error|>")
KINDS = {THINKING: REASONING, TEXT: CONTENT, CALL_JSON: CALLING, CALL_TEXT: UNSTRUCTURED, ERROR: UNSTRUCTURED}

INKLING = Format(
    name="inkling",
    about="Inkling, Inkling-Small: blocks for thought, text and calls",
    models=("thinkingmachines/Inkling*", "*Inkling-Small*"),
    states={
        AUTHOR: {**KINDS, END: BETWEEN},
        REASONING: {**KINDS, END: BETWEEN},
        CONTENT: {**KINDS, END: SAID},
        UNSTRUCTURED: {**KINDS, END: SAID},
        CALLING: {END: SAID},
        BETWEEN: {**KINDS, END: BETWEEN},
        SAID: {**KINDS, END: SAID},
        OTHERS: {TEXT: TOLD, END: BETWEEN},
        TOLD: {END: BETWEEN},
        ENDED: KINDS,
    },
    turns={MODEL: AUTHOR, USER: OTHERS, SYSTEM: OTHERS, TOOL: OTHERS, STOP: ENDED, EOS: ENDED},
    start=Start(on=AUTHOR, off=AUTHOR),
    thinking=Thinking(("reasoning_effort",), default=True),
    frames=(
        Frame(REASONING, (Special("<|content_thinking|>"),), (Special("<|end_message|>"),)),
        Frame(CONTENT, (Special("<|content_text|>"),), (Special("<|end_message|>"),)),
        Frame(CALLING, ("{name}", Special("<|content_invoke_tool_json|>")), (Special("<|end_message|>"),)),
    ),
    next_message=(Special("<|message_model|>"),),
    answer="<|end_message|><|message_model|><|content_text|>",
)
