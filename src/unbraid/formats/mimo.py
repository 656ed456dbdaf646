"""Xiaomi MiMo V2: V2-Flash, V2.5, V2.6. Qwen's XML on ChatML with values inline, and no framing white space at all.

    <think>Check.</think>Sure.<tool_call>
    <function=read>
    <parameter=path> a b </parameter>
    </function>
    </tool_call><|im_end|>

A value is kept exactly as written, blanks and newlines included, nothing in it is unescaped. The model opens the thought itself;
switched off, the prompt ends in `<think></think>`. Newlines between tags are optional (V2.6 writes none). Source: a third-party
copy of the V2.5 template, vLLM's parser, xgrammar's tag.
"""

from unbraid.codecs import Choice, JsonObject, XmlParameters
from unbraid.formats.chatml import NEWLINE, TURNS
from unbraid.table import (
    ANY, CONTENT, REASONING, ROLE, START, WAITING, Format, Start, Thinking, calling, special, text, usual,
)  # fmt: skip

THINK, UNTHINK = special("<think>"), special("</think>")
CALL, UNCALL = special("<tool_call>", after=ANY), special("</tool_call>", before=ANY)
FUNCTION = text("<function=", peek=True)
CALLING = calling(Choice((XmlParameters(), JsonObject())))

MIMO = Format(
    name="mimo",
    about="MiMo V2.5, V2.6: thinks by a switch, opens the thought itself; calls as XML with inline values",
    models=("XiaomiMiMo/MiMo-V2*",),
    states={
        **usual((THINK, UNTHINK), (CALL, UNCALL), CALLING, announced=FUNCTION, waits=True),
        ROLE: {NEWLINE: START, THINK: REASONING, UNTHINK: CONTENT},
    },
    turns=TURNS,
    thinking=Thinking(("enable_thinking",), default=True),
    start=Start(on=WAITING, unknown=REASONING),
)

MIMO_V2_FLASH = MIMO.replace(
    name="mimo_v2_flash",
    about="MiMo V2-Flash: as V2.5, but the switch is off unless asked for",
    models=("XiaomiMiMo/MiMo-V2-Flash*",),
    thinking=Thinking(("enable_thinking",), default=False),
)
