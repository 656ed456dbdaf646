"""SGLang's detectors, in process: the reasoning parser, and behind it the function-call parser, as its server chains
them."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from benchmarks.rivals.base import Fold, Result, Rival
from benchmarks.workloads import TOOLS

if TYPE_CHECKING:
    from benchmarks.contest import Prepared


def load() -> Rival | None:
    """The adapter, if SGLang's parsers can be imported (its wheel unpacked on the path is enough)."""
    if find_spec("sglang") is None:
        return None
    return SGLang()


class SGLang:
    name = "sglang"

    def __init__(self) -> None:
        self._reasoning = import_module("sglang.srt.parser.reasoning_parser").ReasoningParser
        self._calls = import_module("sglang.srt.function_call.function_call_parser").FunctionCallParser
        tool = import_module("sglang.srt.entrypoints.openai.protocol").Tool
        self._tools = [tool(**definition) for definition in TOOLS]
        try:
            self.version = version("sglang")
        except PackageNotFoundError:
            self.version = getattr(import_module("sglang"), "__version__", "unknown")

    def contestant(self, prepared: Prepared, mode: str) -> Callable[[], Result] | None:
        workload = prepared.workload
        if "sglang" not in workload.parsers or "ids" in mode:
            return None  # its parsers read text only
        tool, reasoning = workload.parsers["sglang"]
        texts = prepared.texts if workload.format == "harmony" else prepared.cut_texts
        forced = workload.opened
        tools, Calls, Reasoning = self._tools, self._calls, self._reasoning

        def make() -> tuple[Any, Any]:
            return Reasoning(reasoning, stream_reasoning=True, force_reasoning=forced or None), Calls(tools, tool)

        if mode == "whole text":
            text = "".join(texts[1])

            def whole() -> Result:
                thinker, caller = make()
                thought, rest = thinker.parse_non_stream(text)
                content, calls = caller.parse_non_stream(rest or "")
                return Result(thought or None, content or None, [(call.name, call.parameters) for call in calls])

            return whole
        deltas = texts[int(mode.rpartition("x")[2])]

        def stream() -> Result:
            thinker, caller = make()
            fold = Fold()

            # Its server asks the second parser at every step. Where the first one leaves nothing, we spare it that.
            def hand_on(thought: str | None, rest: str | None) -> None:
                if thought:
                    fold.reasoning.append(thought)
                if rest:
                    content, calls = caller.parse_stream_chunk(rest)
                    add(content, calls)

            def add(content: str | None, calls: Any) -> None:
                if content:
                    fold.content.append(content)
                for call in calls:
                    fold.call(call.tool_index, call.name, call.parameters)

            for delta in deltas:
                hand_on(*thinker.parse_stream_chunk(delta))
            hand_on(*thinker.parse_stream_end())
            add(*caller.parse_stream_end())
            _flush(caller.detector, fold)
            return fold.result()

        return stream


def _flush(detector: Any, fold: Fold) -> None:
    """Its server sends what a call's arguments still lack when the stream ends."""
    for index, seen in enumerate(getattr(detector, "prev_tool_call_arr", ())):
        if index in fold.arguments and isinstance(seen.get("arguments"), dict):
            sent = "".join(fold.arguments[index])
            whole = json.dumps(seen["arguments"], ensure_ascii=False)
            if whole.startswith(sent):
                fold.call(index, None, whole[len(sent) :])
