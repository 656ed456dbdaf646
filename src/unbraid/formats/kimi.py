"""Kimi K2 family (K2-Instruct, K2-Thinking, K2.5, K2.6, K2.7-Code): a section of calls, each an id, a separator and JSON.

    <think>Need the log.</think>I'll look.<|tool_calls_section_begin|><|tool_call_begin|>functions.read_log:4
    <|tool_call_argument_begin|>{"lines": 20}<|tool_call_end|><|tool_calls_section_end|><|im_end|>

(on one line). The id carries the name and a counter over the conversation; it must reach the client as the model wrote it, because
the template prints it back. Templates put no white space anywhere, so none belongs to a marker. Source: the templates at
huggingface.co/moonshotai.
"""

from unbraid.codecs import NameThenJson
from unbraid.table import (
    ANY, ENDED, REASONING, ROLE, SECTION, START, CallIds, Format, Special, Start, State, Thinking, calling, special, turn,
)  # fmt: skip

CONTENT = State("content", "content", blank="message")
WAITING = State("waiting", "content", otherwise=CONTENT, undecided=True)
OPENING = State("opening", "content", otherwise=CONTENT)
"""Thinking is off; a thought that the prompt or the model opens all the same is one."""

ASSISTANT, USER, SYSTEM = turn("<|im_assistant|>"), turn("<|im_user|>"), turn("<|im_system|>")
MIDDLE = special("<|im_middle|>")
END = special("<|im_end|>")  # inside a string of the arguments it's data, like every other marker
EOS = special("[EOS]")

THINK, UNTHINK = special("<think>"), special("</think>")
CALLS, UNCALLS = special("<|tool_calls_section_begin|>"), special("<|tool_calls_section_end|>", before=ANY)
CALL, UNCALL = special("<|tool_call_begin|>"), special("<|tool_call_end|>", before=ANY)
ID_THEN_JSON = NameThenJson(
    separator=((Special("<|tool_call_argument_begin|>"),),), prefix="functions.", number=":", closed="marker"
)
CALLING = calling(ID_THEN_JSON)

KIMI_K2 = Format(
    name="kimi_k2",
    about="Kimi K2-Thinking, K2.5, K2.6, K2.7-Code: thinks",
    models=("*Kimi-K2-Thinking*", "*Kimi-K2.5*", "*Kimi-K2.6*", "*Kimi-K2.7*"),
    states={
        REASONING: {THINK: REASONING, UNTHINK: CONTENT, CALLS: SECTION, CALL: CALLING},
        CONTENT: {UNTHINK: CONTENT, CALLS: SECTION, CALL: CALLING, UNCALLS: CONTENT},
        WAITING: {THINK: REASONING, UNTHINK: CONTENT, CALLS: SECTION, CALL: CALLING},
        OPENING: {THINK: REASONING, UNTHINK: CONTENT, CALLS: SECTION, CALL: CALLING},
        SECTION: {CALL: CALLING, UNCALLS: CONTENT},
        CALLING: {UNCALL: SECTION, UNCALLS: CONTENT, CALL: CALLING, CALLS: SECTION},
        ROLE: {MIDDLE: START, THINK: REASONING, UNTHINK: CONTENT},
        ENDED: {},
    },
    turns={ASSISTANT: ROLE, USER: ROLE, SYSTEM: ROLE, END: ENDED, EOS: ENDED},
    thinking=Thinking(("thinking", "enable_thinking"), default=True),
    start=Start(on=WAITING, off=OPENING, unknown=REASONING),
    ids=CallIds("functions.{name}:{index}", written=True),
)

KIMI_K2_INSTRUCT = KIMI_K2.replace(
    name="kimi_k2_instruct",
    about="Kimi K2-Instruct, K2-Instruct-0905: never thinks, has no think tokens",
    aliases=(),
    models=("*Kimi-K2-Instruct*", "*Kimi-Linear-*"),
    states={
        CONTENT: {CALLS: SECTION, CALL: CALLING, UNCALLS: CONTENT},
        SECTION: {CALL: CALLING, UNCALLS: CONTENT},
        CALLING: {UNCALL: SECTION, UNCALLS: CONTENT, CALL: CALLING, CALLS: SECTION},
        ROLE: {MIDDLE: START},
        ENDED: {},
    },
    thinking=Thinking((), default=False),
    start=Start(on=CONTENT, off=CONTENT),
)
