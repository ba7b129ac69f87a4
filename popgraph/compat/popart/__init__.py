"""PopART's module `popart`: exactly the names of `popgraph.popart`."""

from __future__ import annotations

from importlib import import_module as _import_module

from popgraph import popart as _session
from popgraph.popart.about import versionString as _version

__version__ = _version()
__all__ = dir(_session)

_MODULES = ("builder", "session", "tensorinfo")


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return _import_module(f"{__name__}.{name}")
    if name.startswith("__") or name not in __all__:
        raise AttributeError(f"module 'popart' has no attribute {name!r}")
    return getattr(_session, name)


def __dir__() -> list[str]:
    return list(__all__)
