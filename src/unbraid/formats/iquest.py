"""IQuest Q1: GLM's calls in a wrapper of its own.

    Look.</think>Ok.<iquest_tool_call>f<arg_key>n</arg_key><arg_value>3</arg_value></iquest_tool_call>

White space around the thought isn't framing (unverified: no template was seen, and of the turn tokens only `<|iquest_assistant|>` is
known). Source: SGLang's parser.
"""

from unbraid.formats.glm import CALLING
from unbraid.table import ANY, ENDED, REASONING, ROLE, START, Format, Start, Thinking, special, turn, usual

ASSISTANT, USER, SYSTEM = turn("<|iquest_assistant|>"), turn("<|iquest_user|>"), turn("<|iquest_system|>")
END = turn("<|iquest_end|>", "<|endoftext|>")

THINK, UNTHINK = special("<think>"), special("</think>")
CALL, UNCALL = special("<iquest_tool_call>", before=ANY), special("</iquest_tool_call>", before=ANY)

IQUEST_Q1 = Format(
    name="iquest_q1",
    about="IQuest Q1: thinks by a switch; calls as key and value elements",
    models=("IQuestLab/IQuest-Q1*",),
    states=usual((THINK, UNTHINK), (CALL, UNCALL), CALLING),
    turns={ASSISTANT: START, USER: ROLE, SYSTEM: ROLE, END: ENDED},
    thinking=Thinking(("thinking", "enable_thinking"), default=True),
    start=Start(on=REASONING),
)
