"""Mistral, tokenizer versions 11 to 15 and Magistral: calls as a name and a JSON object, without a closer.

    <think>Two files.</think>Reading.[TOOL_CALLS]read[ARGS]{"path": "a"}</s>                       version 11, Magistral 2506
    [THINK]Two files.[/THINK]Reading.[TOOL_CALLS]read[ARGS]{"path": "a"}[TOOL_CALLS]read[ARGS]...  versions 13 and 15

A history may hold ids, `[TOOL_CALLS]read[CALL_ID]aB3dE6gH9[ARGS]{...}`: nine letters and digits. Plain `<think>` is read for the one
model that was taught it; nothing in the tokenizer tells. What an earlier version's array looks like is read as well. Source:
mistral-common.
"""

from unbraid.codecs import Choice, WordThenJson
from unbraid.formats.mistral import ARRAY, BETWEEN, CALL, MISTRAL_TEKKEN, WORD
from unbraid.table import CONTENT, ENDED, REASONING, WAITING, Start, Thinking, calling, special, text

THINK, UNTHINK = special("[THINK]"), special("[/THINK]")
TEXT_THINK, TEXT_UNTHINK = text("<think>"), text("</think>")

WORD_CALLING = calling(Choice((WORD, ARRAY)), then=BETWEEN, unfinished="incomplete")
BARE = WordThenJson(between=WORD.between, id=WORD.id, quiet=True)
BARE_CALLING = calling(Choice((BARE, ARRAY)), then=BETWEEN, unfinished="incomplete")
WORD_IN_THOUGHT = calling(
    Choice((WORD, ARRAY)), "calling in a thought", then=BETWEEN, unfinished="incomplete", refused=REASONING
)
BARE_IN_THOUGHT = calling(
    Choice((BARE, ARRAY)), "calling in a thought", then=BETWEEN, unfinished="incomplete", refused=REASONING
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
