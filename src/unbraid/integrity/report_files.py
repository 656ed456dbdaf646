"""A check for machines and for keeping: JSON, JUnit XML, one HTML file without anything outside it."""

from __future__ import annotations

import html
import re
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from unbraid.integrity.check import Report, Result
from unbraid.integrity.findings import Finding
from unbraid.integrity.report_text import curl, quoted, summary

_UNFIT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML can't hold."""


def as_json(report: Report) -> dict[str, Any]:
    """Everything that was found, and the requests to see it again."""
    return {
        "url": report.url,
        "model": report.model,
        "owner": report.owner,
        "format": report.format,
        "sound": report.sound,
        "counts": report.counts(),
        "seconds": round(report.seconds, 3),
        "cases": [_case(result) for result in report.results],
    }


def _case(result: Result) -> dict[str, Any]:
    return {
        "name": result.case.name,
        "about": result.case.about,
        "status": result.status,
        "reason": result.reason or None,
        "raw": result.raw,
        "seconds": round(result.seconds, 3),
        "request": dict(result.case.request),
        "findings": [finding.object() for finding in result.findings],
    }


def as_junit(report: Report) -> str:
    """JUnit XML, as CI systems read it: a case is a test, an error a failure; warnings and notes are its output."""
    failed = sum(_fails(result) for result in report.results)
    skipped = sum(result.status == "skipped" for result in report.results)
    counts = f'tests="{len(report.results)}" failures="{failed}" errors="0" skipped="{skipped}"'
    name = _attribute(f"unbraid check {report.url}")
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuite name={name} {counts} time="{report.seconds:.3f}">',
    ]
    for result in report.results:
        lines.append(
            f"  <testcase classname={_attribute('unbraid.' + report.format)} name={_attribute(result.case.name)} "
            f'time="{result.seconds:.3f}">'
        )
        lines += _inside(result)
        lines.append("  </testcase>")
    return "\n".join([*lines, "</testsuite>", ""])


def _fails(result: Result) -> bool:
    return any(finding.level == "error" for finding in result.findings)


def _inside(result: Result) -> list[str]:
    if result.status == "skipped":
        return [f"    <skipped message={_attribute(result.reason)}/>"]
    lines = []
    errors = [finding for finding in result.findings if finding.level == "error"]
    if errors:
        message = f"{errors[0].title}: {errors[0].place}"
        text = "\n\n".join(map(_plain, errors))
        lines.append(
            f"    <failure type={_attribute(errors[0].cause)} message={_attribute(message)}>{_text(text)}</failure>"
        )
    if rest := [finding for finding in result.findings if finding.level != "error"]:
        lines.append(f"    <system-out>{_text(chr(10).join(map(_plain, rest)))}</system-out>")
    return lines


def _plain(finding: Finding) -> str:
    lines = [f"{finding.level}: {finding.title}: {finding.place}", finding.message]
    lines += [f"should be {quoted(finding.expected)}"] if finding.expected is not None else []
    lines += [f"is {quoted(finding.got)}"] if finding.got is not None else []
    if finding.raw_offset is not None:
        lines.append(
            f"raw character {finding.raw_offset}, {finding.token or 'no token known'}, strand {finding.strand}"
        )
    return "\n".join([*lines, f"do: {finding.remedy}"])


def _attribute(text: str) -> str:
    return quoteattr(_UNFIT.sub("�", text).replace("\n", " "))


def _text(text: str) -> str:
    return escape(_UNFIT.sub("�", text))


# -- HTML --------------------------------------------------------------------------------------------------------------

_STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.3rem; } code, pre { font: 13px/1.45 ui-monospace, monospace; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .2rem 0; }
details { border-top: 1px solid #8884; padding: .4rem 0; } summary { cursor: pointer; }
.finding { margin: .6rem 0 .6rem 1.2rem; padding-left: .8rem; border-left: 3px solid #888; }
.error { border-color: #d33; } .warning { border-color: #c80; }
.badge { display: inline-block; min-width: 5.5rem; font-weight: 600; }
.sound { color: #2a8a3e; } .found { color: #d33; } .skipped { color: #888; }
.reasoning { color: #a3a; } .content { color: #2a8a3e; } .tool_call { color: #088; } .markup { color: #888; } .control { color: #a70; }
.right { color: #2a8a3e; } .wrong { color: #d33; } .dim { color: #888; }
"""


def as_html(report: Report) -> str:
    """A page that needs nothing else: no script, no font, no network."""
    cases = "\n".join(_html_case(result, report) for result in report.results)
    about = f"{_h(report.model)} {'(' + _h(report.owner) + ')' if report.owner else ''}, format {_h(report.format)}"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>unbraid check {_h(report.url)}</title>\n'
        f"<style>{_STYLE}</style></head><body>\n<h1>unbraid check {_h(report.url)}</h1>\n"
        f"<p>{about}<br>{_h(summary(report))}</p>\n{cases}\n</body></html>\n"
    )


def _html_case(result: Result, report: Report) -> str:
    words = {"sound": "sound", "found": "findings", "skipped": "skipped"}
    shown = " open" if result.status == "found" else ""
    inside = "".join(map(_html_finding, result.findings))
    again = curl(report.url, report.model, result.case.request, stream=True)
    return (
        f'<details{shown}><summary><span class="badge {result.status}">{words[result.status]}</span>'
        f"<b>{_h(result.case.name)}</b> <span class=dim>{_h(result.reason or result.case.about)}</span></summary>"
        f"{inside}<pre class=dim>{_h(again)}</pre></details>"
    )


def _html_finding(finding: Finding) -> str:
    rows = [f"<b>{_h(finding.title)}</b>: {_h(finding.place)}<br>{_h(finding.message)}"]
    if finding.expected is not None:
        rows.append(f"<pre class=right>should be  {_h(quoted(finding.expected))}</pre>")
    if finding.got is not None:
        rows.append(f"<pre class=wrong>is         {_h(quoted(finding.got))}</pre>")
    if finding.raw_offset is not None:
        token = f", {_h(str(finding.token))}" if finding.token else ""
        strand = f', strand <span class="{finding.strand}">{finding.strand}</span>' if finding.strand else ""
        rows.append(f"<div>raw character {finding.raw_offset}{token}{strand}</div>")
    if finding.also:
        rows.append(f"<div>also: {_h(', '.join(finding.also))}</div>")
    rows.append(f"<div class=dim>why: {_h(finding.why)}<br>do: {_h(finding.remedy)}</div>")
    return f'<div class="finding {finding.level}">{"".join(rows)}</div>'


def _h(text: str) -> str:
    return html.escape(text)
