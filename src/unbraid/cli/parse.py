"""`unbraid parse`: raw output, taken apart.

The input is read in blocks and fed as it comes, so a recording of any size takes the memory of its message and no more.
"""

from __future__ import annotations

import argparse
import codecs
import json
import os
import re
import sys
import typing
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, BinaryIO, Literal

from unbraid import Parser, Policy, Vocabulary, get_format
from unbraid.cli.problems import FILE, Problem, label, near, read_text, read_tools, unreadable
from unbraid.events import CallArguments, CallEnd, CallStart, Event, Text
from unbraid.message import Message, Part, TextPart, ToolCall
from unbraid.terminal import BOLD, DIM, RED, STRANDS, Progress, Screen

BLOCK = 64 * 1024

Finish = Literal["stop", "length"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `unbraid parse`."""
    add = parser.add_argument
    add("file", metavar="FILE", help="raw output as UTF-8 text; - reads standard input")
    add("--format", "-f", required=True, metavar="F", help="name, alias or model id (`unbraid formats` lists them)")
    prompt = parser.add_mutually_exclusive_group()
    prompt.add_argument("--prompt", metavar="P", help="the prompt: where it ends is where the output starts")
    prompt.add_argument("--prompt-file", metavar="FILE", help="the prompt, from a file")
    add("--tools", metavar="T.json", help="the tools that were offered: a list as in a Chat Completions request")
    add("--thinking", choices=("on", "off"), help="decides where the prompt doesn't (default: as the format does)")
    add("--finish", choices=("stop", "length"), help="why the output ended (default: stop)")
    add("--policy", action="append", default=[], metavar="KEY=VALUE", help="e.g. calls=atomic; may be repeated")
    add(
        "--vocabulary",
        metavar="TOKENIZER",
        help='FILE is a recording of token steps, {"ids": [...]} a line, of this tokenizer',
    )
    add("--json", action="store_true", help="JSON instead of text for people")
    add("--events", action="store_true", help="every event with its span, one a line, instead of the message")
    add("--strict", action="store_true", help="exit with 1 if the output left its format")


def main(args: argparse.Namespace) -> int:
    """Parse FILE and print what is in it."""
    parser = _machine(args)
    screen = Screen(sys.stdout)
    show_bar = not (args.events and screen.is_terminal)
    if args.events and not args.json:
        screen.legend(list(STRANDS))
    with (
        _opened(args.file) as file,
        Progress(os.path.basename(label(args.file)), _length(file) if show_bar else 0) as bar,
    ):
        for event in _events(parser, file, bar, args):
            if args.events:
                screen.line(
                    json.dumps(event_json(event), ensure_ascii=False) if args.json else event_line(event, screen)
                )
    message = parser.message
    if args.events:
        for diagnostic in message.diagnostics:
            found = json.dumps({"event": "diagnostic", **diagnostic._asdict()}, ensure_ascii=False)
            screen.line(found if args.json else screen.paint(screen.safe(f"! {diagnostic}"), RED))
    elif args.json:
        write_json(message, screen)
    else:
        write_message(message, screen)
    return 1 if args.strict and message.diagnostics else 0


# -- in ----------------------------------------------------------------------------------------------------------------


def _machine(args: argparse.Namespace) -> Parser:
    fmt = get_format(args.format)
    thinking = None if args.thinking is None else args.thinking == "on"
    tools = read_tools(args.tools) if args.tools else None
    policy = policy_from(args.policy)
    prompt = read_text(args.prompt_file) if args.prompt_file else args.prompt
    source = fmt.bind(Vocabulary.from_file(args.vocabulary)) if args.vocabulary else fmt
    return Parser(source, tools=tools, prompt=prompt, thinking=thinking, policy=policy)


def policy_from(choices: Iterable[str]) -> Policy:
    """`["calls=atomic", ...]` as a policy. Every key and value is checked against `Policy` itself."""
    types = typing.get_type_hints(Policy)
    chosen: dict[str, Any] = {}
    for choice in choices:
        key, equals, value = choice.partition("=")
        key = key.replace("-", "_")
        if not equals or key not in types:
            known = ", ".join(field.name for field in fields(Policy))
            raise Problem(f"--policy {choice}: expected KEY=VALUE, KEY one of {known}{near(key, types)}")
        options = typing.get_args(types[key])
        if typing.get_origin(types[key]) is frozenset:
            chosen[key] = frozenset(filter(None, value.split(",")))
        elif value in options:
            chosen[key] = value
        else:
            raise Problem(f"--policy {choice}: {key} is {' or '.join(map(str, options))}{near(value, options)}")
    return Policy(**chosen)


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    if path == "-":
        yield sys.stdin.buffer
        return
    try:
        file = open(path, "rb")  # noqa: SIM115 -- only the opening is guarded: an error while writing isn't this file's
    except OSError as error:
        raise unreadable(path, error) from error
    with file:
        yield file


def _length(file: BinaryIO) -> int | None:
    """Its size if it is a regular file; None: nobody knows."""
    try:
        status = os.fstat(file.fileno())
    except OSError:
        return None
    return status.st_size or None


def _events(parser: Parser, file: BinaryIO, bar: Progress, args: argparse.Namespace) -> Iterator[Event]:
    finish: Finish | None = None
    if args.vocabulary:
        for ids, ended in _steps(file, bar, args.file):
            finish = ended or finish
            yield from parser.feed(ids)
    else:
        for text in _texts(file, bar, args.file):
            yield from parser.feed_text(text)
    yield from parser.finish(args.finish or finish or "stop")


def _texts(file: BinaryIO, bar: Progress, path: str) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while block := _read(file, path):
        bar.advance(len(block))
        if text := decoder.decode(block):
            yield text
    if text := decoder.decode(b"", final=True):
        yield text


def _read(file: BinaryIO, path: str) -> bytes:
    try:
        return file.read(BLOCK)
    except OSError as error:  # a directory, a disk that fails
        raise unreadable(path, error) from error


def _steps(file: BinaryIO, bar: Progress, path: str) -> Iterator[tuple[list[int], Finish | None]]:
    """The steps of a recording: `{"ids": [1, 2], "finish": "stop"}`, a line each; `finish` on the last, or nowhere."""
    for number, line in enumerate(file, 1):
        bar.advance(len(line))
        if not line.strip():
            continue
        try:
            step = json.loads(line)
            ids, finish = step["ids"], step.get("finish")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise Problem(f'{path}, line {number}: expected {{"ids": [...]}}', FILE) from error
        if (
            not isinstance(ids, list)
            or not all(type(id) is int for id in ids)
            or finish not in (None, "stop", "length")
        ):
            raise Problem(f'{path}, line {number}: expected {{"ids": [numbers]}}, and "finish" stop or length', FILE)
        yield ids, finish


# -- out ---------------------------------------------------------------------------------------------------------------


def event_name(event: Event) -> str:
    """`CallStart` is `call_start` to whoever reads JSON."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(event).__name__).lower()


def event_json(event: Event) -> dict[str, Any]:
    """An event as JSON: its name, then its fields."""
    return {"event": event_name(event), **event.as_dict()}


def event_line(event: Event, screen: Screen) -> str:
    """An event on a line: characters, tokens (if there are any), strand, name, what it says, raw text."""
    span = f"{event.start:>7}:{event.stop:<7}"
    if event.token_stop:
        span += f" {event.token_start:>6}:{event.token_stop:<6}"
    says = _says(event)
    head = f"{event.strand:<9}  {event_name(event):<14}"
    raw = json.dumps(event.raw, ensure_ascii=False)
    tail = "  ".join(filter(None, (says, raw if event.raw else "")))
    return f"{screen.paint(span, DIM)} {screen.paint(head + ' ' + screen.safe(tail), STRANDS[event.strand])}".rstrip()


def _says(event: Event) -> str:
    match event:
        case CallStart():
            return f"#{event.index} {event.name} ({event.id})"
        case CallArguments():
            return f"#{event.index}" + (f" {event.delta}" if event.delta != event.raw else "")
        case CallEnd():
            return f"#{event.index} {event.outcome}"
        case Text() if event.text != event.raw:
            return f"says {json.dumps(event.text, ensure_ascii=False)}"
        case _:
            return ""


def write_message(message: Message, screen: Screen) -> None:
    """The message for people: its parts in the order in which they came."""
    if screen.colours:
        screen.legend(["reasoning", "content", "tool_call"])
    for part in message.parts:
        if isinstance(part, TextPart):
            screen.line(screen.paint(part.strand, BOLD))
            screen.block(part.text, STRANDS[part.strand])
        else:
            note = "" if part.complete else "  (cut off)"
            title = screen.paint("tool_call", BOLD) + "  " + screen.paint(screen.safe(part.name), STRANDS["tool_call"])
            screen.line(title + screen.paint(f"  {screen.safe(part.id)}{note}", DIM))
            screen.block(part.arguments, STRANDS["tool_call"])
    if not message.parts:
        screen.line(screen.paint("(an empty message)", DIM))
    if message.diagnostics:
        screen.line(screen.paint("diagnostics", BOLD))
        for diagnostic in message.diagnostics:
            screen.block(str(diagnostic), RED)


def write_json(message: Message, screen: Screen) -> None:
    """The message as JSON, written in pieces: a large one isn't built up a second time."""
    whole = {
        "reasoning": message.reasoning,
        "content": message.content,
        "tool_calls": [_call_json(call) for call in message.tool_calls],
        "parts": [_part_json(part) for part in message.parts],
        "diagnostics": [diagnostic._asdict() for diagnostic in message.diagnostics],
    }
    screen.json(whole)


def _part_json(part: Part) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"strand": part.strand, "text": part.text}
    return {"strand": "tool_call", **_call_json(part)}


def _call_json(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "name": call.name, "arguments": call.arguments, "complete": call.complete}
