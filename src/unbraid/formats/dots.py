"""rednote dots: dots.llm1 and later. A section of XML calls, all in ordinary text.

    Ok.
    <dots_function_call>
    <invoke name="search">
    <parameter name="query">weather in Ulm</parameter>
    </invoke>
    </dots_function_call>

White space around a value isn't part of it. A JSON object or array in the section is read as well. Thinking models write Qwen's think
block. The turn tokens are dots.llm1's. Source: SGLang's parser; the template wasn't seen.
"""

from unbraid.codecs import JsonArray, XmlParameters
from unbraid.formats.chatml import NEWLINE, TURNS
from unbraid.table import (
    ANY, CONTENT, ENDED, REASONING, ROLE, SECTION, START, WAITING, Format, Start, Thinking, calling, special, text, turn,
)  # fmt: skip

THINK, UNTHINK = special("<think>", after="\n"), special("</think>", before="\n", after="\n\n")
CALLS, UNCALLS = text("<dots_function_call>", before="\n", after=ANY), text("</dots_function_call>", before=ANY)
INVOKE, JSON = text("<invoke name=", before=ANY, peek=True), text("{", "[", before=ANY, peek=True)
CALLING = calling(
    XmlParameters(
        call=("<invoke name=",), uncall=("</invoke>",), parameter=("<parameter name=",), unparameter=("</parameter>",),
        frame=ANY, quoted=True,
    )
)  # fmt: skip
JSON_CALLING = calling(JsonArray(), "calling as JSON")

DOTS = Format(
    name="dots",
    about="dots.llm: thinks by a switch; calls as XML in a section of ordinary text",
    models=("rednote-hilab/dots*", "dots-studio/dots*"),
    states={
        REASONING: {THINK: REASONING, UNTHINK: CONTENT, CALLS: SECTION},
        CONTENT: {THINK: REASONING, UNTHINK: CONTENT, CALLS: SECTION},
        WAITING: {THINK: REASONING, UNTHINK: CONTENT, CALLS: SECTION},
        SECTION: {INVOKE: CALLING, JSON: JSON_CALLING, UNCALLS: CONTENT},
        CALLING: {UNCALLS: CONTENT, INVOKE: CALLING},
        JSON_CALLING: {UNCALLS: CONTENT},
        ROLE: {NEWLINE: START, THINK: REASONING, UNTHINK: CONTENT},
        ENDED: {},
    },
    turns={
        **TURNS, turn("<|system|>"): ROLE, turn("<|userprompt|>"): ROLE, turn("<|response|>"): START,
        turn("<|endofsystem|>"): ROLE, turn("<|endofuserprompt|>"): ROLE, turn("<|endofresponse|>"): ENDED,
    },
    thinking=Thinking(("enable_thinking",), default=True),
    start=Start(on=WAITING),
)  # fmt: skip
