"""Apertus (swiss-ai, 2509): a thought in the inner region, an answer, calls as an array of objects whose one key is the name.

    <|inner_prefix|>Two ports.<|inner_suffix|>Looking.<|tools_prefix|>[{"tide": {"port": "Brest"}}, {"tide": {"port": "Vigo"}}]
    <|tools_suffix|>[{"high": "04:10"}, ...]Here you are.<|assistant_end|>

(on one line). Calls may stand inside the inner region: behind them the thought goes on. The results follow in the same turn, written
by the template. Source: the chat template at huggingface.co/swiss-ai.
"""

from unbraid.codecs import KeyedArray
from unbraid.table import (
    ANY, CONTENT, ENDED, REASONING, ROLE, START, WAITING, Format, Start, Thinking, calling, special, turn,
)  # fmt: skip

ASSISTANT, END = turn("<|assistant_start|>"), turn("<|assistant_end|>")
USER, SYSTEM, DEVELOPER = turn("<|user_start|>"), turn("<|system_start|>"), turn("<|developer_start|>")
OTHER_END = turn("<|user_end|>", "<|system_end|>", "<|developer_end|>")

INNER, UNINNER = special("<|inner_prefix|>"), special("<|inner_suffix|>", before=ANY, lead="")
TOOLS, UNTOOLS = special("<|tools_prefix|>"), special("<|tools_suffix|>", before=ANY, lead="")
INNER_TOOLS = special("<|tools_prefix|>", before=ANY, lead="")
CALLING = calling(KeyedArray())
CALLING_WITHIN = calling(KeyedArray(), "calling within a thought")

APERTUS = Format(
    name="apertus",
    about="Apertus 8B and 70B (2509): thinks by a switch, off by default; calls as an array keyed by name",
    aliases=("apertus2509",),
    models=("*Apertus-*",),
    states={
        WAITING: {INNER: REASONING, UNINNER: CONTENT, TOOLS: CALLING},
        REASONING: {UNINNER: CONTENT, INNER: REASONING, INNER_TOOLS: CALLING_WITHIN},
        CONTENT: {INNER: REASONING, UNINNER: CONTENT, TOOLS: CALLING, UNTOOLS: CONTENT},
        CALLING: {UNTOOLS: CONTENT, TOOLS: CALLING, INNER: REASONING},
        CALLING_WITHIN: {UNTOOLS: REASONING, TOOLS: CALLING_WITHIN, UNINNER: CONTENT},
        ROLE: {},
        ENDED: {},
    },
    turns={ASSISTANT: START, USER: ROLE, SYSTEM: ROLE, DEVELOPER: ROLE, END: ENDED, OTHER_END: ENDED},
    thinking=Thinking(("enable_thinking",), default=False),
    start=Start(on=WAITING),
)
