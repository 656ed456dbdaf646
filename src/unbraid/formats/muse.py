"""Muse Glimmer: messages with a recipient; what is addressed to a tool is a call, written as ATEM tags.

     to=self<|message|>Pick a file.<|eom|><|start|>assistant to=fs.read<|message|><atem:function_calls>
    <atem:invoke name="fs.read">
    <atem:parameter name="path">notes today.md</atem:parameter>
    </atem:invoke>
    </atem:function_calls><|eot|>

(the prompt ends in `<|start|>assistant`). `self` is the model's own thought, `user` or no recipient the answer. Tags quoted in
either are text. Newlines stand between tags, none inside a parameter. The end of a message may be missing before the next header,
and that header's `<|start|>assistant` too. Source: the chat template at huggingface.co/meta-models.
"""

from unbraid.codecs import XmlParameters
from unbraid.table import (
    ANY, ENDED, REASONING, WORD, Format, Frame, Route, Special, Start, State, calling, junction, sequence, special, text, turn,
)  # fmt: skip

CONTENT = State("content", "content")
HEADER = State("header", "markup", capture="role", otherwise=CONTENT, undecided=True)
FIRST = State("first_header", "markup", capture="head", otherwise=CONTENT, undecided=True)
BETWEEN = State("between", "markup", otherwise=CONTENT, undecided=True)
SAID = State("said", "markup", otherwise=CONTENT)
"""Between messages, an answer or a call having been said."""
ASIDE = State("aside", "content")
"""Text to a tool that is no call."""
CHANNEL = State("channel", "markup", otherwise=ASIDE)
SECTION = State("section", "markup")
CALLING = calling(
    XmlParameters(
        call=("<atem:invoke name=",), uncall=("</atem:invoke>",),
        parameter=("<atem:parameter name=",), unparameter=("</atem:parameter>",), quoted=True, untyped="json",
    )
)  # fmt: skip

OPEN, EOM, EOT = turn("<|start|>"), turn("<|eom|>"), turn("<|eot|>")
MESSAGE = special("<|message|>")
INLINE = sequence((" to=", WORD, Special("<|message|>")))
CALLS, UNCALLS = text("<atem:function_calls>", before=ANY, after=ANY), text("</atem:function_calls>", before=ANY)
INVOKE = text("<atem:invoke name=", before=ANY, peek=True)

BODY = junction(Route(REASONING, to="self"), Route(CONTENT, to="user"), Route(CHANNEL, to="*"), Route(CONTENT))

MUSE_GLIMMER = Format(
    name="muse_glimmer",
    about="Muse Glimmer: thoughts, answers and calls told apart by their recipient",
    aliases=("muse",),
    models=("meta-models/Muse-Glimmer-*", "*Muse-Glimmer*", "*Muse-Spark*"),
    states={
        REASONING: {EOM: BETWEEN, INLINE: BODY},
        CONTENT: {EOM: SAID, INLINE: BODY},
        FIRST: {MESSAGE: BODY, EOM: BETWEEN},
        HEADER: {MESSAGE: BODY, EOM: BETWEEN},
        BETWEEN: {INLINE: BODY, EOM: BETWEEN},
        SAID: {INLINE: BODY, EOM: SAID},
        CHANNEL: {CALLS: SECTION, INVOKE: CALLING, INLINE: BODY, EOM: SAID},
        ASIDE: {CALLS: SECTION, INVOKE: CALLING, INLINE: BODY, EOM: SAID},
        SECTION: {INVOKE: CALLING, UNCALLS: CHANNEL, EOM: SAID},
        CALLING: {INVOKE: CALLING, UNCALLS: CHANNEL, EOM: SAID},
        ENDED: {INLINE: BODY},
    },
    turns={OPEN: HEADER, EOT: ENDED},
    start=Start(on=FIRST, off=FIRST),
    frames=(
        Frame(REASONING, (" to=self", Special("<|message|>")), (Special("<|eom|>"),)),
        Frame(CONTENT, (" to=user", Special("<|message|>")), (Special("<|eom|>"),)),
        Frame(
            CALLING,
            (" to={name}", Special("<|message|>"), "<atem:function_calls>\n"),
            ("\n</atem:function_calls>", Special("<|eom|>")),
        ),
    ),
    next_message=(Special("<|start|>"), "assistant"),
    answer="<|eom|><|start|>assistant to=user<|message|>",
)
