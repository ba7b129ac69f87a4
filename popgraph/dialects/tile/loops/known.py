"""Kernels that are known from other programs: how they are launched, without their loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from xdsl.dialects import func
from xdsl.dialects.builtin import IntegerAttr, StringAttr, i64
from xdsl.ir import Operation, SSAValue

from popgraph.dialects.program.attributes import IntsAttr
from popgraph.dialects.tile.loops.ops import LaunchOp
from popgraph.dialects.tile.running import NAME

_KEY = "kernel_key"


@dataclass(frozen=True)
class Kernel:
    """The interface of a kernel to the operations that launch it."""

    title: str
    """The name of its function, but for the number."""
    operands: Sequence[int]
    """The operands of such an operation that the kernel reads, in its order."""
    chunks: int
    inplace: Sequence[Sequence[int]]
    """Pairs of an input of the kernel and a result that may share memory."""

    def launch(self, function: str, op: Operation, sizes: Sequence[SSAValue]) -> LaunchOp:
        """Computes what the operation does; its last inputs are the sizes that it runs to."""
        inputs = [*(op.operands[number] for number in self.operands), *sizes]
        types = [result.type for result in op.results]
        pairs = IntsAttr.of([number for pair in self.inplace for number in pair])
        made = LaunchOp(function, inputs, types, IntegerAttr(self.chunks, i64), pairs)
        if NAME in op.attributes:
            made.attributes[NAME] = op.attributes[NAME]
        return made


class KnownKernels(Protocol):
    """
    The kernels of earlier programs, and decisions about them.

    Keys hold all that decides what a kernel does, or what a decision depends on.
    """

    def find(self, key: str) -> Kernel | None:
        """The kernel of a key, whose loops need not be written."""

    def note(self, key: str, kernel: Kernel) -> None:
        """A kernel whose loops are written now."""

    def decision(self, key: str) -> str | None:
        """The decision of a key, which need not be taken again."""

    def note_decision(self, key: str, decision: str) -> None:
        """A decision that is taken now."""


def set_key(function: func.FuncOp, key: str) -> None:
    """Notes by which key the kernel of a function is known."""
    function.attributes[_KEY] = StringAttr(key)


def key_of(function: func.FuncOp) -> str:
    """The key of a kernel; empty if it is in no store."""
    found = function.attributes.get(_KEY)
    return found.data if isinstance(found, StringAttr) else ""
