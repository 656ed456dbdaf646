"""IBM Granite: 3.x (a JSON array behind a marker, nothing closes it), 4.0 and 4.1 (Hermes' calls), 4.2 (a thought, Qwen's XML), 20b.

    <|tool_call|>[{"name": "add", "arguments": {"a": 1}}, {"name": "ping", "arguments": {}}]<|end_of_text|>     3.0
    <tool_call>[{"name": "ping", "arguments": {}}]<|end_of_text|>                                               3.1 to 3.3
    Here is my thought process:
    Small number.

    Here is my response:
    Nine.<|end_of_text|>                                                                                        3.2
    <think>Small number.</think><response>Nine.</response><|end_of_text|>                                       3.3
    Checking.
    <tool_call>
    {"name": "ls", "arguments": {"d": "/"}}
    </tool_call><|end_of_text|>                                                                                 4.0, 4.1
    <think>
    Look first.
    </think>
    <tool_call>
    <function=ls>
    </function>
    </tool_call><|end_of_text|>                                                                                 4.2
    <function_call> {"name": "a", "arguments": {}} <function_call> {"name": "b", "arguments": {}}               20b

3.x: the array's bracket ends the calls; text behind it is content. What follows the marker and is no array is no call: the special
marker then leaves nothing, the one of text stays. 3.2's phrases and 3.3's tags are ordinary text. A phrase opens the thought only at the
very beginning. 4.2: all newlines directly after `</think>` are framing. Sources: templates of 3.x, 4.0 and 20b, vLLM's parsers.
"""

from unbraid.codecs import Choice, JsonArray, JsonObject, XmlParameters
from unbraid.table import (
    ANY,
    CONTENT,
    ENDED,
    REASONING,
    ROLE,
    START,
    WAITING,
    Format,
    Start,
    State,
    Thinking,
    calling,
    special,
    text,
    turn,
)  # fmt: skip

TURN, END = turn("<|start_of_role|>"), turn("<|end_of_text|>")
ROLE_END = special("<|end_of_role|>")
TURNS = {TURN: ROLE, END: ENDED}

LINES = "\n" * 16
ARRAY_MARK = special("<|tool_call|>", before=LINES, after=ANY, lead="", control=True)
TEXT_MARK = text("<tool_call>", before=LINES, after=ANY, lead="")
ARRAY_CALLING = calling(JsonArray(single=False), then=CONTENT)

GRANITE_31 = Format(
    name="granite_31",
    about="Granite 3.0, 3.1: never thinks; calls as a JSON array without a closer",
    aliases=("granite_30",),
    models=("*granite-3.*",),
    states={
        CONTENT: {ARRAY_MARK: ARRAY_CALLING, TEXT_MARK: ARRAY_CALLING},
        ARRAY_CALLING: {ARRAY_MARK: ARRAY_CALLING, TEXT_MARK: ARRAY_CALLING},
        ROLE: {ROLE_END: START},
        ENDED: {},
    },
    turns=TURNS,
)

PHRASE = text("Here is my thought process:", "Here's my thought process:", before=ANY, after=ANY)
UNPHRASE = text("Here is my response:", "Here's my response:", before=ANY, after=ANY)
TAG, UNTAG = text("<think>", after="\n"), text("</think>", before="\n", after=LINES, lead="", trail="")
RESPONSE, UNRESPONSE = text("<response>", after="\n"), text("</response>", before="\n")
ANSWERING = State("answer expected", "content", otherwise=CONTENT)
OPENERS = {PHRASE: REASONING, TAG: REASONING}
CALLS = {ARRAY_MARK: ARRAY_CALLING, TEXT_MARK: ARRAY_CALLING}

GRANITE = GRANITE_31.replace(
    name="granite",
    about="Granite 3.2, 3.3: thinks if told to, in phrases or tags of text; calls as a JSON array without a closer",
    aliases=("granite_32", "granite_33"),
    models=("*granite-3.2-*", "*granite-3.3-*"),
    states={
        WAITING: {**OPENERS, **CALLS},
        REASONING: {UNPHRASE: CONTENT, UNTAG: ANSWERING, **CALLS},
        ANSWERING: {RESPONSE: CONTENT, **CALLS},
        CONTENT: {UNRESPONSE: CONTENT, **CALLS},
        ARRAY_CALLING: CALLS,
        ROLE: {ROLE_END: START},
        ENDED: {},
    },
    # The template's switch is off by default, but it only adds an instruction: whoever follows it begins with the phrase.
    thinking=Thinking(("thinking",), default=True),
    start=Start(on=WAITING),
)

CALL, UNCALL = special("<tool_call>", before="\n", after="\n"), special("</tool_call>", before="\n")
JSON_CALLING = calling(JsonObject())

GRANITE4 = Format(
    name="granite4",
    about="Granite 4.0, 4.1: never thinks; calls as JSON, as Hermes writes them",
    aliases=("granite_40", "granite_41"),
    models=("*granite-4.*",),
    states={
        CONTENT: {CALL: JSON_CALLING, UNCALL: CONTENT},
        JSON_CALLING: {UNCALL: CONTENT, CALL: JSON_CALLING},
        ROLE: {ROLE_END: START},
        ENDED: {},
    },
    turns=TURNS,
)

THINK, UNTHINK = special("<think>", after="\n"), special("</think>", before="\n", after=LINES, trail="")
FUNCTION = text("<function=", peek=True)
XML_CALLING = calling(Choice((XmlParameters(frame="\n"), JsonObject())))

GRANITE_THINKING = Format(
    name="granite_thinking",
    about="Granite 4.2: thinks by a switch; calls as XML",
    aliases=("granite_thinking_parser", "granite_42"),
    models=("*granite-4.2-*",),
    states={
        REASONING: {THINK: REASONING, UNTHINK: CONTENT, CALL: XML_CALLING},
        CONTENT: {THINK: REASONING, UNTHINK: CONTENT, CALL: XML_CALLING, FUNCTION: XML_CALLING, UNCALL: CONTENT},
        WAITING: {THINK: REASONING, UNTHINK: CONTENT, CALL: XML_CALLING, FUNCTION: XML_CALLING},
        XML_CALLING: {UNCALL: CONTENT, CALL: XML_CALLING, FUNCTION: XML_CALLING},
        ROLE: {ROLE_END: START},
        ENDED: {},
    },
    turns=TURNS,
    thinking=Thinking(("enable_thinking",), default=True),
    start=Start(on=WAITING, unknown=REASONING),
)

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
