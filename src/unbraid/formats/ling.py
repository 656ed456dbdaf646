"""inclusionAI Ling 3 and Ring 3: GLM's calls between roles in tags.

    Look.</think>Ok<tool_call>f<arg_key>n</arg_key><arg_value>3</arg_value></tool_call><|role_end|>

The prompt ends in `<role>ASSISTANT</role>` and opens the thought. Whether `<role>` is a token isn't known; both are read. Sources:
the engines' parsers, llama.cpp's tests.
"""

from unbraid.formats.glm import CALLING
from unbraid.table import (
    ANY, ENDED, REASONING, ROLE, START, Format, Special, Start, Thinking, sequence, special, turn, usual,
)  # fmt: skip

OPEN, CLOSE = Special("<role>"), Special("</role>")
ASSISTANT = sequence((OPEN, "ASSISTANT", CLOSE), after="\n")
OTHERS = sequence((OPEN, "SYSTEM", CLOSE), (OPEN, "HUMAN", CLOSE), (OPEN, "OBSERVATION", CLOSE))
END = turn("<|role_end|>", "<|endoftext|>")

THINK, UNTHINK = special("<think>"), special("</think>", after="\n")
CALL, UNCALL = special("<tool_call>", before=ANY), special("</tool_call>", before=ANY)

LING3 = Format(
    name="ling3",
    about="Ling 3, Ring 3: thinks by a switch, the prompt opens the thought; calls as key and value elements",
    models=("inclusionAI/Ling-3*", "inclusionAI/Ring-3*"),
    states=usual((THINK, UNTHINK), (CALL, UNCALL), CALLING),
    turns={ASSISTANT: START, OTHERS: ROLE, END: ENDED},
    thinking=Thinking(("thinking", "enable_thinking"), default=True),
    start=Start(on=REASONING),
)
