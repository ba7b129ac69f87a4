"""Transposition in registers: results and operands are contiguous along different loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.tile.affine import Linear
from popgraph.passes.structured.analysis.loops import Group
from popgraph.passes.structured.to_loops.emit.access import Access, IterationPoint, Span
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.vectors import (
    NestLoop,
    in_lanes,
    lanes_of,
    read,
    write,
    write_nest,
)
from popgraph.passes.structured.to_loops.emit.writer import Writer
from popgraph.support.tuning import Target

Compute = Callable[[list[SSAValue], int, int], list[SSAValue]]
"""Writes a body: (arguments, dimension of the lanes, lanes or 0) -> results."""


def copied(values: list[SSAValue], dim: int, lanes: int) -> list[SSAValue]:
    """The body of a copy."""
    return values


@dataclass(frozen=True)
class Strides:
    """The operands of an elementwise operation, by the offsets of their elements in memory."""

    inputs: Sequence[Linear]
    outputs: Sequence[Linear]

    def blocks(
        self, target: Target, groups: Sequence[Group], lanes: int, cut: Group | None = None
    ) -> BlockTranspose | None:
        """
        The block transpose of this operation; None if none fits.

        Results are contiguous along the innermost loop. Some operands are not: they are contiguous
        along one other loop. A block of n lanes needs n iterations of the former, and more than
        n / 2 of the latter. Chunks share the `cut` loop.
        """
        # Few columns take smaller blocks: with 4 columns and 16 lanes, 16x16 blocks would compute
        # mostly padding (bb4d8297).
        sizes = [lanes >> step for step in range(lanes.bit_length())]
        most = target.tuning.most_transposed
        plans = [self._blocks(target, groups, one, cut) for one in sizes if 1 < one <= most]
        possible = [one for one in plans if one is not None]
        return min(possible, key=lambda one: one.instructions, default=None)

    def _blocks(
        self, target: Target, groups: Sequence[Group], lanes: int, cut: Group | None
    ) -> BlockTranspose | None:
        if not groups or any(form.stride(groups[-1].last) != 1 for form in self.outputs):
            return None
        *outer, inner = groups
        # Stride 1 along the inner loop is a vector, and stride 0 a broadcast: neither needs
        # shuffles.
        moved = [form.stride(inner.last) not in (0, 1) for form in self.inputs]
        turned = [form for form, moves in zip(self.inputs, moved, strict=True) if moves]
        if not turned:
            return None
        across = next(
            (one for one in outer if all(form.stride(one.last) == 1 for form in turned)), None
        )
        if across is None or lanes > min(2 * across.extent - 1, inner.extent):
            return None
        strides = [form.stride(across.last) for form in self.inputs]
        in_rows = set(strides) <= {0, 1} and len(self.outputs) <= len(turned)
        rows = [form for form in self.inputs if form.stride(across.last) == 1]
        # Rows shorter than a vector: loads read on into the next iteration of another loop, so one
        # with enough memory must exist. A row that ends at a size could be of any length.
        beyond = None
        if across.extent < lanes:
            if across.running is not None:
                return None
            loops = [one for one in outer if one not in (across, cut)]
            loaded = rows if in_rows else turned
            beyond = _beyond(loops, loaded, lanes - across.extent)
            if beyond is None:
                return None
        return BlockTranspose(target, self, across, inner, lanes, beyond, tuple(moved), in_rows)


def _beyond(loops: Sequence[Group], loaded: Sequence[Linear], count: int) -> Group | None:
    """The longest loop with `count` elements of each operand after each iteration but its last."""
    ends = [one for one in loops if one.running is None]
    fit = [one for one in ends if all((form.stride(one.last) or 0) >= count for form in loaded)]
    return max(fit, key=lambda one: one.extent, default=None)


@dataclass(frozen=True)
class BlockTranspose:
    """
    Loads blocks of `lanes` x `lanes` elements by rows and stores them by columns; edges one by one.

    The blocks of a run follow each other along one of the two loops: rows of that side may be
    pages apart, and hardware prefetchers follow them. Rows of the other side are close. Each
    run of blocks takes `Machine.lines_together` lines of these, as memory delivers adjacent
    lines together.
    """

    target: Target
    forms: Strides
    across: Group
    """The loop along which operands are contiguous that are not along `inner`."""
    inner: Group
    """The loop along which results are contiguous."""
    lanes: int
    beyond: Group | None
    """
    The loop whose next iteration is what loads read after a row shorter than a vector.

    None if rows fill vectors. Its last iteration computes one by one.
    """
    moved: Sequence[bool]
    """Whether each operand is contiguous along `across` only."""
    in_rows: bool
    """
    Whether the body computes rows, along `across`, whose results are transposed.

    Otherwise operands are transposed, and it computes columns, along `inner`.
    """

    @property
    def instructions(self) -> float:
        """Instructions per element: of vectors in blocks, 1 for a scalar copy."""
        extent, lanes = self.across.extent, self.lanes
        whole, rest = (1, 0) if self.beyond is not None else divmod(extent, lanes)
        # A block takes `lanes` loads, lanes * log2(lanes) shuffles, and a store for each column.
        square = lanes * lanes.bit_length() + min(lanes, extent)
        return (whole * square / lanes + rest) / extent

    def write(
        self,
        point: IterationPoint,
        nest: Sequence[NestLoop],
        inputs: Sequence[Access],
        outputs: Sequence[Access],
        compute: Compute = copied,
    ) -> None:
        """Writes the loops; the last of `nest` is the inner one."""
        *outer, inner = nest
        along = next(one for one in outer if one.group == self.across)
        outer.remove(along)
        writer = _BlockLoops(self, point, inputs, outputs, compute)
        if self.beyond is None:
            writer.tiles(outer, along, inner)
        else:
            short = next(one for one in outer if one.group == self.beyond)
            outer.remove(short)
            writer.short_rows(outer, short, along, inner)

    def order(self, operand_bytes: int, result_bytes: int) -> BlockOrder:
        """The order of blocks whose elements have these sizes."""
        # Zen 5, f32 in huge pages: along operands, 784 x 1024 takes 60 us. With results 3072 bytes
        # apart instead of 3136, whose stores evict each other from L1, it takes 140 us; with 4096,
        # 310 us. Along results, it is 80, 80 and 125 us. 49152 x 576 takes 6.9 ms along results and
        # 40 ms along operands, its inverse 13 and 7.9 ms.
        machine, (moved, *_) = self.target.machine, self.moved_forms
        operand_step = operand_bytes * abs(moved.stride(self.inner.last) or 0)
        step = result_bytes * abs(self.forms.outputs[0].stride(self.across.last) or 0)
        pending, lanes = machine.pending_stores, self.lanes
        along_operands = machine.evicted_lines(step, pending) / pending
        along_results = machine.evicted_lines(step, lanes) / lanes
        results = step >= operand_step
        if along_results != along_operands:
            results = along_results < along_operands
        line = max(lanes, machine.line_elements(min(operand_bytes, result_bytes)))
        together = line * machine.lines_together
        evicted = machine.evicted_lines(step if results else operand_step, together)
        return BlockOrder(results, line, together, adjacent=not evicted)

    @property
    def moved_forms(self) -> list[Linear]:
        """The operands that are contiguous along `across` only."""
        return [form for form, moves in zip(self.forms.inputs, self.moved, strict=True) if moves]


@dataclass(frozen=True)
class BlockOrder:
    """The order in which blocks are transposed."""

    results: bool
    """Whether a run of blocks continues along the results, not along the operands that move."""
    line: int
    """The elements of a block side: whole lines of both sides, so that no line is visited twice."""
    together: int
    """The elements that a run takes of each row of the other side."""
    adjacent: bool
    """
    Whether a run takes all adjacent lines of the other side, not a vector of each row at a time.

    It does unless the rows along which it continues would evict each other from L1.
    """


@dataclass(frozen=True)
class _BlockLoops:
    """Writes the loops of a block transpose at a point."""

    plan: BlockTranspose
    point: IterationPoint
    inputs: Sequence[Access]
    outputs: Sequence[Access]
    compute: Compute

    def tiles(self, outer: Sequence[NestLoop], along: NestLoop, inner: NestLoop) -> None:
        """Writes the loops over blocks of whole vectors, in runs."""
        plan = self.plan
        order = plan.order(
            min(element_bytes(one.memory.type) for one in self.inputs),
            min(element_bytes(one.memory.type) for one in self.outputs),
        )
        walk, other = (inner, along) if order.results else (along, inner)
        narrow = _decreasing(order.line, plan.lanes, 1)
        wide = replace(other, widths=_decreasing(order.together, plan.lanes, 1), aligned=False)

        def run(walk: NestLoop) -> None:
            def strip(width: int, carried: list[SSAValue]) -> list[SSAValue]:
                if order.adjacent:
                    blocks(width)
                else:
                    self._pieces(other.group, width, plan.lanes, blocks)
                return carried

            def blocks(size: int) -> None:
                def block(length: int, carried: list[SSAValue]) -> list[SSAValue]:
                    self._pieces(
                        other.group,
                        size,
                        order.line,
                        lambda side: self._block({other.group: side, walk.group: length}),
                    )
                    return carried

                widths = narrow if size >= plan.lanes else (1,)
                write_nest(self.point, [replace(walk, widths=widths, aligned=False)], block)

            write_nest(self.point, [wide], strip)

        def each(_: int, carried: list[SSAValue]) -> list[SSAValue]:
            self._runs(walk, order.together, run)
            return carried

        write_nest(self.point, outer, each)

    def _runs(self, walk: NestLoop, multiple: int, write: Callable[[NestLoop], None]) -> None:
        """Splits a loop into runs of blocks: the rows of the other side stay in L2."""
        target = self.plan.target
        machine = target.machine
        rows = target.l2(target.tuning.transposed_l2) // (
            machine.line_bytes * machine.lines_together
        )
        most = max(1, rows // multiple) * multiple
        part, writer = walk.part, self.point.writer
        extent = walk.group.extent if part.static_extent is None else part.static_extent
        if extent <= most:
            write(walk)
            return
        count = -(-extent // most)
        size = -(-extent // (count * multiple)) * multiple
        with writer.loop(part.lower, part.upper, size) as loop:
            start = Index.of(loop.counter)
            if part.static_extent is not None and extent % size == 0:
                piece = Span(0, size, part.base + start)
            else:
                end = arith.MinSIOp(writer.value(start + size), writer.bound(part.upper))
                piece = Span(loop.counter, writer.once(end), part.base)
            write(replace(walk, part=piece))

    def _pieces(self, group: Group, extent: int, size: int, write: Callable[[int], None]) -> None:
        """Writes pieces of `size` iterations of `extent` ones, from the current index on."""
        if extent <= size:
            write(extent)
            return
        whole = NestLoop(group, Span(0, extent, self.point.indices[group.last]), (size,))

        def piece(width: int, carried: list[SSAValue]) -> list[SSAValue]:
            write(width)
            return carried

        write_nest(self.point, [whole], piece)
        self.point.indices[group.last] = whole.part.base

    def short_rows(
        self, outer: Sequence[NestLoop], short: NestLoop, along: NestLoop, inner: NestLoop
    ) -> None:
        """Writes the loops over rows shorter than a vector."""
        plan = self.plan
        extent = plan.across.extent
        assert plan.beyond is not None
        # After the rows of the last iteration, memory may end: a vector load could fault.
        last = plan.beyond.extent - 1
        for part, widths in ((Span(0, last), (extent,)), (Span(last, last + 1), (1,))):
            around, columns = replace(short, part=part), replace(along, widths=widths)
            steps = replace(inner, widths=(plan.lanes, 1))
            if self._distance(plan.beyond) < self._distance(plan.inner):
                loops = [*outer, columns, steps, around]
            else:
                loops = [*outer, around, columns, steps]
            self._short_nest(loops)

    def _short_nest(self, loops: Sequence[NestLoop]) -> None:
        """Writes a nest around blocks, with the sizes of the two loops of blocks."""
        plan, sizes = self.plan, dict[Group, int]()

        def nest(rest: Sequence[NestLoop]) -> None:
            if not rest:
                self._block({group: sizes[group] for group in (plan.across, plan.inner)})
                return
            first, *others = rest

            def step(width: int, carried: list[SSAValue]) -> list[SSAValue]:
                sizes[first.group] = width
                nest(others)
                return carried

            write_nest(self.point, [first], step)

        nest(loops)

    def _distance(self, group: Group) -> int:
        """The stride of a loop in the first operand that moves, in elements."""
        return self.plan.moved_forms[0].stride(group.last) or 0

    def _block(self, sizes: dict[Group, int]) -> None:
        """Computes a block of these numbers of iterations of the two loops."""
        plan = self.plan
        across, inner, lanes = plan.across, plan.inner, plan.lanes
        if sizes[inner] < lanes or sizes[across] < min(lanes, across.extent):
            self._one_by_one(sizes)
            return

        def row(_: int) -> None:
            self._pieces(inner, sizes[inner], lanes, lambda _: self._square())

        self._pieces(across, sizes[across], lanes, row)

    def _square(self) -> None:
        plan, point = self.plan, self.point
        if plan.in_rows:
            results = [self._row(step) for step in range(plan.lanes)]
            turned = [transposed(point.writer, rows) for rows in zip(*results, strict=True)]
            columns = list(zip(*turned, strict=True))
        else:
            moved = [
                transposed(point.writer, [self._loaded(one, step) for step in range(plan.lanes)])
                for one, moves in zip(self.inputs, plan.moved, strict=True)
                if moves
            ]
            columns = list(zip(*moved, strict=True))
        # Columns past the end of a row hold what loads read after it.
        for step, values in enumerate(columns[: plan.across.extent]):
            with point.shifted(plan.across.last, step):
                made = list(values) if plan.in_rows else self._column(values)
                for value, output in zip(made, self.outputs, strict=True):
                    write(point, output, value, plan.lanes)

    def _row(self, step: int) -> list[SSAValue]:
        """The results of one index of the inner loop, for `lanes` indices across."""
        plan, point = self.plan, self.point
        with point.shifted(plan.inner.last, step):
            values = [read(point, one, plan.across.last, plan.lanes) for one in self.inputs]
            made = self.compute(values, plan.across.last, plan.lanes)
            return [in_lanes(point.writer, value, plan.lanes) for value in made]

    def _loaded(self, operand: Access, step: int) -> SSAValue:
        """A vector across of an operand, at one index of the inner loop."""
        with self.point.shifted(self.plan.inner.last, step):
            return read(self.point, operand, self.plan.across.last, self.plan.lanes)

    def _column(self, moved: Sequence[SSAValue]) -> list[SSAValue]:
        """The results of the current index across, for `lanes` indices of the inner loop."""
        plan, values, left = self.plan, list[SSAValue](), iter(moved)
        for operand, moves in zip(self.inputs, plan.moved, strict=True):
            values.append(next(left) if moves else self._along_results(operand))
        return self.compute(values, plan.inner.last, plan.lanes)

    def _along_results(self, operand: Access) -> SSAValue:
        plan, point = self.plan, self.point
        # One vector for all columns of a block: no result can be in its memory.
        if operand.form.stride(plan.inner.last) == 1 and not operand.form.uses(plan.across.last):
            return point.writer.vector_load_input(*point.of(operand), plan.lanes)
        return read(point, operand, plan.inner.last, plan.lanes)

    def _one_by_one(self, sizes: dict[Group, int]) -> None:
        point, plan = self.point, self.plan

        def element(_: int, carried: list[SSAValue]) -> list[SSAValue]:
            values = [read(point, one, plan.inner.last, 0) for one in self.inputs]
            results = self.compute(values, plan.inner.last, 0)
            for value, output in zip(results, self.outputs, strict=True):
                write(point, output, value, 0)
            return carried

        before = dict(point.indices)
        nest = [NestLoop(group, Span(0, size, before[group.last])) for group, size in sizes.items()]
        write_nest(point, nest, element)
        point.indices |= before


def _decreasing(*widths: int) -> tuple[int, ...]:
    """The widths of a loop, without repetitions."""
    return tuple(dict.fromkeys(widths))


def transposed(writer: Writer, rows: Sequence[SSAValue]) -> list[SSAValue]:
    """
    The columns of a square block of rows, as vectors.

    Step k exchanges the off-diagonal quarters of all blocks of 2^(k + 1) rows: log2(lanes) steps of
    `lanes` shuffles.
    """
    lanes = lanes_of(rows[0])
    assert len(rows) == lanes and lanes & (lanes - 1) == 0, "blocks have 2^n rows of 2^n lanes"
    found, half = list(rows), 1
    while half < lanes:
        for upper in (row for row in range(lanes) if not row & half):
            pair = found[upper], found[upper + half]
            found[upper] = writer.shuffle(
                *pair, [_from(lane, half, lanes) for lane in range(lanes)]
            )
            picks = [_from(lane, half, lanes) + half for lane in range(lanes)]
            found[upper + half] = writer.shuffle(*pair, picks)
        half *= 2
    return found


def _from(lane: int, half: int, lanes: int) -> int:
    """The source of a lane in the upper of two rows: their left halves alternate."""
    return lanes + lane - half if lane & half else lane
