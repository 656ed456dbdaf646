"""DeepSeek with DSML calls: V3.2, V4, V4.1. On the turn tokens of deepseek.py.

    ...</think>Looking.

    <｜DSML｜function_calls>
    <｜DSML｜invoke name="tide">
    <｜DSML｜parameter name="port" string="true">Brest</｜DSML｜parameter>
    </｜DSML｜invoke>
    </｜DSML｜function_calls>

V4 writes `tool_calls` for `function_calls`; V4.1 a blank behind the bar, `<｜DSML｜ calls>`. Only `｜DSML｜` is a token, the rest of a tag is
ordinary text. `｜` is U+FF5C. The attribute says whether a value is text or JSON. Source: the encoders in the repositories at
huggingface.co/deepseek-ai.
"""

from unbraid.codecs import XmlParameters
from unbraid.formats.deepseek import DEEPSEEK_V31, THINK, UNTHINK
from unbraid.table import ANY, CONTENT, ENDED, REASONING, ROLE, SECTION, Special, Thinking, calling, sequence

DSML = Special("｜DSML｜")
TAG = Special("｜DSML｜", loose=True)
"""Inside a section the tags are certain enough to be read when they're only spelled."""
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
        C_CALLING: {C_UNCALLS: CONTENT, C_INVOKE: C_CALLING, C_CALLS: SECTION},
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
        C_CALLING: {D_UNCALLS: CONTENT, C_INVOKE: C_CALLING, D_CALLS: SECTION},
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
        E_CALLING: {E_UNCALLS: CONTENT, E_INVOKE: E_CALLING, E_CALLS: SECTION},
        ROLE: {THINK: REASONING, UNTHINK: CONTENT},
        ENDED: {THINK: REASONING, UNTHINK: CONTENT},
    },
)
