"""Makes `import popart` and `import poponnx` resolve to PopGraph."""

from __future__ import annotations

import sys
from importlib import import_module

ALIASES = {
    "popart": "popgraph.compat.popart",
    "popart_core": "popgraph.compat.popart",
    "poponnx": "popgraph.compat.poponnx",
}
"""Under which names what can be imported once `enable` was called."""


def enable() -> None:
    """Makes `popart`, `popart_core` and `poponnx` importable in this process."""
    for alias, home in ALIASES.items():
        module = import_module(home)
        held = sys.modules.setdefault(alias, module)
        if held is not module:
            raise ImportError(f"another {alias} is imported already: {held}")
        for name, inner in list(sys.modules.items()):
            if name.startswith(f"{home}."):
                sys.modules.setdefault(alias + name.removeprefix(home), inner)


def disable() -> None:
    """Takes the names away again."""
    for alias, home in ALIASES.items():
        if sys.modules.get(alias) is not sys.modules.get(home):
            continue
        for name in list(sys.modules):
            if name == alias or name.startswith(f"{alias}."):
                del sys.modules[name]
