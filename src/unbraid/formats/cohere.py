"""Cohere: Command R7B, Command A (version 3 of their markup); Command A Reasoning, A Plus, North (version 4). Command R: cohere_r.py.

    3  <|START_THINKING|>Look it up.<|END_THINKING|><|START_ACTION|>[
           {"tool_call_id": "0", "tool_name": "search", "parameters": {"q": "tides"}}
       ]<|END_ACTION|>
       <|START_RESPONSE|>It is <co>high</co: 0:[0]> now.<|END_RESPONSE|>
    4  Look it up.<|END_THINKING|><|START_TEXT|>One moment.<|END_TEXT|><|START_ACTION|>[...]<|END_ACTION|>

Version 4's prompt opens the thought. A citation's tags are ordinary tokens and leave no text, what they enclose stays. White space
between blocks is nobody's; other text there is content. A prompt with tools describes the markers with the real tokens. Source: the
chat templates at huggingface.co/CohereLabs, cohere-ai/melody.
"""

from unbraid.codecs import JsonArray, JsonObject
from unbraid.table import (
    ANY, ENDED, REASONING, ROLE, START, CallIds, Format, Start, State, Thinking, calling, inline, special, turn,
)  # fmt: skip

TURN, SYSTEM, USER = turn("<|START_OF_TURN_TOKEN|>"), turn("<|SYSTEM_TOKEN|>"), turn("<|USER_TOKEN|>")
CHATBOT, END, EOS = turn("<|CHATBOT_TOKEN|>"), turn("<|END_OF_TURN_TOKEN|>"), turn("<EOS_TOKEN>")
TURNS = {TURN: ROLE, SYSTEM: ROLE, USER: ROLE, CHATBOT: START, END: ENDED, EOS: ENDED}

THINK, UNTHINK = special("<|START_THINKING|>", after=ANY, trail=""), special("<|END_THINKING|>", before=ANY, lead="")
STRAY_UNTHINK = special("<|END_THINKING|>")
RESPONSE_3, UNRESPONSE_3 = special("<|START_RESPONSE|>"), special("<|END_RESPONSE|>")
RESPONSE_4, UNRESPONSE_4 = special("<|START_TEXT|>", "<|START_RESPONSE|>"), special("<|END_TEXT|>", "<|END_RESPONSE|>")
RESPONSE_3_IN_THOUGHT = special("<|START_RESPONSE|>", before=ANY, note="missing_closer")
RESPONSE_4_IN_THOUGHT = special("<|START_TEXT|>", "<|START_RESPONSE|>", before=ANY, note="missing_closer")
ACTION, UNACTION = special("<|START_ACTION|>"), special("<|END_ACTION|>", before=ANY, lead="")
ACTION_IN_THOUGHT = special("<|START_ACTION|>", before=ANY, note="missing_closer")
ACTION_IN_TEXT = special("<|START_ACTION|>", note="missing_closer")
CITED, CITATION = inline("<co>"), inline("</co: ", body="0123456789:,[] ", end=">")

LOOSE = State("text between blocks", "content")
RESPONSE = State("response", "content")
BETWEEN = State("between blocks", "content", otherwise=LOOSE)
WAITING = State("waiting", "content", otherwise=LOOSE, undecided=True)
ELEMENT = JsonObject(name=("tool_name", "name"), arguments=("parameters", "arguments"), id=("tool_call_id",), wrap=())
CALLING = calling(JsonArray(ELEMENT))

STRAY_3 = {UNRESPONSE_3: BETWEEN, UNACTION: BETWEEN, STRAY_UNTHINK: BETWEEN}
BLOCKS_3 = {THINK: REASONING, RESPONSE_3: RESPONSE, ACTION: CALLING, **STRAY_3}
STRAY_4 = {UNRESPONSE_4: BETWEEN, UNACTION: BETWEEN, STRAY_UNTHINK: BETWEEN}
BLOCKS_4 = {THINK: REASONING, RESPONSE_4: RESPONSE, ACTION: CALLING, **STRAY_4}

COHERE_COMMAND3 = Format(
    name="cohere_command3",
    about="Command R7B, Command A: plans if it likes; calls as a JSON array, citations",
    aliases=("cohere_command_r7b",),
    models=("*command-r7b-*", "*c4ai-command-a-03-2025*", "*aya-expanse*"),
    states={
        WAITING: BLOCKS_3,
        BETWEEN: BLOCKS_3,
        LOOSE: {**BLOCKS_3, CITED: LOOSE, CITATION: LOOSE},
        REASONING: {
            UNTHINK: BETWEEN, THINK: REASONING, ACTION_IN_THOUGHT: CALLING, RESPONSE_3_IN_THOUGHT: RESPONSE,
            CITED: REASONING, CITATION: REASONING,
        },
        RESPONSE: {
            UNRESPONSE_3: BETWEEN, RESPONSE_3: RESPONSE, THINK: REASONING, STRAY_UNTHINK: RESPONSE, ACTION_IN_TEXT: CALLING,
            CITED: RESPONSE, CITATION: RESPONSE,
        },
        CALLING: {UNACTION: BETWEEN, ACTION: CALLING, RESPONSE_3: RESPONSE, THINK: REASONING},
        ROLE: {},
        ENDED: {},
    },
    turns=TURNS,
    thinking=Thinking((), default=True),
    start=Start(on=WAITING, off=BETWEEN),
    ids=CallIds(written=True),
)  # fmt: skip

COHERE_COMMAND4 = COHERE_COMMAND3.replace(
    name="cohere_command4",
    about="Command A Reasoning, Command A Plus, North: thinks by a switch, the prompt opens the thought; calls as a JSON array, citations",
    aliases=("cohere_command_a",),
    models=("*command-a-reasoning-*", "*command-a-plus*", "*command-a-vision*", "*CohereLabs/*north*"),
    states={
        WAITING: BLOCKS_4,
        BETWEEN: BLOCKS_4,
        LOOSE: {**BLOCKS_4, CITED: LOOSE, CITATION: LOOSE},
        REASONING: {
            UNTHINK: BETWEEN, THINK: REASONING, ACTION_IN_THOUGHT: CALLING, RESPONSE_4_IN_THOUGHT: RESPONSE,
            CITED: REASONING, CITATION: REASONING,
        },
        RESPONSE: {
            UNRESPONSE_4: BETWEEN, RESPONSE_4: RESPONSE, THINK: REASONING, STRAY_UNTHINK: RESPONSE, ACTION_IN_TEXT: CALLING,
            CITED: RESPONSE, CITATION: RESPONSE,
        },
        CALLING: {UNACTION: BETWEEN, ACTION: CALLING, RESPONSE_4: RESPONSE, THINK: REASONING},
        ROLE: {},
        ENDED: {},
    },
    thinking=Thinking(("reasoning",), default=True),
    start=Start(on=WAITING, off=BETWEEN, unknown=REASONING),
)  # fmt: skip
