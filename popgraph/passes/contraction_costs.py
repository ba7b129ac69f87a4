"""What does a contraction cost with one schedule or another? A model of registers and caches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from xdsl.dialects.builtin import Float64Type
from xdsl.ir import Attribute
from xdsl.ir.affine import AffineMap

from popgraph.dialects import tile
from popgraph.dialects.tile.affine import Linear, offset
from popgraph.dialects.tile.attributes import (
    LayoutAttr,
    ScheduleAttr,
    physical_shape,
    with_layout,
)
from popgraph.dialects.tile.scalars import lane_bytes
from popgraph.passes.reduction_order import Order
from popgraph.passes.sliding_windows import Window
from popgraph.passes.tile_loops.access import Group, group_loops, tensor
from popgraph.passes.tile_loops.contract import keeps_sums
from popgraph.passes.tile_loops.panels import Blocks, balanced, last_panel
from popgraph.passes.tile_loops.winograd_tiles import LINE
from popgraph.support.shapes import prod

TERMS = 256
"""Longest chain of float32 additions."""

IN_ONE_GO: tuple[type[Attribute], ...] = (Float64Type,)
"""Elements whose sums are accurate however long the chain."""

PACK_CYCLES = 1.0
"""What packing costs per element, once per step when the factor is not constant."""

ROW_PACK_CYCLES = 0.5
"""The same, when whole rows are copied."""

STRIDED_CYCLES = 1.25
"""What it costs to store or load one element that is not next to the last one."""

FAR_CYCLES = 6.0
"""What a cache line costs that is a page or more away from the last one; nearer ones cost less."""

PAGE = 4096
"""In bytes."""

PAGES = 32
"""So many lines at the same place of different pages stay in the cache together."""

STREAMS = 16
"""So many rows far apart are fetched ahead of their readers side by side."""

LINE_BYTES = 64

NEAR = 32 * 1024
"""So many bytes of a panel stay in the first cache while all rows go by."""

SECOND = 1024 * 1024
"""Bytes of the second cache."""

FILL = 24
"""Bytes that come from the second cache in a cycle."""

BESIDE = 0.1
"""Which part of the time in which vectors arrive products lose, even where there is enough."""

LATE = 4
"""Bytes that come from behind the second cache in a cycle."""

RUN = 48
"""Cycles in which neighbouring lines of results come from there to be written, and go again."""

RUN_LINES = 4
"""So many lines at most come together."""

HIDDEN = 1 / 8
"""Which part of its sums' time a tile waits for results of the one before without a loss."""


@dataclass(frozen=True)
class Choice:
    """
    An order, a schedule, which factor runs along vectors, the layout to pack it into, if any.

    The other factor is packed into the layout for `scalars`, if there is one.
    """

    order: Order
    schedule: ScheduleAttr
    factor: int
    layout: LayoutAttr | None
    cycles: float
    scalars: LayoutAttr | None = None


