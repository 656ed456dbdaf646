"""The commands that ask endpoints, as a user runs them: on real sockets, with exit codes and files."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from broken import FAULTS, Silent, deployment, serving

from unbraid.cli import main
from unbraid.terminal import Progress

BY_NAME = {fault.name: fault for fault in FAULTS}


@pytest.fixture(scope="module")
def sound() -> Iterator[str]:
    with serving(deployment()) as url:
        yield url


@pytest.fixture(scope="module")
def broken() -> Iterator[str]:
    with serving(deployment(BY_NAME["last piece of the arguments lost"])) as url:
        yield url


def test_a_sound_endpoint(sound: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["check", sound, "--format", "qwen3", "--only", "plain", "--only", "call_auto"])
    out = capsys.readouterr().out
    assert code == 0
    assert "2 cases: 2 sound; raw layer known in 2 of 2" in out
    assert main(["check", sound, "--format", "qwen3", "--only", "plain"]) == 0
    assert "1 case: 1 sound" in capsys.readouterr().out


def test_findings_name_the_place_and_the_way_to_see_it_again(
    broken: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {kind: tmp_path / f"report.{kind}" for kind in ("json", "junit", "html")}
    flags = [word for kind, file in files.items() for word in (f"--{kind}", str(file))]
    only = ["--only", "call_auto", "--only", "plain"]
    code = main(["check", f"{broken}/v1/", "--format", "qwen3", *only, "--captures", str(tmp_path / "wire"), *flags])
    out = capsys.readouterr().out
    assert code == 1
    assert "end of the text lost: stream tool_calls[0].function.arguments at character" in out
    assert "strand tool_call" in out
    assert f"$ curl -sN {broken}/v1/chat/completions" in out

    report = json.loads(files["json"].read_text())
    assert (report["sound"], report["counts"]["error"]) == (False, 1)
    finding = next(case for case in report["cases"] if case["name"] == "call_auto")["findings"][0]
    assert finding["layer"] == "stream"
    assert finding["token"]["special"] is False

    suite = ET.parse(files["junit"]).getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    failure = suite.find("testcase[@name='call_auto']/failure")
    assert failure is not None
    assert failure.get("type") == "text_cut"

    page = files["html"].read_text()
    assert "end of the text lost" in page
    assert "<script" not in page
    assert "http" not in page.replace(broken, "")
    once, stream = read_records(tmp_path / "wire" / "call_auto.jsonl")
    assert once["response"].startswith("{")
    assert stream["response"].startswith("data: ")
    assert once["request"]["tools"] == stream["request"]["tools"] != []


def read_records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_what_a_check_of_a_sound_endpoint_keeps_is_sound_for_an_audit(
    sound: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    only = [word for name in ("plain", "call_named", "end_tag_kept") for word in ("--only", name)]
    assert main(["check", sound, "--format", "qwen3", *only, "--captures", str(tmp_path)]) == 0
    files = sorted(map(str, tmp_path.glob("*.jsonl")))
    assert len(files) == 3
    assert "<|im_end|>" in read_records(tmp_path / "end_tag_kept.jsonl")[0]["response"]
    capsys.readouterr()
    assert main(["audit", *files, "--format", "qwen3"]) == 0
    assert "6 replies: nothing found" in capsys.readouterr().out


def test_what_is_skipped_or_only_warned_of_is_no_failure_for_machines(sound: str, tmp_path: Path) -> None:
    cases, junit = tmp_path / "cases.jsonl", tmp_path / "report.xml"
    refused = {
        "messages": [{"role": "user", "content": "Name a river in France."}],
        "response_format": {"type": "\u0001poem"},
    }
    cases.write_text(json.dumps({"name": "refused", "request": refused}) + "\n")
    with serving(deployment(BY_NAME["empty deltas"])) as url:
        words = ["check", url, "--format", "qwen3", "--cases", str(cases), "--only", "refused", "--only", "plain"]
        assert main([*words, "--junit", str(junit)]) == 0
        assert main([*words, "--strict"]) == 1
    suite = ET.parse(junit).getroot()
    assert (suite.get("failures"), suite.get("skipped")) == ("0", "1")
    skipped, output = suite.find("testcase/skipped"), suite.find("testcase/system-out")
    assert skipped is not None
    assert output is not None
    assert "poem" in (skipped.get("message") or "")
    assert "empty delta" in (output.text or "")


def test_an_endpoint_that_tells_nothing_is_called_so(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Silent(deployment())) as url:
        assert main(["check", url, "--format", "qwen3", "--only", "plain"]) == 0
    assert "only its two forms were held against each other" in capsys.readouterr().out


def test_the_bar_counts_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 10.0])
    monkeypatch.setattr("unbraid.terminal.time.monotonic", lambda: next(clock))
    monkeypatch.setenv("COLUMNS", "100")
    out = io.StringIO()
    monkeypatch.setattr(out, "isatty", lambda: True)
    with Progress("checking", 4, stream=out, unit="cases", least=0) as bar:
        bar.advance(1)
    assert f"checking  {'━' * 6}{'─' * 18}  25%  1 of 4 cases  30 s left" in out.getvalue()


def test_json_on_standard_output_is_nothing_else(sound: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", sound, "--format", "qwen3", "--only", "plain", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["sound"] is True


def test_cases_of_ones_own(sound: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cases.jsonl"
    request = {"messages": [{"role": "user", "content": "Name a river in France."}], "max_tokens": 50}
    file.write_text(json.dumps({"name": "mine", "request": request}) + "\n" + json.dumps(request) + "\n")
    code = main(
        ["check", sound, "--format", "qwen3", "--cases", str(file), "--only", "mine", "--only", "case 2", "--verbose"]
    )
    out = capsys.readouterr().out
    assert code == 0
    assert "✓ mine" in out
    assert "✓ case 2" in out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "line 1: no JSON"),
        ("[]x", "no JSON"),
        ("3", "case 1: expected an object"),
        ('{"request": {}}', "case 1: its request has no list `messages`"),
    ],
)
def test_damaged_cases_name_their_place(
    sound: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    file = tmp_path / "cases.jsonl"
    file.write_text(text)
    assert main(["check", sound, "--format", "qwen3", "--cases", str(file)]) == 2
    assert said in capsys.readouterr().err


def test_what_cannot_be_asked(sound: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, code, said in [
        (["http://127.0.0.1:9", "--format", "qwen3"], 3, "can't be reached"),
        (["http://127.0.0.1:9", "--format", "qwen33"], 2, "no format is called 'qwen33'"),
        ([sound, "--format", "qwen3", "--cases", str(tmp_path / "none")], 3, "can't be read"),
        (["127.0.0.1:9", "--format", "qwen3"], 2, "no URL of an endpoint"),
        ([sound], 2, "say it with --format"),
        ([sound, "--format", "qwen33"], 2, "no format is called 'qwen33'"),
        ([sound, "--format", "qwen3", "--model", "other"], 2, "doesn't serve 'other'; it serves actor"),
        ([sound, "--format", "qwen3", "--only", "plian"], 2, "no case 'plian'"),
        ([sound, "--format", "qwen3", "--only", "plain", "--html", str(tmp_path / "no" / "r.html")], 3, "No such file"),
    ]:
        assert main(["check", *words]) == code
        assert said in capsys.readouterr().err


def test_what_cannot_be_written_is_told_before_anybody_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Minutes of work would be lost over a typo. Nobody listens at this address: whoever asks first says so."""
    nobody, missing, file = "http://127.0.0.1:9", str(tmp_path / "no" / "file"), tmp_path / "file"
    file.write_text("kept")
    for words, said in [
        *[(["check", nobody, f"--{kind}", missing], "No such file") for kind in ("json", "junit", "html")],
        (["check", nobody, "--json", str(tmp_path)], "Is a directory"),
        (["check", nobody, "--captures", str(file)], "File exists"),
        (["check", nobody, "--captures", str(file / "wire")], "Not a directory"),
        (["check", nobody, "--cases", missing], "can't be read"),
        *[(["compare", nobody, nobody, f"--{kind}", missing], "No such file") for kind in ("json", "state")],
        (["compare", nobody, "--save", missing], "No such file"),
        (["compare", nobody, "--baseline", missing], "can't be read"),
        (["audit", "no capture", "--json", missing], missing),
        (["doctor", "no model", "--save", missing], missing),
    ]:
        assert main(words) == 3
        assert said in capsys.readouterr().err, words
    assert file.read_text() == "kept"


