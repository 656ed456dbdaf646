"""`unbraid compare A B`: the same requests against two deployments, or against one and what it said before.

exit code 0  nothing differs (answers of an endpoint that contradicts itself don't count)
          1  something differs (with --strict: usage and empty deltas, too)
          2  asked in a way that can't be answered
          3  an endpoint can't be reached, both refuse everything, or a file can't be written
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from unbraid.cli.check import add_endpoint_arguments, cases_of, format_of, own_cases, run, usable
from unbraid.cli.problems import FILE, Problem, report, writable
from unbraid.integrity.cases import Case
from unbraid.integrity.causes import Markers
from unbraid.integrity.client import Endpoint
from unbraid.integrity.compare import Baseline, Comparing, Different, Journal, Live, Task, compare, save, tasks
from unbraid.integrity.findings import CAUSES
from unbraid.integrity.report_text import STYLES, curl, show_finding, worst
from unbraid.terminal import BOLD, DIM, Progress, Screen


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `unbraid compare`."""
    add = parser.add_argument
    add("a", metavar="A", help="URL of an endpoint: the reference if there is a B")
    add("b", metavar="B", nargs="?", help="URL of the endpoint that is held against it")
    add_endpoint_arguments(parser)
    add("--count", type=int, metavar="N", help="how many requests (default: each case once in either form)")
    add("--save", metavar="FILE", help="keep what A says as a baseline")
    add("--baseline", metavar="FILE", help="hold A against a baseline")
    add("--state", metavar="FILE", help="keep what has been asked; if interrupted, go on there")
    add("--examples", type=int, default=3, metavar="N", help="of each kind, show so many (default: %(default)s)")
    add("--json", metavar="FILE", help="write what differs as JSON; - for standard output")
    add("--strict", action="store_true", help="warnings count as differences")
    parser.epilog = "exit codes: 0 nothing differs, 1 something does, 2 wrong use, 3 unreachable or unwritable"


def main(args: argparse.Namespace) -> int:
    """Ask both, and say what differs."""
    ways = [way for way, given in (("B", args.b), ("--baseline", args.baseline), ("--save", args.save)) if given]
    if not ways:
        raise Problem(
            f"{args.a} is to be compared with nothing: give a second URL, or --baseline FILE; or --save FILE to keep its "
            "answers as a baseline (see `unbraid compare --help`)"
        )
    if len(ways) > 1:
        raise Problem(f"{' and '.join(ways)} exclude each other: give one of them (see `unbraid compare --help`)")
    if args.count is not None and args.count < 1:
        raise Problem(f"--count {args.count}: expected 1 or more")
    usable(args)
    writable(args.json, args.save, args.state)
    own = own_cases(args)
    baseline = Baseline(args.baseline) if args.baseline else None
    screen = Screen(sys.stdout)
    if args.save:
        count = run(_save(args, own))
        screen.line(f"{count} answers of {args.a} kept in {args.save}")
        return 0
    found = run(_compare(args, own, baseline))
    if found.asked and found.unknown == found.asked:
        raise Problem(
            f"{args.baseline}: holds none of these requests; ask with the --format, --cases, --only and --max-tokens "
            "with which it was saved"
        )
    if found.asked and len(found.refused) == found.asked:
        raise Problem(f"{found.candidate}: refuses every request, as the reference does ({found.refused[0]})", FILE)
    report(args.json, screen, lambda: as_json(found), lambda: show(found, screen, args.examples))
    return worst([each.finding for each in found.different], strict=args.strict)


def _endpoint(args: argparse.Namespace, url: str) -> Endpoint:
    return Endpoint(url, model=args.model, key=args.key, timeout=args.timeout)


async def _save(args: argparse.Namespace, own: list[Case]) -> int:
    async with _endpoint(args, args.a) as endpoint:
        await endpoint.greet()
        wanted = _wanted(args, endpoint, own)
        with Progress("asking", len(wanted), unit="requests", least=0) as bar:
            return await save(
                Live(endpoint), wanted, args.save, concurrency=args.concurrency, done=lambda _: bar.advance(1)
            )


async def _compare(args: argparse.Namespace, own: list[Case], baseline: Baseline | None) -> Comparing:
    async with _endpoint(args, args.a) as first, _endpoint(args, args.b or args.a) as second:
        await first.greet()
        if args.b:
            second.model = args.model
            await second.greet()
        wanted = _wanted(args, first, own)
        markers = Markers.of(format_of(args, first))
        reference = baseline or Live(first)
        candidate = Live(second if args.b else first)
        with Progress("comparing", len(wanted), unit="requests", least=0) as bar:

            async def ask(journal: Journal | None) -> Comparing:
                return await compare(
                    reference, candidate, wanted, markers,
                    concurrency=args.concurrency, journal=journal, done=lambda _: bar.advance(1),
                )  # fmt: skip

            if not args.state:
                return await ask(None)
            with Journal(args.state, reference.name, candidate.name) as journal:
                return await ask(journal)


def _wanted(args: argparse.Namespace, endpoint: Endpoint, own: list[Case]) -> list[Task]:
    cases = cases_of(args, format_of(args, endpoint), own)
    return tasks(cases, args.count if args.count is not None else 2 * len(cases))


def show(found: Comparing, screen: Screen, examples: int) -> None:
    """The differences by kind, the most frequent first, with some of each."""
    screen.line(f"{screen.paint(found.reference, BOLD)} against {screen.paint(found.candidate, BOLD)}")
    for (cause, where), group in found.groups().items():
        level = group[0].finding.level
        title, why, _ = CAUSES[cause]
        screen.line(
            f"\n{screen.paint(level, STYLES[level])}  {screen.paint(title, BOLD)}: {where}  {_times(len(group))}"
        )
        screen.line(screen.paint(f"  why  {why}", DIM))
        for each in group[:examples]:
            screen.line(f"  {each.task.case.name}")
            show_finding(each.finding, screen)
            for url, model in found.models.items():
                screen.line(screen.paint(f"    $ {_curl(url, model, each)}", DIM))
    screen.line()
    screen.line(said(found))


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def said(found: Comparing) -> str:
    """One line: how much was asked and how much differs."""
    requests = len({each.task.key for each in found.different if each.finding.level != "note"})
    unsteady = sum(each.finding.cause == "not_reproducible" for each in found.different)
    parts = [f"{found.asked} requests", f"{requests} differ" if requests else "nothing differs"]
    parts += [f"{unsteady} aren't reproducible"] if unsteady else []
    parts += [f"{len(found.refused)} refused by both"] if found.refused else []
    parts += [f"{found.resumed} known from before"] if found.resumed else []
    parts += [f"{found.unknown} not in the baseline"] if found.unknown else []
    return f"{'; '.join(parts)}; {found.seconds:.1f} s"


def _curl(url: str, model: str, each: Different) -> str:
    return curl(url, model, each.task.case.request, stream=each.task.form == "stream")


def as_json(found: Comparing) -> dict[str, Any]:
    """Everything, grouped."""
    groups = [
        {
            "cause": cause,
            "title": CAUSES[cause].title,
            "where": where,
            "count": len(group),
            "differences": [
                {"case": each.task.case.name, "request": dict(each.task.case.request), **each.finding.object()}
                for each in group
            ],
        }
        for (cause, where), group in found.groups().items()
    ]
    return {
        "reference": found.reference,
        "candidate": found.candidate,
        "same": found.same,
        "asked": found.asked,
        "resumed": found.resumed,
        "unknown": found.unknown,
        "refused": len(found.refused),
        "groups": groups,
    }
