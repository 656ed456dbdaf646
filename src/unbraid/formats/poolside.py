"""Poolside v1 (Laguna XS.2, M.1, XS-2.1, S-2.1): GLM's calls between assistant tags.

    Look.
    </think>
    Ok.<tool_call>f
    <arg_key>n</arg_key>
    <arg_value>3</arg_value>
    </tool_call></assistant>

XS.2 and M.1 write these newlines, the 2.1 models none. `<arg_key>` and `<arg_value>` are ordinary text here. The prompt opens or closes
the thought. Sources: the engines' parsers.
"""

from unbraid.formats.glm import CALLING
from unbraid.table import ANY, ENDED, REASONING, ROLE, START, Format, Start, Thinking, special, turn, usual

ASSISTANT, UNASSISTANT = turn("<assistant>", after="\n"), turn("</assistant>", before="\n")
USER, SYSTEM, TOOL = turn("<user>"), turn("<system>"), turn("<tool>")
END = turn("〈|EOS|〉")

THINK, UNTHINK = special("<think>", after="\n"), special("</think>", before="\n", after="\n")
CALL, UNCALL = special("<tool_call>", before=ANY), special("</tool_call>", before=ANY)

POOLSIDE_V1 = Format(
    name="poolside_v1",
    about="Laguna XS.2, M.1, XS-2.1: thinks by a switch, off unless asked for; calls as key and value elements",
    aliases=("laguna",),
    models=("poolside/Laguna-*",),
    states=usual((THINK, UNTHINK), (CALL, UNCALL), CALLING),
    turns={ASSISTANT: START, USER: ROLE, SYSTEM: ROLE, TOOL: ROLE, UNASSISTANT: ENDED, END: ENDED},
    thinking=Thinking(("enable_thinking",), default=False),
    start=Start(on=REASONING),
)

POOLSIDE_S2_1 = POOLSIDE_V1.replace(
    name="poolside_s2_1",
    about="Laguna S-2.1: as the others, but the switch is on",
    aliases=(),
    models=("poolside/Laguna-S-2.1*",),
    thinking=Thinking(("enable_thinking",), default=True),
)