def test_trying_a_file_leaves_it_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new, link, pipe = (tmp_path / name for name in ("old", "new", "link", "pipe"))
    old.write_text("kept")
    link.symlink_to("behind")
    os.mkfifo(pipe)
    before = sorted(tmp_path.iterdir())
    for file in (old, new, link, pipe, Path("/dev/null")):
        assert main(["check", "http://127.0.0.1:9", "--json", str(file)]) == 3
        assert "can't be reached" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before
    assert old.read_text() == "kept"


def test_a_report_that_cannot_be_written_in_the_end_is_shown_all_the_same(
    sound: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`/dev/full` is a disk that takes nothing, though it can be opened."""
    assert main(["check", sound, "--format", "qwen3", "--only", "plain", "--json", "/dev/full"]) == 3
    shown = capsys.readouterr()
    assert "1 case: 1 sound" in shown.out
    assert "/dev/full: No space left" in shown.err
    assert main(["compare", sound, sound, "--format", "qwen3", "--only", "plain", "--json", "/dev/full"]) == 3
    assert "nothing differs" in capsys.readouterr().out


def test_cases_may_be_called_anything(sound: str, tmp_path: Path) -> None:
    file = tmp_path / "cases.jsonl"
    file.write_text(
        json.dumps({"name": "../a/b", "messages": [{"role": "user", "content": "Name a river in France."}]})
    )
    words = ["--format", "qwen3", "--cases", str(file), "--only", "../a/b", "--captures", str(tmp_path / "wire")]
    assert main(["check", sound, *words]) == 0
    assert [kept.name for kept in (tmp_path / "wire").iterdir()] == [".._a_b.jsonl"]
