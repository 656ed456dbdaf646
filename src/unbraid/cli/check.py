"""`unbraid check URL`: does this endpoint lose anything?

exit code 0  sound
          1  there is an error (with --strict: or a warning)
          2  asked in a way that can't be answered: usage, an unknown format, no such model
          3  the endpoint can't be reached or refuses everything, or a file can't be read or written
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from unbraid import Vocabulary, get_format
from unbraid.cli.problems import FILE, Problem, report, unreadable, writable, write_text
from unbraid.errors import FormatNotFound
from unbraid.integrity.cases import Case, built_in, read_cases
from unbraid.integrity.check import Report, Result, check
from unbraid.integrity.client import Endpoint, Unreachable
from unbraid.integrity.report_files import as_html, as_json, as_junit
from unbraid.integrity.report_text import show_report, worst
from unbraid.table import Format
from unbraid.terminal import Progress, Screen

T = TypeVar("T")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `unbraid check`."""
    add = parser.add_argument
    add("url", metavar="URL", help="http://HOST:PORT of an OpenAI-compatible endpoint")
    add_endpoint_arguments(parser)
    add(
        "--tokenizer", metavar="T", help="tokenizer.json or its folder (default: the endpoint is asked, if it can tell)"
    )
    add("--json", metavar="FILE", help="write a report as JSON; - for standard output, and nothing else")
    add("--junit", metavar="FILE", help="write a report as JUnit XML")
    add("--html", metavar="FILE", help="write a report as one HTML file")
    add("--captures", metavar="DIR", help="keep what came over the wire, for `unbraid audit`")
    add("--strict", action="store_true", help="warnings count as errors")
    add("--verbose", action="store_true", help="list the sound cases, too")
    parser.epilog = "exit codes: 0 sound, 1 findings, 2 wrong use, 3 unreachable or unreadable"


def add_endpoint_arguments(parser: argparse.ArgumentParser) -> None:
    """What every command that asks endpoints takes."""
    add = parser.add_argument
    add("--format", metavar="F", help="how the model writes (default: found by the model's name)")
    add("--model", metavar="M", help="which of the endpoint's models (default: the first)")
    add("--key", metavar="KEY", default=os.environ.get("OPENAI_API_KEY"), help="API key (default: $OPENAI_API_KEY)")
    add("--cases", metavar="FILE", action="append", default=[], help="cases of one's own: JSON, or an object a line")
    add("--only", metavar="NAME", action="append", default=[], help="only this case (may be given several times)")
    add("--max-tokens", type=int, default=512, metavar="N", help="limit of a reply (default: %(default)s)")
    add("--concurrency", type=int, default=1, metavar="N", help="cases at the same time (default: %(default)s)")
    add("--timeout", type=float, default=300.0, metavar="SECONDS", help="of one request (default: %(default)s)")


def main(args: argparse.Namespace) -> int:
    """Ask the endpoint everything, and say what was found."""
    usable(args)
    writable(args.json, args.junit, args.html)
    if args.captures:
        writable(made(Path(args.captures)) / "plain.jsonl")
    checked = run(_check(args, own_cases(args)))
    screen = Screen(sys.stdout)
    try:
        write_files(checked, args)
    finally:
        report(args.json, screen, lambda: as_json(checked), lambda: show_report(checked, screen, verbose=args.verbose))
    if checked.results and all(result.status == "skipped" for result in checked.results):
        raise Problem(f"{checked.url}: refuses every case, so nothing is known ({checked.results[0].reason})", FILE)
    return worst(checked.findings, strict=args.strict)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run it; an endpoint that can't be reached has its own exit code."""
    try:
        return asyncio.run(work)
    except Unreachable as error:
        raise Problem(str(error), FILE) from error


async def _check(args: argparse.Namespace, own: list[Case]) -> Report:
    vocabulary = Vocabulary.from_file(args.tokenizer) if args.tokenizer else None
    async with Endpoint(args.url, model=args.model, key=args.key, timeout=args.timeout) as endpoint:
        await endpoint.greet()
        fmt = format_of(args, endpoint)
        cases = cases_of(args, fmt, own)
        with Progress("checking", len(cases), unit="cases", least=0) as bar:

            def done(result: Result) -> None:
                bar.advance(1)
                if args.captures:
                    keep(Path(args.captures), result)

            return await check(endpoint, fmt, cases, vocabulary=vocabulary, concurrency=args.concurrency, done=done)


def usable(args: argparse.Namespace) -> None:
    """What can't be is told before anybody is asked. Raises `Problem`."""
    if args.format:
        get_format(args.format)
    for flag, value in (("--concurrency", args.concurrency), ("--max-tokens", args.max_tokens)):
        if value < 1:
            raise Problem(f"{flag} {value}: expected 1 or more")
    if not args.timeout > 0:
        raise Problem(f"--timeout {args.timeout:g}: expected seconds, more than 0")


def format_of(args: argparse.Namespace, endpoint: Endpoint) -> Format:
    """The format that was asked for, or the one of the endpoint's model."""
    if args.format:
        return get_format(args.format)
    try:
        return get_format(endpoint.model or "")
    except FormatNotFound as error:
        raise Problem(
            f"can't tell the format by the model's name {endpoint.model!r}: say it with --format (`unbraid formats` lists "
            "them, `unbraid detect` finds it from the model's files)"
        ) from error


def own_cases(args: argparse.Namespace) -> list[Case]:
    """The cases in the files that were given."""
    return [case for path in args.cases for case in read_cases(path)]


def cases_of(args: argparse.Namespace, fmt: Format, own: list[Case]) -> list[Case]:
    """The built-in cases and one's own, or those that were named."""
    cases = [*built_in(fmt, args.max_tokens), *own]
    if not args.only:
        return cases
    names = {case.name for case in cases}
    for name in args.only:
        if name not in names:
            raise Problem(f"there is no case {name!r} for {fmt.name}; there are {', '.join(sorted(names))}")
    return [case for case in cases if case.name in args.only]


def write_files(checked: Report, args: argparse.Namespace) -> None:
    """The reports for other programs that were asked for."""
    if args.junit:
        write_text(args.junit, as_junit(checked))
    if args.html:
        write_text(args.html, as_html(checked))


def made(folder: Path) -> Path:
    """The folder, which is there now."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unreadable(folder, error) from error
    return folder


def keep(folder: Path, result: Result) -> None:
    """What came over the wire for one case, beside the request: what it asked for (a marker that stays, a named call) is no fault."""
    about = {"name": result.case.name, "request": dict(result.case.request)}
    records = [{**about, "response": text} for text in result.captures.values()]
    lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    name = re.sub(r"[^\w .#-]", "_", result.case.name)[:80]  # of one's own cases, whatever they are called
    write_text(folder / f"{name}.jsonl", lines)
