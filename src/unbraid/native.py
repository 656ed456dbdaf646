"""The core runs as it stands, or compiled by mypyc (`UNBRAID_COMPILE=1` at build time): what of that the code must know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
else:

    def mypyc_attr(**_options: bool) -> Any:
        """Tells mypyc what a class must be able to do; as it stands, a class can do all of it.

        One that is `serializable` only is made by its name and with plain arguments: mypyc 2.4 doesn't call `__init__` otherwise.
        """
        return lambda cls: cls


def compiled() -> bool:
    """Whether the compiled core is the one that runs."""
    from unbraid import machine

    return not str(machine.__file__).endswith(".py")


_fields: dict[type, tuple[str, ...]] = {}


def fields(cls: type) -> tuple[str, ...]:
    """The names of the slots of a class, its bases' included."""
    found = _fields.get(cls)
    if found is None:
        own = [vars(base).get("__slots__", vars(base).get("__mypyc_attrs__", ())) for base in cls.__mro__]
        found = _fields[cls] = tuple(dict.fromkeys(name for names in own for name in names))
    return found


__all__ = ["compiled", "fields", "mypyc_attr"]
