"""OpenBMB: MiniCPM5 (calls as XML with attributes and CDATA) and MiniCPM-V 4 (Qwen's XML).

    I'm thinking
    </think>

    <function name="put"><param name="n">3</param><param name="body"><![CDATA[<b>&</b>]]></param></function><|im_end|>

White space around a value isn't part of it, except in CDATA, where everything is. Models lose the blank of a tag (`<paramname="k">`) or
wrap all arguments as JSON in one parameter `arguments` or `properties`. MiniCPM-V is Qwen3.5 with thinking off by default; tokens
reserved for its training leak into the text and are dropped. Sources: the engines' parsers, the template in llama.cpp.
"""

from unbraid.codecs import XmlParameters
from unbraid.formats.chatml import NEWLINE, TURNS
from unbraid.formats.qwen_xml import QWEN3_5, XML_CALL, XML_CALLING
from unbraid.table import (
    ANY, CONTENT, ENDED, REASONING, ROLE, START, WAITING, Format, Start, State, Thinking, calling, special, text,
)  # fmt: skip

THINK, UNTHINK = special("<think>", after="\n"), special("</think>", before="\n", after="\n\n")
FUNCTION = text("<function name=", "<functionname=", "<functionĠname=", before=ANY, peek=True)
BETWEEN = State("between calls", "markup", otherwise=CONTENT)
CALLING = calling(
    XmlParameters(
        call=("<function name=",), uncall=("</function>",), parameter=("<param name=",), unparameter=("</param>",),
        frame=ANY, cdata=True, quoted=True, wrappers=("arguments", "properties"),
    ),
    then=BETWEEN,
)  # fmt: skip

MINICPM5 = Format(
    name="minicpm5",
    about="MiniCPM5: thinks by a switch, the prompt opens the thought; calls as XML without a wrapper",
    models=("openbmb/MiniCPM5*",),
    states={
        REASONING: {THINK: REASONING, UNTHINK: CONTENT, FUNCTION: CALLING},
        CONTENT: {THINK: REASONING, UNTHINK: CONTENT, FUNCTION: CALLING},
        WAITING: {THINK: REASONING, UNTHINK: CONTENT, FUNCTION: CALLING},
        CALLING: {FUNCTION: CALLING},
        BETWEEN: {FUNCTION: CALLING},
        ROLE: {NEWLINE: START, THINK: REASONING, UNTHINK: CONTENT},
        ENDED: {},
    },
    turns=TURNS,
    thinking=Thinking(("enable_thinking",), default=True),
    start=Start(on=WAITING, unknown=REASONING),
)

UNCALL = special("</tool_call>", before="\n")
STRAY = special("</think>")  # one that closes nothing has no white space of its own
BARE_FUNCTION = text("<function=", peek=True)
RESERVED = special(
    "<|reserved_12|>", "<|reserved_13|>", "<|reserved_14|>", "<|reserved_15|>", "<|reserved_16|>",
    "<reserved_12>", "<reserved_13>", "<reserved_14>", "<reserved_15>", "<reserved_16>",
)  # fmt: skip

MINICPMV = QWEN3_5.replace(
    name="minicpmv",
    about="MiniCPM-V 4: thinks by a switch, off unless asked for; calls as XML",
    aliases=(),
    models=("openbmb/MiniCPM-V-4*", "openbmb/MiniCPM-o-4*"),
    states={
        REASONING: {THINK: REASONING, UNTHINK: CONTENT, XML_CALL: XML_CALLING, RESERVED: REASONING},
        CONTENT: {
            THINK: REASONING, STRAY: CONTENT, XML_CALL: XML_CALLING, BARE_FUNCTION: XML_CALLING, UNCALL: CONTENT, RESERVED: CONTENT,
        },
        WAITING: {THINK: REASONING, UNTHINK: CONTENT, XML_CALL: XML_CALLING, BARE_FUNCTION: XML_CALLING, RESERVED: WAITING},
        XML_CALLING: {UNCALL: CONTENT, XML_CALL: XML_CALLING, BARE_FUNCTION: XML_CALLING},
        ROLE: {NEWLINE: START, THINK: REASONING, UNTHINK: CONTENT},
        ENDED: {},
    },
    thinking=Thinking(("enable_thinking",), default=False),
    start=Start(on=WAITING, unknown=REASONING),
)  # fmt: skip
