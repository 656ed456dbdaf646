"""Calls as text, for models whose chat template doesn't know tools: shown to them as an example, and in their history.

Reads the format's table only as far as such models need it: an opener in content, the body, its closer. Formats with
sections around their calls come with templates that write them. (The renderer, `unbraid.render`, will know all of it.)
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from unbraid.codecs.base import Codec, WrittenCall
from unbraid.table import ANY, Format, Marker, spelled


def written_calls(format: Format, calls: Sequence[Mapping[str, Any]]) -> str | None:
    """Calls in the format's own syntax, one below the other; `None` if it takes more than opener, body and closer."""
    syntax = _syntax(format)
    if syntax is None:
        return None
    opener, codec, closer = syntax
    return "\n".join(f"{_around(opener)}{_body(codec, call)}{_around(closer)}" for call in calls)


def example_call(format: Format, tools: Sequence[Mapping[str, Any]]) -> str | None:
    """How a call looks, made up from the first tool: its required parameters, with a word for what belongs there."""
    function = tools[0]["function"]
    parameters = function.get("parameters") or {}
    names = parameters.get("required") or list(parameters.get("properties") or ())[:1]
    arguments = {name: "..." for name in names if isinstance(name, str)}
    return written_calls(format, [{"id": "call_1", "function": {"name": function["name"], "arguments": arguments}}])


def _syntax(format: Format) -> tuple[Marker, Codec, Marker] | None:
    for state, row in format.states.items():
        for opener, target in row.items():
            if state.strand == "content" and target.codec is not None:
                closers = (closer for closer, after in format.states[target].items() if after.codec is None)
                closer = next(closers, None)
                return None if closer is None else (opener, target.codec, closer)
    return None


def _around(marker: Marker) -> str:
    before, after = ("" if space == ANY else space for space in (marker.before, marker.after))
    return f"{before}{marker.text}{after}"


def _body(codec: Codec, call: Mapping[str, Any]) -> str:
    function = call["function"]
    arguments = function["arguments"] or "{}"
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return spelled(codec.write([WrittenCall(function["name"], arguments, call.get("id") or "", 0)]))
