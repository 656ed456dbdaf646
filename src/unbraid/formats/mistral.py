"""Mistral, tokenizer versions 3 and 7: calls as one JSON array, without a closer. Later ones: mistral_v11.py.

    [TOOL_CALLS] [{"name": "sum", "arguments": {"xs": [1, [2]]}}]</s>

A body ends where its JSON value ends; nothing closes it. Models of one version answer in another's form as well: the first character
says which it is. SentencePiece tokenizers put a blank behind a control token, so by ids the answer begins with one that isn't its own.
Source: mistral-common.
"""

from unbraid.codecs import Choice, JsonArray, JsonObject, WordThenJson
from unbraid.table import CONTENT, ENDED, START, CallIds, Format, Special, Start, State, calling, special, turn

INST_END, RESULTS_END, END = turn("[/INST]"), turn("[/TOOL_RESULTS]"), turn("</s>")
CALL, SPACED_CALL = special("[TOOL_CALLS]"), special("[TOOL_CALLS]", trail=" ")

ARRAY = JsonArray(JsonObject(id=("id",), id_length=9))
WORD = WordThenJson(between=((Special("[ARGS]"),),), id=(Special("[CALL_ID]"),), id_length=9)
BETWEEN = State("between calls", "markup", otherwise=CONTENT)
OPENING = State("opening", "content", otherwise=CONTENT, spaced=True)

ARRAY_CALLING = calling(Choice((ARRAY, WORD)), then=BETWEEN, unfinished="incomplete")

MISTRAL_V3 = Format(
    name="mistral_v3",
    about="Mistral 7B v0.3, Mixtral 8x22B, Large 2407 (SentencePiece): calls as a JSON array",
    aliases=("mistral_v2",),
    models=("*Mistral-7B-Instruct-v0.3*", "*Mixtral-8x*-Instruct*", "*Mistral-Large-Instruct-2407*"),
    states={
        CONTENT: {SPACED_CALL: ARRAY_CALLING},
        OPENING: {SPACED_CALL: ARRAY_CALLING},
        ARRAY_CALLING: {SPACED_CALL: ARRAY_CALLING},
        BETWEEN: {SPACED_CALL: ARRAY_CALLING},
        ENDED: {},
    },
    turns={INST_END: START, RESULTS_END: START, END: ENDED},
    start=Start(on=OPENING, off=OPENING),
    ids=CallIds("?" * 9, written=True),
)

MISTRAL_V7 = MISTRAL_V3.replace(
    name="mistral_v7",
    about="Mistral Large 2411 (SentencePiece): calls as a JSON array",
    aliases=(),
    models=("*Mistral-Large-Instruct-2411*", "*Pixtral-Large-Instruct*"),
)

MISTRAL_TEKKEN = MISTRAL_V3.replace(
    name="mistral_v7_tekken",
    about="Mistral Nemo (version 3), Small 2501 and 3.1 (version 7), with the Tekken tokenizer: calls as a JSON array",
    aliases=("mistral_v3_tekken",),
    models=(
        "*Mistral-Nemo-*",
        "*Mistral-Small-24B-Instruct-2501*",
        "*Mistral-Small-3.1-*",
        "*Pixtral-12B-*",
        "*Ministral-8B-Instruct-2410*",
    ),
    states={
        CONTENT: {CALL: ARRAY_CALLING},
        ARRAY_CALLING: {CALL: ARRAY_CALLING},
        BETWEEN: {CALL: ARRAY_CALLING},
        ENDED: {},
    },
    start=Start(),
)
