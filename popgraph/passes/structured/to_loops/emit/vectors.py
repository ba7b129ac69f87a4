"""Vectorized loops: lanes, strided loads, interleaving, scalar remainders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import VectorType
from xdsl.ir import SSAValue

from popgraph.passes.structured.analysis.loops import Group
from popgraph.passes.structured.to_loops.emit.access import IterationPoint, Register, Source, Span
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.writer import Bound, Writer
from popgraph.support.machine import Machine

Emit = Callable[[int, list[SSAValue]], list[SSAValue]]
"""Writes one step: (number of elements, carried values) -> next carried values."""


def fitting_lanes(extent: int, vector_bytes: int, widest: int) -> int:
    """
    The number of lanes of vectors along a row of `extent`; 0 if vectors do not pay.

    `widest` is the size of the widest lane in bytes, whose vectors fill a register; 0 means that
    something has no vector form.
    """
    # A row of 5 f32 has vectors of 4 lanes on any machine. Two lanes are only for full registers:
    # f64 with vectors of 16 bytes.
    most = vector_bytes // widest if widest else 0
    lanes = most
    while lanes > extent:
        lanes //= 2
    return lanes if lanes >= 4 or lanes == most > 1 else 0


def vector_lanes(machine: Machine) -> int:
    """The lanes of 32 bits of a vector register; 0 on a machine without vectors."""
    lanes = machine.lanes(4)
    return lanes if lanes > 1 else 0


def lanes_of(value: SSAValue) -> int:
    """The number of lanes of a value; 0 for a scalar."""
    return int(value.type.get_shape()[0]) if isinstance(value.type, VectorType) else 0


def in_lanes(writer: Writer, value: SSAValue, lanes: int) -> SSAValue:
    """Broadcasts a scalar to `lanes`, if any; a vector is unchanged."""
    return value if lanes_of(value) or not lanes else writer.broadcast(value, lanes)


def of_lanes(
    writer: Writer, vector: SSAValue, combine: type[arith.OrIOp | arith.AddiOp]
) -> SSAValue:
    """Reduces a vector of integers to a scalar by halves: log2(lanes) steps."""
    distance = lanes_of(vector) // 2
    if not distance:
        return vector
    while distance:
        swapped = [lane ^ distance for lane in range(lanes_of(vector))]
        vector = writer.once(combine(vector, writer.shuffle(vector, vector, swapped)))
        distance //= 2
    return writer.extract(vector, 0)


STRIDES = (0, 1, 2)
"""The strides of elements that `read` loads as a vector."""


def read(point: IterationPoint, access: Source, inner: int, lanes: int) -> SSAValue:
    """Reads the element of an input at the current index, or `lanes` elements along `inner`."""
    if isinstance(access, Register):
        assert access.value is not None, "written before it is read"
        return access.value
    memory, index = point.of(access)
    stride = access.form.stride(inner)
    if not lanes or not stride:
        return point.writer.load_input(memory, index)
    if stride == 1:
        return point.writer.vector_load(memory, index, lanes)
    assert stride == 2, f"elements with stride {stride} are not a vector"
    return _every_other(point.writer, memory, index, lanes)


def _every_other(writer: Writer, memory: SSAValue, index: Index, lanes: int) -> SSAValue:
    """
    Loads `lanes` elements with stride 2: a shuffle of two vectors.

    The vectors overlap by one element: adjacent ones would read past the last element.
    """
    low = writer.vector_load_input(memory, index, lanes)
    high = writer.vector_load_input(memory, index + (lanes - 1), lanes)
    return writer.shuffle(low, high, [*range(0, lanes, 2), *range(lanes + 1, 2 * lanes, 2)])


def interleave(writer: Writer, vectors: Sequence[SSAValue]) -> list[SSAValue]:
    """Interleaves n vectors: (a0 a1 ...), (b0 b1 ...) -> (a0 b0 a1 b1 ...), as n vectors."""
    # A shuffle takes two vectors: each of the n results merges one vector after the other, with
    # n - 1 shuffles. From n = 9, that is more than moving elements (`Tuning.most_interleaved`).
    lanes, count = lanes_of(vectors[0]), len(vectors)
    result = []
    for number in range(count):
        wanted = [divmod(number * lanes + lane, count) for lane in range(lanes)]
        made = vectors[0]
        for source, vector in enumerate(vectors[1:], 1):
            first = [at if source == 1 else lane for lane, (at, _) in enumerate(wanted)]
            picks = [
                lanes + at if wanted_source == source else first[lane]
                for lane, (at, wanted_source) in enumerate(wanted)
            ]
            made = writer.shuffle(made, vector, picks)
        result.append(made)
    return result


def write(point: IterationPoint, access: Source, value: SSAValue, lanes: int) -> None:
    """Stores the element of a result at the current index, or `lanes` elements."""
    if isinstance(access, Register):
        access.value = value
        return
    memory, index = point.of(access)
    if lanes:
        point.writer.vector_store(in_lanes(point.writer, value, lanes), memory, index)
    else:
        point.writer.store(value, memory, index)


@dataclass(frozen=True)
class NestLoop:
    """One loop of a nest: a range of a group, in steps of the first width, then of the next."""

    group: Group
    part: Span
    widths: tuple[int, ...] = (1,)
    aligned: bool = True
    """Whether ranges begin at multiples of the first width."""


def write_nest(
    point: IterationPoint,
    nest: Sequence[NestLoop],
    emit: Emit,
    carried: Sequence[SSAValue] = (),
    width: int = 1,
) -> list[SSAValue]:
    """Writes a nest of loops, outermost first, around `emit`."""
    if not nest:
        return emit(width, list(carried))
    first, *rest = nest

    def inside(width: int, carried: list[SSAValue]) -> list[SSAValue]:
        return write_nest(point, rest, emit, carried, width)

    lower: Bound = first.part.lower
    values = list(carried)
    for number, step in enumerate(first.widths):
        upper: Bound = first.part.upper
        if number < len(first.widths) - 1:
            upper = _whole(point.writer, first, lower, step)
        values = _steps(point, first, (lower, upper), step, inside, values)
        lower = _after(point.writer, first.part, upper)
    return values


def _whole(writer: Writer, this: NestLoop, lower: Bound, width: int) -> Bound:
    """The end of the last full step of `width`, from `lower` on."""
    static_extent = this.part.static_extent
    if static_extent is not None:
        return this.part.upper - static_extent % width if isinstance(this.part.upper, int) else 0
    # Chunks of aligned loops begin at multiples of the width, so only the end of the loop cuts a
    # step. A size of the call times 3 may end anywhere, though: its full steps are counted when the
    # kernel runs.
    running, extent = this.group.running, this.group.extent
    if not this.aligned or (running is not None and running.factor % width):
        return whole_steps(writer, lower, this.part.upper, width)
    if extent % width == 0:
        return this.part.upper
    whole = writer.constant(extent - extent % width)
    return writer.once(arith.MinSIOp(writer.bound(this.part.upper), whole))


def whole_steps(writer: Writer, lower: Bound, upper: Bound, width: int) -> SSAValue:
    """`upper - (upper - lower) % width`: the end of the last full step."""
    end = writer.bound(upper)
    distance = end if lower == 0 else writer.once(arith.SubiOp(end, writer.bound(lower)))
    rest = writer.once(arith.RemSIOp(distance, writer.constant(width)))
    return writer.once(arith.SubiOp(end, rest))


def _after(writer: Writer, part: Span, middle: Bound) -> Bound:
    """The start of the remainder, where full steps end at `middle`."""
    # A chunk that begins after the last full step has a remainder only, from its own start on.
    if part.static_extent is not None or middle is part.upper:
        return middle
    return writer.once(arith.MaxSIOp(writer.bound(part.lower), writer.bound(middle)))


def _steps(
    point: IterationPoint,
    this: NestLoop,
    bounds: tuple[Bound, Bound],
    width: int,
    emit: Emit,
    carried: list[SSAValue],
) -> list[SSAValue]:
    lower, upper = bounds
    if lower is upper or lower == upper:
        return carried
    if isinstance(lower, int) and isinstance(upper, int) and upper - lower == width:
        point.bind(this.group, this.part.base + lower)
        return emit(width, carried)
    with point.writer.loop(lower, upper, width, carried) as loop:
        point.bind(this.group, this.part.base + Index.of(loop.counter))
        loop.next(emit(width, loop.carried))
    return loop.results
