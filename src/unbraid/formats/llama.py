"""Llama 3.1, 3.2, 3.3: calls without a marker, as JSON objects. Llama 4: llama4.py.

    {"name": "tide", "parameters": {"port": "Brest"}}<|eom_id|>

    <|python_tag|>{"name": "tide", "parameters": {"port": "Brest"}}; {"name": "moon", "parameters": {}}<|eom_id|>

    <|python_tag|>brave_search.call(query="tide tables")<|eom_id|>

Only its keys make a JSON object a call: a name, and arguments that are an object. It counts at the start of the output, behind the tag
and behind another call, never in the middle of prose; an answer that merely begins with a brace is an answer. In a string of a call
every token is data but those that end the turn. Behind the tag stands a built-in tool's call, or code for the tool `python`, if that is
offered. Source: the templates at huggingface.co/meta-llama.
"""

from unbraid.codecs import Choice, JsonArray, JsonObject, PythonCalls, RawText
from unbraid.table import CONTENT, ENDED, ROLE, START, UNMARKED, Format, Start, State, calling, special, turn, unmarked

HEADER, HEADER_END = special("<|start_header_id|>"), special("<|end_header_id|>", after="\n\n")
EOT, EOM, END_OF_TEXT = turn("<|eot_id|>"), turn("<|eom_id|>"), turn("<|end_of_text|>")
TURNS = {HEADER: ROLE, EOT: ENDED, EOM: ENDED, END_OF_TEXT: ENDED}
ROLE_ROW = {HEADER_END: START}

OPENING = State("opening", "content", otherwise=CONTENT)
"""Where an answer starts: a call may stand here without a marker."""
BETWEEN = State("between", "content", otherwise=CONTENT)
"""Behind such a call."""
TAGGED = State("tagged", "content", otherwise=CONTENT)
SEPARATED = unmarked("; ", ";", ",")

OBJECT = JsonObject(arguments=("parameters", "arguments"), bare=True)
JSON = Choice((OBJECT, JsonArray(OBJECT, unit=True)))
JSON_CALLING = calling(JSON, then=BETWEEN)

TAG = special("<|python_tag|>")
BUILT_IN, CODE = unmarked(order=1), unmarked(order=2)
BUILT_IN_CALLING = calling(PythonCalls(layout="one", method=".call"), "built-in", then=BETWEEN)
CODE_CALLING = calling(RawText(), "code", then=BETWEEN)

LLAMA3_JSON = Format(
    name="llama3_json",
    about="Llama 3.1, 3.2, 3.3: calls as JSON objects without a marker",
    aliases=("llama3",),
    models=("*Llama-3.1-*", "*Llama-3.2-*", "*Llama-3.3-*"),
    states={
        OPENING: {UNMARKED: JSON_CALLING, TAG: TAGGED},
        CONTENT: {TAG: TAGGED},
        TAGGED: {UNMARKED: JSON_CALLING, BUILT_IN: BUILT_IN_CALLING, CODE: CODE_CALLING, TAG: TAGGED},
        BETWEEN: {SEPARATED: JSON_CALLING, UNMARKED: JSON_CALLING, TAG: TAGGED},
        JSON_CALLING: {},
        BUILT_IN_CALLING: {},
        CODE_CALLING: {},
        ROLE: ROLE_ROW,
        ENDED: {},
    },
    turns=TURNS,
    start=Start(on=OPENING, off=OPENING),
)
