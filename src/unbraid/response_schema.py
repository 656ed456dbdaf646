"""The older `response_schema` of Hugging Face tokenizers, as the response template that says the same.

A schema looks at the whole output once for every property, by regular expressions, so it can't be streamed. What is published has
few shapes: a text between two delimiters, calls between two delimiters with JSON inside. Those are recognised here, others refused.

    {"type": "object", "properties": {
        "thinking": {"type": "string", "x-regex": "<think>(.*?)</think>"},
        "content": {"type": "string", "x-regex": "</think>(.*?)<\\\\|im_end\\\\|>"},
        "tool_calls": {"type": "array", "x-regex-iterator": "<tool_call>(.*?)</tool_call>",
                       "items": {"x-parser": "json", "x-parser-args": {"transform": "{type: 'function', function: @}"}}}}}
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from unbraid.errors import TableError
from unbraid.pattern import Begin, Group, Item, Maybe, NoMarker, Text, alternatives

_TEXTS = ("thinking", "reasoning", "reasoning_content", "content")
_FUNCTION = re.compile(r"\[?\{\s*type:\s*'function',\s*function:\s*@\s*\}\]?")
_EACH = re.compile(r"\[\*\]\.\{\s*type:\s*'function',\s*function:\s*\{\s*name:\s*(\w+),\s*arguments:\s*(\w+)\s*\}\s*\}")
_WRAPPED = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}


def to_template(schema: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The response template that says what this schema says, without an anchor (schemas have none).

    Raises `TableError` if it has no shape that is known.
    """
    return _Schema(schema, source).template()


class _Schema:
    def __init__(self, schema: Mapping[str, Any], source: str) -> None:
        self.schema = schema
        self.source = source

    def template(self) -> dict[str, Any]:
        properties = self.schema.get("properties")
        if not isinstance(properties, dict):
            self.fail("properties", "is missing: what a message holds")
        whole = self.whole(set(properties) & {*_TEXTS, "tool_calls"})
        fields: dict[str, Any] = {}
        for name, said in properties.items():
            if isinstance(said, dict) and name in _TEXTS:
                fields[name] = self.text(name, said, whole.get(name))
            elif isinstance(said, dict) and name == "tool_calls":
                fields[name] = self.calls(said, whole.get(name))
        opened = {
            text for name, f in fields.items() for text in f.get("close", ()) if name not in ("content", "tool_calls")
        }
        # Content that begins where the thought ends is what is left over.
        if opened & set(fields.get("content", {}).get("open", ())):
            del fields["content"]["open"]
        return {"fields": fields}

    def whole(self, names: set[str]) -> dict[str, dict[str, Any]]:
        """The delimiters around each named group of the pattern of the whole output, if it has one."""
        pattern = self.schema.get("x-regex")
        if pattern is None:
            return {}
        options = self.pattern(pattern, "x-regex")
        homes = {name: [home for option in options if (home := _home(option, name))] for name in names}
        return {name: found for name in names if (found := _around(homes[name], name))}

    def text(self, name: str, said: Mapping[str, Any], found: dict[str, Any] | None) -> dict[str, Any]:
        place = f"properties/{name}"
        if (pattern := said.get("x-regex")) is not None:
            options = [[*_flat(option)] for option in self.pattern(pattern, f"{place}/x-regex")]
            found = _around(options, "")
        if found is None or (name != "content" and "open" not in found and "open_pattern" not in found):
            if name != "content":
                self.fail(place, "no pattern says where it stands")
            found = {}
        if name == "content" and "close" in found and "open" not in found:
            found = {"close": found["close"]}
        return found

    def calls(self, said: Mapping[str, Any], found: dict[str, Any] | None) -> dict[str, Any]:
        place = "properties/tool_calls"
        items = self.object(said.get("items"), f"{place}/items")
        many = "x-regex-iterator" not in said
        pattern = said.get("x-regex-iterator") or said.get("x-regex")
        if pattern is not None:
            found = _around([[*_flat(o)] for o in self.pattern(pattern, f"{place}/x-regex-iterator")], "")
        if not found or "open" not in found:
            self.fail(place, "expected a pattern with a text before and behind one group")
        parsed = said if "x-parser" in said else items
        args = self.object(parsed.get("x-parser-args"), f"{place}/x-parser-args")
        if parsed.get("x-parser") == "json":
            return {
                **found,
                "content": "json",
                **self.transform(args.get("transform"), place),
                **({} if many else {"repeats": True}),
            }
        arguments = items
        for key in ("properties", "function", "properties", "arguments"):
            arguments = self.object(arguments.get(key), f"{place}/items")
        if arguments.get("x-parser") == "gemma4-tool-call":
            opener = "|".join(map(re.escape, found["open"]))
            return {
                "open_pattern": rf"(?:{opener})call:(?P<name>\w+)", "close": found.get("close"), "repeats": True,
                "content": "json", "transform": _WRAPPED,
                "content_args": {"unquoted_keys": True, "string_delims": [['<|"|>', '<|"|>']]},
            }  # fmt: skip
        if tag := arguments.get("x-regex-key-value"):
            opener = "|".join(map(re.escape, found["open"]))
            return {
                "open_pattern": rf"(?:{opener})\s*(?P<name>\S+)", "close": found.get("close"), "repeats": True,
                "content": "xml-inline", "transform": _WRAPPED,
                "content_args": {"tag_pattern": tag, "value_parser": {"name": "json"}},
            }  # fmt: skip
        self.fail(f"{place}/items", "calls are read here if they are JSON, Gemma's, or key and value elements")

    def transform(self, said: Any, place: str) -> dict[str, Any]:
        """The JMESPath expressions that are published, as a template's transform."""
        if said is not None and not isinstance(said, str):
            self.fail(f"{place}/x-parser-args/transform", "expected a text")
        if said is None or _FUNCTION.fullmatch(said):
            return {"transform": {"type": "function", "function": "{content}"}} if said else {}
        if match := _EACH.fullmatch(said):
            name, arguments = match.groups()
            function = {"name": f"{{{name}}}", "arguments": f"{{{arguments}}}"}
            return {"transform": {"type": "function", "function": function}, "transform_each": True}
        self.fail(f"{place}/x-parser-args/transform", f"this JMESPath expression isn't known: {said!r}")

    def object(self, data: Any, place: str) -> Mapping[str, Any]:
        """A node of the schema; an empty one if there is none."""
        if data is not None and not isinstance(data, dict):
            self.fail(place, f"expected an object, found {str(data)[:40]!r}")
        return data or {}

    def pattern(self, pattern: Any, place: str) -> list[list[Item]]:
        if not isinstance(pattern, str):
            self.fail(place, "expected a regular expression")
        try:
            return alternatives(pattern)
        except NoMarker as error:
            self.fail(place, f"{str(error)!r} is more than a marker can say; take the format's own table instead")

    def fail(self, place: str, message: str) -> NoReturn:
        raise TableError(self.source, f"response_schema, {place}: {message}")


