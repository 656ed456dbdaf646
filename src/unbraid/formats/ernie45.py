"""ERNIE 4.5 Thinking (Baidu): a thought that the prompt opens, an answer between response tags, Hermes' calls.

    Think.
    </think>

    <response>
    Hi.
    </response>


    <tool_call>
    {"name": "a", "arguments": {}}
    </tool_call>
    <|im_end|>

The response tags may be missing; they never reach the content. Newlines around them and between calls are framing, however many.
Source: vLLM's parsers; the template wasn't seen.
"""

from unbraid.codecs import JsonObject
from unbraid.formats.chatml import NEWLINE, TURNS
from unbraid.table import CONTENT, ENDED, REASONING, ROLE, START, Format, Start, State, Thinking, calling, special, turn

LINES = "\n" * 16
THINK, UNTHINK = special("<think>", after="\n"), special("</think>", before="\n", after=LINES, trail="\n\n")
RESPONSE, UNRESPONSE = (
    special("<response>", after=LINES, trail="\n"),
    special("</response>", before="\n", after=LINES, trail="\n"),
)
CALL = special("<tool_call>", before=LINES, after="\n", lead="\n\n")
UNCALL = special("</tool_call>", before="\n", after="\n")
CALLING = calling(JsonObject())
ANSWERING = State("answer expected", "content", otherwise=CONTENT)

ERNIE45 = Format(
    name="ernie45",
    about="ERNIE 4.5 Thinking: always thinks, the prompt opens the thought; calls as JSON",
    models=("baidu/ERNIE-4.5-*-Thinking*", "*ERNIE-4.5-*Thinking*"),
    states={
        REASONING: {THINK: REASONING, UNTHINK: ANSWERING, CALL: CALLING},
        ANSWERING: {RESPONSE: CONTENT, UNTHINK: ANSWERING, CALL: CALLING},
        CONTENT: {
            RESPONSE: CONTENT,
            UNRESPONSE: CONTENT,
            THINK: REASONING,
            UNTHINK: ANSWERING,
            CALL: CALLING,
            UNCALL: CONTENT,
        },
        CALLING: {UNCALL: CONTENT, CALL: CALLING},
        ROLE: {NEWLINE: START, THINK: REASONING, UNTHINK: ANSWERING},
        ENDED: {},
    },
    turns={**TURNS, turn("</s>"): ENDED},
    thinking=Thinking((), default=True),
    start=Start(on=REASONING),
)
