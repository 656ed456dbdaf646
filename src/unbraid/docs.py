"""The pages about formats, each made from its table and its fixtures: `python -m unbraid.docs`.

A page shows the raw text first, then what the table says of it, then examples both ways, and what the format can't
hold. Nothing on it is written by hand but the docstring of the format's file, so nothing can be out of date: a test makes
the pages anew and compares.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import pkgutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import unbraid.formats
from unbraid.cli.formats import writes
from unbraid.cli.show import alternatives, blank, call_ids, facts, kind, notes_on, remark, spellings, starts, thinking
from unbraid.diagram import diagram
from unbraid.errors import RenderError, VocabularyError
from unbraid.formats import FORMATS
from unbraid.message import Message, ToolCall
from unbraid.render import render, render_ids
from unbraid.table import Format, spelled
from unbraid.vocabulary import Vocabulary

Json = dict[str, Any]

MADE_BY = "Made by `python -m unbraid.docs` from {source}: change those, not this."
_WANTED = ("call", "reasoning", "parallel", "marker", "cut", "earlier", "content")
_EXAMPLES = 5


def pages(data: Path) -> dict[str, str]:
    """Every page by its path below the folder of the documentation. `data`: the folder of the fixtures."""
    found = {"formats/README.md": _index()}
    for name, module in _modules().items():
        found[f"formats/{name}.md"] = _page(FORMATS[name], module, data / f"{name}.jsonl")
    return found


def _modules() -> dict[str, ModuleType]:
    """Format -> the module that holds its table."""
    found: dict[str, ModuleType] = {}
    for info in pkgutil.iter_modules(unbraid.formats.__path__):
        module = importlib.import_module(f"{unbraid.formats.__name__}.{info.name}")
        source = inspect.getsource(module)
        for variable, table in vars(module).items():  # a relative's table may be imported
            if isinstance(table, Format) and FORMATS.get(table.name) is table and f"\n{variable} = " in source:
                found[table.name] = module
    return found


def _index() -> str:
    rows = [
        (f"[{name}]({name}.md)", _cell(fmt.about), ", ".join(writes(fmt)), _codes(fmt.aliases), _codes(fmt.models))
        for name, fmt in sorted(FORMATS.items())
    ]
    lines = [
        f"<!-- {MADE_BY.format(source='the tables in src/unbraid/formats')} -->",
        "# Formats",
        "",
        f"{len(rows)} formats. The names under which vLLM and SGLang know them are aliases; a model's id finds its format.",
        "To add one: [eight steps](../adding-a-format.md). Where we read something else than the engines do, and why:",
        "[departures](../departures.md). What a tokenizer says of itself: [response templates](../response-templates.md).",
        "",
        *_table(("format", "what it is", "holds", "aliases", "models"), rows),
    ]
    return "\n".join(lines) + "\n"


def _page(fmt: Format, module: ModuleType, fixtures: Path) -> str:
    file = f"{module.__name__.rpartition('.')[2]}.py"
    source = f"src/unbraid/formats/{file} and tests/data/{fixtures.name}"
    cases = [json.loads(line) for line in fixtures.read_text("utf-8").split("\n") if line] if fixtures.exists() else []
    lines = [
        f"<!-- {MADE_BY.format(source=source)} -->",
        f"# {fmt.name}",
        "",
        _sentence(fmt.about),
        "",
        *_facts(fmt),
        "",
        "## How it writes, and its traps",
        "",
        f"From the docstring of [{file}](../../src/unbraid/formats/{file}), which may cover more than this format:",
        "",
        *_quoted(inspect.getdoc(module) or ""),
        "",
        "## Markers",
        "",
        *_markers(fmt),
        "",
        "## States",
        "",
        *_states(fmt),
        "",
        "```",
        diagram(fmt).rstrip(),
        "```",
        "",
        "## Examples",
        "",
        *_examples(cases),
        "## What it can't hold",
        "",
        *_limits(fmt),
    ]
    return "\n".join(line.rstrip() if not line.startswith(" ") else line for line in lines).rstrip() + "\n"


# -- parts of a page ---------------------------------------------------------------------------------------------------


def _facts(fmt: Format) -> list[str]:
    rows = [
        ("holds", ", ".join(writes(fmt))),
        ("aliases", _codes(fmt.aliases)),
        ("models", _codes(fmt.models)),
        ("thinking switch", _cell(thinking(fmt))),
        ("an answer starts in", ", ".join(f"`{state.name}` ({when})" for when, state in starts(fmt).items())),
        ("call ids", _code(call_ids(fmt)) if fmt.calls else ""),
        ("visible special tokens", _codes(fmt.visible)),
    ]
    return [f"- {name}: {said}" for name, said in rows if said]


def _quoted(docstring: str) -> list[str]:
    """A docstring as it is: its samples are indented and so are code, its prose is a quotation."""
    return [f"> {line}".rstrip() for line in docstring.split("\n")]


def _markers(fmt: Format) -> list[str]:
    rows = [
        (
            " or ".join(map(_code, spellings(marker))) or f"({marker})",
            kind(marker),
            blank(marker.before).replace("\\", "\\\\"),
            blank(marker.after).replace("\\", "\\\\"),
            remark(marker),
        )
        for marker in fmt.markers
    ]
    return _table(("marker", "kind", "owns before", "owns after", ""), rows)


def _states(fmt: Format) -> list[str]:
    rows = []
    for state in fmt.states:
        bodies = [f"body: {type(c).__name__}({', '.join(filter(None, facts(c)))})" for c in alternatives(state.codec)]
        rows.append((f"`{state.name}`", state.strand, "; ".join([*notes_on(state), *(_code(b) for b in bodies)])))
    return _table(("state", "strand", ""), rows)


def _examples(cases: Sequence[Json]) -> list[str]:
    """A few fixtures, raw and read: one of each kind that says most."""
    chosen: list[Json] = []
    plain = [case for case in cases if "⟦" not in case["raw"] + case.get("prompt", "") and len(case["raw"]) < 900]
    for wanted in _WANTED:
        case = next((c for c in plain if wanted in c["name"] and c not in chosen), None)
        if case is not None and len(chosen) < _EXAMPLES:
            chosen.append(case)
    lines: list[str] = []
    for case in chosen:
        lines += [f"### {case['name'].replace('_', ' ')}", ""]
        if why := case.get("why"):
            lines += [_sentence(why[0].upper() + why[1:]), ""]
        if prompt := case.get("prompt"):
            lines += ["The prompt ends in", "", *_fenced(prompt[-160:]), ""]
        cut = ", and is cut off there" if case.get("finish") == "length" else ""
        lines += [f"The model writes{cut}", "", *_fenced(case["raw"]), "", "which reads as", ""]
        lines += [*_fenced(json.dumps(_message(case), ensure_ascii=False, indent=1), "json"), ""]
    return lines or ["None yet.", ""]


def _message(case: Json) -> Json:
    said = {key: case[key] for key in ("reasoning", "content") if case.get(key) is not None}
    calls = [_call(*call) for call in case.get("calls", [])]
    return {**said, "tool_calls": calls} if calls else said


def _call(name: str, arguments: Any, complete: bool = True) -> Json:
    return {"name": name, "arguments": arguments, **({} if complete else {"complete": False})}


# -- what a format can't hold ------------------------------------------------------------------------------------------

_PLAIN = '{"a": "b"}'


def _shapes() -> Iterator[tuple[str, Message]]:
    """Messages without traps: what of them can be written at all."""
    call, other = ToolCall("", "f", _PLAIN), ToolCall("", "g", "{}")
    yield "reasoning", Message("Hm.", "Yes.")
    yield "reasoning alone", Message("Hm.")
    yield "content", Message(None, "Yes.")
    yield "a call", Message(None, None, [call])
    yield "a call without arguments", Message(None, None, [other])
    yield "content and a call", Message(None, "Yes.", [call])
    yield "several calls", Message(None, None, [call, other])
    yield "nested arguments", Message(None, None, [ToolCall("", "f", '{"a": {"b": [1, null, {"c": true}]}}')])
    yield "an argument that is an empty string", Message(None, None, [ToolCall("", "f", '{"a": ""}')])
    yield "an argument with newlines at its ends", Message(None, None, [ToolCall("", "f", '{"a": "\\n\\nb\\n\\n"}')])
    yield "an argument whose name has blanks and quotes", Message(None, None, [ToolCall("", "f", '{"a \\"b\\"": 1}')])
    yield "content with newlines at its ends", Message(None, "\n\nYes.\n\n")
    yield "reasoning with newlines at its ends", Message("\n\nHm.\n\n", "Yes.")


def _traps(text: str) -> Iterator[tuple[str, Message]]:
    """Messages that quote a marker or delimiter."""
    yield "content", Message(None, f"a {text} b")
    yield "reasoning", Message(f"a {text} b", "Yes.")
    argument = json.dumps({"a": f"b {text} c"}, ensure_ascii=False)
    yield "a string of a call's arguments", Message(None, None, [ToolCall("", "f", argument)])


def _limits(fmt: Format) -> list[str]:
    """Found out by trying: what the renderer refuses, because it would be read as something else."""
    table = fmt.replace()
    shapes = [(name, message) for name, message in _shapes() if fmt.reasons or not message.reasoning]
    shapes = [(name, message) for name, message in shapes if fmt.calls or not message.tool_calls]
    missing = [word for word, has in (("reasoning", fmt.reasons), ("tool calls", fmt.calls)) if not has]
    lines = [f"- {word[0].upper()}{word[1:]}: the format has no place for it." for word in missing]
    lines += [
        f"- {name[0].upper()}{name[1:]}: {said}" for name, message in shapes if (said := _refusal(table, message))
    ]
    bound = fmt.bind(_vocabulary(fmt))
    by_text: dict[str, list[str]] = {}
    by_ids: dict[str, list[str]] = {}
    for text in _delimiters(fmt):
        for place, message in _traps(text):
            if (message.reasoning and not fmt.reasons) or (message.tool_calls and not fmt.calls):
                continue
            if _refusal(table, message):
                by_text.setdefault(place, []).append(text)
                if _refuses_ids(bound, message):
                    by_ids.setdefault(place, []).append(text)
    for place, texts in by_text.items():
        lines.append(f"- As text, in {place}: {_codes(texts)}. {_by_ids(by_ids.get(place, []), texts)}")
    return lines or ["Nothing that was tried: every kind of message, and every marker quoted everywhere."]


def _by_ids(refused: Sequence[str], texts: Sequence[str]) -> str:
    if not refused:
        return "As token ids all of them can stand there: spelled with ordinary tokens they are no markers."
    return "As token ids neither." if len(refused) == len(texts) else f"As token ids only not {_codes(refused)}."


def _refusal(fmt: Format, message: Message) -> str:
    try:
        render(fmt, message, tools=_tools(message))
    except RenderError as error:
        return str(error).partition(": ")[2].replace("|", "\\|") + "."
    return ""


def _tools(message: Message) -> list[Json]:
    """Tools that say of every argument what type it has: where a format leaves types to them, that is no limit."""
    kinds = {str: "string", bool: "boolean", int: "integer", dict: "object"}
    found = []
    for call in message.tool_calls:
        properties = {key: {"type": kinds[type(value)]} for key, value in json.loads(call.arguments).items()}
        parameters = {"type": "object", "properties": properties}
        found.append({"type": "function", "function": {"name": call.name, "parameters": parameters}})
    return found


def _refuses_ids(bound: Any, message: Message) -> bool:
    try:
        render_ids(bound, message, tools=_tools(message))
    except (RenderError, VocabularyError):
        return True
    return False


def _vocabulary(fmt: Format) -> Vocabulary:
    """The smallest tokenizer: the single bytes, and the format's special tokens."""
    special = {text: 1000 + number for number, text in enumerate(fmt.specials)}
    return Vocabulary.from_tokens({byte: bytes([byte]) for byte in range(256)}, special)


