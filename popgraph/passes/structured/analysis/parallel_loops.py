"""Parallel loops of a kernel, and the parts of its values that a chunk touches."""

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
    A loop that threads may share, in whole steps, of which a chunk has at least so many.

    Chunks of an `even` loop are all of one size.
    """

    extent: int
    step: int = 1
    least: int = 1
    even: bool = False


def loops_in_steps(groups: Sequence[Group], steps: Sequence[int]) -> tuple[Loop, ...]:
    """These loops, of which each goes on by its step."""
    return tuple(Loop(group.extent, step) for group, step in zip(groups, steps, strict=True))


@dataclass(frozen=True)
class MemoryAccess:
    """
    A value that a kernel reads or writes: its bytes, and the loops its place changes with.

    `spans` has, for each loop, how many bytes it goes over: where that is the same for two kernels,
    so are the parts that their chunks touch.
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
        """The loops along which chunks touch many short pieces."""
        most = target.tuning.short_span_bytes
        return frozenset(at for at, span in enumerate(self.spans) if span and span <= most)


@dataclass(frozen=True)
class ParallelLoops:
    """
    What there is to share: loops, all work in elements touched, and the values.

    Up to so many loops may be cut `together`.
    """

    loops: tuple[Loop, ...]
    work: int
    touched: tuple[MemoryAccess, ...] = ()
    together: int = 1


def touched(
    values: Sequence[SSAValue], forms: Sequence[Linear], loops: Sequence[Group], outputs: int
) -> tuple[MemoryAccess, ...]:
    """What a kernel touches; the last values are its results."""
    inputs = len(values) - outputs
    return tuple(
        MemoryAccess.of(value, form, loops, written=number >= inputs)
        for number, (value, form) in enumerate(zip(values, forms, strict=True))
    )
