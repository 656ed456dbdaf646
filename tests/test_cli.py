"""The command line: what it prints, for people and for programs, and the exit codes that mean something."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from unbraid import Policy
from unbraid.cli import COMMANDS, main
from unbraid.cli.parse import policy_from
from unbraid.cli.problems import Problem
from unbraid.formats import FORMATS
from unbraid.terminal import STRANDS, Progress, Screen, cut, lines, width

RAW = (
    "<think>\nThey want the weather.\n</think>\n\nOne moment.\n<tool_call>\n"
    '{"name": "get_weather", "arguments": {"city": "Zürich", "days": 3}}\n</tool_call><|im_end|>'
)


class Ran:
    """What a run of the command line left behind."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def json(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        """Standard output as a JSON value a line."""
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Ran]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command line in this process."""
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def go(*words: str | Path) -> Ran:
        try:
            code = main([str(word) for word in words])
        except SystemExit as stopped:  # argparse: --help, --version, a wrong use
            code = int(stopped.code or 0)
        out, err = capfd.readouterr()
        return Ran(code, out, err)

    return go


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """A file of raw output."""
    file = tmp_path / "raw.txt"
    file.write_text(RAW, encoding="utf-8", newline="")
    return file


# -- parse -------------------------------------------------------------------------------------------------------------


def test_message_for_people(run: Run, raw: Path) -> None:
    ran = run("parse", "--format", "qwen3", raw)
    assert (ran.code, ran.err) == (0, "")
    shown = ran.out.splitlines()
    assert shown[:4] == ["reasoning", "  They want the weather.", "content", "  One moment."]
    assert shown[4].startswith("tool_call  get_weather  call_")
    assert shown[5:] == ['  {"city": "Zürich", "days": 3}']


def test_message_as_json(run: Run, raw: Path) -> None:
    found = run("parse", "--format", "qwen3", "--json", raw).json
    assert found["reasoning"] == "They want the weather."
    assert found["content"] == "One moment."
    assert [(call["name"], call["arguments"], call["complete"]) for call in found["tool_calls"]] == [
        ("get_weather", '{"city": "Zürich", "days": 3}', True)
    ]
    assert [part["strand"] for part in found["parts"]] == ["reasoning", "content", "tool_call"]
    assert found["diagnostics"] == []


