"""Solar Open 100B (Upstage): messages of a kind; a call has its id first, then name and arguments.

    <|think|>Look it up.<|end|><|begin|>assistant<|content|>One moment.<|end|><|begin|>assistant<|tool_calls|>
    <|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>tide<|tool_call:args|>{"port": "Brest"}<|tool_call:end|><|calls|>

(on one line; the prompt ends in `<|begin|>assistant`, behind a message with an empty thought if little effort is asked for). Bodies
are verbatim. `<|flush|>` ends an answer, too. Ids are ten lower-case letters and digits; they may be missing. Source: the chat template at
huggingface.co/upstage.
"""

from unbraid.codecs import WordThenJson
from unbraid.table import (
    ANY, ENDED, REASONING, CallIds, Format, Frame, Special, Start, State, Thinking, calling, special, turn,
)  # fmt: skip

CONTENT = State("content", "content")
HEADER = State("header", "markup", capture="role", otherwise=CONTENT, undecided=True)
FIRST = State("first header", "markup", capture="head", otherwise=CONTENT, undecided=True)
BETWEEN = State("between", "markup", otherwise=CONTENT, undecided=True)
SAID = State("said", "markup", otherwise=CONTENT)
"""Between messages, an answer or calls having been said."""
SECTION = State("section", "markup")
CALLING = calling(
    WordThenJson(name=(Special("<|tool_call:name|>"),), between=((Special("<|tool_call:args|>"),),), id_length=10)
)

BEGIN, CALLS_END, FLUSH, EOS = turn("<|begin|>"), turn("<|calls|>"), turn("<|flush|>"), turn("<|endoftext|>")
END = special("<|end|>")
THINK, SAY, CALLS = special("<|think|>"), special("<|content|>"), special("<|tool_calls|>")
CALL, UNCALL = special("<|tool_call:begin|>", before=ANY, lead=""), special("<|tool_call:end|>", before=ANY, lead="")
KINDS = {THINK: REASONING, SAY: CONTENT, CALLS: SECTION}

SOLAR_OPEN = Format(
    name="solar_open",
    about="Solar Open: messages for thoughts, answers and calls",
    models=("upstage/Solar-Open-*", "*Solar-Open-*"),
    states={
        FIRST: {**KINDS, END: BETWEEN},
        HEADER: {**KINDS, END: BETWEEN},
        REASONING: {END: BETWEEN, CALLS: SECTION, SAY: CONTENT},
        CONTENT: {END: SAID, CALLS: SECTION},
        SECTION: {CALL: CALLING, END: SAID},
        CALLING: {UNCALL: SECTION, CALL: CALLING, END: SAID},
        BETWEEN: {**KINDS, END: BETWEEN},
        SAID: {**KINDS, END: SAID},
        ENDED: KINDS,
    },
    turns={BEGIN: HEADER, CALLS_END: ENDED, FLUSH: ENDED, EOS: ENDED},
    start=Start(on=FIRST, off=FIRST),
    thinking=Thinking((), default=True),
    ids=CallIds("?" * 10, written=True),
    frames=(
        Frame(REASONING, (Special("<|think|>"),), (Special("<|end|>"),)),
        Frame(CONTENT, (Special("<|content|>"),), (Special("<|end|>"),)),
        Frame(
            CALLING,
            (Special("<|tool_calls|>"), Special("<|tool_call:begin|>")),
            (Special("<|tool_call:end|>"), Special("<|calls|>")),
        ),
    ),
    next_message=(Special("<|begin|>"), "assistant"),
    answer="<|end|><|begin|>assistant<|content|>",
)
