"""What does a contraction cost with one schedule or another? A model of registers and caches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from xdsl.dialects.builtin import Float64Type
from xdsl.ir import Attribute

from popgraph.dialects.tile.affine import Linear
from popgraph.dialects.tile.attributes import LayoutAttr, ScheduleAttr
from popgraph.dialects.tile.scalars import lane_bytes
from popgraph.passes.analysis.caches import SECOND
from popgraph.passes.structured.analysis.loops import Group, group_loops, keeps_sums, tensor
from popgraph.passes.structured.analysis.panels import Blocks, balanced, last_panel
from popgraph.passes.structured.schedule.access_cost import LINE_BYTES, Reads
from popgraph.passes.structured.schedule.reduction_order import Order
from popgraph.passes.structured.schedule.window_cost import Window
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

STREAMS = 16
"""So many rows far apart are fetched ahead of their readers side by side."""

NEAR = 32 * 1024
"""So many bytes of a panel stay in the first cache while all rows go by."""

FILL = 28
"""Bytes that come from the second cache in a cycle."""

CROWDED = 0.7
"""Cycles that a scalar costs whose line had to leave the first cache for another row's."""

CROSSING = 1.5
"""How many vectors one counts as that begins anywhere in a cache line."""

TURN = 25.0
"""Cycles between one tile and the next: the end of a loop is not foreseen."""

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

    The other factor is packed into the layout for `scalars`, if there is one. `numbers` are those
    of the schedule: of many choices, only a few are written down.
    """

    order: Order
    numbers: Mapping[str, int]
    factor: int
    layout: LayoutAttr | None
    cycles: float
    scalars: LayoutAttr | None = None

    @property
    def schedule(self) -> ScheduleAttr:
        return ScheduleAttr.of(**self.numbers)

    @property
    def rank(self) -> tuple[float, int]:
        """The cheapest first; of equals, the one whose rows are the nearest neighbours."""
        return self.cycles, -self.numbers["rows"]


def most_rows(registers: int, vectors: int) -> int:
    """How many rows of so many vectors fit into registers, beside what they are made of."""
    budget = registers - 4 if registers > 16 else registers - 3
    return max(1, min(budget // vectors, (registers - 1 - vectors) // vectors))


def step_cycles(scalars: float, vectors: float, products: int) -> float:
    """
    One step of a reduction: two products a cycle at best, and a sum is ready after four cycles.

    Loads share the way into the core with products: measured with 4 to 14 rows of 2 to 6 vectors,
    a vector takes a cycle, a scalar half of one and a product a quarter.
    """
    return max(products / 2, products / 4 + scalars / 2 + vectors, 4.0)


def _whole_lines(extent: int, lines: int, block: int) -> Iterator[Blocks]:
    """Blocks of whole lines of rows."""
    across = extent // lines
    for part in balanced(lines, block // across):
        yield Blocks(part.start * across, part.count, part.size * across)


class Estimate:
    """What a contraction costs with one factor along vectors in one layout, by rows."""

    def __init__(
        self,
        reads: Reads,
        fixed: bool,
        dim: int,
        layout: tuple[LayoutAttr | None, int],
        width: int,
        registers: int,
    ) -> None:
        self.reads, self.op, self.order, self.factor = reads, reads.op, reads.order, reads.factor
        self.fixed, self.dim, self.width, self.registers = fixed, dim, width, registers
        self.layout, self.vectors = layout
        self.extent, self.terms = self.reads.sizes[dim], reads.terms
        self._line = width * reads.element_bytes  # The bytes of a vector.

    def choices(self) -> Iterator[Choice]:
        """One choice per loop that can run along rows, and one without rows."""
        dims = [dim for dim in range(len(self.reads.parallel)) if dim != self.dim]
        form = self.reads.vectors.form
        forms = [self.reads.scalars.form, *self.reads.others]
        if self.layout is None:
            forms.append(form)
        groups = group_loops(dims, self.reads.sizes, forms)
        groups = [group for group in groups if self._joined(group, form)]
        for group in [None, *groups]:
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
        vectors, type_ = self.reads.vectors, self.reads.types[self.factor]
        sizes = self.reads.parallel
        uses = prod(size for dim, size in enumerate(sizes) if not vectors.form.uses(dim))
        far = self.layout is None and not self.fixed and vectors.far > 0
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
        in_one_go = isinstance(self.reads.types[0].element_type, IN_ONE_GO)
        numbers = ScheduleAttr.RARE | {
            "vector": self.dim,
            "vectors": self.vectors,
            "rows": rows.last if rows else -1,
            "block": block,
            "chunk": sweep or (0 if in_one_go else TERMS),
            "width": self.width,
            "lines": lines.last if lines else -1,
            "inside": int(rows is not None and not sweep and self._comes_from_afar()),
            "sweep": int(sweep > 0),
        }
        cycles = self._cycles(rows, block, lines.extent if lines else 1, sweep)
        return Choice(self.order, numbers, self.factor, self.layout, cycles, self.reads.packed)

    def _window(self, rows: Group) -> Window | None:
        """The window that slides along rows of an image whose channels do not mix."""
        vectors, scalars = self.reads.vectors.form, self.reads.scalars.form
        inner = self.order.innermost
        packed = self.layout is not None or self.reads.packed is not None
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
        numbers = ScheduleAttr.RARE | {
            "vector": self.dim,
            "vectors": 1,
            "rows": rows.last,
            "block": block,
            "chunk": TERMS,
            "width": self.width,
            "inside": 1,
            "window": -(-panels // groups),
        }
        cycles = 0.0
        for blocks in balanced(rows.extent, block):
            sums = window.cycles(blocks.size) * lines
            fill = window.vectors(blocks.size) * self._line * window.stride / FILL
            cycles += blocks.count * (max(sums, fill) + blocks.size * len(self.reads.others))
        cycles *= panels * prod(self.reads.parallel)
        cycles /= rows.extent * self.extent
        return Choice(self.order, numbers, self.factor, self.layout, cycles)

    def _comes_from_afar(self) -> bool:
        """Whether half of the second cache holds all panels while rows go by that it cannot."""
        kind = self.reads.element_bytes
        panels = self.terms * self.extent * kind
        outside = [self.reads.types[1 - self.factor], tensor(self.op.outputs[0])]
        rows = sum(prod(type_.get_shape()) for type_ in outside) * kind
        return panels <= SECOND // 2 and rows > SECOND

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
        dims = self.reads.parallel
        total *= prod(dims) / (extent * self.extent)
        if self.layout is not None and not self.fixed:
            rows_kept = self.reads.vectors.form.stride(self.dim) == 1
            cycles = ROW_PACK_CYCLES if rows_kept else PACK_CYCLES
            total += self._packing(prod(self.reads.types[self.factor].get_shape()), cycles)
        if self.reads.packed is not None:
            total += self._packing(prod(self.reads.packed.physical.data), PACK_CYCLES)
        return total + (self._totals(sweep) if sweep else self._late(rows, block))

    def _packing(self, count: int, cycles: float) -> float:
        """Cycles in which so many elements come, and go where they are read."""
        moved = 2 * count * self.reads.element_bytes
        return count * cycles + max(0, moved - SECOND) / LATE

    def _tile_cycles(self, rows: Group | None, block: int, columns: int, terms: int) -> float:
        """All steps of a tile, and what becomes of its sums."""
        vectors, scalars = self.reads.vectors, self.reads.scalars
        work = block * columns
        loads: float = columns * (block if rows and vectors.form.uses(rows.last) else 1)
        far = scalars.lines(rows, block) * scalars.far + scalars.crowded(rows, block) * CROWDED
        if self.layout is None:
            far += loads * vectors.far if terms > STREAMS else 0.0
            loads *= CROSSING
        if scalars.form.stride(self.dim):  # Both run along vectors: channels that do not mix.
            loads += columns * (block if rows and scalars.form.uses(rows.last) else 1)
            far += loads * self._line / (2 * FILL)  # Without a window, they come more than once.
            singles = 0
        else:
            singles = scalars.loads(rows, block)
        step = max(step_cycles(singles, loads, work) + far, self._fill(columns, terms))
        if scalars.overlaps(rows):
            step *= 1.5
        cycles = TURN + self.terms * step + work * 1.5 * (self.terms // TERMS)
        for form in self.reads.others:
            stride = form.stride(self.dim)
            if stride in (0, 1):
                cycles += work
            else:
                near = rows is not None and form.stride(rows.last) == 1
                cycles += work * self.width * (STRIDED_CYCLES if near else 2 * STRIDED_CYCLES)
        swept = terms < self.terms  # Then `_totals` counts the way of the results.
        if swept:
            return cycles
        return cycles + self._results_late(rows, block, columns, self.terms * step)

    def _results_late(self, rows: Group | None, block: int, columns: int, summing: float) -> float:
        """
        Cycles in which the lines of results come, and go, that the second cache does not hold.

        Neighbours come together: it is the number of rows that counts, not that of vectors; but of
        every lane where lanes stand apart.
        """
        if self.reads.results * self.reads.element_bytes <= SECOND:
            return 0.0
        form = self.reads.others[-1]
        runs: float = block * -(-columns // RUN_LINES)
        if form.stride(self.dim) not in (0, 1):
            near = rows is not None and form.stride(rows.last) == 1
            lines = 1 + (block - 1) * self.reads.element_bytes / LINE_BYTES if near else block
            runs = columns * self.width * lines
        return max(0.0, runs * RUN - summing * HIDDEN)

    def _fill(self, columns: int, terms: int) -> float:
        """Cycles in which the vectors of one step arrive, when a panel is too long to stay near."""
        if terms * columns * self._line <= NEAR:
            return 0.0
        lines = columns if self.layout is not None else columns + 1  # They begin anywhere.
        return lines * self._line / FILL

    def _late(self, rows: Group | None, block: int) -> float:
        """
        Cycles in which factors come again that do not stay in the second cache.

        While a panel waits for its next block of rows, it goes by, and the scalars of a block.
        What stands apart takes the room of all between.
        """
        vectors, scalars = self.reads.vectors, self.reads.scalars
        sizes = self.reads.parallel
        if prod(size for dim, size in enumerate(sizes) if not vectors.form.uses(dim)) <= block:
            return 0.0  # Each panel is needed once.
        lines = scalars.lines(rows, block) * scalars.lines_a_step
        stands = [self.vectors * self._line, lines * LINE_BYTES]
        room = [stands[0] if self.layout else max(stands[0], vectors.apart)]
        room.append(max(stands[1], scalars.apart))
        whole = self.reads.stored
        taken = sum(min(self.terms * one, most) for one, most in zip(room, whole, strict=True))
        if taken <= SECOND:
            return 0.0
        tiles = prod(sizes) / (block * min(self.extent, self.vectors * self.width))
        again = tiles * self.terms * sum(stands) - sum(whole)
        return max(0.0, again) / LATE

    def _totals(self, chunk: int) -> float:
        """Cycles in which totals in memory take in their chunks, and are finished in the end."""
        count = prod(self.reads.parallel)
        element_cycles = 4 / (FILL if 4 * count <= SECOND else LATE)
        finish = 0 if keeps_sums(self.op) else 2 + len(self.op.extras)
        strided = self.reads.others[-1].stride(self.dim) != 1
        each = 2 * (element_cycles + (2 * STRIDED_CYCLES if strided else 0.0))
        return count * (each * -(-self.terms // chunk) + finish * element_cycles)
