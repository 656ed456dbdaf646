"""GLM 4.5 to 5.3: a thought, an answer, calls as a name followed by key and value elements.

    <think>Look it up.</think>
    On it.
    <tool_call>search
    <arg_key>query</arg_key>
    <arg_value>red fox</arg_value>
    </tool_call><|observation|>

That is 4.5 and 4.6; from 4.7 on there are no newlines between the elements. All markers are single tokens, and the tokenizer finds
them in any text: a value that contains the characters of a marker contains its token. So only the grammar tells them apart, and a
value ends at `</arg_value>` alone. A turn has no end token: it ends where the next role begins. Source: the chat templates at
huggingface.co/zai-org.
"""

from dataclasses import replace

from unbraid.codecs import Choice, JsonObject, KeyValueTags
from unbraid.table import (
    ANY, CONTENT, ENDED, REASONING, ROLE, START, WAITING, Format, Special, Start, Thinking, calling, special, turn, usual,
)  # fmt: skip

SYSTEM, USER, OBSERVATION = turn("<|system|>"), turn("<|user|>"), turn("<|observation|>")
ASSISTANT = turn("<|assistant|>", after="\n")
END = turn("<|endoftext|>")

THINK = special("<think>", before="\n", lead="")
UNTHINK = special("</think>", after="\n", trail="")
CALL = special("<tool_call>", before=ANY)  # templates strip content: white space next to a call is never part of it
UNCALL = special("</tool_call>", before=ANY)

PAIRS = KeyValueTags(
    key=(Special("<arg_key>"),), unkey=(Special("</arg_key>"),), value=(Special("<arg_value>"),), unvalue=(Special("</arg_value>"),)
)  # fmt: skip
CALLING = calling(Choice((PAIRS, JsonObject())))  # some answer in Hermes' JSON (mlx-lm's #792)

# 4.5 and 4.6 put a newline after every element. Both generations are read alike.
LINE_THINK, LINE_UNTHINK = special("<think>", before="\n"), special("</think>", after="\n")
LINE_CALL = special("<tool_call>", before=ANY, lead="\n")
LINE_CALLING = calling(Choice((replace(PAIRS, newline="\n"), JsonObject())))

GLM47 = Format(
    name="glm47",
    about="GLM 4.7, 5 to 5.3: thinks by a switch, the prompt opens or closes the thought",
    aliases=("glm", "glm4_moe", "glm_4_7"),
    models=("*GLM-4.7*", "*GLM-5*", "mindlab-research/Macaron-V1-*"),
    states=usual((THINK, UNTHINK), (CALL, UNCALL), CALLING),
    # What a user or tool says isn't ours; the roles that the model itself writes end its turn.
    turns={SYSTEM: ROLE, USER: ROLE, OBSERVATION: ROLE, ASSISTANT: START, END: ENDED},
    thinking=Thinking(("enable_thinking",), default=True),
    start=Start(on=REASONING),
)

GLM45 = GLM47.replace(
    name="glm45",
    about="GLM 4.5, 4.5V, 4.6: thinks by a switch, the model opens the thought itself",
    aliases=(),
    models=("*GLM-4.5*", "*GLM-4.6*", "*GLM-GA*", "zai-org/Glyph*", "inclusionAI/Ling-2.6*", "inclusionAI/Ring-2.6*"),
    states={
        REASONING: {LINE_THINK: REASONING, LINE_UNTHINK: CONTENT, LINE_CALL: LINE_CALLING},
        CONTENT: {LINE_UNTHINK: CONTENT, LINE_CALL: LINE_CALLING, UNCALL: CONTENT},
        WAITING: {LINE_THINK: REASONING, LINE_UNTHINK: CONTENT, LINE_CALL: LINE_CALLING},
        LINE_CALLING: {UNCALL: CONTENT, LINE_CALL: LINE_CALLING},
        ROLE: {},
        ENDED: {},
    },
    start=Start(on=WAITING, off=WAITING),
)
