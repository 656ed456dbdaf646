"""Gemma (Google): Gemma 4, FunctionGemma, Gemma 3. One argument language, two sets of tokens, and a model without calls.

    <|channel>thought
    Use the index.
    <channel|>Sure.<|tool_call>call:find{text:<|"|>a "b", {c}<|"|>,limit:3}<tool_call|><|tool_response>

    <start_function_call>call:alarm{label:<escape>tea, 5 min<escape>,minutes:5}<end_function_call><end_of_turn>

The bars of Gemma 4's tokens are asymmetric. A thought begins with the label `thought`, which may be missing; some outputs lack
the channel's opener instead. The model writes `<|tool_response>` itself after its last call: a stop, never content. Tool results
stand inside the model's turn, which goes on behind `<tool_response|>`; a thought doesn't have to be first, and text may follow
calls. Source: the chat templates at huggingface.co/google.
"""

from unbraid.codecs import Dsl
from unbraid.table import (
    ENDED, REASONING, ROLE, START, Format, Special, Start, State, Thinking, calling, label, special, text, turn,
)  # fmt: skip

TURN, END, EOS = turn("<|turn>"), turn("<turn|>"), turn("<eos>")
RESULT, RESULT_END = turn("<|tool_response>"), turn("<tool_response|>")
NEWLINE = text("\n")
OWN_NEWLINE = "\n"  # one newline before whatever ends a thought is the format's

CHANNEL = special("<|channel>")
UNCHANNEL, STRAY_UNCHANNEL = special("<channel|>", before=OWN_NEWLINE), special("<channel|>")
CALL, CALL_IN_THOUGHT = special("<|tool_call>"), special("<|tool_call>", before=OWN_NEWLINE)
UNCALL = special("<tool_call|>")
THOUGHT = label("thought", after="\n", whole=True)
ORPHAN_THOUGHT = label("thought\n", note="missing_opener")

CONTENT = State("content", "content", blank="segment")
LABEL = State("label", "reasoning", otherwise=REASONING)
BEGINNING = State("beginning", "content", otherwise=CONTENT)
WAITING = State("waiting", "content", otherwise=CONTENT, undecided=True)
CALLING = calling(Dsl(quote=(Special('<|"|>'),)), unfinished="incomplete")

GEMMA4 = Format(
    name="gemma4",
    about="Gemma 4: thinks by a switch, off by default, in channels; calls in its own argument language",
    aliases=("gemma_4",),
    models=("*gemma-4-*", "*gemma4*", "*diffusiongemma-*"),
    states={
        LABEL: {THOUGHT: REASONING, UNCHANNEL: CONTENT, CHANNEL: LABEL, CALL_IN_THOUGHT: CALLING},
        REASONING: {
            UNCHANNEL: CONTENT, CHANNEL: LABEL, CALL_IN_THOUGHT: CALLING,
            turn("<turn|>", before=OWN_NEWLINE): ENDED, turn("<eos>", before=OWN_NEWLINE): ENDED,
            turn("<|tool_response>", before=OWN_NEWLINE): ENDED,
        },
        CONTENT: {CHANNEL: LABEL, STRAY_UNCHANNEL: CONTENT, CALL: CALLING, UNCALL: CONTENT},
        BEGINNING: {ORPHAN_THOUGHT: REASONING, CHANNEL: LABEL, STRAY_UNCHANNEL: CONTENT, CALL: CALLING, UNCALL: CONTENT},
        WAITING: {ORPHAN_THOUGHT: REASONING, CHANNEL: LABEL, STRAY_UNCHANNEL: CONTENT, CALL: CALLING, UNCALL: CONTENT},
        CALLING: {UNCALL: CONTENT, CALL: CALLING, CHANNEL: LABEL},
        ROLE: {NEWLINE: START, CHANNEL: LABEL, STRAY_UNCHANNEL: CONTENT},
        ENDED: {CHANNEL: LABEL, STRAY_UNCHANNEL: CONTENT, CALL: CALLING},
    },
    turns={TURN: ROLE, RESULT_END: START, RESULT: ENDED, END: ENDED, EOS: ENDED},
    thinking=Thinking(("enable_thinking",), default=False),
    start=Start(on=WAITING, off=BEGINNING),
)  # fmt: skip

OLD_TURN, OLD_END = turn("<start_of_turn>"), turn("<end_of_turn>")
FUNCTION, UNFUNCTION = special("<start_function_call>"), special("<end_function_call>")
FUNCTION_CALLING = calling(Dsl(quote=(Special("<escape>"),)), unfinished="incomplete")

FUNCTIONGEMMA = Format(
    name="functiongemma",
    about="FunctionGemma 270M: calls only, in Gemma's argument language",
    models=("*functiongemma-*",),
    states={
        CONTENT: {FUNCTION: FUNCTION_CALLING, UNFUNCTION: CONTENT},
        FUNCTION_CALLING: {UNFUNCTION: CONTENT, FUNCTION: FUNCTION_CALLING},
        ROLE: {NEWLINE: START},
        ENDED: {},
    },
    turns={
        OLD_TURN: ROLE, turn("<end_function_response>"): START, turn("<start_function_response>"): ENDED, OLD_END: ENDED, EOS: ENDED,
    },
)  # fmt: skip

GEMMA3 = Format(
    name="gemma3",
    about="Gemma 3: no thinking, no call syntax of its own: what a prompt asks for (a Python list, JSON) is content here",
    aliases=(),
    models=("*gemma-3-*", "*gemma-3n-*", "*gemma-2-*"),
    states={CONTENT: {}, ROLE: {NEWLINE: START}, ENDED: {}},
    turns={OLD_TURN: ROLE, OLD_END: ENDED, EOS: ENDED},
)
