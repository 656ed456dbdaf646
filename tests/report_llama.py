"""`unbraid check` on llama.cpp's own server with its own chat parsing: `make report-llama`. What docs/reports says of it comes from here.

    python report_llama.py OUT

Two kinds of model: files that write one given text and nothing else (`actor_gguf`, format qwen3), one a case, with the zoo's answers;
and SmolLM2, which says what it likes (format chatml). The server is the one inside `xllamacpp`, over its loopback port, with
its Jinja templates, so that tokenizer, sampling, grammar, chat parser and stream are llama.cpp's. OUT as of `report_vllm`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from actor_gguf import write_actor
from broken import ANSWERS
from evidence import evidence
from test_integrity_doctor import TEMPLATE
from test_integrity_llama import llama

import unbraid
from unbraid.cli.check import keep
from unbraid.engines.model import default_model
from unbraid.integrity.cases import Case, built_in
from unbraid.integrity.check import Report, check
from unbraid.integrity.client import Endpoint
from unbraid.integrity.report_files import as_html, as_json
from unbraid.integrity.report_text import summary
from unbraid.table import Format

SPELLED = "⟦"
"""Markers spelled with ordinary tokens: this kind of model writes each token once."""


async def one(url: str, fmt: Format, cases: Sequence[Case], out: Path) -> Report:
    """A check, and for each error what the server says when it is asked again without our code between."""
    async with Endpoint(url) as endpoint:
        report = await check(endpoint, fmt, cases, done=lambda result: keep(out / "wire", result))
    with (out / "evidence.txt").open("a", encoding="utf-8") as file:
        for result in report.results:
            if any(finding.level == "error" for finding in result.findings):
                file.write(f"== {result.case.name}\n{evidence(url, dict(result.case.request), str)}")
    return report


async def given_texts(out: Path) -> Report:
    """One model for each case."""
    fmt = unbraid.get_format("qwen3")
    joint: Report | None = None
    for case in built_in(fmt):
        said = json.dumps(case.request["messages"], ensure_ascii=False)
        text = ANSWERS[max(ANSWERS, key=lambda words: (said.rfind(words), len(words)))].partition("|")[0]
        try:
            if SPELLED in text:
                raise AssertionError("markers spelled with ordinary tokens")
            write_actor(out / "actor.gguf", text, TEMPLATE)
        except AssertionError as error:
            print(f"  {case.name}: this kind of model can't write it ({error})")
            continue
        with llama(out / "actor.gguf") as url:
            report = await one(url, fmt, [case], out)
        if joint is None:
            joint = report
        else:
            joint.results += report.results
            joint.seconds += report.seconds
    assert joint is not None
    return joint


async def own_words(out: Path) -> Report:
    """SmolLM2 on every case."""
    fmt = unbraid.get_format("chatml")
    with llama(default_model()) as url:
        return await one(url, fmt, built_in(fmt, 200), out)


def main(out: Path) -> None:
    print(f"xllamacpp {version('xllamacpp')}")
    for name, run in (("given", given_texts), ("smollm2", own_words)):
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "evidence.txt").unlink(missing_ok=True)
        report = asyncio.run(run(folder))
        print(f"{name}: {summary(report)}")
        for finding in report.findings:
            print(f"  {finding.level} {finding.case}: {finding.cause}: {finding.place}: {finding.message}")
        for result in report.results:
            if result.status == "skipped":
                print(f"  skipped {result.case.name}: {result.reason}")
        (folder / "report.json").write_text(json.dumps(as_json(report), ensure_ascii=False, indent=1) + "\n")
        (folder / "report.html").write_text(as_html(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
