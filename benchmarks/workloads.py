"""What is measured: workloads named by their shape, each with the message that a right parser must find in it.

A workload is made from its parts (reasoning, content, calls), so what is expected is known before anything parses it.
Raw text is written here by hand for each syntax, not by `unbraid.render`: the yardstick doesn't lean on what it
measures.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks import prose, tokens
from benchmarks.tokens import Tokens

Call = tuple[str, dict[str, Any]]

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "write_file",
            "description": "Write a text file.",
            "parameters": {
                "type": "object",
                "properties": {
                    "path": {"type": "string"},
                    "text": {"type": "string"},
                    "mode": {"type": "integer"},
                    "tags": {"type": "array", "items": {"type": "string"}},
                },
                "required": ["path", "text"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather somewhere.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["city"],
            },
        },
    },
]


@dataclass(frozen=True)
class Expected:
    """The message that is in a workload. Arguments are compared as values, not as text."""

    reasoning: str | None = None
    content: str | None = None
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True)
class Workload:
    """One stream of tokens: one answer to one request."""

    name: str
    format: str
    tokens: Tokens
    prompt: str
    text: str
    expected: Expected
    family: str = ""
    """Workloads of a family differ in length only: a slow contestant isn't made to run the longer ones."""
    bound: tuple[float, float] = (5.0, 3.0)
    """The most that issue 7 allows, in floors: one token a delta, eight tokens a delta."""
    parsers: dict[str, tuple[str | None, str | None]] = field(default_factory=dict)
    """Engine -> names of its (tool, reasoning) parsers for this format."""
    stop: str = ""
    """The stop token at the end of the text: we are fed it, as an engine that hands on all ids would; the rivals
    aren't, because their engines cut it off."""
    opened: bool = False
    """The prompt has opened reasoning already."""

    @property
    def thinking(self) -> bool:
        return self.expected.reasoning is not None


QWEN_ON = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
QWEN_OFF = QWEN_ON + "<think>\n\n</think>\n\n"


def qwen_json(calls: tuple[Call, ...]) -> str:
    return "\n".join(
        "<tool_call>\n" + json.dumps({"name": n, "arguments": a}, ensure_ascii=False) + "\n</tool_call>"
        for n, a in calls
    )


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def qwen_xml(calls: tuple[Call, ...]) -> str:
    return "\n".join(
        f"<tool_call>\n<function={name}>\n"
        + "".join(f"<parameter={key}>\n{_plain(value)}\n</parameter>\n" for key, value in arguments.items())
        + "</function>\n</tool_call>"
        for name, arguments in calls
    )


def glm_pairs(calls: tuple[Call, ...]) -> str:
    return "".join(
        f"<tool_call>{name}"
        + "".join(f"<arg_key>{k}</arg_key><arg_value>{_plain(v)}</arg_value>" for k, v in arguments.items())
        + "</tool_call>"
        for name, arguments in calls
    )


def minimax_section(calls: tuple[Call, ...]) -> str:
    invokes = "".join(
        f'<invoke name="{name}">\n'
        + "".join(f'<parameter name="{k}">{_plain(v)}</parameter>\n' for k, v in arguments.items())
        + "</invoke>\n"
        for name, arguments in calls
    )
    return f"<minimax:tool_call>\n{invokes}</minimax:tool_call>"


def deepseek_tokens(calls: tuple[Call, ...]) -> str:
    body = "".join(
        f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{json.dumps(arguments, ensure_ascii=False)}<｜tool▁call▁end｜>"
        for name, arguments in calls
    )
    return f"<｜tool▁calls▁begin｜>{body}<｜tool▁calls▁end｜>"


@dataclass(frozen=True)
class Syntax:
    """How one family writes a turn; just enough to write workloads in it."""

    format: str
    tokens: Callable[[], Tokens]
    thinking: str
    """Prompt after which the output starts inside reasoning, or writes the opener itself."""
    plain: str
    """Prompt after which the output is content."""
    opener: str
    closer: str
    calls: Callable[[tuple[Call, ...]], str]
    end: str
    before_calls: str = "\n"
    parsers: dict[str, tuple[str | None, str | None]] = field(default_factory=dict)

    def write(
        self,
        name: str,
        *,
        reasoning: str | None = None,
        content: str | None = None,
        calls: tuple[Call, ...] = (),
        **options: Any,
    ) -> Workload:
        head = f"{self.opener}{reasoning}{self.closer}" if reasoning else ""
        tail = self.calls(calls) if calls else ""
        between = self.before_calls if content and calls else ""
        return Workload(
            name=name,
            format=self.format,
            tokens=self.tokens(),
            prompt=self.thinking if reasoning else self.plain,
            text=f"{head}{content or ''}{between}{tail}{self.end}",
            expected=Expected(reasoning, content, calls),
            parsers=self.parsers,
            stop=self.end,
            opened=bool(reasoning) and not self.opener,
            **options,
        )


