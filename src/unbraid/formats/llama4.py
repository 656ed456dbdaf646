"""Llama 4: calls as a list of Python calls, with or without a marker, or as JSON objects, as in llama.py.

    [tide(port='Brest', days=[1, 2]), moon()]<|eot|>

    <|python_start|>[tide(port='Brest')]<|python_end|><|eot|>

A list is a call only if all of it is: an answer that merely begins with a bracket is an answer. Which of the two a model writes is its
prompt's doing: Meta's asks for Python, Hugging Face's template for JSON. Source: the templates at huggingface.co/meta-llama.
"""

from unbraid.codecs import PythonCalls
from unbraid.formats.llama import (
    BETWEEN, BUILT_IN, BUILT_IN_CALLING, CODE, CODE_CALLING, END_OF_TEXT, JSON, JSON_CALLING, LLAMA3_JSON, OPENING, SEPARATED, TAGGED,
)  # fmt: skip
from unbraid.table import CONTENT, ENDED, ROLE, START, UNMARKED, calling, special, turn

HEADER_4, HEADER_4_END = special("<|header_start|>"), special("<|header_end|>", after="\n\n")
EOT_4, EOM_4 = turn("<|eot|>"), turn("<|eom|>")
TURNS_4 = {HEADER_4: ROLE, EOT_4: ENDED, EOM_4: ENDED, END_OF_TEXT: ENDED}
TAG_4 = special("<|python_start|>", "<|python_tag|>")
UNTAG_4 = special("<|python_end|>", after="\n\n")

LLAMA4_JSON = LLAMA3_JSON.replace(
    name="llama4_json",
    about="Llama 4 with a template that asks for JSON: calls as JSON objects without a marker",
    aliases=(),
    models=(),
    states={
        OPENING: {UNMARKED: JSON_CALLING, TAG_4: TAGGED},
        CONTENT: {TAG_4: TAGGED, UNTAG_4: CONTENT},
        TAGGED: {UNMARKED: JSON_CALLING, BUILT_IN: BUILT_IN_CALLING, CODE: CODE_CALLING, TAG_4: TAGGED},
        BETWEEN: {SEPARATED: JSON_CALLING, UNMARKED: JSON_CALLING, TAG_4: TAGGED, UNTAG_4: BETWEEN},
        JSON_CALLING: {},
        BUILT_IN_CALLING: {},
        CODE_CALLING: {},
        ROLE: {HEADER_4_END: START},
        ENDED: {},
    },
    turns=TURNS_4,
)

LIST_CALLING = calling(PythonCalls(json=JSON), "list", then=BETWEEN)
"""JSON is read, too: Hugging Face's template for Llama 4 asks for it."""

LLAMA4_PYTHONIC = LLAMA4_JSON.replace(
    name="llama4_pythonic",
    about="Llama 4: calls as a list of Python calls, with or without a marker",
    aliases=("llama4",),
    models=("*Llama-4-*",),
    states={
        OPENING: {UNMARKED: LIST_CALLING, TAG_4: TAGGED},
        CONTENT: {TAG_4: TAGGED, UNTAG_4: CONTENT},
        TAGGED: {UNMARKED: LIST_CALLING, TAG_4: TAGGED},
        BETWEEN: {SEPARATED: JSON_CALLING, UNMARKED: JSON_CALLING, TAG_4: TAGGED, UNTAG_4: BETWEEN},
        LIST_CALLING: {},
        JSON_CALLING: {},
        ROLE: {HEADER_4_END: START},
        ENDED: {},
    },
)
