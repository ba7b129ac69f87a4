"""Makes `import popart` and `import poponnx` resolve to PopGraph."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from types import ModuleType

from popgraph.popart.eras.era import LAST, PLAIN_POPONNX, Era, EraModule, era_named

ALIASES = {
    "popart": "popgraph.compat.popart",
    "popart_core": "popgraph.compat.popart",
    **{f"popart_opset{version}": "popgraph.compat.popart" for version in range(6, 12)},
    "poponnx": "popgraph.compat.poponnx",
    "poponnx_core": "popgraph.compat.poponnx",
    "popdist": "popgraph.compat.popdist",
}
"""Import name -> module, once `enable` was called."""

_NAMES = {
    "poponnx": ("poponnx", "poponnx_core"),
    "popart": tuple(name for name in ALIASES if name != "popdist"),
}
"""Import names of an era's module; PopART also had its old name."""


def enable(era: str | None = None) -> None:
    """
    Makes `popart`, its submodules (`popart_core`, ...) and `poponnx` importable in this process.

    `era` is the time of the program: "2018-12", "2019-03", "2019-07" or "2020-05". The module of
    that name then behaves as it did at that time; "last" is PopART's last version.
    """
    old = _old_module(era)
    for alias, home in ALIASES.items():
        module = import_module(home)
        if old is not None and alias in _NAMES[old.__name__]:
            module = old
        held = sys.modules.setdefault(alias, module)
        if held is not module:
            raise ImportError(f"another {alias} is imported already: {held}")
        for name, inner in list(sys.modules.items()):
            if name.startswith(f"{home}."):
                sys.modules.setdefault(alias + name.removeprefix(home), inner)


def _old_module(era: str | None) -> ModuleType | None:
    """The module of an earlier era; None for the last and the default one."""
    if era is None or (asked := era_named(era)) in (LAST, PLAIN_POPONNX):
        return None
    return _module_of(asked)


@cache
def _module_of(era: Era) -> ModuleType:
    return EraModule(era)


def disable() -> None:
    """Removes these import names again."""
    for alias, home in ALIASES.items():
        held = sys.modules.get(alias)
        if held is None or not (held is sys.modules.get(home) or hasattr(held, "__era__")):
            continue
        for name in list(sys.modules):
            if name == alias or name.startswith(f"{alias}."):
                del sys.modules[name]


def add_pattern(name: str, enabled: bool = True) -> None:
    """
    Registers a pattern that a program defines in its own library.

    Programs can then name it like PopART's patterns; it does not change results. `enabled` is its
    default.
    """
    import_module("popgraph.popart.api.patterns").add_pattern(name, enabled)
