"""Models without a syntax of their own: calls as the JSON that their prompts show them. As Python: pythonic.py.

    [{"name": "tide", "arguments": {"port": "Brest"}}]          json, xlam

    ```json
    {"tool_calls": [{"name": "tide", "arguments": {"port": "Brest"}}]}
    ```

Nothing marks a call, so it stands alone at the start of the answer, and all of the JSON is a call or none of it. Generic JSON has to
name a tool that was offered: any JSON may be the answer that was asked for. Turns are those of whichever tokenizer it is. Source:
the parser `xlam` of vLLM 0.32, and the models' cards.
"""

from unbraid.codecs import JsonArray, JsonObject
from unbraid.formats.chatml import NEWLINE
from unbraid.formats.think import ALL_TURNS, HEADER_END
from unbraid.table import (
    ANY, CONTENT, ENDED, REASONING, ROLE, START, UNMARKED, Format, Start, State, calling, special, text, turn, unmarked,
)  # fmt: skip

ROLE_ROW = {NEWLINE: START, HEADER_END: START}

OPENING = State("opening", "content", otherwise=CONTENT)
BETWEEN = State("between", "content", otherwise=CONTENT)
FENCE = unmarked("```json", "```")
FENCE_END = text("```", before=ANY)

ANY_KEYS = JsonObject(
    name=("name", "tool"), arguments=("arguments", "parameters", "tool_input", "args"), bare=True, offered=True
)
CALLS = JsonArray(ANY_KEYS, unit=True, under=("tool_calls",))
CALLING, FENCED = calling(CALLS, then=BETWEEN), calling(CALLS, "fenced")

JSON = Format(
    name="json",
    about="any model that is shown JSON calls: one or a list of them, alone or in a fence",
    aliases=("generic_json",),
    states={
        OPENING: {UNMARKED: CALLING, FENCE: FENCED},
        CONTENT: {},
        CALLING: {},
        FENCED: {FENCE_END: BETWEEN},
        BETWEEN: {UNMARKED: CALLING, FENCE: FENCED},
        ROLE: ROLE_ROW,
        ENDED: {},
    },
    turns={**ALL_TURNS, turn("<|eom_id|>"): ENDED},
    start=Start(on=OPENING, off=OPENING),
)

ELEMENTS = JsonArray(JsonObject(arguments=("arguments",), bare=True), unit=True)
LIST, FENCED_LIST, WRAPPED_LIST = (
    calling(ELEMENTS, "list", then=BETWEEN),
    calling(ELEMENTS, "fenced"),
    calling(ELEMENTS, "wrapped"),
)
THINK, UNTHINK = special("<think>", after="\n"), special("</think>", before="\n", after="\n\n")
WRAP, UNWRAP = special("<tool_call>", before=ANY, after=ANY), special("</tool_call>", before=ANY)
ANNOUNCED = special("[TOOL_CALLS]", before=ANY, after=ANY)

XLAM = JSON.replace(
    name="xlam",
    about="xLAM 2: calls as a JSON list, alone, in a fence, or behind a marker of another family",
    aliases=(),
    models=("*xLAM*",),
    states={
        OPENING: {
            UNMARKED: LIST,
            FENCE: FENCED_LIST,
            ANNOUNCED: LIST,
            WRAP: WRAPPED_LIST,
            THINK: REASONING,
            UNTHINK: OPENING,
        },
        REASONING: {UNTHINK: OPENING},
        CONTENT: {ANNOUNCED: LIST, WRAP: WRAPPED_LIST, THINK: REASONING, UNTHINK: OPENING},
        LIST: {},
        FENCED_LIST: {FENCE_END: BETWEEN},
        WRAPPED_LIST: {UNWRAP: BETWEEN},
        BETWEEN: {UNMARKED: LIST, FENCE: FENCED_LIST, ANNOUNCED: LIST, WRAP: WRAPPED_LIST, UNWRAP: BETWEEN},
        ROLE: ROLE_ROW,
        ENDED: {},
    },
)
