"""Parallel loops of a kernel, and the memory that a chunk of them touches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.tile.affine import Linear
from popgraph.dialects.tile.attributes import physical_shape
from popgraph.passes.structured.analysis.loops import Group, tensor
from popgraph.support.shapes import prod
from popgraph.support.tuning import Target


@dataclass(frozen=True)
class Loop:
    """
    A loop that threads may share, in chunks of at least `least` whole steps.

    Chunks of an `even` loop have equal sizes.
    """

    extent: int
    step: int = 1
    least: int = 1
    even: bool = False


def loops_in_steps(groups: Sequence[Group], steps: Sequence[int]) -> tuple[Loop, ...]:
    """Loops over groups, each with its step."""
    return tuple(Loop(group.extent, step) for group, step in zip(groups, steps, strict=True))


@dataclass(frozen=True)
class MemoryAccess:
    """
    A value that a kernel reads or writes: its size in bytes, and the loops that address it.

    `spans` holds the bytes that each loop covers. If two kernels have equal spans, their chunks
    touch the same parts.
    """

    value: SSAValue
    size: int
    along: frozenset[int]
    spans: tuple[int | None, ...]
    written: bool = False

    @staticmethod
    def of(
        value: SSAValue, form: Linear, loops: Sequence[Group], *, written: bool = False
    ) -> MemoryAccess:
        size = element_bytes(value.type)
        strides = [form.stride(loop.last) for loop in loops]
        spans = tuple(
            None if stride is None else stride * loop.extent * size
            for stride, loop in zip(strides, loops, strict=True)
        )
        along = {at for at, loop in enumerate(loops) if any(map(form.uses, loop.dims))}
        whole = prod(physical_shape(tensor(value))) * size
        return MemoryAccess(value, whole, frozenset(along), spans, written)

    def short(self, target: Target) -> frozenset[int]:
        """The loops whose chunks touch many short runs of memory."""
        most = target.tuning.short_span_bytes
        return frozenset(at for at, span in enumerate(self.spans) if span and span <= most)


@dataclass(frozen=True)
class ParallelLoops:
    """
    The loops of a kernel that threads may share, its work in elements touched, and its values.

    Up to `together` loops may be cut at once.
    """

    loops: tuple[Loop, ...]
    work: int
    touched: tuple[MemoryAccess, ...] = ()
    together: int = 1


def touched(
    values: Sequence[SSAValue], forms: Sequence[Linear], loops: Sequence[Group], outputs: int
) -> tuple[MemoryAccess, ...]:
    """The memory accesses of a kernel; the last `outputs` values are results."""
    inputs = len(values) - outputs
    return tuple(
        MemoryAccess.of(value, form, loops, written=number >= inputs)
        for number, (value, form) in enumerate(zip(values, forms, strict=True))
    )
