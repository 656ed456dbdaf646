"""PLaMo 3 (Preferred Networks): a thought that the prompt opens, an answer, a section of requests, each a name and JSON.

    Look it up.<|plamo:end_think:plamo|>Moment.<|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|>
    <|plamo:begin_tool_name:plamo|>tide<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json
    <|plamo:msg|>{"port": "Brest"}<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>
    <|plamo:end_tool_requests:plamo|><|plamo:tag|>

(on one line). A marker is several tokens: `<|plamo:begin_`, `<|plamo:end_` and `:plamo|>` are special, the word between them isn't.
Half a marker decides nothing. `<|plamo:tag|>` stands between two turns: it ends one and the next begins behind it. Reasoning and
content are verbatim, white space between markers is noise. Source: vLLM's parser; the template wasn't to be had.
"""

from unbraid.codecs import WordThenJson
from unbraid.table import (
    CONTENT, ENDED, REASONING, SECTION, START, Format, Special, Start, State, Thinking, calling, sequence, turn,
)  # fmt: skip

BEGIN, FINISH, CLOSE = Special("<|plamo:begin_"), Special("<|plamo:end_"), Special(":plamo|>")
THINK, UNTHINK = sequence((BEGIN, "think", CLOSE)), sequence((FINISH, "think", CLOSE))
REQUESTS, UNREQUESTS = sequence((BEGIN, "tool_requests", CLOSE)), sequence((FINISH, "tool_requests", CLOSE))
REQUEST, UNREQUEST = sequence((BEGIN, "tool_request", CLOSE)), sequence((FINISH, "tool_request", CLOSE))
NEXT_REQUEST = sequence((BEGIN, "tool_request", CLOSE), note="missing_closer")
UNARGUMENTS = sequence((FINISH, "tool_arguments", CLOSE))
TAG, END = turn("<|plamo:tag|>"), turn("<|plamo:eos|>")

CALLING = calling(
    WordThenJson(
        lead=(BEGIN, "tool_name", CLOSE),
        between=(
            (FINISH, "tool_name", CLOSE),
            (BEGIN, "tool_arguments", CLOSE),
            (Special("<|plamo:constrain|>"), "json", Special("<|plamo:msg|>")),
        ),
    ),
    unfinished="incomplete",
)
CALLED = State("behind the arguments", "markup")

PLAMO3 = Format(
    name="plamo3",
    about="PLaMo 3: thinks by a switch, the prompt opens the thought; calls as a name and JSON in a section",
    models=("*plamo-3-*",),
    states={
        REASONING: {UNTHINK: CONTENT, THINK: REASONING, REQUESTS: SECTION},
        CONTENT: {THINK: REASONING, UNTHINK: CONTENT, REQUESTS: SECTION, UNREQUESTS: CONTENT},
        SECTION: {REQUEST: CALLING, UNREQUESTS: CONTENT, UNREQUEST: SECTION},
        CALLING: {UNARGUMENTS: CALLED, UNREQUEST: SECTION, UNREQUESTS: CONTENT, NEXT_REQUEST: CALLING},
        CALLED: {UNREQUEST: SECTION, UNREQUESTS: CONTENT, NEXT_REQUEST: CALLING},
        ENDED: {},
    },
    turns={TAG: START, END: ENDED},
    thinking=Thinking(("enable_thinking",), default=True),
    start=Start(on=REASONING),
)
