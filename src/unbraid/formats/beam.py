"""Beam: Harmony's messages, but a call's arguments are tags, and its recipient is the tool's bare name.

    <|channel|>analysis<|message|>Two cities.<|end|><|start|>assistant to=weather.lookup<|channel|>analysis <|constrain|>xml<|message|>
    <rfl:parameter name="city">
    Oslo
    </rfl:parameter><|call|><|start|>assistant<|channel|>final<|message|>Rain.<|return|>

(the first line continues with the tag; the prompt ends in `<|start|>assistant`). The recipient stands before the channel, which is
`analysis` for thoughts and calls alike: whoever has a recipient is a call. One newline on each side of a value is the format's; models
leave it out. Any of `<|call|>` and `<|end|>` may end a call. Source: the response template of the tokenizer, and the parser `beam` of
SGLang 0.5.23.
"""

from unbraid.codecs import XmlParameters
from unbraid.formats.harmony import (
    BETWEEN, BODIES, CHANNEL, CHANNEL_TOKEN, CHANNELED, CONSTRAIN, END, FIRST, HARMONY, HEADER, MESSAGE, MESSAGE_TOKEN, PREAMBLE, SAID,
    TYPED, UNKNOWN,
)  # fmt: skip
from unbraid.table import CONTENT, REASONING, Frame, Route, Special, calling, junction

CALLING = calling(
    XmlParameters(
        call=(), uncall=(), parameter=("<rfl:parameter name=",), unparameter=("</rfl:parameter>",), quoted=True, frame="\n",
    )
)  # fmt: skip

BODY = junction(
    Route(CALLING, to="*"),
    Route(REASONING, channel="analysis"),
    Route(CONTENT, channel="final"),
    Route(PREAMBLE, channel="commentary"),
    Route(UNKNOWN),
)
PARTS = {CHANNEL: CHANNELED, CONSTRAIN: TYPED, MESSAGE: BODY, END: BETWEEN}
THOUGHT, ANSWER, PREAMBLE_FRAME, _ = HARMONY.frames

BEAM = HARMONY.replace(
    name="beam",
    about="Beam: channels for reasoning and the answer; calls as messages to a tool, their arguments as tags",
    aliases=(),
    models=("*reflection-ai/Beam*",),
    states={**BODIES, CALLING: {END: SAID}, FIRST: PARTS, HEADER: PARTS, CHANNELED: PARTS, TYPED: PARTS},
    frames=(
        THOUGHT,
        ANSWER,
        PREAMBLE_FRAME,
        Frame(
            CALLING,
            (" to={name}", CHANNEL_TOKEN, "analysis ", Special("<|constrain|>"), "xml", MESSAGE_TOKEN),
            (Special("<|call|>"),),
        ),
    ),
)
