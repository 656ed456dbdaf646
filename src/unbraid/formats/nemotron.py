"""NVIDIA Nemotron: 3 and 3.5 (Qwen's XML on ChatML), Nano v2 (a JSON array between tags of text).

    Plan.
    </think>
    Done.
    <tool_call>
    <function=f>
    <parameter=s>
      x
    </parameter>
    </function>
    </tool_call>
    <|im_end|>

    Plan.
    </think>

    <TOOLCALL>[{"name": "f", "arguments": {"s": "x"}}]</TOOLCALL>
    <SPECIAL_12>

Every call of Nemotron 3 ends with a newline after `</tool_call>`, one more than Qwen writes. After `</think>` Nano and Super write a
newline, Ultra and 3.5 nothing; switched off, the prompt ends in `<think></think>` without any. Sources: the templates of the models'
repositories at huggingface.co/nvidia, as shipped with llama.cpp.
"""

from unbraid.codecs import Choice, JsonArray, JsonObject, XmlParameters
from unbraid.formats.chatml import NEWLINE, TURNS
from unbraid.table import (
    CONTENT, ENDED, REASONING, ROLE, START, WAITING, Format, Start, Thinking, calling, special, text, turn,
)  # fmt: skip

THINK, UNTHINK = special("<think>", after="\n"), special("</think>", before="\n", after="\n")
CALL, UNCALL = special("<tool_call>", before="\n", after="\n"), special("</tool_call>", before="\n", after="\n")
FUNCTION = text("<function=", peek=True)
CALLING = calling(Choice((XmlParameters(frame="\n"), JsonObject())))

NEMOTRON_V3 = Format(
    name="nemotron_v3",
    about="Nemotron 3 Nano and Super: thinks by a switch, the prompt opens the thought; calls as XML",
    aliases=("nemotron_3", "nano_v3", "super_v3"),
    models=("*Nemotron-3-*",),
    states={
        REASONING: {THINK: REASONING, UNTHINK: CONTENT, CALL: CALLING},
        CONTENT: {THINK: REASONING, UNTHINK: CONTENT, CALL: CALLING, FUNCTION: CALLING, UNCALL: CONTENT},
        CALLING: {UNCALL: CONTENT, CALL: CALLING, FUNCTION: CALLING},
        ROLE: {NEWLINE: START, THINK: REASONING, UNTHINK: CONTENT},
        ENDED: {},
    },
    turns=TURNS,
    thinking=Thinking(("enable_thinking",), default=True),
    start=Start(on=REASONING),
)

BARE_UNTHINK = special("</think>", before="\n")

NEMOTRON_V3_ULTRA = NEMOTRON_V3.replace(
    name="nemotron_v3_ultra",
    about="Nemotron 3 Ultra, 3.5: as Nano, but content follows the thought directly",
    aliases=("nemotron_ultra",),
    models=("*Nemotron-3-Ultra*", "*Nemotron-3.5-*"),
    states={
        REASONING: {THINK: REASONING, BARE_UNTHINK: CONTENT, CALL: CALLING},
        CONTENT: {THINK: REASONING, BARE_UNTHINK: CONTENT, CALL: CALLING, FUNCTION: CALLING, UNCALL: CONTENT},
        CALLING: {UNCALL: CONTENT, CALL: CALLING, FUNCTION: CALLING},
        ROLE: {NEWLINE: START, THINK: REASONING, BARE_UNTHINK: CONTENT},
        ENDED: {},
    },
)

NANO_THINK, NANO_UNTHINK = special("<think>", after="\n\n"), special("</think>", before="\n", after="\n\n")
TOOLCALL, UNTOOLCALL = text("<TOOLCALL>", before="\n\n"), text("</TOOLCALL>", before="\n")
ARRAY = calling(JsonArray())

NEMOTRON_NANO_V2 = Format(
    name="nemotron_nano_v2",
    about="Nemotron Nano v2: thinks unless the prompt says /no_think; calls as a JSON array",
    aliases=("nemotron_json",),
    models=("*Nemotron-Nano-*-v2*",),
    states={
        REASONING: {NANO_THINK: REASONING, NANO_UNTHINK: CONTENT, TOOLCALL: ARRAY},
        CONTENT: {NANO_THINK: REASONING, NANO_UNTHINK: CONTENT, TOOLCALL: ARRAY},
        WAITING: {NANO_THINK: REASONING, NANO_UNTHINK: CONTENT, TOOLCALL: ARRAY},
        ARRAY: {UNTOOLCALL: CONTENT},
        ROLE: {NEWLINE: START, NANO_THINK: REASONING, NANO_UNTHINK: CONTENT},
        ENDED: {},
    },
    turns={turn("<SPECIAL_11>"): ROLE, turn("<SPECIAL_10>"): ROLE, turn("<SPECIAL_12>", before="\n"): ENDED},
    thinking=Thinking((), default=True),
    start=Start(on=WAITING, unknown=REASONING),
)