def test_what_is_absent_is_null(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "empty"
    file.write_bytes(b"")
    found = run("parse", "--format", "qwen3", "--json", file).json
    assert found == {"reasoning": None, "content": None, "tool_calls": [], "parts": [], "diagnostics": []}
    assert run("parse", "--format", "qwen3", file).out == "(an empty message)\n"


def test_events_tile_the_file(run: Run, raw: Path) -> None:
    events = run("parse", "--format", "qwen3", "--events", "--json", raw).json_lines
    assert "".join(event["raw"] for event in events) == RAW
    spans = [(event["start"], event["stop"]) for event in events]
    assert spans[0][0] == 0
    assert [start for start, _ in spans[1:]] == [stop for _, stop in spans[:-1]]
    assert {event["strand"] for event in events} == set(STRANDS)
    assert {"text", "call_start", "call_arguments", "call_end", "markup", "control"} == {
        event["event"] for event in events
    }


def test_events_for_people_are_one_a_line(run: Run, raw: Path) -> None:
    as_json = run("parse", "--format", "qwen3", "--events", "--json", raw).json_lines
    shown = run("parse", "--format", "qwen3", "--events", raw).out.splitlines()
    assert len(shown) == len(as_json)
    for line, event in zip(shown, as_json, strict=True):
        span, strand, name, *_ = line.replace(f"{event['start']:>7}:{event['stop']:<7}", "S ", 1).split()
        assert (span, strand, name) == ("S", event["strand"], event["event"])


def test_standard_input_and_characters_split_over_blocks(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    text = "é世" * 50_000  # five bytes each: no block of 64 KiB ends at a character
    stdin = io.TextIOWrapper(io.BytesIO(text.encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert run("parse", "-f", "qwen3_instruct", "--json", "-").json["content"] == text


def test_invalid_bytes_and_newlines_are_kept_apart(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "raw"
    file.write_bytes(b"a\r\nb\xffc\r")
    assert run("parse", "-f", "qwen3_instruct", "--json", file).json["content"] == "a\r\nb\ufffdc\r"


def test_the_prompt_says_where_the_output_starts(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "raw"
    file.write_text("Hm.\n</think>\n\nYes.")
    prompt = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n<think>\n"
    inside = run("parse", "-f", "qwen3", "--prompt", prompt, "--json", file).json
    assert (inside["reasoning"], inside["content"]) == ("Hm.", "Yes.")
    (tmp_path / "prompt").write_text(prompt)
    assert run("parse", "-f", "qwen3", "--prompt-file", tmp_path / "prompt", "--json", file).json == inside


def test_thinking_decides_where_nothing_else_does(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "raw"
    file.write_text("Hm.")
    prompt = "<|im_start|>assistant\n"
    found = run("parse", "-f", "qwen3", "--prompt", prompt, "--thinking", "off", "--json", file).json
    assert (found["reasoning"], found["content"]) == (None, "Hm.")


def test_tools_give_types(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "raw"
    file.write_text("<tool_call>\n<function=f>\n<parameter=n>\n7\n</parameter>\n</function>\n</tool_call>")
    schema = {"type": "object", "properties": {"n": {"type": "string"}}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    for content in (tools, {"tools": tools}):  # a list, or a whole request
        (tmp_path / "tools.json").write_text(json.dumps(content))
        found = run("parse", "-f", "qwen3_coder", "--tools", tmp_path / "tools.json", "--json", file).json
        assert json.loads(found["tool_calls"][0]["arguments"]) == {"n": "7"}


def test_finish_length_leaves_a_call_incomplete(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "raw"
    file.write_text('<tool_call>\n{"name": "f", "arguments": {"a": 1')
    found = run("parse", "-f", "qwen3", "--finish", "length", "--json", file).json
    assert [call["complete"] for call in found["tool_calls"]] == [False]
    assert "(cut off)" in run("parse", "-f", "qwen3", "--finish", "length", file).out
    dropped = run("parse", "-f", "qwen3", "--finish", "length", "--policy", "truncated_call=drop", "--json", file).json
    assert dropped["tool_calls"] == []


def test_strict_makes_a_diagnostic_an_error(run: Run, raw: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("<tool_call>\nno call at all\n</tool_call>")
    assert run("parse", "-f", "qwen3", "--strict", raw).code == 0
    assert run("parse", "-f", "qwen3", broken).code == 0
    ran = run("parse", "-f", "qwen3", "--strict", broken)
    assert ran.code == 1
    assert "diagnostics" in ran.out
    assert [event["event"] for event in run("parse", "-f", "qwen3", "--events", "--json", broken).json_lines][
        -1
    ] == "diagnostic"


# -- recordings of token steps -----------------------------------------------------------------------------------------


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """A byte-level tokenizer with three special tokens, in the form of Hugging Face."""
    added = [(256, "<think>"), (257, "</think>"), (258, "<|im_end|>")]
    file = tmp_path / "tokenizer.json"
    file.write_text(
        json.dumps(
            {
                "added_tokens": [{"id": id, "content": text, "special": True} for id, text in added],
                "decoder": {"type": "ByteLevel"},
                "model": {
                    "type": "BPE",
                    "vocab": {chr(code): code for code in range(33, 127)} | {"Ġ": 32, "Ċ": 10},
                    "merges": [],
                },
            }
        )
    )
    return file


def test_recording_of_token_steps(run: Run, tokenizer: Path, tmp_path: Path) -> None:
    file = tmp_path / "recording.jsonl"
    steps: list[dict[str, Any]] = [
        {"ids": [256, 10]},
        {"ids": list(b"Hm.")},
        {"ids": [10, 257]},
        {"ids": list(b"\n\n<think>")},
    ]
    file.write_text("\n".join(map(json.dumps, [*steps, {"ids": [258], "finish": "stop"}])) + "\n")
    found = run("parse", "-f", "qwen3", "--vocabulary", tokenizer, "--json", file).json
    assert (found["reasoning"], found["content"]) == ("Hm.", "<think>")  # spelled, so it is text
    events = run("parse", "-f", "qwen3", "--vocabulary", tokenizer, "--events", "--json", file).json_lines
    assert events[-1]["token_stop"] == 2 + 3 + 2 + 9 + 1
    assert run("parse", "-f", "qwen3", "--vocabulary", tokenizer, "--events", file).code == 0


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"ids": 3}', '{"ids": ["a"]}', '{"ids": [true]}', '{"ids": [], "finish": "end"}']
)
def test_broken_recording_names_the_line(run: Run, tokenizer: Path, tmp_path: Path, line: str) -> None:
    file = tmp_path / "recording.jsonl"
    file.write_text('{"ids": [65]}\n' + line + "\n")
    ran = run("parse", "-f", "qwen3", "--vocabulary", tokenizer, file)
    assert ran.code == 3
    assert f"{file}, line 2" in ran.err


# -- formats and show --------------------------------------------------------------------------------------------------


def test_formats_lists_every_format(run: Run) -> None:
    head, *rows = run("formats").out.splitlines()
    assert head.split() == ["FORMAT", "WRITES", "ALIASES", "MODELS"]
    assert [row.split()[0] for row in rows] == sorted(FORMATS)
    found = {entry["name"]: entry for entry in run("formats", "--json").json}
    assert found.keys() == FORMATS.keys()
    assert found["qwen3"]["writes"] == ["reasoning", "content", "calls"]
    assert "hermes" in {alias for entry in found.values() for alias in entry["aliases"]}


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_show_prints_every_marker_and_state(run: Run, name: str) -> None:
    ran = run("show", name)
    assert (ran.code, ran.err) == (0, "")
    fmt = FORMATS[name]
    shown = run("show", name, "--json").json
    assert [state["name"] for state in shown["states"]] == [state.name for state in fmt.states]
    assert [marker["spellings"][0] for marker in shown["markers"]] == [marker.text for marker in fmt.markers]
    for state in fmt.states:
        assert f"  {state.name} [{state.strand}]" in ran.out
    for marker in fmt.markers:
        assert repr(marker.text)[1:-1] in ran.out
    assert len(ran.out.splitlines()) >= len(fmt.markers) + 2 * len(fmt.states)


def test_show_writes_a_codec_as_its_table_does(run: Run) -> None:
    shown = run("show", "qwen3_coder").out
    assert "body: XmlParameters" in shown
    assert "parameter '<parameter='" in shown
    assert "or: JsonObject" in shown
    assert "lead 'function<｜tool▁sep｜>'" in run("show", "deepseek_v3").out


def test_show_takes_aliases_and_model_ids(run: Run) -> None:
    assert run("show", "Qwen/Qwen3-8B").out == run("show", "qwen3").out


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def said(ran: Ran) -> str:
    """The one line of an error."""
    assert ran.out == ""
    assert ran.err.startswith("unbraid: ")
    assert ran.err.count("\n") == 1
    return ran.err


def test_unknown_format_suggests_another(run: Run, raw: Path) -> None:
    for words in (("parse", "-f", "qwen33", raw), ("show", "qwen33")):
        ran = run(*words)
        assert ran.code == 2
        assert "did you mean" in said(ran)
        assert "qwen3" in ran.err


def test_unknown_command_suggests_another(run: Run) -> None:
    ran = run("formts")
    assert ran.code == 2
    assert "did you mean formats?" in said(ran)


def test_wrong_use_is_one_line(run: Run, raw: Path) -> None:
    for words in (
        ("parse", raw),
        ("parse", "-f", "qwen3", raw, "--thinking", "maybe"),
        ("parse", "-f", "qwen3", raw, "--jsn"),
    ):
        ran = run(*words)
        assert ran.code == 2
        assert "(see `unbraid parse --help`)" in said(ran)
    assert "(see `unbraid --help`)" in said(run("--jsn", "parse", "-f", "qwen3", raw))


def test_unreadable_files(run: Run, raw: Path, tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    number = tmp_path / "number.json"
    number.write_text("3")
    for words in (
        ("-f", "qwen3", absent),
        ("-f", "qwen3", tmp_path),
        ("-f", "qwen3", "--tools", absent, raw),
        ("-f", "qwen3", "--tools", broken, raw),
        ("-f", "qwen3", "--tools", number, raw),
        ("-f", "qwen3", "--prompt-file", absent, raw),
        ("-f", "qwen3", "--vocabulary", absent, raw),
        ("-f", "qwen3", "--vocabulary", broken, raw),
    ):
        ran = run("parse", *words)
        assert ran.code == 3, words
        said(ran)


def test_policy_is_checked_against_the_policy_itself() -> None:
    assert policy_from([]) == Policy()
    assert policy_from(["calls=atomic", "truncated-call=drop"]) == Policy(calls="atomic", truncated_call="drop")
    assert policy_from(["keep_special_tokens=<a>,<b>"]).keep_special_tokens == {"<a>", "<b>"}
    for wrong, hint in (
        ("call=atomic", "did you mean calls?"),
        ("calls=atomc", "did you mean atomic?"),
        ("calls", "KEY=VALUE"),
    ):
        with pytest.raises(Problem, match=hint.replace("?", r"\?")):
            policy_from([wrong])


@pytest.mark.parametrize("module", ["starlette", "xllamacpp"])
def test_missing_extra_is_named(run: Run, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    absent(monkeypatch, module)
    ran = run("serve")
    assert ran.code == 2
    assert f"needs {module}: pip install 'unbraid[server,local]'" in said(ran)


def test_own_mistake_is_not_taken_for_a_missing_extra(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    absent(monkeypatch, "unbraid.nowhere")
    with pytest.raises(ModuleNotFoundError):
        run("serve")


def absent(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """Let the import of a command fail for want of `module`."""

    def fail(_: str) -> None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr("unbraid.cli.importlib.import_module", fail)


def test_help_and_version(run: Run) -> None:
    for words in ((), ("--help",)):
        ran = run(*words)
        assert ran.code == 0
        assert all(f"    {command} " in ran.out for command in COMMANDS)
    for command in ("parse", "formats", "show"):
        assert f"usage: unbraid {command}" in run(command, "--help").out
    assert run("--version").out.startswith("unbraid ")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_an_output_that_takes_no_more_and_closed_streams() -> None:
    command = f"{sys.executable} -m unbraid"
    for words, code, said in [
        ("formats >/dev/full", 3, "the output can't be written"),
        ("formats >&-", 0, ""),
        ("render qwen3 - <&-", 3, "standard input: not JSON"),
    ]:
        ran = subprocess.run(f"{command} {words}", shell=True, capture_output=True, text=True, check=False)
        assert ran.returncode == code, ran.stderr
        assert said in ran.stderr
        assert "Traceback" not in ran.stderr


def test_python_dash_m_and_a_closed_pipe(tmp_path: Path) -> None:
    file = tmp_path / "raw"
    file.write_text("x\n" * 500_000)
    command = [sys.executable, "-m", "unbraid", "parse", "-f", "qwen3_instruct", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline() == b"content\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 141


# -- on a terminal -----------------------------------------------------------------------------------------------------


def watched(command: list[str], environment: Mapping[str, str], stdout: int | None = None) -> str:
    """What a terminal of 100 columns gets to see of a command: all of it, unless `stdout` goes elsewhere."""
    ours, theirs = pty.openpty()
    settings = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    settings |= {"TERM": "xterm", "COLUMNS": "100", **environment}
    out = theirs if stdout is None else stdout
    seen = b""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=theirs, env=settings) as process:
        os.close(theirs)
        try:
            while block := os.read(ours, 65536):
                seen += block
        except OSError:  # Linux: the other end is closed
            pass
        assert process.wait(timeout=60) == 0, seen.decode()
    os.close(ours)
    return seen.decode().replace("\r\n", "\n")


def on_terminal(*words: str | Path, **environment: str) -> str:
    """What `unbraid` shows on a terminal."""
    return watched([sys.executable, "-m", "unbraid", *map(str, words)], environment)


def test_terminal_shows_strands_in_colours_with_a_legend(raw: Path) -> None:
    seen = on_terminal("parse", "-f", "qwen3", raw)
    assert seen.startswith("\x1b[35m■ reasoning\x1b[0m  \x1b[32m■ content\x1b[0m  \x1b[36m■ tool_call\x1b[0m\n")
    assert "\x1b[35mThey want the weather.\x1b[0m" in seen
    assert "\x1b[" not in on_terminal("parse", "-f", "qwen3", raw, NO_COLOR="1")


def test_model_output_cannot_steer_the_terminal(tmp_path: Path) -> None:
    file = tmp_path / "raw"
    file.write_text("a\x1b[2Jb\x9bc\n")
    seen = on_terminal("parse", "-f", "qwen3_instruct", file, NO_COLOR="1")
    assert "  a\\x1b[2Jb\\x9bc" in seen
    assert "\x1b" not in seen


MEASURE = """
import itertools, resource, sys, time
from unbraid.cli import main
clock = itertools.count()
time.monotonic = lambda: next(clock) * 0.05  # however fast it is, it takes its time for the bar
code = main(sys.argv[1:])
print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""


def test_50_megabytes_take_the_memory_of_their_message_and_show_progress(tmp_path: Path) -> None:
    def watch(paragraphs: int) -> tuple[int, str]:
        with file.open("w", encoding="utf-8") as out:
            out.write("<think>\n")
            for number in range(paragraphs):
                out.write(f"{number}: " + "a thought, and another one. " * 36 + "\n")
            out.write("</think>\n\nDone.")
        command = [sys.executable, "-c", MEASURE, "parse", "-f", "qwen3", str(file)]
        seen = watched(command, {}, stdout=subprocess.DEVNULL)
        return int(seen.split("peak ")[1]) * 1024, seen

    file = tmp_path / "large.txt"
    least, small = watch(10)
    most, large = watch(50_000)
    message = file.stat().st_size
    assert message > 50_000_000
    # The pieces of the message, and the message joined from them; a third copy of any kind would show.
    assert most - least < 2.5 * message
    assert "━" in large
    assert "large.txt" in large
    assert "\r\x1b[Kpeak" in large  # wiped
    assert small.startswith("peak")


# -- the terminal itself -----------------------------------------------------------------------------------------------


def test_columns_line_up_in_cells_not_characters() -> None:
    out = io.StringIO()
    Screen(out, {}).table([("a｜b", "x"), ("abc", "y")], indent=" ")
    assert out.getvalue() == " a｜b  x\n abc   y\n"
    assert width("｜世é") == 5
    assert cut("abcdef", 4) == "abc…"
    assert cut("世界人", 4) == "世…"
    assert cut("abcd", 4) == "abcd"


def test_lines_are_split_at_newlines_only() -> None:
    assert list(lines("a\r\n\nb\x0cc\u2028d\n")) == ["a\r", "", "b\x0cc\u2028d"]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """It does."""
        return True


def test_progress_tells_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.05, 1.0, 1.05])
    monkeypatch.setattr("unbraid.terminal.time.monotonic", lambda: next(clock))
    monkeypatch.setenv("COLUMNS", "100")
    out = Terminal()
    with Progress("reading", 10_000_000, stream=out) as bar:
        bar.advance(1_000_000)  # too early to show anything
        assert out.getvalue() == ""
        bar.advance(1_500_000)
        bar.advance(1)  # too early to show it again
    shown, wiped = out.getvalue().split("\x1b[K", 1)
    assert shown == f"\rreading  {'━' * 6}{'─' * 18}  25%  2.5 MB of 10.0 MB  2.5 MB/s  3 s left"
    assert wiped == "\r\x1b[K"


def test_progress_is_silent_where_nobody_looks() -> None:
    for stream, total in ((io.StringIO(), 10_000_000), (Terminal(), 10_000)):
        with Progress("reading", total, stream=stream) as bar:
            bar.advance(5_000)
        assert stream.getvalue() == ""


# -- render, diagram ---------------------------------------------------------------------------------------------------

MESSAGE = {"reasoning": "Hm.", "content": "Hi.", "tool_calls": [{"name": "f", "arguments": {"a": "ü\n"}}]}


def test_render_writes_what_parse_reads(run: Run, tmp_path: Path) -> None:
    file, raw = tmp_path / "message.json", tmp_path / "raw.txt"
    file.write_text(json.dumps(MESSAGE), "utf-8")
    written = run("render", "qwen3", file)
    assert written.code == 0
    assert written.out.startswith("<think>\nHm.\n</think>\n\nHi.\n<tool_call>\n")
    raw.write_bytes(written.out.encode())
    again = tmp_path / "again.json"
    again.write_text(run("parse", raw, "--format", "qwen3", "--json").out, "utf-8")
    assert run("render", "qwen3", again).out == written.out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "expected an object"),
        ('{"content": 3}', "content: expected a text"),
        ('{"tool_calls": [{"arguments": "{}"}]}', "tool_calls/0/name: is missing"),
        ('{"tool_calls": {}}', "tool_calls: expected a list"),
        ("{", "not JSON"),
    ],
)
def test_render_says_what_is_wrong_with_a_message(run: Run, tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "message.json"
    file.write_text(text)
    failed = run("render", "qwen3", file)
    assert failed.code == 3
    assert said in failed.err


def test_render_says_what_a_format_cannot_hold(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "message.json"
    file.write_text(json.dumps({"reasoning": "a </think> b"}))
    failed = run("render", "qwen3", file)
    assert (failed.code, failed.out) == (2, "")
    assert "qwen3 can't express reasoning" in failed.err


def test_diagram(run: Run) -> None:
    assert "--> content" in run("diagram", "qwen3").out
    assert run("diagram", "qwen3", "--as", "mermaid").out.startswith("stateDiagram-v2")
