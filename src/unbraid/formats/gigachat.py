"""GigaChat 3 (10B-A1.8B, 702B): messages separated by a token; the role after it says whether it is a call.

    Let me look.<|message_sep|>

    function call<|role_sep|>
    {"name": "tide", "arguments": {"port": "Brest"}}</s>

GigaChat 3.1 writes `<|function_call|>{...}`. Only the separators are tokens, the role's name is ordinary text; `<|message_sep|>`
alone is the end of a message. Source: the chat templates at huggingface.co/ai-sage.
"""

from unbraid.codecs import JsonObject
from unbraid.table import (
    ENDED, NO_THINKING, Format, Route, Special, Start, State, calling, junction, sequence, special, turn,
)  # fmt: skip

CONTENT = State("content", "content", blank="segment")
CALLING = calling(JsonObject(arguments=("arguments",), encoded=False))
ROLE_NAME = State("role_name", "markup", capture="head", otherwise=CONTENT)

SEPARATOR, EOS = turn("<|message_sep|>"), turn("</s>")
ROLE_END = special("<|role_sep|>", after="\n")
CALL = special("<|function_call|>")
BARE_CALL = sequence(("function call", Special("<|role_sep|>")), after="\n")  # the separator before it is missing
MESSAGE = junction(Route(CALLING, words="function call"), Route(CONTENT))

GIGACHAT3 = Format(
    name="gigachat3",
    about="GigaChat 3, 3.1: doesn't think; a call is a message of its own",
    models=("ai-sage/GigaChat3-*", "*GigaChat3*", "*GigaChat-3*"),
    states={
        CONTENT: {CALL: CALLING, BARE_CALL: CALLING},
        CALLING: {CALL: CALLING},
        ROLE_NAME: {ROLE_END: MESSAGE, CALL: CALLING},
        ENDED: {CALL: CALLING},
    },
    turns={SEPARATOR: ROLE_NAME, EOS: ENDED},
    start=Start(on=CONTENT, off=CONTENT),
    thinking=NO_THINKING,
)