QWEN3 = Syntax(
    format="qwen3",
    tokens=lambda: tokens.packaged("qwen-3"),
    thinking=QWEN_ON,
    plain=QWEN_OFF,
    opener="<think>\n",
    closer="\n</think>\n\n",
    calls=qwen_json,
    end="<|im_end|>",
    parsers={"vllm": ("hermes", "qwen3"), "sglang": ("qwen25", "qwen3")},
)
QWEN3_5 = replace(
    QWEN3,
    format="qwen3_5",
    tokens=lambda: tokens.packaged("qwen-3.5"),
    calls=qwen_xml,
    before_calls="\n\n",
    parsers={"vllm": ("qwen3_coder", "qwen3"), "sglang": ("qwen3_coder", "qwen3")},
)
GLM47 = Syntax(
    format="glm47",
    tokens=lambda: tokens.packaged("glm-4.7-flash"),
    thinking="[gMASK]<sop><|user|>Hello<|assistant|><think>",
    plain="[gMASK]<sop><|user|>Hello<|assistant|></think>",
    opener="",
    closer="</think>",
    calls=glm_pairs,
    end="<|observation|>",
    before_calls="",
    parsers={"vllm": ("glm47", "glm45"), "sglang": ("glm47", "glm45")},
)
MINIMAX = Syntax(
    format="minimax_m2",
    tokens=lambda: tokens.packaged("minimax"),
    thinking="]~!b[]~b]user\nHello[e~[\n]~b]ai\n<think>\n",
    plain="]~!b[]~b]user\nHello[e~[\n]~b]ai\n<think>\n\n</think>\n\n",
    opener="",
    closer="\n</think>\n\n",
    calls=minimax_section,
    end="[e~[",
    parsers={"vllm": ("minimax_m2", "minimax_m2"), "sglang": ("minimax-m2", "minimax")},
)
DEEPSEEK = Syntax(
    format="deepseek_v31",
    tokens=lambda: tokens.packaged("deepseek-v3.1"),
    thinking="<｜begin▁of▁sentence｜><｜User｜>Hello<｜Assistant｜><think>",
    plain="<｜begin▁of▁sentence｜><｜User｜>Hello<｜Assistant｜></think>",
    opener="",
    closer="</think>",
    calls=deepseek_tokens,
    end="<｜end▁of▁sentence｜>",
    before_calls="",
    parsers={"vllm": ("deepseek_v31", "deepseek_v3"), "sglang": ("deepseekv31", "deepseek-v3")},
)


def harmony_call(calls: tuple[Call, ...]) -> str:
    """One call: `<|call|>` is a stop token, there is no second."""
    ((name, arguments),) = calls
    body = json.dumps(arguments, ensure_ascii=False)
    return f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{body}<|call|>"


HARMONY = Syntax(
    format="harmony",
    tokens=tokens.gptoss,
    thinking="<|start|>user<|message|>Hello<|end|><|start|>assistant",
    plain="<|start|>user<|message|>Hello<|end|><|start|>assistant",
    opener="<|channel|>analysis<|message|>",
    closer="<|end|><|start|>assistant",
    calls=harmony_call,
    end="",
    parsers={"vllm": ("openai", "openai_gptoss"), "sglang": ("gpt-oss", "gpt-oss"), "openai-harmony": (None, None)},
)


def _cut(text: str, source: Tokens, count: int) -> str:
    """The first `count` tokens of `text`, as text."""
    cut = source.vocabulary.decode(source.encode(text)[:count])
    return cut.rstrip("\ufffd").strip()


def _weather(index: int) -> Call:
    cities = ("Oslo", "Lisbon", "Kyoto", "São Paulo", 'Nice\n"Sud"')
    return "get_weather", {"city": cities[index % 5], "days": index + 1}


def _file(text: str) -> Call:
    return "write_file", {"path": "src/a.py", "text": text, "mode": 420, "tags": ["a", "b<c"]}


def everything() -> Iterator[Workload]:
    """All workloads, in the order of the table."""
    source = QWEN3.tokens()
    yield QWEN3.write("plain_2k_tokens", content=_cut(prose.prose(16_000), source, 2_000))
    yield QWEN3.write(
        "reasoning_20k_tokens", reasoning=_cut(prose.prose(160_000), source, 20_000), content="So it is forty-two."
    )
    yield QWEN3.write(
        "short_requests",
        reasoning="They say hello. I say hello.",
        content="Hello! How can I help you today?",
    )
    yield QWEN3.write("parallel_16_calls", reasoning="All of them.", calls=tuple(_weather(n) for n in range(16)))
    yield QWEN3.write(
        "json_calls",
        content="I write both files.",
        calls=tuple(_file(prose.code(600, seed)) for seed in range(8)),
    )
    for size, label in ((20_000, "20k"), (100_000, "100k")):
        yield QWEN3.write(f"json_call_{label}", calls=(_file(prose.code(size)),), family="json_call")
    for size, label in ((5_000, "5k"), (20_000, "20k"), (100_000, "100k"), (1_000_000, "1M")):
        yield QWEN3_5.write(f"xml_call_{label}", calls=(_file(prose.code(size)),), bound=(12, 3), family="xml_call")
    yield QWEN3_5.write("angles_in_content", content=prose.angles(20_000), bound=(12, 3))
    yield QWEN3_5.write("angles_in_argument", calls=(_file(prose.angles(20_000)),), bound=(12, 3))
    yield GLM47.write("pairs_call_20k", reasoning="Hm.", calls=(_file(prose.code(20_000)),), bound=(12, 3))
    yield MINIMAX.write("section_call_20k", reasoning="Hm.", calls=(_file(prose.code(20_000)),), bound=(12, 3))
    yield DEEPSEEK.write("bare_json_call_20k", content="Look:", calls=(_file(prose.code(20_000)),))
    yield harmony()


def harmony() -> Workload:
    """Reasoning in one channel, a preamble in another, a call."""
    calls = (_file(prose.code(2_000)),)
    written = HARMONY.write("harmony", reasoning=prose.prose(12_000), calls=calls, bound=(6, 3))
    preamble = "I write the file and look at the sky."
    head, tail = written.text.split("<|start|>assistant", 1)
    spoken = f"<|start|>assistant<|channel|>commentary<|message|>{preamble}<|end|><|start|>assistant"
    return replace(written, text=head + spoken + tail, expected=replace(written.expected, content=preamble))
