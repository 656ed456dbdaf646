"""DeepSeek: V3, R1 and V3.1. Two call syntaxes on one set of turn tokens; V3.2 and later: deepseek_dsml.py.

    <think>
    Two ports.
    </think>

    Looking.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>tide
    ```json
    {"port": "Brest"}
    ```<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>                                         V3, R1
    ...</think>Looking.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>tide<｜tool▁sep｜>{"port": "Brest"}
    <｜tool▁call▁end｜><｜tool▁calls▁end｜>                                                             V3.1

(V3.1's on one line.) `｜` is U+FF5C, `▁` U+2581. The prompt opens or closes the thought, except after tool results, where there is no
generation prompt at all. Source: the templates in the repositories at huggingface.co/deepseek-ai.
"""

from unbraid.codecs import NameThenJson
from unbraid.table import (
    ANY, CONTENT, ENDED, REASONING, ROLE, SECTION, START, Format, Special, Start, Thinking, calling, sequence, special, turn,
)  # fmt: skip

USER, ASSISTANT, SYSTEM = turn("<｜User｜>"), turn("<｜Assistant｜>"), turn("<｜System｜>")
END = turn("<｜end▁of▁sentence｜>")
RESULTS_END = turn("<｜tool▁outputs▁end｜>", "<｜tool▁output▁end｜>")  # the answer goes on without a generation prompt
TURNS = {USER: ROLE, SYSTEM: ROLE, ASSISTANT: START, RESULTS_END: CONTENT, END: ENDED}

THINK, UNTHINK = special("<think>"), special("</think>")
CALLS, UNCALLS = special("<｜tool▁calls▁begin｜>"), special("<｜tool▁calls▁end｜>", before=ANY)
CALL, UNCALL = special("<｜tool▁call▁begin｜>", before=ANY), special("<｜tool▁call▁end｜>", before=ANY)
FENCE_END = sequence(
    ("```", Special("<｜tool▁call▁end｜>")), ("```\n", Special("<｜tool▁call▁end｜>")), before=ANY, lead="\n"
)
SEPARATOR = (Special("<｜tool▁sep｜>"),)

FENCED = calling(NameThenJson(separator=(("\n",),), lead=(("function", *SEPARATOR),), fence=True))
BARE = calling(NameThenJson(separator=(SEPARATOR,)))

R1_THINK = special("<think>", after="\n")  # the newlines are the model's habit; no template writes them
R1_UNTHINK = special("</think>", before="\n", after="\n\n")

DEEPSEEK_R1 = Format(
    name="deepseek_r1",
    about="DeepSeek R1, R1-0528 and the distilled models: always thinks, the prompt opens the thought",
    aliases=("deepseek-r1",),
    models=("deepseek-ai/DeepSeek-R1*", "*DeepSeek-R1-Distill*"),
    states={
        REASONING: {R1_THINK: REASONING, R1_UNTHINK: CONTENT, CALLS: SECTION, CALL: FENCED},
        CONTENT: {R1_THINK: REASONING, R1_UNTHINK: CONTENT, CALLS: SECTION, CALL: FENCED, UNCALLS: CONTENT},
        SECTION: {CALL: FENCED, UNCALLS: CONTENT},
        FENCED: {FENCE_END: SECTION, UNCALL: SECTION, CALL: FENCED, UNCALLS: CONTENT, CALLS: SECTION},
        ROLE: {R1_THINK: REASONING, R1_UNTHINK: CONTENT},
        ENDED: {R1_THINK: REASONING, R1_UNTHINK: CONTENT},
    },
    turns=TURNS,
    thinking=Thinking((), default=True),
    start=Start(on=REASONING),
)

DEEPSEEK_V3 = DEEPSEEK_R1.replace(
    name="deepseek_v3",
    about="DeepSeek V3, V3-0324: doesn't think",
    aliases=("deepseekv3", "deepseek-v3"),
    models=("deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-V3-0324", "*DeepSeek-V3-*"),
    states={
        REASONING: {THINK: REASONING, UNTHINK: CONTENT, CALLS: SECTION, CALL: FENCED},
        CONTENT: {THINK: REASONING, CALLS: SECTION, CALL: FENCED, UNCALLS: CONTENT},
        SECTION: {CALL: FENCED, UNCALLS: CONTENT},
        FENCED: {FENCE_END: SECTION, UNCALL: SECTION, CALL: FENCED, UNCALLS: CONTENT, CALLS: SECTION},
        ROLE: {},
        ENDED: {},
    },
    thinking=Thinking(("thinking", "enable_thinking"), default=False),
)

DEEPSEEK_V31 = DEEPSEEK_V3.replace(
    name="deepseek_v31",
    about="DeepSeek V3.1, Terminus, V3.2-Exp: thinks by a switch, off by default",
    aliases=("deepseekv31",),
    models=("*DeepSeek-V3.1*", "*DeepSeek-V3.2-Exp*"),
    states={
        REASONING: {THINK: REASONING, UNTHINK: CONTENT, CALLS: SECTION, CALL: BARE},
        CONTENT: {THINK: REASONING, UNTHINK: CONTENT, CALLS: SECTION, CALL: BARE, UNCALLS: CONTENT},
        SECTION: {CALL: BARE, UNCALLS: CONTENT},
        BARE: {UNCALL: SECTION, CALL: BARE, UNCALLS: CONTENT, CALLS: SECTION},
        ROLE: {THINK: REASONING, UNTHINK: CONTENT},
        ENDED: {THINK: REASONING, UNTHINK: CONTENT},
    },
)
