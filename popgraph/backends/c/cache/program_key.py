"""The cache key of a program: a hash of the module, passes, options, sources and machine."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Sequence
from importlib.metadata import version

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from popgraph.backends.c.cache.install_fingerprint import PACKAGE, STANDS_ON, files
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
    The key of what `passes` would make of a module; None when the cache is not to be used.

    The text of a module that is a `case` of another is not looked at.

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
    text = spelled(module) if case is None else case.text()
    if "dense<" in text:
        return None  # elements that differ may read alike
    given = [] if case is None else [case.given]
    return ProgramKey(digest(MAGIC, package, outside, machine(), *described, text, *given), text)


def spelled(module: ModuleOp) -> str:
    """What modules that become different programs are told apart by."""
    spelling = _Spelling()
    spelling.add(module)
    return "\n".join(spelling.lines)


class _Spelling:
    """Says what the generic form of IR says, with numbers for the names of values and blocks."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._numbers: dict[SSAValue | Block, int] = {}
        self._attribute = by_identity(self._spell)

    def add(self, op: Operation) -> None:
        """Lines for an operation and all that is in it."""
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
        """In the order in which they are met: graphs may use what stands behind them."""
        return self._numbers.setdefault(named, len(self._numbers))

    def _typed(self, values: Sequence[SSAValue]) -> list[str]:
        return [f"{self._number(value)}: {self._attribute(value.type)}" for value in values]

    def _spell(self, attribute: Attribute) -> str:
        """The text of an attribute, as IR has it, unless plain data need no printer."""
        if isinstance(attribute, NamesAttr | BytesAttr | IntsAttr | HexAttr):
            return f"{attribute.name} {attribute.data!r}"
        if isinstance(attribute, TensorAttr | BlobAttr | DataAttr):
            return f"{attribute.name} {[self._attribute(each) for each in attribute.parameters]}"
        return str(attribute)


@functools.cache
def sources() -> str | None:
    """
    The content of this package and the versions of those that it stands on.

    None when its files were changed since it was imported.
    """
    found = files()
    if found is None:
        return None
    made, folder = hashlib.sha256(), str(PACKAGE)
    for name in found:
        made.update(name.encode())
        with open(os.path.join(folder, name), "rb", buffering=0) as file:
            made.update(file.read())
    return digest(made.hexdigest(), *map(version, STANDS_ON))
