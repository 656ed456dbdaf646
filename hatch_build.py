"""With `UNBRAID_COMPILE=1` in the environment, a wheel is built whose hot modules are compiled by mypyc: the same source, for one Python and
one machine. Without it, the wheel is pure and runs everywhere."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODULES = (
    "events", "memo", "gathered", "notes", "interpreter", "machine", "parser", "header", "trial", "search", "schema", "program",
    "alphabet", "turns", "codecs/*",
)  # fmt: skip
"""What runs for every token, for every call and for every header. What they call that isn't compiled runs as it does in the pure wheel."""


class CompiledCore(BuildHookInterface[Any]):
    """Adds the compiled modules beside their sources."""

    def dependencies(self) -> list[str]:
        """What building needs."""
        return ["mypy>=2.4,<3", "setuptools>=65"] if self._wanted else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile into a folder that lives until the wheel is written."""
        if not self._wanted or version == "editable":
            return
        self._folder = folder = Path(tempfile.mkdtemp(prefix="unbraid-compiled-"))
        shutil.copytree(Path(self.root, "src", "unbraid"), folder / "unbraid")
        _compile(folder)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        made = [*folder.glob("*__mypyc.*"), *folder.glob("unbraid/**/*.so"), *folder.glob("unbraid/**/*.pyd")]
        build_data["force_include"].update({str(file): str(file.relative_to(folder)) for file in made})

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """The wheel is there."""
        if self._wanted and version != "editable":
            shutil.rmtree(self._folder)

    @property
    def _wanted(self) -> bool:
        return self.target_name == "wheel" and os.environ.get("UNBRAID_COMPILE") == "1"


def _compile(folder: Path) -> None:
    """The modules of the package in `folder`, in place."""
    from mypyc.build import mypycify
    from setuptools import Distribution

    with contextlib.chdir(folder):
        sources = [str(file) for name in MODULES for file in sorted(Path("unbraid").glob(f"{name}.py"))]
        sources.remove("unbraid/codecs/__init__.py")  # nothing runs there
        # More than the first level of optimisation takes three times as long to build and brings nothing.
        extensions = mypycify(["--config-file=", *sources], opt_level="1", debug_level="0", group_name="unbraid")
        command = Distribution({"name": "unbraid", "ext_modules": extensions}).get_command_obj("build_ext")
        command.inplace = True
        command.ensure_finalized()
        command.run()
