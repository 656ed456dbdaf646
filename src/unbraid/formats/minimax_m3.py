"""MiniMax M3: a thought in its own tags, an answer, a section of calls whose arguments are nested elements.

    <mm:think>Two days.</mm:think>Here you are.]<]minimax[>[<tool_call>
    ]<]minimax[>[<invoke name="plan">]<]minimax[>[<days>]<]minimax[>[<item>1]<]minimax[>[</item>]<]minimax[>[</days>
    ]<]minimax[>[</invoke>
    ]<]minimax[>[</tool_call>[e~[

(`<days>` to `</invoke>` on one line.) `]<]minimax[>[` is one token before every tag; under a grammar the model may spell it, and the
think tags too, so both count as text as well. Without the sign a tag is data. A thought-free answer may begin with a lone
`</mm:think>`, which is dropped; later ones are content. The prompt's system turn always holds think tags that mean nothing.
Source: the chat template at huggingface.co/MiniMaxAI.
"""

from unbraid.codecs import Elements
from unbraid.table import (
    ANY, CONTENT, ENDED, REASONING, ROLE, SECTION, START, Format, Marker, Special, Start, State, Thinking, calling, sequence, text, turn,
)  # fmt: skip

TURN, END = turn("]~b]"), turn("[e~[")
NEWLINE = text("\n")

THINK = Marker(((Special("<mm:think>", loose=True),),))
UNTHINK = Marker(((Special("</mm:think>", loose=True),),))
SIGN = Special("]<]minimax[>[", loose=True)
CALLS = sequence((SIGN, "<tool_call>"), (SIGN, " <tool_call>"), after=ANY, trail="\n")
UNCALLS = sequence((SIGN, "</tool_call>"), (SIGN, " </tool_call>"), before=ANY, lead="\n")
INVOKE = sequence((SIGN, "<invoke"), (SIGN, " <invoke"), before=ANY, lead="\n", peek=True)
CALLING = calling(Elements(sign=(SIGN,)))

OPENING = State("opening", "content", otherwise=CONTENT)
WAITING = State("waiting", "content", otherwise=CONTENT, undecided=True)
BEGUN = {THINK: REASONING, UNTHINK: OPENING, CALLS: SECTION, UNCALLS: CONTENT}

MINIMAX_M3 = Format(
    name="minimax_m3",
    about="MiniMax M3: thinks as the prompt says or as it likes; calls as nested elements in a section",
    aliases=("minimax-m3",),
    models=("*MiniMax-M3*",),
    states={
        WAITING: BEGUN,
        OPENING: BEGUN,
        REASONING: {UNTHINK: CONTENT, THINK: REASONING, CALLS: SECTION},
        CONTENT: {THINK: REASONING, CALLS: SECTION, UNCALLS: CONTENT},
        SECTION: {INVOKE: CALLING, UNCALLS: CONTENT},
        CALLING: {UNCALLS: CONTENT, INVOKE: CALLING},
        ROLE: {NEWLINE: START, THINK: REASONING, UNTHINK: OPENING},
        ENDED: {},
    },
    turns={TURN: ROLE, END: ENDED},
    thinking=Thinking(("thinking_mode",), default=True),
    start=Start(on=WAITING, off=OPENING),
)
