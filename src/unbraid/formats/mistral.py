"""Mistral: tokenizer versions 3 to 15, from Mistral 7B v0.3 to Mistral Medium 3.5. Calls without a closer, two ways to write them.

    [TOOL_CALLS] [{"name": "sum", "arguments": {"xs": [1, [2]]}}]</s>                              versions 3 and 7
    <think>Two files.</think>Reading.[TOOL_CALLS]read[ARGS]{"path": "a"}</s>                       version 11
    [THINK]Two files.[/THINK]Reading.[TOOL_CALLS]read[ARGS]{"path": "a"}[TOOL_CALLS]read[ARGS]...  versions 13 and 15

A body ends where its JSON value ends; nothing closes it. Models of one version answer in the other's form as well: the first
character says which it is. A history may hold ids, `[TOOL_CALLS]read[CALL_ID]aB3dE6gH9[ARGS]{...}`: nine letters and digits.
SentencePiece tokenizers put a blank behind a control token, so by ids the answer begins with one that isn't its own. Plain
`<think>` is read for the one model that was taught it; nothing in the tokenizer tells. Source: mistral-common.
"""

from unbraid.codecs import Choice, JsonArray, JsonObject, WordThenJson
from unbraid.table import (
    CONTENT,
    ENDED,
    REASONING,
    START,
    WAITING,
    CallIds,
    Format,
    Special,
    Start,
    State,
    Thinking,
    calling,
    special,
    text,
    turn,
)  # fmt: skip

INST_END, RESULTS_END, END = turn("[/INST]"), turn("[/TOOL_RESULTS]"), turn("</s>")
THINK, UNTHINK = special("[THINK]"), special("[/THINK]")
TEXT_THINK, TEXT_UNTHINK = text("<think>"), text("</think>")
CALL, SPACED_CALL = special("[TOOL_CALLS]"), special("[TOOL_CALLS]", trail=" ")

ARRAY = JsonArray(JsonObject(id=("id",), id_length=9))
WORD = WordThenJson(between=((Special("[ARGS]"),),), id=(Special("[CALL_ID]"),), id_length=9)
BETWEEN = State("between calls", "markup", otherwise=CONTENT)
OPENING = State("opening", "content", otherwise=CONTENT, spaced=True)

ARRAY_CALLING = calling(Choice((ARRAY, WORD)), then=BETWEEN, unfinished="incomplete")
WORD_CALLING = calling(Choice((WORD, ARRAY)), then=BETWEEN, unfinished="incomplete")
BARE = WordThenJson(between=WORD.between, id=WORD.id, quiet=True)
BARE_CALLING = calling(Choice((BARE, ARRAY)), then=BETWEEN, unfinished="incomplete")
WORD_IN_THOUGHT = calling(
    Choice((WORD, ARRAY)), "calling in a thought", then=BETWEEN, unfinished="incomplete", refused=REASONING
)
BARE_IN_THOUGHT = calling(
    Choice((BARE, ARRAY)), "calling in a thought", then=BETWEEN, unfinished="incomplete", refused=REASONING
)

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

MISTRAL_V11 = MISTRAL_TEKKEN.replace(
    name="mistral_v11",
    about="Mistral Small 3.2, Devstral 1.1: calls as a name and JSON",
    aliases=(),
    models=("*Mistral-Small-3.2-*", "*Devstral-Small-2507*", "*Devstral-Small-2505*", "*Devstral-Medium-2507*"),
    states={
        CONTENT: {CALL: WORD_CALLING},
        WORD_CALLING: {CALL: WORD_CALLING},
        BETWEEN: {CALL: WORD_CALLING},
        ENDED: {},
    },
)

MAGISTRAL_2506 = MISTRAL_V11.replace(
    name="magistral_2506",
    about="Magistral Small 2506: as version 11, with a thought in plain <think> at the very beginning",
    models=("*Magistral-*-2506*",),
    states={
        WAITING: {TEXT_THINK: REASONING, CALL: WORD_CALLING},
        REASONING: {TEXT_UNTHINK: CONTENT, CALL: WORD_IN_THOUGHT},
        CONTENT: {CALL: WORD_CALLING},
        WORD_CALLING: {CALL: WORD_CALLING},
        WORD_IN_THOUGHT: {CALL: WORD_CALLING},
        BETWEEN: {CALL: WORD_CALLING},
        ENDED: {},
    },
    thinking=Thinking((), default=True),
    start=Start(on=WAITING),
)

MISTRAL_V13 = MISTRAL_V11.replace(
    name="mistral_v13",
    about="Ministral 3, Mistral Large 3, Devstral 2: calls as a name and JSON; doesn't think unless told to",
    models=("*Ministral-3-*", "*Mistral-Large-3-*", "*Devstral-*2-*", "*Devstral-*-2512*"),
    states={
        WAITING: {THINK: REASONING, UNTHINK: CONTENT, CALL: BARE_CALLING},
        REASONING: {UNTHINK: CONTENT, THINK: REASONING, CALL: BARE_IN_THOUGHT},
        CONTENT: {THINK: REASONING, UNTHINK: CONTENT, CALL: BARE_CALLING},
        BARE_CALLING: {CALL: BARE_CALLING, THINK: REASONING, UNTHINK: CONTENT},
        BARE_IN_THOUGHT: {CALL: BARE_CALLING, UNTHINK: CONTENT},
        BETWEEN: {CALL: BARE_CALLING, THINK: REASONING, UNTHINK: CONTENT},
        ENDED: {},
    },
    thinking=Thinking((), default=False),
    start=Start(on=WAITING),
)

MAGISTRAL = MISTRAL_V13.replace(
    name="magistral",
    about="Magistral 2507 and 2509, Ministral 3 Reasoning: as version 13; thinks",
    models=("*Magistral-*", "*Ministral-3-*Reasoning*"),
    thinking=Thinking((), default=True),
)

MISTRAL_V15 = MISTRAL_V13.replace(
    name="mistral_v15",
    about="Mistral Small 4, Medium 3.5: as version 13; thinks if the prompt's settings ask for it",
    aliases=("mistral",),
    models=("*Mistral-Small-4-*", "*Mistral-Medium-3.5*", "mistralai/*"),
)
