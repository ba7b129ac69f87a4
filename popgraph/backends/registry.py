"""The registry of backends, which imports their modules on demand."""

from __future__ import annotations

from importlib import import_module

from popgraph.backends.interface import Backend
from popgraph.support import extensions
from popgraph.support.errors import ExtensionError, PopgraphError
from popgraph.support.names import closest

DEFAULT = "c"
"""The backend that is used unless another one is named."""
OWN = {"c": "popgraph.backends.c.backend", "reference": "popgraph.backends.reference.backend"}
"""The modules that register backends of this package, each imported on first use."""
BACKENDS: dict[str, Backend] = {}
"""The registered backends, by name."""


def add_backend(backend: Backend) -> Backend:
    """Registers a backend under its name."""
    module, known = type(backend).__module__, BACKENDS.get(backend.name)
    other = type(known).__module__ if known is not None else OWN.get(backend.name, module)
    if other != module:
        raise ExtensionError(
            f"duplicate backend {backend.name!r}",
            f"{other} and {module}",
            "rename one of them",
        )
    extensions.note(module)
    BACKENDS[backend.name] = backend
    return backend


def backend_named(name: str) -> Backend:
    """The backend of a name, imported or loaded on demand; PopgraphError if there is none."""
    found = _found(name) if isinstance(name, str) else None
    if found is None:
        installed = (point.name for point in extensions.entry_points(extensions.BACKENDS))
        names = list(dict.fromkeys([*OWN, *BACKENDS, *installed]))
        close = closest(str(name), names)
        *some, last = map(repr, names)
        hint = f"did you mean {close!r}? " if close else ""
        hint += f"there are {', '.join(some)} and {last}"
        raise PopgraphError(f"no backend {name!r}", hint=hint)
    return found


def _found(name: str) -> Backend | None:
    if name not in BACKENDS:
        if name in OWN:
            import_module(OWN[name])
        else:
            extensions.load(extensions.BACKENDS, name)
    return BACKENDS.get(name)