def most_rows(registers: int, vectors: int) -> int:
    """How many rows of so many vectors fit into registers, beside what they are made of."""
    budget = registers - 4 if registers > 16 else registers - 3
    return max(1, min(budget // vectors, (registers - 1 - vectors) // vectors))


def _whole_lines(extent: int, lines: int, block: int) -> Iterator[Blocks]:
    """Blocks of whole lines of rows."""
    across = extent // lines
    for part in balanced(lines, block // across):
        yield Blocks(part.start * across, part.count, part.size * across)


class Estimate:
    """What a contraction costs with one factor along vectors in one layout, by rows."""

    def __init__(
        self,
        op: tile.ContractOp,
        order: Order,
        factor: int,
        fixed: bool,
        dim: int,
        layout: tuple[LayoutAttr | None, int],
        width: int,
        registers: int,
        scalars: LayoutAttr | None = None,
    ) -> None:
        self.op, self.factor, self.dim, self.width = op, factor, dim, width
        self.scalars = scalars
        self.fixed = fixed
        self.order = order
        self.layout, self.vectors = layout
        self.registers = registers
        self.extent = op.sizes[dim]
        self.terms = prod(op.sizes[op.parallel_rank :])
        types = [tensor(op.lhs), tensor(op.rhs)]
        if scalars is not None:
            types[1 - factor] = with_layout(types[1 - factor], scalars)
        self.forms = [
            offset(type_, map_, order.sizes) for type_, map_ in zip(types, order.maps, strict=True)
        ]
        identity = AffineMap.identity(op.parallel_rank)
        self._results = sum(
            prod(physical_shape(tensor(value))) for value in [*op.extras, *op.outputs]
        )
        self.others = [
            offset(tensor(value), map_, op.sizes)
            for value, map_ in zip(
                [*op.extras, *op.outputs],
                [*[attribute.data for attribute in op.extra_maps], *[identity] * len(op.outputs)],
                strict=True,
            )
        ]

    def choices(self) -> Iterator[Choice]:
        """One choice per loop that can run along rows, and one without rows."""
        dims = [dim for dim in range(self.op.parallel_rank) if dim != self.dim]
        form = self.forms[self.factor]
        forms = [self.forms[1 - self.factor], *self.others]
        if self.layout is None:
            forms.append(form)
        groups = group_loops(dims, self.op.sizes, forms)
        groups = [group for group in groups if self._joined(group, form)]
        for group in [None, *reversed(groups)]:  # Of equals, the one with the nearest neighbours.
            yield self._choice(group)
            if self.terms > TERMS and self._late(group, self._block(group)):
                yield self._choice(group, sweep=TERMS)
            if self.terms > TERMS and self._streams(group):
                yield self._choice(group, sweep=STREAMS)
        free = [group for group in groups if not any(form.uses(dim) for dim in group.dims)]
        for group in groups:
            window = self._window(group)
            if window is not None:
                yield self._window_choice(group, window)
        for outer, inner in pairwise(free):
            if 2 * inner.extent <= most_rows(self.registers, self.vectors):
                yield self._choice(inner, outer)

    def _streams(self, rows: Group | None) -> bool:
        """
        Whether vectors come from memory once, each from another page than the last one.

        In short chunks of terms they come in as many streams, along their rows. Constants are
        better packed.
        """
        vectors, type_ = self.forms[self.factor], tensor((self.op.lhs, self.op.rhs)[self.factor])
        sizes = self.op.sizes[: self.op.parallel_rank]
        uses = prod(size for dim, size in enumerate(sizes) if not vectors.uses(dim))
        far = self.layout is None and not self.fixed and self._far(vectors) > 0
        large = prod(type_.get_shape()) * lane_bytes(type_.element_type) > 2 * SECOND
        return far and large and uses <= self._block(rows) and 4 * prod(sizes) <= SECOND // 2

    @staticmethod
    def _joined(group: Group, form: Linear) -> bool:
        """Whether a group stays together beside the packed factor too."""
        return len(group.dims) == 1 or not any(form.uses(dim) for dim in group.dims)

    def _block(self, rows: Group | None) -> int:
        return min(most_rows(self.registers, self.vectors), rows.extent) if rows else 1

    def _choice(self, rows: Group | None, lines: Group | None = None, *, sweep: int = 0) -> Choice:
        block = self._block(rows)
        if rows and lines:
            block = rows.extent * min(
                most_rows(self.registers, self.vectors) // rows.extent, lines.extent
            )
        in_one_go = isinstance(tensor(self.op.lhs).element_type, IN_ONE_GO)
        schedule = ScheduleAttr.of(
            vector=self.dim,
            vectors=self.vectors,
            rows=rows.last if rows else -1,
            block=block,
            chunk=sweep or (0 if in_one_go else TERMS),
            width=self.width,
            lines=lines.last if lines else -1,
            inside=int(rows is not None and not sweep and self._comes_from_afar()),
            sweep=int(sweep > 0),
        )
        cycles = self._cycles(rows, block, lines.extent if lines else 1, sweep)
        return Choice(self.order, schedule, self.factor, self.layout, cycles, self.scalars)

    def _window(self, rows: Group) -> Window | None:
        """The window that slides along rows of an image whose channels do not mix."""
        vectors, scalars = self.forms[self.factor], self.forms[1 - self.factor]
        inner = self._innermost()
        packed = self.layout is not None or self.scalars is not None
        if packed or self.vectors > 1 or inner is None:
            return None
        if scalars.stride(self.dim) != 1 or vectors.uses(rows.last):
            return None
        return Window.along(scalars, inner, self.order.sizes[inner], rows.last)

    def _window_choice(self, rows: Group, window: Window) -> Choice:
        """A window written out, and as many panels at a time as stay in the first cache."""
        block = min(window.most_rows(self.registers), rows.extent)
        lines = self.terms // window.steps
        near = (window.vectors(block) * lines + self.terms) * self._line
        panels = -(-self.extent // self.width)
        groups = -(-panels // max(1, NEAR // near))
        schedule = ScheduleAttr.of(
            vector=self.dim,
            vectors=1,
            rows=rows.last,
            block=block,
            chunk=TERMS,
            width=self.width,
            inside=1,
            window=-(-panels // groups),
        )
        cycles = 0.0
        for blocks in balanced(rows.extent, block):
            sums = window.cycles(blocks.size) * lines
            fill = window.vectors(blocks.size) * self._line * window.stride / FILL
            cycles += blocks.count * (max(sums, fill) + blocks.size * len(self.others))
        cycles *= panels * prod(self.op.sizes[: self.op.parallel_rank])
        cycles /= rows.extent * self.extent
        return Choice(self.order, schedule, self.factor, self.layout, cycles)

    def _comes_from_afar(self) -> bool:
        """
        Whether all panels stay in the second cache while rows do not.

        Those that were packed just now are there already, and fill more of it.
        """
        kind = lane_bytes(tensor(self.op.lhs).element_type)
        panels = self.terms * self.extent * kind
        outside = [tensor((self.op.lhs, self.op.rhs)[1 - self.factor]), tensor(self.op.outputs[0])]
        rows = sum(prod(type_.get_shape()) for type_ in outside) * kind
        are_near = self.layout is not None and not self.fixed
        return panels <= (SECOND if are_near else SECOND // 2) and rows > SECOND

    def _cycles(self, rows: Group | None, block: int, lines: int, sweep: int) -> float:
        terms = min(self.terms, sweep) if sweep else self.terms
        total = 0.0
        extent = rows.extent * lines if rows else 1
        full, rest = divmod(self.extent, self.vectors * self.width)
        tails = last_panel(rest, self.width, self.layout is not None)
        panels = [(self.vectors, full)] if full else []
        for at in range(0, len(tails), self.vectors):
            panels.append((len(tails[at : at + self.vectors]), 1))
        for blocks in balanced(extent, block) if lines == 1 else _whole_lines(extent, lines, block):
            for columns, count in panels:
                total += blocks.count * count * self._tile_cycles(rows, blocks.size, columns, terms)
        dims = self.op.sizes[: self.op.parallel_rank]
        total *= prod(dims) / (extent * self.extent)
        value = (self.op.lhs, self.op.rhs)[self.factor]
        if self.layout is not None and not self.fixed:
            rows_kept = self.forms[self.factor].stride(self.dim) == 1
            cycles = ROW_PACK_CYCLES if rows_kept else PACK_CYCLES
            total += prod(tensor(value).get_shape()) * cycles
        if self.scalars is not None:
            total += prod(self.scalars.physical.data) * PACK_CYCLES
        return total + (self._totals(sweep) if sweep else self._late(rows, block))

    def _tile_cycles(self, rows: Group | None, block: int, columns: int, terms: int) -> float:
        """Two products, two loads a cycle; a sum is ready for the next after four cycles."""
        vectors, scalars = self.forms[self.factor], self.forms[1 - self.factor]
        work = block * columns
        loads: float = columns * (block if rows and vectors.uses(rows.last) else 1)
        far = self._lines(rows, scalars, block) * self._far(scalars)
        if self.layout is None:
            far += loads * self._far(vectors) if terms > STREAMS else 0.0
            loads *= 2  # They cross cache lines.
        if scalars.stride(self.dim):  # Both run along vectors: channels that do not mix.
            loads += columns * (block if rows and scalars.uses(rows.last) else 1)
            far += loads * self._line / (2 * FILL)  # Without a window, they come more than once.
        else:
            loads += self._scalar_loads(rows, scalars, block)
        fill = self._fill(columns, terms)
        step = max(max(work / 2, loads / 2, 4.0) + far + BESIDE * fill, fill) + 0.5
        if self._overlaps(rows, scalars):
            step *= 1.5
        cycles = self.terms * step + work * 1.5 * (self.terms // TERMS)
        for form in self.others:
            stride = form.stride(self.dim)
            if stride in (0, 1):
                cycles += work
            else:
                near = rows is not None and form.stride(rows.last) == 1
                cycles += work * self.width * (STRIDED_CYCLES if near else 2 * STRIDED_CYCLES)
        swept = terms < self.terms  # Then `_totals` counts the way of the results.
        return cycles + (0.0 if swept else self._results_late(block, columns, self.terms * step))

    def _results_late(self, block: int, columns: int, summing: float) -> float:
        """
        Cycles in which the lines of results come, and go, that the second cache does not hold.

        Neighbours come together: it is the number of rows that counts, not that of vectors.
        """
        element_bytes = lane_bytes(tensor(self.op.lhs).element_type)
        if self._results * element_bytes <= SECOND:
            return 0.0
        runs = block * -(-columns // RUN_LINES)
        return max(0.0, runs * RUN - summing * HIDDEN)

    def _fill(self, columns: int, terms: int) -> float:
        """Cycles in which the vectors of one step arrive, when a panel is too long to stay near."""
        if terms * columns * self._line <= NEAR:
            return 0.0
        lines = columns if self.layout is not None else columns + 1  # They begin anywhere.
        return lines * self._line / FILL

    @property
    def _line(self) -> int:
        """The bytes of a vector."""
        return self.width * lane_bytes(tensor(self.op.lhs).element_type)

    def _late(self, rows: Group | None, block: int) -> float:
        """
        Cycles in which factors come again that do not stay in the second cache.

        While a panel waits for its next block of rows, it goes by, and the scalars of a block.
        What stands apart takes the room of all between.
        """
        vectors, scalars = self.forms[self.factor], self.forms[1 - self.factor]
        sizes = self.op.sizes[: self.op.parallel_rank]
        if prod(size for dim, size in enumerate(sizes) if not vectors.uses(dim)) <= block:
            return 0.0  # Each panel is needed once.
        lines = self._lines(rows, scalars, block) * self._lines_a_step(scalars)
        stands = [self.vectors * self._line, lines * LINE_BYTES]
        room = [stands[0] if self.layout else max(stands[0], self._apart(vectors))]
        room.append(max(stands[1], self._apart(scalars)))
        values = (self.op.lhs, self.op.rhs)
        whole = [4 * prod(physical_shape(tensor(value))) for value in values]
        taken = sum(min(self.terms * one, most) for one, most in zip(room, whole, strict=True))
        if taken <= SECOND:
            return 0.0
        tiles = prod(sizes) / (block * min(self.extent, self.vectors * self.width))
        again = tiles * self.terms * sum(stands) - sum(whole)
        return max(0.0, again) / LATE

    def _lines_a_step(self, form: Linear) -> float:
        """Which part of a line the innermost reduction goes through in one step."""
        inner = self._innermost()
        return 1.0 if inner is None else min(1.0, form.pace(inner, self.order.sizes) / LINE)

    def _apart(self, form: Linear) -> float:
        """The bytes from one step of the reduction to the next, where they are no neighbours."""
        inner = self._innermost()
        step = PAGE if inner is None else 4 * form.pace(inner, self.order.sizes)
        return min(step, PAGE) if step > LINE_BYTES else 0

    def _totals(self, chunk: int) -> float:
        """Cycles in which totals in memory take in their chunks, and are finished in the end."""
        count = prod(self.op.sizes[: self.op.parallel_rank])
        element_cycles = 4 / (FILL if 4 * count <= SECOND else LATE)
        finish = 0 if keeps_sums(self.op) else 2 + len(self.op.extras)
        strided = self.others[-1].stride(self.dim) != 1
        each = 2 * (element_cycles + (2 * STRIDED_CYCLES if strided else 0.0))
        return count * (each * -(-self.terms // chunk) + finish * element_cycles)

    def _innermost(self) -> int | None:
        """The innermost reduction."""
        sizes = self.order.sizes
        inner = [dim for dim in range(self.order.parallel, len(sizes)) if sizes[dim] > 1]
        return inner[-1] if inner else None

    def _overlaps(self, rows: Group | None, scalars: Linear) -> bool:
        """Whether a step of the innermost reduction reads what another row read before."""
        inner = self._innermost()
        if rows is None or inner is None:
            return False
        return scalars.stride(inner) == scalars.stride(rows.last) != 0

    def _far(self, form: Linear) -> float:
        """
        What a line costs more when the reduction steps far, more often than a cache keeps.

        Such lines fall into a few sets of the cache and are gone before they are read again; from
        one page to the next, nothing fetches them ahead.
        """
        steps = [
            (self.order.sizes[dim], form.pace(dim, self.order.sizes))
            for dim in range(self.order.parallel, len(self.order.sizes))
            if self.order.sizes[dim] > 1
        ]
        apart = [(size, 4 * pace) for size, pace in steps if pace >= LINE]
        if prod(size for size, _ in apart) <= PAGES:
            return 0.0
        return FAR_CYCLES * min(1.0, min(step for _, step in apart) / PAGE)

    @staticmethod
    def _lines(rows: Group | None, form: Linear, block: int) -> float:
        """How many cache lines the scalars of all rows are in."""
        stride = form.stride(rows.last) if rows is not None else 0
        return block if stride is None else min(block, 1 + block * abs(stride) / LINE)

    @staticmethod
    def _scalar_loads(rows: Group | None, form: Linear, block: int) -> float:
        """Scalars from as many cache lines as rows are a little slower than neighbours."""
        if rows is None or not form.uses(rows.last):
            return 1
        stride = form.stride(rows.last)
        return block * (1.0 if stride is not None and abs(stride) < LINE else 1.25)
