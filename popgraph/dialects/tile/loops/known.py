"""Kernels that earlier programs compiled: their interfaces, without loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from xdsl.dialects import func
from xdsl.dialects.builtin import IntegerAttr, StringAttr, UnitAttr, i64
from xdsl.ir import Operation, SSAValue

from popgraph.dialects.program.attributes import IntsAttr
from popgraph.dialects.tile.loops.ops import LaunchOp
from popgraph.dialects.tile.running import NAME

_KEY = "kernel_key"
_PORTABLE = "portable"


@dataclass(frozen=True)
class Kernel:
    """The interface of a kernel for operations that launch it."""

    title: str
    """The name of its function without the number."""
    operands: Sequence[int]
    """The operands of the launching operation that the kernel reads, in the kernel's order."""
    chunks: int
    inplace: Sequence[Sequence[int]]
    """Pairs (input of the kernel, result) that may share memory."""

    def launch(self, function: str, op: Operation, sizes: Sequence[SSAValue]) -> LaunchOp:
        """The launch that computes an operation; `sizes` are additional last inputs."""
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

    A key contains everything that the kernel or the decision depends on.
    """

    def find(self, key: str) -> Kernel | None:
        """The kernel with this key; its loops need not be built."""

    def note(self, key: str, kernel: Kernel) -> None:
        """Records a kernel whose loops were just built."""

    def decision(self, key: str) -> str | None:
        """The recorded decision for this key."""

    def note_decision(self, key: str, decision: str) -> None:
        """Records a decision that was just taken."""


def set_key(function: func.FuncOp, key: str) -> None:
    """Sets the key of a kernel function."""
    function.attributes[_KEY] = StringAttr(key)


def key_of(function: func.FuncOp) -> str:
    """The key of a kernel function; empty if it has none."""
    found = function.attributes.get(_KEY)
    return found.data if isinstance(found, StringAttr) else ""


def set_portable(function: func.FuncOp) -> None:
    """Requires the same bits of a kernel on every target: products are fused only by `math.fma`."""
    function.attributes[_PORTABLE] = UnitAttr()


def is_portable(op: Operation) -> bool:
    """Whether an operation is the function of a kernel with the same bits on every target."""
    return isinstance(op, func.FuncOp) and _PORTABLE in op.attributes