def _home(items: Sequence[Item], name: str) -> list[Item] | None:
    """The items among which a group stands: those in its own brackets before it, all behind it."""
    for at, item in enumerate(items):
        if isinstance(item, Group) and item.name == name:
            return [*(i for i in items[:at] if not isinstance(i, Maybe)), item, *_flat(items[at + 1 :])]
        if isinstance(item, Maybe) and (found := _home(item.items, name)):
            return [*found, *_flat(items[at + 1 :])]
    return None


def _flat(items: Sequence[Item]) -> Iterator[Item]:
    """What may be missing as if it were there."""
    for item in items:
        if isinstance(item, Maybe):
            yield from _flat(item.items)
        else:
            yield item


def _around(options: Sequence[Sequence[Item]], name: str) -> dict[str, Any] | None:
    """What stands right before and behind a group, as a field's delimiters."""
    openers: dict[str, None] = {}
    closers: dict[str, None] = {}
    begins = found = False
    for items in options:
        at = next((n for n, item in enumerate(items) if isinstance(item, Group) and item.name == name), None)
        if at is None:
            continue
        found = True
        before, behind = [*reversed(items[:at])], items[at + 1 :]
        opener = next((item for item in before if isinstance(item, Text | Group | Begin)), None)
        closer = next((item for item in behind if isinstance(item, Text | Group)), None)
        begins = begins or isinstance(opener, Begin)
        openers |= {opener.text: None} if isinstance(opener, Text) else {}
        closers |= {closer.text: None} if isinstance(closer, Text) else {}
    if not found:
        return None
    out: dict[str, Any] = {}
    if openers and begins:
        out["open_pattern"] = "(?:^|" + "|".join(map(re.escape, openers)) + ")"
    elif openers:
        out["open"] = list(openers)
    if closers:
        out["close"] = list(closers)
    return out


__all__ = ["to_template"]
