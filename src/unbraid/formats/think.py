"""Models that think and have no call syntax of their own. With Hermes' calls: hf.py.

    <think>
    Two ports.
    </think>

    Brest.

The thought is opened by the prompt or by the model; the first `</think>` ends it, what comes later is text. Without one, all is thought.
The newlines are a habit of all these models; no template defines them. `kimi_vl` spells its tags with triangles, in ordinary
tokens: `◁think▷`. Turn tokens are those of the bases such models are made from.
"""

from unbraid.formats.chatml import NEWLINE, TURNS
from unbraid.table import ENDED, REASONING, ROLE, START, VERBATIM, Format, Start, State, Thinking, special, text, turn

THINK, UNTHINK = special("<think>", after="\n"), special("</think>", before="\n", after="\n\n")
HEADER_END = special("<|end_header_id|>", after="\n\n")
EITHER = State("waiting", "content", otherwise=VERBATIM, undecided=True)
ROLE_ROW = {NEWLINE: START, HEADER_END: START, THINK: REASONING}
ALL_TURNS = {
    **TURNS,
    turn("<|start_header_id|>"): ROLE, turn("<|eot_id|>"): ENDED,
    turn("<｜User｜>"): ROLE, turn("<｜Assistant｜>"): START, turn("<｜end▁of▁sentence｜>"): ENDED,
    turn("<start_of_turn>"): ROLE, turn("<end_of_turn>"): ENDED,
}  # fmt: skip

THINK_ONLY = Format(
    name="think",
    about="any model with a think block and no call syntax of its own",
    aliases=("think_only",),
    models=("XiaomiMiMo/MiMo-7B-*", "microsoft/Phi-4-*reasoning*"),
    states={
        EITHER: {THINK: REASONING, UNTHINK: VERBATIM},
        REASONING: {THINK: REASONING, UNTHINK: VERBATIM},
        VERBATIM: {},
        ROLE: {**ROLE_ROW, UNTHINK: VERBATIM},
        ENDED: {},
    },
    turns=ALL_TURNS,
    thinking=Thinking((), default=True),
    start=Start(on=EITHER, off=VERBATIM, unknown=REASONING),
)

PLAIN = Format(
    name="plain",
    about="any model that neither thinks nor calls: all of it is content",
    aliases=("content_only",),
    states={VERBATIM: {}, ROLE: {NEWLINE: START, HEADER_END: START}, ENDED: {}},
    turns=ALL_TURNS,
    start=Start(on=VERBATIM, off=VERBATIM),
)

TRIANGLE, UNTRIANGLE = text("◁think▷"), text("◁/think▷")

KIMI_VL = Format(
    name="kimi_vl",
    about="Kimi-VL Thinking: opens the thought itself, with tags of ordinary text; no calls",
    aliases=("kimi",),
    models=("moonshotai/Kimi-VL-*Thinking*",),
    states={
        EITHER: {TRIANGLE: REASONING, UNTRIANGLE: VERBATIM},
        REASONING: {TRIANGLE: REASONING, UNTRIANGLE: VERBATIM},
        VERBATIM: {},
        ROLE: {special("<|im_middle|>"): START, TRIANGLE: REASONING, UNTRIANGLE: VERBATIM},
        ENDED: {},
    },
    turns={
        turn("<|im_assistant|>"): ROLE, turn("<|im_user|>"): ROLE, turn("<|im_system|>"): ROLE, turn("<|im_end|>", "[EOS]"): ENDED,
    },
    thinking=Thinking((), default=True),
    start=Start(on=EITHER, off=VERBATIM),
)  # fmt: skip
