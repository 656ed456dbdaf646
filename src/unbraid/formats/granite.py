"""IBM Granite 3: a JSON array behind a marker, and nothing closes it. Later ones: granite4.py.

    <|tool_call|>[{"name": "add", "arguments": {"a": 1}}, {"name": "ping", "arguments": {}}]<|end_of_text|>     3.0
    <tool_call>[{"name": "ping", "arguments": {}}]<|end_of_text|>                                               3.1 to 3.3
    Here is my thought process:
    Small number.

    Here is my response:
    Nine.<|end_of_text|>                                                                                        3.2
    <think>Small number.</think><response>Nine.</response><|end_of_text|>                                       3.3

The array's bracket ends the calls; text behind it is content. What follows the marker and is no array is no call: the special marker
then leaves nothing, the one of text stays. 3.2's phrases and 3.3's tags are ordinary text. A phrase opens the thought only at the very
beginning. Sources: templates of 3.x, vLLM's parsers.
"""

from unbraid.codecs import JsonArray
from unbraid.table import (
    ANY, CONTENT, ENDED, REASONING, ROLE, START, WAITING, Format, Start, State, Thinking, calling, special, text, turn,
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
