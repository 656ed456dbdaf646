"""Meituan LongCat: Flash-Chat, Flash-Thinking, LongCat-2.0. Hermes' JSON or GLM's pairs, all tags with `longcat_` in them.

    Look.
    </longcat_think>

    <longcat_tool_call>{"name": "f", "arguments": {"n": 3}}</longcat_tool_call></longcat_s>

    <longcat_tool_call>f
    <longcat_arg_key>n</longcat_arg_key>
    <longcat_arg_value>3</longcat_arg_value>
    </longcat_tool_call></longcat_s>

The first bodies come from the Flash models, the second from newer templates; what a body begins with decides. With thinking on the
prompt ends in `<longcat_think>`. The first models' prompts had no role tokens: they aren't read. Sources: the model cards, vLLM's and
MLX's parsers; the white space is partly unverified.
"""

from unbraid.codecs import Choice, JsonObject, KeyValueTags
from unbraid.table import (
    ANY, ENDED, REASONING, ROLE, START, Format, Special, Start, Thinking, calling, special, turn, usual,
)  # fmt: skip

ASSISTANT = turn("<longcat_assistant>")
USER, SYSTEM = turn("<longcat_user>"), turn("<longcat_system>")
END = turn("</longcat_s>")

THINK, UNTHINK = special("<longcat_think>", after="\n\n"), special("</longcat_think>", before="\n", after="\n\n")
CALL, UNCALL = special("<longcat_tool_call>", before=ANY), special("</longcat_tool_call>", before=ANY)
PAIRS = KeyValueTags(
    key=(Special("<longcat_arg_key>"),), unkey=(Special("</longcat_arg_key>"),),
    value=(Special("<longcat_arg_value>"),), unvalue=(Special("</longcat_arg_value>"),), newline="\n",
)  # fmt: skip
CALLING = calling(Choice((PAIRS, JsonObject())))

LONGCAT = Format(
    name="longcat",
    about="LongCat Flash, 2.0: thinks by a switch, off unless asked for; calls as JSON or as key and value elements",
    models=("meituan-longcat/LongCat-*",),
    states=usual((THINK, UNTHINK), (CALL, UNCALL), CALLING),
    turns={ASSISTANT: START, USER: ROLE, SYSTEM: ROLE, END: ENDED},
    thinking=Thinking(("enable_thinking",), default=False),
    start=Start(on=REASONING),
)
