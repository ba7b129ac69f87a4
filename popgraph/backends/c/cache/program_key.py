"""The cache key of a program: a hash of the module, passes, options, sources and machine."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Sequence
from importlib.metadata import version

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from popgraph.backends.c.cache.install_fingerprint import DEPENDENCIES, PACKAGE, files
from popgraph.backends.c.cache.program_cache import ProgramKey, is_watched
from popgraph.backends.c.cache.program_file import MAGIC
from popgraph.backends.c.machine.key import machine
from popgraph.backends.interface import Case
from popgraph.dialects.onnx.attributes import TensorAttr
from popgraph.dialects.onnx.types import NamesAttr
from popgraph.dialects.program.attributes import BlobAttr, BytesAttr, DataAttr, HexAttr, IntsAttr
from popgraph.support import extensions
from popgraph.support.cache_files import digest
from popgraph.support.memo import by_identity


def program_key(
    module: ModuleOp, passes: Sequence[object], case: Case | None = None
) -> ProgramKey | None:
    """
    The key of the program that `passes` would produce from a module; None: not cached.

    For a `case`, the text of the general module is used instead of the module's.

    A program is not cached if passes are observed, if code outside of installed distributions
    takes part, or if files changed since they were imported.
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
    text = spelled(module) if case is None else case.text()
    if "dense<" in text:
        return None  # different elements may print alike
    given = [] if case is None else [case.given]
    return ProgramKey(digest(MAGIC, package, outside, machine(), *described, text, *given), text)


def spelled(module: ModuleOp) -> str:
    """A text that distinguishes modules whose programs may differ."""
    spelling = _Spelling()
    spelling.add(module)
    return "\n".join(spelling.lines)


class _Spelling:
    """A fast printer of the content of generic IR, with numbers for values and blocks."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._numbers: dict[SSAValue | Block, int] = {}
        self._attribute = by_identity(self._spell)

    def add(self, op: Operation) -> None:
        """Appends lines for an operation and its regions."""
        named = [
            [f"{name}={self._attribute(attribute)}" for name, attribute in given.items()]
            for given in (op.properties, op.attributes)
        ]
        used = [self._number(each) for each in (*op.operands, *op.successors)]
        self.lines.append(f"{op.name} {used} {named} {self._typed(op.results)}")
        for region in op.regions:
            for block in region.blocks:
                self.lines.append(f"{self._number(block)}: {self._typed(block.args)}")
                for inner in block.ops:
                    self.add(inner)
            self.lines.append("}")

    def _number(self, named: SSAValue | Block) -> int:
        """The number of a value or block, by first occurrence: uses may precede definitions."""
        return self._numbers.setdefault(named, len(self._numbers))

    def _typed(self, values: Sequence[SSAValue]) -> list[str]:
        return [f"{self._number(value)}: {self._attribute(value.type)}" for value in values]

    def _spell(self, attribute: Attribute) -> str:
        """The text of an attribute; plain data bypass the slow IR printer."""
        if isinstance(attribute, NamesAttr | BytesAttr | IntsAttr | HexAttr):
            return f"{attribute.name} {attribute.data!r}"
        if isinstance(attribute, TensorAttr | BlobAttr | DataAttr):
            return f"{attribute.name} {[self._attribute(each) for each in attribute.parameters]}"
        return str(attribute)


@functools.cache
def sources() -> str | None:
    """
    A hash of this package's content and of its dependencies' versions.

    None if files changed since they were imported.
    """
    found = files()
    if found is None:
        return None
    made, folder = hashlib.sha256(), str(PACKAGE)
    for name in found:
        made.update(name.encode())
        with open(os.path.join(folder, name), "rb", buffering=0) as file:
            made.update(file.read())
    return digest(made.hexdigest(), *map(version, DEPENDENCIES))
