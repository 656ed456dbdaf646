"""`compare`: silent between two sound deployments, and a fault is named with the request that shows it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from broken import FAULTS, FORMAT, Fault, deployment, serving
from test_integrity_check import Moody

from unbraid.cli import main
from unbraid.integrity.cases import built_in
from unbraid.integrity.causes import Markers
from unbraid.integrity.client import Endpoint, work_through
from unbraid.integrity.compare import Comparing, Live, compare, tasks

CASES = built_in(FORMAT)
BY_NAME = {fault.name: fault for fault in FAULTS}
MARKERS = Markers.of(FORMAT)


async def compared(fault: Fault | None, count: int = 2 * len(CASES), only: str | None = None) -> Comparing:
    cases = [case for case in CASES if only in (None, case.name)]
    one, other = (httpx.ASGITransport(deployment(each)) for each in (None, fault))
    async with Endpoint("http://a", transport=one) as a, Endpoint("http://b", transport=other) as b:
        return await compare(Live(a), Live(b), tasks(cases, count), MARKERS, concurrency=8)


async def test_silent_over_300_requests_between_two_sound_deployments() -> None:
    found = await compared(None, 300)
    assert found.asked == 300
    assert found.different == []


SEEN = [fault for fault in FAULTS if fault.cause != "not_streamed"][::3]
"""Every third: what names a fault is tested with `check`, which has the same eyes."""


@pytest.mark.parametrize("fault", SEEN, ids=lambda fault: fault.name)
async def test_a_fault_is_a_difference(fault: Fault) -> None:
    found = await compared(fault, 2, fault.case)
    assert found.different
    assert all(each.finding.cause != "not_reproducible" for each in found.different)
    assert fault.layer in {each.finding.layer for each in found.different}


async def test_differences_are_grouped_by_kind() -> None:
    found = await compared(BY_NAME["stop instead of tool_calls"])
    (group,) = found.groups().items()
    assert group[0] == ("finish_reason", "stream finish_reason")
    assert len(group[1]) > 3


async def test_who_contradicts_himself_is_named() -> None:
    transports = [httpx.ASGITransport(deployment(engine=engine)) for engine in (None, Moody())]
    plain = [case for case in CASES if case.name == "plain"]
    async with Endpoint("http://a", transport=transports[0]) as a, Endpoint("http://b", transport=transports[1]) as b:
        found = await compare(Live(a), Live(b), tasks(plain, 1), MARKERS)
    assert found.same
    assert [each.finding.cause for each in found.different] == ["not_reproducible"]


def test_every_request_is_another_one() -> None:
    keys = [task.key for task in tasks(CASES, 400)]
    assert len(keys) == len(set(keys)) == 400


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def urls() -> Iterator[tuple[str, str]]:
    with serving(deployment()) as one, serving(deployment(BY_NAME["numbers become text"])) as other:
        yield one, other


ONLY = ["--format", "qwen3", "--only", "call_types", "--only", "plain"]


def test_compare_says_what_differs_and_how_to_see_it(
    urls: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "found.json"
    assert main(["compare", *urls, *ONLY, "--json", str(file)]) == 1
    out = capsys.readouterr().out
    assert "argument type changed: one-shot tool_calls[0].function.arguments  once" in out
    assert "guests: a number (4) became a text" in out
    assert all(f"$ curl -s {url}/v1/chat/completions" in out for url in urls)
    assert "4 requests; 1 differ" in out
    group = json.loads(file.read_text())["groups"][0]
    assert (group["cause"], group["count"]) == ("argument_type", 1)
    assert group["differences"][0]["request"]["tools"]

    assert main(["compare", urls[0], urls[0], *ONLY]) == 0
    assert "nothing differs" in capsys.readouterr().out


def test_a_baseline_is_kept_and_held_against(
    urls: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "baseline.jsonl")
    assert main(["compare", urls[0], "--save", file, *ONLY]) == 0
    assert "4 answers" in capsys.readouterr().out
    assert main(["compare", urls[0], "--baseline", file, *ONLY]) == 0
    assert main(["compare", urls[1], "--baseline", file, *ONLY]) == 1
    capsys.readouterr()
    assert main(["compare", urls[0], "--baseline", file, *ONLY, "--only", "unicode"]) == 0
    assert "2 not in the baseline" in capsys.readouterr().out


def test_an_interrupted_comparison_goes_on(
    urls: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "state.jsonl"
    words = ["compare", *urls, *ONLY, "--state", str(file)]
    assert main(words) == 1
    whole = file.read_text().splitlines(keepends=True)
    file.write_text("".join(whole[:3]) + whole[3][:50])  # as if it had been killed while it wrote
    capsys.readouterr()
    assert main(words) == 1
    assert "2 known from before" in capsys.readouterr().out
    assert sorted(file.read_text().splitlines()) == sorted(line.rstrip("\n") for line in whole)
    assert main(["compare", urls[1], urls[0], *ONLY, "--state", str(file)]) == 2
    assert "name another --state file" in capsys.readouterr().err


def test_wrong_uses(urls: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = tmp_path / "odd.jsonl"
    odd.write_text('{"unbraid": "something"}\n')
    cut, foreign = tmp_path / "cut.jsonl", tmp_path / "foreign.jsonl"
    cut.write_text('{"unb')
    assert main(["compare", urls[0], "--save", str(foreign), "--only", "unicode", "--format", "qwen3"]) == 0
    lines = foreign.read_text().splitlines()
    foreign.write_text("\n".join([lines[0], *(line.replace('"key": "', '"key": "other ', 1) for line in lines[1:])]))
    mangled = tmp_path / "mangled.jsonl"
    mangled.write_text(lines[0] + "\n3\n")
    for words, code, said in [
        ([urls[0], "--baseline", str(mangled)], 2, "an entry without `key`"),
        ([urls[0]], 2, "is to be compared with nothing"),
        ([*urls, "--save", "x"], 2, "B and --save exclude each other"),
        ([*urls, "--count", "0"], 2, "expected 1 or more"),
        ([urls[0], "--baseline", str(cut)], 2, "no baseline of this version"),
        ([urls[0], "--baseline", str(foreign)], 2, "holds none of these requests"),
        ([urls[0], "--baseline", str(odd)], 2, "no baseline of this version"),
        ([urls[0], "--baseline", str(tmp_path / "none")], 3, "can't be read"),
        ([urls[0], "--save", str(tmp_path / "no" / "file")], 3, "No such file"),
        ([urls[0], "http://127.0.0.1:9"], 3, "can't be reached"),
    ]:
        assert main(["compare", *words, *ONLY]) == code
        assert said in capsys.readouterr().err


async def test_nothing_is_begun_once_something_has_failed() -> None:
    """What runs beside it comes to its end."""
    begun, ended = [], []

    async def work(item: int) -> int:
        begun.append(item)
        await asyncio.sleep(0)
        if item == 1:
            raise ValueError("one")
        await asyncio.sleep(0)
        ended.append(item)
        return item

    assert await work_through([4, 5, 6], work, 2) == [4, 5, 6]
    begun.clear()
    ended.clear()
    with pytest.raises(ValueError, match="one"):
        await work_through(range(9), work, 3)
    assert (begun, ended) == ([0, 1, 2], [0, 2])
