"""Findings for people, on a terminal or in a pipe."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from unbraid.integrity.findings import CAUSES, Finding
from unbraid.terminal import BOLD, DIM, RED, STRANDS, Screen

if TYPE_CHECKING:
    from unbraid.integrity.check import Report, Result

STYLES = {"error": RED, "warning": "33", "note": DIM}
GREEN = "32"
SIGNS = {"sound": ("✓", GREEN), "found": ("✗", RED), "skipped": ("-", DIM)}


def show_report(report: Report, screen: Screen, *, verbose: bool = False) -> None:
    """What was found, case by case; sound cases in one line."""
    who = f" ({report.owner})" if report.owner else ""
    screen.line(
        f"{screen.paint(report.url, BOLD)}  {screen.safe(report.model)}{screen.safe(who)}  format {report.format}"
    )
    told: set[tuple[str, str]] = set()
    for result in report.results:
        if verbose or result.status != "sound" or result.findings:
            show_result(result, report, screen, told)
    screen.line()
    screen.line(summary(report))
    if report.results and not any(result.raw for result in report.results):
        screen.line("the endpoint tells neither tokens nor raw text: only its two forms were held against each other")
    show_causes([finding for finding in report.findings if finding.level != "note"], screen)


def show_result(result: Result, report: Report, screen: Screen, told: set[tuple[str, str]]) -> None:
    """A case. A warning that has been shown before (`told`: its cause and layer) takes one line."""
    sign, style = SIGNS[result.status]
    about = screen.paint(result.reason or result.case.about, DIM)
    screen.line(f"\n{screen.paint(sign, style)} {screen.paint(result.case.name, BOLD)}  {screen.safe(about)}")
    for finding in result.findings:
        show_finding(finding, screen, brief=finding.level == "warning" and (finding.cause, finding.layer) in told)
        told.add((finding.cause, finding.layer))
    if result.status == "found":
        stream = any(finding.layer == "stream" for finding in result.findings)
        screen.line(screen.paint(f"    $ {curl(report.url, report.model, result.case.request, stream=stream)}", DIM))


def show_finding(finding: Finding, screen: Screen, *, brief: bool = False) -> None:
    """One finding: the cause and the place, then what stands there."""
    level = screen.paint(finding.level, STYLES[finding.level])
    screen.line(f"  {level}  {screen.paint(finding.title, BOLD)}: {finding.place}")
    if brief:
        return
    screen.line(f"    {screen.safe(finding.message)}")
    style = STRANDS[finding.strand] if finding.strand else ""
    if finding.expected is not None:
        screen.line(f"    should be  {screen.paint(quoted(finding.expected), GREEN)}")
    if finding.got is not None:
        screen.line(f"    is         {screen.paint(quoted(finding.got), RED)}")
    if finding.raw_offset is not None:
        token = f", {finding.token}" if finding.token else ""
        strand = f", strand {screen.paint(finding.strand, style)}" if finding.strand else ""
        screen.line(f"    raw        character {finding.raw_offset}{screen.safe(token)}{strand}")
    if finding.also:
        screen.line(f"    also       {', '.join(finding.also)}")


def show_causes(findings: Sequence[Finding], screen: Screen) -> None:
    """Why each cause matters and what to do, each once."""
    counts: dict[str, int] = {}
    for finding in findings:
        counts[finding.cause] = counts.get(finding.cause, 0) + 1
    for cause, count in sorted(counts.items(), key=lambda entry: -entry[1]):
        title, why, remedy = CAUSES[cause]
        screen.line(f"\n{screen.paint(title, BOLD)}  {count}")
        screen.line(screen.paint(f"  why  {why}", DIM))
        screen.line(screen.paint(f"  do   {remedy}", DIM))


def summary(report: Report) -> str:
    """One line: cases, findings, how many cases had their raw layer, time."""
    statuses: list[str] = [result.status for result in report.results]
    said = [f"{statuses.count(status)} {word}" for status, word in _STATUS.items() if statuses.count(status)]
    levels = [f"{n} {level}{'s' if n > 1 else ''}" for level, n in report.counts().items() if n]
    raw = sum(result.raw for result in report.results)
    found = f"; {', '.join(levels)}" if levels else ""
    tried = len(statuses) - statuses.count("skipped")
    asked = f"{len(statuses)} case{'s' if len(statuses) != 1 else ''}"
    return f"{asked}: {', '.join(said)}{found}; raw layer known in {raw} of {tried}; {report.seconds:.1f} s"


_STATUS = {"sound": "sound", "found": "with findings", "skipped": "skipped"}


def quoted(text: str) -> str:
    """As one line, with what can't be seen spelled out."""
    return json.dumps(text, ensure_ascii=False)


def curl(url: str, model: str, request: Mapping[str, Any], *, stream: bool) -> str:
    """A line to paste that asks the same again."""
    body = {"model": model, **request, **({"stream": True} if stream else {})}
    data = shlex.quote(json.dumps(body, ensure_ascii=False))
    return f"curl -s{'N' if stream else ''} {url}/v1/chat/completions -H 'Content-Type: application/json' -d {data}"


def worst(findings: Iterable[Finding], *, strict: bool) -> int:
    """The exit code: 1 if there is an error (or, strictly, a warning)."""
    bad = ("error", "warning") if strict else ("error",)
    return int(any(finding.level in bad for finding in findings))