def _delimiters(fmt: Format) -> list[str]:
    found = [spelled(s) for marker in fmt.markers for s in marker.spellings[:1]]
    for state in fmt.states:
        if state.codec:
            found += [spelled(s) for s in state.codec.spellings()]
    return [text for text in dict.fromkeys(found) if text.strip()]


# -- Markdown ----------------------------------------------------------------------------------------------------------


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"|{'|'.join(' --- ' for _ in head)}|"]
    return lines + [f"| {' | '.join(cell.replace(chr(10), ' ') for cell in row)} |" for row in rows]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _code(text: str) -> str:
    """Code in a line, also in a table: a bar must not end the cell."""
    fence = "``" if "`" in text else "`"
    gap = " " if fence == "``" else ""
    return f"{fence}{gap}{text}{gap}{fence}".replace("|", "\\|").replace("\n", "\\n") if text else ""


def _codes(texts: Iterable[str]) -> str:
    return ", ".join(map(_code, texts))


def _fenced(text: str, language: str = "") -> list[str]:
    fence = "````" if "```" in text else "```"
    return [f"{fence}{language}", text, fence]


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."


# -- the command -------------------------------------------------------------------------------------------------------


def stale(made: Mapping[str, str], out: Path) -> list[str]:
    """The pages that aren't in this folder as they should be, and those that should no longer be there."""
    there = {f"formats/{file.name}" for file in (out / "formats").glob("*.md")}
    changed = [name for name, text in made.items() if name not in there or (out / name).read_text("utf-8") != text]
    return sorted([*changed, *(there - made.keys())])


def main() -> int:
    """Write the pages."""
    parser = argparse.ArgumentParser(prog="python -m unbraid.docs", description="Make the pages about formats.")
    parser.add_argument("--data", type=Path, default=Path("tests/data"), help="the fixtures (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("docs"), help="where the pages go (default: %(default)s)")
    args = parser.parse_args()
    made = pages(args.data)
    (args.out / "formats").mkdir(parents=True, exist_ok=True)
    for name in stale(made, args.out):
        if name in made:
            (args.out / name).write_text(made[name], "utf-8", newline="\n")
        else:
            (args.out / name).unlink()
        print(args.out / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
