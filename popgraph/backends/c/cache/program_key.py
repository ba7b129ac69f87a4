"""The cache key of a program: a hash of the module, passes, options, sources and machine."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from io import StringIO

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute
from xdsl.printer import Printer

from popgraph.backends.c.cache.install_fingerprint import PACKAGE, STANDS_ON, files
from popgraph.backends.c.cache.program_cache import ProgramKey, is_watched
from popgraph.backends.c.cache.program_file import MAGIC
from popgraph.backends.c.machine.key import machine
from popgraph.support import extensions
from popgraph.support.cache_files import digest


def program_key(module: ModuleOp, passes: Sequence[object]) -> ProgramKey | None:
    """
    The key of what `passes` would make of a module; None when the cache is not to be used.

    So it is when passes are to be watched, when code from outside takes part that no installed
    distribution answers for, and when files were changed since they were imported.
    """
    if is_watched():
        return None
    described = [repr(step) for step in passes]
    package, outside = sources(), extensions.key()
    known = all(extensions.is_known(type(step).__module__) for step in passes)
    if package is None or outside is None or not known:
        return None
    if any(" at 0x" in text for text in described):
        return None
    output = StringIO()
    _ModulePrinter(output, print_generic_format=True).print_op(module)
    text = output.getvalue()
    if "dense<" in text:
        return None  # elements that differ may read alike
    return ProgramKey(digest(MAGIC, package, outside, machine(), *described, text), text)


@dataclass(eq=False, repr=False)
class _ModulePrinter(Printer):
    """Spells each attribute once: most operations have the types and attributes of others."""

    _spelled: dict[Attribute, str] = field(default_factory=dict, init=False)

    def print_attribute(self, attribute: Attribute) -> None:
        text = self._spelled.get(attribute)
        if text is None:
            text = self._spelled[attribute] = str(attribute)
        self.print_string(text)


@functools.cache
def sources() -> str | None:
    """
    The content of this package and the versions of those that it stands on.

    None when its files were changed since it was imported.
    """
    found = files()
    if found is None:
        return None
    made = hashlib.sha256()
    for name in found:
        made.update(name.encode())
        made.update((PACKAGE / name).read_bytes())
    return digest(made.hexdigest(), *map(version, STANDS_ON))
