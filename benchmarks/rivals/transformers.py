"""The response parser of transformers (5.x), which reads a declarative template.

The templates here are ours, written for the workloads in the words of its documentation: a model's own may differ in
detail.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from benchmarks.rivals.base import Result, Rival
from benchmarks.workloads import TOOLS

if TYPE_CHECKING:
    from benchmarks.contest import Prepared

_QWEN: dict[str, Any] = {
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "thinking": {"open": "<think>", "close_pattern": r"</think>|(?=<tool_call>)"},
        "content": {"close": "<|im_end|>", "repeats": True, "join": ""},
    },
}
_FUNCTION = {"type": "function", "function": {"name": "{content.name}", "arguments": "{content.arguments}"}}
_JSON_CALLS = {
    "open": "<tool_call>",
    "close": "</tool_call>",
    "content": "json",
    "repeats": True,
    "transform": _FUNCTION,
}
_XML_CALLS = {
    "open_pattern": r"<tool_call>\n<function=(?P<name>[^>\n]+)>\n",
    "close": "</function>\n</tool_call>",
    "content": "xml-inline",
    "content_args": {
        "tag_pattern": r"<parameter=(?P<key>[^>\n]+)>\n(?P<value>.*?)\n</parameter>",
        "value_parser": {"name": "text", "args": {"strip": False}},
    },
    "repeats": True,
    "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
}
TEMPLATES = {
    "qwen3": {**_QWEN, "fields": {**_QWEN["fields"], "tool_calls": _JSON_CALLS}},
    "qwen3_5": {**_QWEN, "fields": {**_QWEN["fields"], "tool_calls": _XML_CALLS}},
}


def load() -> Rival | None:
    """The adapter, if a transformers with the streaming response parser is there."""
    if find_spec("transformers") is None or find_spec("transformers.utils.chat_parsing") is None:
        return None
    return Transformers()


class Transformers:
    name = "transformers"

    def __init__(self) -> None:
        parsing = import_module("transformers.utils.chat_parsing.response_parser")
        templates = import_module("transformers.utils.chat_parsing.response_templates")
        self._parser, self._parse = parsing.ResponseParser, parsing.parse_response
        self._templates = {name: templates.load_response_template(given) for name, given in TEMPLATES.items()}
        self.version = version("transformers")

    def contestant(self, prepared: Prepared, mode: str) -> Callable[[], Result] | None:
        workload = prepared.workload
        template = self._templates.get(workload.format)
        if template is None or "ids" in mode:
            return None  # it reads text only
        prefix, Parser, parse = workload.prompt, self._parser, self._parse
        if mode == "whole text":
            text = workload.text
            return lambda: _result(parse(text, template, prefix=prefix, tools=TOOLS))
        deltas = prepared.texts[int(mode.rpartition("x")[2])]

        def stream() -> Result:
            parser = Parser(template, prefix=prefix, tools=TOOLS)
            feed = parser.feed
            for delta in deltas:
                for _event in feed(delta):
                    pass
            message, _ = parser.finalize()
            return _result(message)

        return stream


def _result(message: dict[str, Any]) -> Result:
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    return Result(
        message.get("thinking"),
        message.get("content"),
        [(call["name"], json.dumps(call["arguments"])) for call in calls],
    )
