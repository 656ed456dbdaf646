"""MiniMax M2, M2.1, M2.5, M2.7: a thought that the prompt opens, an answer, a section of XML calls.

    Ask both.
    </think>

    One moment.
    <minimax:tool_call>
    <invoke name="weather">
    <parameter name="city">Ulm</parameter>
    </invoke>
    </minimax:tool_call>[e~[

Values stand inline and verbatim: white space inside `<parameter>` is data. Always thinks; the prompt always ends in `<think>\\n`.
In the append-think variant nothing is split: the thought is content, its markers included, and the opener, which stands in the
prompt, is put in front of it. Source: the chat templates at huggingface.co/MiniMaxAI.
"""

from unbraid.codecs import XmlParameters
from unbraid.table import (
    ANY, CONTENT, ENDED, REASONING, ROLE, SECTION, START, Format, Start, State, Thinking, calling, special, text, turn,
)  # fmt: skip

TURN, END = turn("]~b]"), turn("[e~[")
NEWLINE = text("\n")

THINK = special("<think>", after="\n")
UNTHINK = special("</think>", before="\n", after="\n\n")
CALLS, UNCALLS = (
    special("<minimax:tool_call>", before="\n", after=ANY, trail="\n"),
    special("</minimax:tool_call>", before=ANY, lead="\n"),
)
INVOKE = text("<invoke name=", before=ANY, lead="\n", peek=True)
CALLING = calling(
    XmlParameters(
        call=("<invoke name=",), uncall=("</invoke>",), parameter=("<parameter name=",), unparameter=("</parameter>",), quoted=True
    )
)  # fmt: skip

MINIMAX_M2 = Format(
    name="minimax_m2",
    about="MiniMax M2 family: always thinks, the prompt opens the thought; calls as XML in a section",
    aliases=("minimax-m2", "minimax"),
    models=("*MiniMax-M2*",),
    states={
        REASONING: {THINK: REASONING, UNTHINK: CONTENT, CALLS: SECTION},
        CONTENT: {THINK: REASONING, UNTHINK: CONTENT, CALLS: SECTION, UNCALLS: CONTENT, INVOKE: CALLING},
        SECTION: {INVOKE: CALLING, UNCALLS: CONTENT},
        CALLING: {UNCALLS: CONTENT, INVOKE: CALLING, CALLS: SECTION},
        ROLE: {NEWLINE: START, THINK: REASONING, UNTHINK: CONTENT},
        ENDED: {},
    },
    turns={TURN: ROLE, END: ENDED},
    thinking=Thinking((), default=True),
    start=Start(on=REASONING),
)

SHOWN = State("thinking aloud", "content", undecided=True, prepend="<think>")
SHOWN_UNTHINK = special("</think>", shown=True)

MINIMAX_M2_APPEND_THINK = MINIMAX_M2.replace(
    name="minimax_m2_append_think",
    about="MiniMax M2 with the thought left in the content, as some clients want it",
    aliases=("minimax-append-think",),
    models=(),
    states={
        SHOWN: {SHOWN_UNTHINK: CONTENT, CALLS: SECTION},
        CONTENT: {CALLS: SECTION, UNCALLS: CONTENT, INVOKE: CALLING},
        SECTION: {INVOKE: CALLING, UNCALLS: CONTENT},
        CALLING: {UNCALLS: CONTENT, INVOKE: CALLING, CALLS: SECTION},
        ROLE: {NEWLINE: START, special("<think>", after="\n"): SHOWN},
        ENDED: {},
    },
    start=Start(on=SHOWN),
)
