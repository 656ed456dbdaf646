"""IBM Granite 20b function calling: each call an object behind a marker of text, without a closer.

    <function_call> {"name": "a", "arguments": {}} <function_call> {"name": "b", "arguments": {}}<|endoftext|>

Its roles are words, and no token sets turns apart: a prompt is read whole. Sources: the model's template, vLLM's parser.
"""

from unbraid.codecs import JsonObject
from unbraid.table import ANY, CONTENT, ENDED, Format, State, calling, text, turn

FUNCTION_CALL = text("<function_call>", after=ANY)
BETWEEN = State("between calls", "markup", otherwise=CONTENT)
OBJECT_CALLING = calling(JsonObject(), then=BETWEEN)

GRANITE_20B = Format(
    name="granite_20b_fc",
    about="Granite 20b function calling: never thinks; each call as a JSON object behind a marker of text, without a closer",
    aliases=("granite-20b-fc",),
    models=("*granite-20b-functioncalling*",),
    states={
        CONTENT: {FUNCTION_CALL: OBJECT_CALLING},
        OBJECT_CALLING: {FUNCTION_CALL: OBJECT_CALLING},
        BETWEEN: {FUNCTION_CALL: OBJECT_CALLING},
        ENDED: {},
    },
    turns={turn("<|endoftext|>"): ENDED},  # its roles are words (`ASSISTANT:`), which a text may hold as well
)
