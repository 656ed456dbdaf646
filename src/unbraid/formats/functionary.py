"""Functionary 3.1 and 3.2 (MeetKai), on Llama 3's turns.

    <function=tide>{"port": "Brest"}</function><function=moon>{}</function><|eom_id|>      3.1; code behind <|python_tag|>

    >>>all
    I look it up.>>>tide
    {"port": "Brest"}<|eot_id|>                                                              3.2

In 3.2 every part has a recipient in its first line: `all` is the reader, `python` takes code, any other is a tool. The prompt ends in
the first `>>>`. Source: the templates of the models at huggingface.co/meetkai, as llama.cpp ships them.
"""

from unbraid.codecs import JsonArguments, RawText, XmlParameters
from unbraid.formats.llama import BETWEEN, CODE_CALLING, ROLE_ROW, TAG, TAGGED, TURNS
from unbraid.table import CONTENT, ENDED, ROLE, UNMARKED, Format, Frame, Route, Start, State, calling, junction, text

FUNCTION = text("<function=", peek=True)
CALLING = calling(XmlParameters())

FUNCTIONARY_V31 = Format(
    name="functionary_v31",
    about="Functionary 3.1: arguments as JSON in a function's tag, code behind Llama's tag",
    models=("*functionary-small-v3.1*",),
    states={
        CONTENT: {FUNCTION: CALLING, TAG: TAGGED},
        CALLING: {FUNCTION: CALLING, TAG: TAGGED},
        TAGGED: {UNMARKED: CODE_CALLING},
        CODE_CALLING: {},
        BETWEEN: {FUNCTION: CALLING, TAG: TAGGED},
        ROLE: ROLE_ROW,
        ENDED: {},
    },
    turns=TURNS,
)

ARROWS, LINE = text(">>>"), text("\n")
HEAD = State("recipient", "markup", capture="head", otherwise=CONTENT)
ARGUMENTS, CODE = calling(JsonArguments(), "arguments"), calling(RawText(), "code")

FUNCTIONARY_V32 = FUNCTIONARY_V31.replace(
    name="functionary_v32",
    about="Functionary 3.2: parts with a recipient each",
    models=("*functionary-*-v3.2*",),
    states={
        HEAD: {
            LINE: junction(Route(CONTENT, words="all"), Route(CODE, words="python"), Route(ARGUMENTS)),
            ARROWS: HEAD,
        },
        CONTENT: {ARROWS: HEAD},
        ARGUMENTS: {ARROWS: HEAD},
        CODE: {ARROWS: HEAD},
        ROLE: ROLE_ROW,
        ENDED: {},
    },
    start=Start(on=HEAD, off=HEAD),
    frames=(Frame(CONTENT, ("all\n",), ()), Frame(ARGUMENTS, ("{name}\n",), ())),
    next_message=(">>>",),
)
