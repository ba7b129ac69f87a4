"""Extensions: entry points of other distributions, loaded on first use of their name."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from popgraph.support.cache_files import digest
from popgraph.support.errors import ExtensionError

PASSES, OPERATORS = "popgraph.passes", "popgraph.ops"
TARGETS, BACKENDS = "popgraph.targets", "popgraph.backends"
GROUPS = (PASSES, OPERATORS, TARGETS, BACKENDS)
"""
The groups of entry points.

The name of an entry point is that of its pass, ONNX domain, target or backend; its module registers
it on import.
"""

OWN = "popgraph"


_TAKEN = ("ai.onnx.", "ai.graphcore.", "com.microsoft.")
"""Prefixes of ONNX domains, with a trailing dot, that extensions must not define."""


def is_free(domain: str) -> bool:
    """Whether extensions may define operators of a domain."""
    return bool(domain) and not f"{domain}.".startswith(_TAKEN)


@dataclass(frozen=True)
class Source:
    """The origin of an external top-level package or module."""

    title: str
    distribution: Any = None
    content: str | None = None
    """A digest of all its files when it was loaded; None if unknown."""

    @property
    def provider(self) -> str:
        """The distribution, or else the module."""
        return self.title if self.distribution is None else _named(self.distribution)

    def key(self) -> str | None:
        """The digest for cache keys; None if the code may have changed."""
        same = self.content is not None and self.content == _content(self.distribution)
        return self.content if same else None


SOURCES: dict[str, Source] = {}
"""{top-level package: source} of all registrations in this process."""
_TRIED: dict[tuple[str, str], ExtensionError | None] = {}
"""{(group, name): the error of the lookup, or None}."""


def note(module: str) -> None:
    """Records that a module registers something; the code of a script has no digest."""
    root = module.partition(".")[0]
    if root != OWN:
        SOURCES.setdefault(root, Source(f"module {module}"))


def provider_of(module: str) -> str:
    """The external distribution or module that a module belongs to; "" for PopGraph."""
    source = SOURCES.get(module.partition(".")[0])
    return source.provider if source is not None else ""


def is_empty() -> bool:
    """Whether no extension is registered in this process."""
    return not SOURCES


def is_known(module: str) -> bool:
    """Whether a module belongs to PopGraph or to a source with a digest."""
    root = module.partition(".")[0]
    return root == OWN or (root in SOURCES and SOURCES[root].key() is not None)


def key() -> str | None:
    """The digest of all extensions in use; None if programs must not be cached."""
    keys = {root: source.key() for root, source in SOURCES.items()}
    known = [f"{root} {one}" for root, one in sorted(keys.items()) if one is not None]
    return digest(*known) if len(known) == len(keys) else None


def entry_points(group: str) -> list[Any]:
    """The entry points of a group, by name; nothing is imported."""
    return sorted(import_module("importlib.metadata").entry_points(group=group))


def title(point: Any) -> str:
    """An entry point in the format of messages."""
    owner = _named(point.dist) if point.dist is not None else "a distribution"
    return f"entry point {point.name!r} of {point.group!r} in {owner}"


def _named(distribution: Any) -> str:
    return f"distribution {distribution.name} {distribution.version}"


def load(group: str, name: str) -> None:
    """
    Loads the entry point of a name once; does nothing if there is none.

    Duplicate names are refused as ambiguous.
    """
    if (group, name) not in _TRIED:
        _TRIED[group, name] = None
        try:
            _load(group, name)
        except ExtensionError as error:
            _TRIED[group, name] = error
    failed = _TRIED[group, name]
    if failed is not None:
        raise failed


def _load(group: str, name: str) -> None:
    found = [point for point in entry_points(group) if point.name == name]
    if len(found) > 1:
        raise ExtensionError(
            f"several distributions provide {name!r}",
            "; ".join(map(title, found)),
            "uninstall all but one of them",
        )
    for point in found:
        _import(point)


def load_all(group: str) -> Iterator[ExtensionError]:
    """Loads a whole group, and yields an error for each entry point that fails."""
    for name in sorted({point.name for point in entry_points(group)}):
        try:
            load(group, name)
        except ExtensionError as error:
            yield error


def _import(point: Any) -> None:
    root = point.module.partition(".")[0]
    content = _content(point.dist)
    is_new = root not in sys.modules
    try:
        point.load()
    except ExtensionError as error:
        where = "; ".join(filter(None, [error.where, title(point)]))
        raise ExtensionError(error.what, where, error.hint) from error
    except (Exception, SystemExit) as error:
        hint = "update or uninstall the distribution, or report it to its authors"
        raise _failed(error, title(point), hint) from error
    covered = content if is_new and _covers(point.dist, root) else None
    before = SOURCES.get(root)
    if before is None or before.distribution is None:
        SOURCES[root] = Source(title(point), point.dist, covered)


def load_module(name: str) -> None:
    """Loads a Python file, or imports a module; a failure of its code names it."""
    where = f"--load {name}"
    try:
        if name.endswith(".py"):
            _run_file(Path(name))
        else:
            import_module(name)
    except ExtensionError:
        raise
    except ModuleNotFoundError as error:
        hint = "name a file of Python (`my_passes.py`), or a module that can be imported"
        raise _failed(error, where, hint) from error
    except (Exception, SystemExit) as error:
        # `sys.exit` in the module would end the command without a message.
        raise _failed(error, where, "mend the module; POPGRAPH_DEBUG=1 shows the line") from error


def _failed(error: BaseException, where: str, hint: str) -> ExtensionError:
    """The error of an extension whose import raised another one."""
    what = f"an extension cannot be loaded: {type(error).__name__}: {error}"
    return ExtensionError(what, where, hint)


def _run_file(path: Path) -> ModuleType:
    name = path.stem
    if name in sys.modules:
        known = getattr(sys.modules[name], "__file__", None)
        if known is not None and Path(known).resolve() == path.resolve():
            return sys.modules[name]
        raise ExtensionError(f"module {name!r} exists already", f"--load {path}", "rename the file")
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ExtensionError("there is no such file", f"--load {path}")
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _python_files(distribution: Any) -> list[Path]:
    listed = distribution.files or ()
    return sorted(Path(distribution.locate_file(one)) for one in listed if one.suffix == ".py")


def _covers(distribution: Any, root: str) -> bool:
    """Whether the imported module is among the files of a distribution."""
    origin = getattr(sys.modules.get(root), "__file__", None)
    if distribution is None or origin is None:
        return False
    return Path(origin).resolve() in {one.resolve() for one in _python_files(distribution)}


def _content(distribution: Any) -> str | None:
    """A digest of a distribution's files, and of the versions of its dependencies."""
    if distribution is None:
        return None
    made = hashlib.sha256()
    for one in sorted(map(str, distribution.files or ())):
        path = Path(distribution.locate_file(one))
        if path.suffix == ".pyc":
            continue
        try:
            made.update(f"{one}\0".encode() + path.read_bytes())
        except OSError:
            return None
    return digest(made.hexdigest(), *sorted(_versions(distribution.requires or (), set())))


def _versions(requirements: Iterable[str], seen: set[str]) -> Iterator[str]:
    """Names and versions of all direct and indirect dependencies."""
    metadata = import_module("importlib.metadata")
    for text in requirements:
        found = re.match(r"[A-Za-z0-9._-]+", text)
        name = re.sub(r"[-_.]+", "-", found[0]).lower() if found else ""
        if not name or name == OWN or name in seen:
            continue
        seen.add(name)
        with suppress(metadata.PackageNotFoundError):
            distribution = metadata.distribution(name)
            yield f"{name} {distribution.version}"
            yield from _versions(distribution.requires or (), seen)
