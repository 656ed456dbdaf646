"""DeepSeek: V3 and R1, V3.1, V3.2, V4, V4.1. Five call syntaxes on one set of turn tokens.

    A  <think>
       Two ports.
       </think>

       Looking.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>tide
       ```json
       {"port": "Brest"}
       ```<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>
    B  ...</think>Looking.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>tide<｜tool▁sep｜>{"port": "Brest"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>
    C  ...</think>Looking.

       <｜DSML｜function_calls>
       <｜DSML｜invoke name="tide">
       <｜DSML｜parameter name="port" string="true">Brest</｜DSML｜parameter>
       </｜DSML｜invoke>
       </｜DSML｜function_calls>

D (V4) is C with `tool_calls` for `function_calls`; E (V4.1) has a blank behind the bar, `<｜DSML｜ calls>`. Only `｜DSML｜` is a
token there, the rest of a tag is ordinary text. `｜` is U+FF5C, `▁` U+2581.

The prompt opens or closes the thought, except after tool results (A, B: no generation prompt at all). Source: the templates and
encoders in the repositories at huggingface.co/deepseek-ai.
"""

from unbraid.codecs import NameThenJson, XmlParameters
from unbraid.table import (
    ANY,
    CONTENT,
    ENDED,
    REASONING,
    ROLE,
    SECTION,
    START,
    Format,
    Special,
    Start,
    Thinking,
    calling,
    sequence,
    special,
    turn,
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
        FENCED: {FENCE_END: SECTION, UNCALL: SECTION, CALL: FENCED, UNCALLS: CONTENT},
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
        FENCED: {FENCE_END: SECTION, UNCALL: SECTION, CALL: FENCED, UNCALLS: CONTENT},
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
        BARE: {UNCALL: SECTION, CALL: BARE, UNCALLS: CONTENT},
        ROLE: {THINK: REASONING, UNTHINK: CONTENT},
        ENDED: {THINK: REASONING, UNTHINK: CONTENT},
    },
)

DSML = Special("｜DSML｜")
TAG = Special(
    "｜DSML｜", loose=True
)  # inside a section the tags are certain enough to be read when they're only spelled
C_CALLS = sequence(("<", DSML, "function_calls>"), before="\n\n", after=ANY, trail="\n")
C_UNCALLS = sequence(("</", DSML, "function_calls>"), before=ANY, lead="\n")
C_INVOKE = sequence(("<", TAG, "invoke name="), before=ANY, lead="\n", peek=True)
BARE_INVOKE = sequence(("<", TAG, "invoke name="), peek=True)  # the section's opener is missing
C_CALLING = calling(
    XmlParameters(
        call=("<", TAG, "invoke name="), uncall=("</", TAG, "invoke>"),
        parameter=("<", TAG, "parameter name="), unparameter=("</", TAG, "parameter>"),
        quoted=True, attribute="string", ends="first", wrappers=("arguments", "input"), untyped="json",
    )
)  # fmt: skip

DEEPSEEK_V32 = DEEPSEEK_V31.replace(
    name="deepseek_v32",
    about="DeepSeek V3.2, Speciale: DSML calls; thinks by a switch, off by default",
    aliases=("deepseekv32",),
    models=("*DeepSeek-V3.2*",),
    states={
        REASONING: {THINK: REASONING, UNTHINK: CONTENT, C_CALLS: SECTION},
        CONTENT: {THINK: REASONING, UNTHINK: CONTENT, C_CALLS: SECTION, BARE_INVOKE: C_CALLING, C_UNCALLS: CONTENT},
        SECTION: {C_INVOKE: C_CALLING, C_UNCALLS: CONTENT},
        C_CALLING: {C_UNCALLS: CONTENT, C_INVOKE: C_CALLING},
        ROLE: {THINK: REASONING, UNTHINK: CONTENT},
        ENDED: {THINK: REASONING, UNTHINK: CONTENT},
    },
)

D_CALLS = sequence(
    ("<", DSML, "tool_calls>"), ("<", DSML, "toolcalls>"), ("<", DSML, "tool>"), before="\n\n", after=ANY, trail="\n"
)  # fmt: skip
D_UNCALLS = sequence(
    ("</", DSML, "tool_calls>"), ("</", DSML, "toolcalls>"), ("</", DSML, "tool>"), before=ANY, lead="\n"
)

DEEPSEEK_V4 = DEEPSEEK_V32.replace(
    name="deepseek_v4",
    about="DeepSeek V4 Flash and Pro: DSML calls; thinks by a switch",
    aliases=("deepseekv4", "deepseek-v4"),
    models=("*DeepSeek-V4*",),
    states={
        REASONING: {THINK: REASONING, UNTHINK: CONTENT, D_CALLS: SECTION},
        CONTENT: {THINK: REASONING, UNTHINK: CONTENT, D_CALLS: SECTION, BARE_INVOKE: C_CALLING, D_UNCALLS: CONTENT},
        SECTION: {C_INVOKE: C_CALLING, D_UNCALLS: CONTENT},
        C_CALLING: {D_UNCALLS: CONTENT, C_INVOKE: C_CALLING},
        ROLE: {THINK: REASONING, UNTHINK: CONTENT},
        ENDED: {THINK: REASONING, UNTHINK: CONTENT},
    },
    thinking=Thinking(("thinking", "enable_thinking"), default=True),
)

E_CALLS = sequence(("<", DSML, " calls>"), before="\n\n", after=ANY, trail="\n")
E_UNCALLS = sequence(("</", DSML, " calls>"), before=ANY, lead="\n")
E_INVOKE = sequence(("<", TAG, " invoke name="), before=ANY, lead="\n", peek=True)
E_BARE_INVOKE = sequence(("<", DSML, " invoke name="), peek=True)
E_CALLING = calling(
    XmlParameters(
        call=("<", TAG, " invoke name="), uncall=("</", TAG, " invoke>"),
        parameter=("<", TAG, " parameter name="), unparameter=("</", TAG, " parameter>"),
        quoted=True, attribute="string", ends="first", wrappers=("arguments", "input"), untyped="json",
    )
)  # fmt: skip

DEEPSEEK_V41 = DEEPSEEK_V4.replace(
    name="deepseek_v41",
    about="DeepSeek V4.1: DSML calls with a blank behind the bar; thinks by a switch",
    aliases=("deepseekv41", "deepseek-v41"),
    models=("*DeepSeek-V4.1*",),
    states={
        REASONING: {THINK: REASONING, UNTHINK: CONTENT, E_CALLS: SECTION},
        CONTENT: {THINK: REASONING, UNTHINK: CONTENT, E_CALLS: SECTION, E_BARE_INVOKE: E_CALLING, E_UNCALLS: CONTENT},
        SECTION: {E_INVOKE: E_CALLING, E_UNCALLS: CONTENT},
        E_CALLING: {E_UNCALLS: CONTENT, E_INVOKE: E_CALLING},
        ROLE: {THINK: REASONING, UNTHINK: CONTENT},
        ENDED: {THINK: REASONING, UNTHINK: CONTENT},
    },
)
