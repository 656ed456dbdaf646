"""The surface: what is public, that it is described, and that the base install imports nothing but Python itself."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import unbraid

SOURCE = Path(unbraid.__file__).parent.parent

IMPORT = """
import json, sys
before = set(sys.modules)
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    __import__(name)
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def imported_by(*names: str) -> list[str]:
    """The modules that importing `names` brings in, in a Python that sees nothing installed."""
    command = [sys.executable, "-I", "-S", "-W", "error", "-c", IMPORT, str(SOURCE), *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    "names", [["unbraid"], ["unbraid", "unbraid.cli", "unbraid.cli.parse", "unbraid.cli.formats", "unbraid.cli.show"]]
)
def test_base_install_imports_nothing_outside_the_standard_library(names: list[str]) -> None:
    strangers = {name.partition(".")[0] for name in imported_by(*names)} - sys.stdlib_module_names - {"unbraid"}
    assert not strangers


def test_core_imports_no_network_and_no_event_loop() -> None:
    assert not {"socket", "asyncio", "ssl", "http.client", "threading"} & set(imported_by("unbraid"))


def test_all_is_exactly_what_is_visible() -> None:
    visible = {
        name for name, value in vars(unbraid).items() if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    visible -= {"annotations"}
    assert sorted(unbraid.__all__) == sorted(visible | {name for name in unbraid.__all__ if name == "__version__"})
    assert len(set(unbraid.__all__)) == len(unbraid.__all__)


def documented() -> list[str]:
    """Public names that can carry a docstring: not constants, not aliases of types."""
    return [
        name for name in unbraid.__all__ if inspect.isclass(getattr(unbraid, name)) or callable(getattr(unbraid, name))
    ]


@pytest.mark.parametrize("name", documented())
def test_every_public_name_has_a_docstring(name: str) -> None:
    value = getattr(unbraid, name)
    doc = inspect.getdoc(value)
    assert doc
    if inspect.isclass(value) and issubclass(value, tuple):
        assert not doc.startswith(f"{value.__name__}("), "the docstring that namedtuple makes up says nothing"


def test_types_are_shipped() -> None:
    assert (Path(unbraid.__file__).parent / "py.typed").is_file()
