"""The cost model of contractions: cycles of a schedule by registers, caches and bandwidth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from xdsl.dialects.builtin import Float64Type

from popgraph.dialects.tile.affine import Linear
from popgraph.dialects.tile.attributes import LayoutAttr, ScheduleAttr
from popgraph.dialects.tile.running import running_of
from popgraph.dialects.tile.scalars import lane_bytes
from popgraph.passes.structured.analysis.loops import (
    Group,
    group_loops,
    has_identity_epilogue,
    tensor,
)
from popgraph.passes.structured.analysis.panels import Blocks, balanced, last_panel
from popgraph.passes.structured.schedule.access_cost import Reads
from popgraph.passes.structured.schedule.reduction_order import Order
from popgraph.support.machine import Machine
from popgraph.support.memo import cached_property
from popgraph.support.shapes import prod
from popgraph.support.words import WORDS


@dataclass(frozen=True)
class Candidate:
    """
    A schedule that a contraction can have, with its loop order and its estimated cycles.

    Operand number `factor` is vectorized, and packed into `layout`, if any; the other one is packed
    into `scalars`, if any. `numbers` holds the fields of the schedule attribute.
    """

    # Not yet a ScheduleAttr: most candidates are only compared (6b6b71ba).

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
    def rank(self) -> tuple[float, int, int]:
        """The sort key: cycles, then the innermost loop as rows, then the largest block."""
        # On ties, pixels of a line beat pixels of a column (case rows-are-neighbours.mlir).
        return self.cycles, -self.numbers["m_dim"], -self.numbers["mr"]


def most_rows(registers: int, vectors: int) -> int:
    """
    Rows of a register tile with some `vectors`, at most.

    rows * vectors registers hold sums; the rest hold one row of vectors and a few scalars.
    """
    # Zen 5, 32 registers: 14 rows of 2 vectors (28 sums) reach 93 to 95 % of peak, 16 rows 89 %.
    # 7 rows of 4 vectors leave no register for a scalar: 88 %.
    budget = registers - 4 if registers > 16 else registers - 3
    return max(1, min(budget // vectors, (registers - 1 - vectors) // vectors))


def step_cycles(machine: Machine, scalars: float, vectors: float, products: int) -> float:
    """
    Cycles of one step of a reduction, the largest of three bounds.

    Issue: products / fmas_per_cycle.
    Loads: products / (2 fmas_per_cycle) + scalars * scalar_load_cycles + vectors *
    vector_load_cycles.
    Latency: fma_latency, as each sum waits for its last product.
    """
    # Measured with 4 to 14 rows of 2 to 6 vectors: a product takes a quarter of a cycle of the load
    # bound, a scalar a half, a vector a whole one (0694c886). So 4 rows of 2 vectors take 6 cycles
    # for products of 4: Zen 5 reaches 62 % of peak with them, with 6 rows 92 %.
    issued = products / machine.fmas_per_cycle
    loaded = scalars * machine.scalar_load_cycles + vectors * machine.vector_load_cycles
    return max(issued, issued / 2 + loaded, machine.fma_latency)


def _whole_lines(extent: int, lines: int, block: int) -> Iterator[Blocks]:
    """Blocks of whole lines, up to `block` rows each; `extent` rows form `lines` lines."""
    across = extent // lines
    for part in balanced(lines, block // across):
        yield Blocks(part.start * across, part.count, part.size * across)


@dataclass(frozen=True)
class Window:
    """
    A window of `steps` terms that moves by `stride` terms from row to row of an image.

    The image of a depthwise convolution is vectorized, along channels or pixels. A load of it costs
    `load` aligned ones.
    """

    # Decision 0006: `window_panels` exists for depthwise convolutions. They take two thirds of the
    # time if neighbouring steps share registers (98f7afa4).

    steps: int
    stride: int
    load: float = 1.0

    @staticmethod
    def along(image: Linear, inner: int, steps: int, rows: int, load: float = 1.0) -> Window | None:
        """The window that loop `inner` slides along `rows`, if neighbouring rows share elements."""
        step, far = image.stride(inner), image.stride(rows)
        if not step or not far or far % step or not step <= far < step * steps:
            return None
        return Window(steps, far // step, load)

    def vectors(self, rows: int) -> int:
        """Vectors of the image that the windows of some rows cover."""
        return (rows - 1) * self.stride + self.steps

    def kept(self, rows: int) -> int:
        """
        Registers for vectors that a later step reads again.

        Each step reads one vector a row, and the next step of its phase needs all but one of them.
        """
        # With stride 2, a 3-tap window has phases of 2 and 1 steps: the second is read only once.
        # 7 rows of a 7-tap window instead of 4 fill the latency of FMAs with 16 registers: 100
        # GFLOP/s instead of 78 (Zen 5, AVX2).
        phases = [len(range(first, self.steps, self.stride)) for first in range(self.stride)]
        return sum(rows for phase in phases if phase > 1)

    def cycles(self, rows: int, machine: Machine) -> float:
        """
        Cycles of all steps of the window for some rows: the largest of three bounds, plus 0.5.

        Issue: rows * steps / fmas_per_cycle. Loads: vectors / 2, each loaded once. Latency:
        fma_latency * steps, as each sum waits for its last product.
        """
        loads = self.load * self.vectors(rows) + self.steps
        issued = rows * self.steps / machine.fmas_per_cycle
        return max(issued, loads / 2, machine.fma_latency * self.steps) + 0.5

    def most_rows(self, registers: int) -> int:
        """Rows whose sums and kept vectors fit in registers, with two left for operands."""
        fitting = [rows for rows in range(1, registers) if rows + self.kept(rows) + 2 <= registers]
        return max(fitting, default=1)


class Estimate:
    """Costs of a contraction with one operand vectorized in one layout, by loop of rows."""

    def __init__(
        self,
        reads: Reads,
        fixed: bool,
        dim: int,
        layout: tuple[LayoutAttr | None, int],
        width: int,
    ) -> None:
        self.reads, self.op, self.order, self.factor = reads, reads.op, reads.order, reads.factor
        self.target, self.machine = reads.target, reads.target.machine
        self.tuning, self.registers = reads.target.tuning, reads.registers
        if self.op.words is not None:
            self.registers -= 1  # It holds the dot product of two words until it is added.
            # Totals and sums in 16 bits share the registers: 3 rows of 2 vectors with AVX2.
            if WORDS[self.op.words.data].in_pairs:
                self.registers = self.registers // 2 + 2
        self.fixed, self.dim, self.width = fixed, dim, width
        self.layout, self.vectors = layout
        self.extent, self.terms = self.reads.sizes[dim], reads.terms
        self._line = width * reads.element_bytes  # Bytes of a vector.

    def candidates(self) -> Iterator[Candidate]:
        """Yields candidates without rows and with each loop as rows, in variants that may pay."""
        dims = [dim for dim in range(len(self.reads.parallel)) if dim != self.dim]
        form = self.reads.vectors.form
        forms = [self.reads.scalars.form, *self.reads.others]
        if self.layout is None:
            forms.append(form)
        used = frozenset[int]() if self.layout is None else frozenset(filter(form.uses, dims))
        ends = running_of(self.op)
        # A packed operand has other strides than `form`: loops that use it stay separate.
        groups = group_loops(dims, self.reads.sizes, forms, used, ends)
        groups = self._steady(groups)
        for group in [None, *groups]:
            yield self._candidate(group)
            if self.op.block is not None:
                continue  # Sums of blocks join totals in registers, not in memory.
            if self.target.portable:
                continue  # Chunks of other lengths would round differently.
            # ResNet-18's largest weight gradient takes 8 ms with K outermost, else 25 (518ab869).
            chain = self.tuning.chain_terms
            if self.terms > chain and self.l2_reload_cycles(group, self._block(group)):
                yield self._candidate(group, k_outer_terms=chain)
            # Chunks of 16 terms are 16 streams for the prefetchers: changing weights arrive 1.1 to
            # 1.3 times as fast as row after row (207acd1c, case few-rows-stream.mlir).
            if self.terms > chain and self._streams(group):
                yield self._candidate(group, k_outer_terms=self.machine.prefetch_streams)
        free = [group for group in groups if not any(form.uses(dim) for dim in group.dims)]
        # Depthwise convolutions take two thirds of the time with a window (98f7afa4).
        for group in groups:
            window = self._window(group)
            if window is not None:
                yield self._window_candidate(group, window)
        # Several lines of an image in one block: a line of 7 pixels fills half of 14 rows.
        for outer, inner in pairwise(free):
            if 2 * inner.extent <= most_rows(self.registers, self.vectors):
                yield self._candidate(inner, outer)

    def _steady(self, groups: list[Group]) -> list[Group]:
        """
        Drops rows that end at a size of the call if another loop always fills a block.

        LSTM layers with 2 of 32 sequences take 1.1 times as long as their own program, and 1.5
        times with sequences as rows (AVX-512).
        """
        least, form = most_rows(self.registers, self.vectors), self.reads.vectors.form

        def fills(group: Group) -> bool:
            steps = group.running.factor if group.running else group.extent
            return steps >= least and not any(map(form.uses, group.dims))

        full = [group for group in groups if fills(group)]
        return [group for group in groups if group in full or not group.running] if full else groups

    def _streams(self, rows: Group | None) -> bool:
        """
        Whether vectors are loaded from memory once, each from another page than the last one.

        In short chunks of terms, each term is a stream along its row. Totals must stay in L2.
        """
        # Constants are packed instead, once at load.
        vectors, type_ = self.reads.vectors, self.reads.types[self.factor]
        sizes = self.reads.parallel
        far = self.layout is None and not self.fixed and vectors.far_cycles > 0
        streamed = self.target.l2(self.tuning.streamed_l2)
        large = prod(type_.get_shape()) * lane_bytes(type_.element_type) > streamed
        totals = self.reads.element_bytes * prod(sizes)
        near = totals <= self.target.l2(self.tuning.panels_l2)
        return far and large and self.reads.uses <= self._block(rows) and near

    def _block(self, rows: Group | None) -> int:
        return min(most_rows(self.registers, self.vectors), rows.extent) if rows else 1

    def _candidate(
        self, rows: Group | None, lines: Group | None = None, *, k_outer_terms: int = 0
    ) -> Candidate:
        block = self._block(rows)
        if rows and lines:
            block = rows.extent * min(
                most_rows(self.registers, self.vectors) // rows.extent, lines.extent
            )
        in_f64 = isinstance(self.reads.types[0].element_type, Float64Type)
        chain = self.tuning.chain_terms_f64 if in_f64 else self.tuning.chain_terms
        numbers = ScheduleAttr.RARE | {
            "n_dim": self.dim,
            "n_vectors": self.vectors,
            "m_dim": rows.last if rows else -1,
            "mr": block,
            "kc": k_outer_terms or chain,
            "lanes": self.width,
            "m_outer_dim": lines.last if lines else -1,
            "n_inner": int(rows is not None and not k_outer_terms and self._streams_from_memory),
            "k_outer": int(k_outer_terms > 0),
        }
        cycles = self._cycles(rows, block, lines.extent if lines else 1, k_outer_terms)
        return Candidate(self.order, numbers, self.factor, self.layout, cycles, self.reads.packed)

    def _window(self, rows: Group) -> Window | None:
        """The sliding window of a depthwise convolution along `rows`, if it is one."""
        vectors, scalars = self.reads.vectors.form, self.reads.scalars.form
        inner = self.order.innermost
        packed = self.layout is not None or self.reads.packed is not None
        if packed or self.vectors > 1 or inner is None:
            return None
        along_channels = scalars.uses(self.dim)
        image, weights = (scalars, vectors) if along_channels else (vectors, scalars)
        if image.stride(self.dim) != 1 or weights.uses(rows.last):
            return None
        load = 1.0 if along_channels else self.machine.unaligned_vectors
        return Window.along(image, inner, self.order.sizes[inner], rows.last, load)

    def _window_candidate(self, rows: Group, window: Window) -> Candidate:
        """An unrolled window, with as many panels at a time as stay in L1."""
        block = min(window.most_rows(self.registers), rows.extent)
        lines = self.terms // window.steps
        near = (window.vectors(block) * lines + self.terms) * self._line
        panels = -(-self.extent // self.width)
        groups = -(-panels // max(1, self.target.l1(self.tuning.panel_l1) // near))
        along_channels = self.reads.scalars.form.uses(self.dim)
        numbers = ScheduleAttr.RARE | {
            "n_dim": self.dim,
            "n_vectors": 1,
            "m_dim": rows.last,
            "mr": block,
            "kc": self.tuning.chain_terms,
            "lanes": self.width,
            "n_inner": int(along_channels),
            "window_panels": -(-panels // groups) if along_channels else 1,
        }
        cycles = 0.0
        for blocks in balanced(rows.extent, block):
            sums = window.cycles(blocks.size, self.machine) * lines
            moved = window.vectors(blocks.size) * self._line * window.stride
            fill = moved / self.machine.l2_bpc
            cycles += blocks.count * (max(sums, fill) + blocks.size * len(self.reads.others))
        cycles *= panels * prod(self.reads.parallel)
        cycles /= rows.extent * self.extent
        return Candidate(self.order, numbers, self.factor, self.layout, cycles)

    @cached_property
    def _streams_from_memory(self) -> bool:
        """Whether all panels stay in their share of L2 (bytes) while larger operands stream by."""
        # Half of L2, for panels that were just packed as well: with all of it, a transformer's
        # training step took 1.09 times as long (2c9581ab, case panels-one-after-the-other.mlir).
        kind = self.reads.element_bytes
        panels = self.terms * self.extent * kind
        outside = [self.reads.types[1 - self.factor], tensor(self.op.outputs[0])]
        rows = sum(prod(type_.get_shape()) for type_ in outside) * kind
        return panels <= self.target.l2(self.tuning.panels_l2) and rows > self.machine.l2_bytes

    def _cycles(self, rows: Group | None, block: int, lines: int, k_outer_terms: int) -> float:
        """Total: tiles * tile_cycles + packing + padding + totals (K outermost) or reloads."""
        terms = min(self.terms, k_outer_terms) if k_outer_terms else self.terms
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
            cycles = self.machine.row_pack_cycles if rows_kept else self.machine.pack_cycles
            total += self._packing(self.reads.elements, cycles)
        if self.reads.packed is not None:
            elements = prod(self.reads.packed.physical.data)
            total += self._packing(elements, self.machine.pack_cycles)
        total += self._padding_cycles(block)
        return total + (
            self._totals(k_outer_terms) if k_outer_terms else self.l2_reload_cycles(rows, block)
        )

    def _padding_cycles(self, block: int) -> float:
        """
        Cycles to load the unused padding of panels from beyond L2: bytes / l3_bpc.

        0 if panels are used again: the products of their next uses hide the load.
        """
        # Without padding, strips of 250 or 512 results are 1.06 times as fast (dabc8de9).
        held = self.reads.element_bytes * self.reads.elements <= self.machine.l2_bytes
        if self.layout is None or held or self.reads.uses > block:
            return 0.0
        padding = prod(self.layout.physical.data) - self.reads.elements
        return padding * self.reads.element_bytes / self.machine.l3_bpc

    def _packing(self, count: int, cycles: float) -> float:
        """Cycles to pack elements: count * cycles + bytes beyond L2 / l2_miss_bpc."""
        # Each element is read and written.
        moved = 2 * count * self.reads.element_bytes
        missed = max(0, moved - self.machine.l2_bytes)
        return count * cycles + missed / self.machine.l2_miss_bpc

    def _tile_cycles(self, rows: Group | None, block: int, columns: int, terms: int) -> float:
        """
        Cycles of a tile: tile_overhead_cycles + terms * step + chunks + epilogue + result misses.

        A step takes max(step_cycles + far lines + evicted scalars, loads of its vectors from L2).
        """
        machine, vectors, scalars = self.machine, self.reads.vectors, self.reads.scalars
        work = block * columns
        loads: float = columns * (block if rows and vectors.form.uses(rows.last) else 1)
        far = scalars.lines(rows, block) * scalars.far_cycles
        far += scalars.evicted_lines(rows, block) * machine.evicted_scalar_cycles
        if self.layout is None:
            # Hardware prefetchers follow `prefetch_streams` distant rows.
            far += loads * vectors.far_cycles if terms > machine.prefetch_streams else 0.0
            loads *= machine.unaligned_vectors
        if scalars.form.stride(self.dim):  # Both operands are vectors: a depthwise convolution.
            loads += columns * (block if rows and scalars.form.uses(rows.last) else 1)
            # Without a window, each vector is loaded more than once: half of the bandwidth.
            far += loads * self._line / (2 * machine.l2_bpc)
            singles = 0
        else:
            singles = scalars.loads(rows, block)
        step = max(step_cycles(machine, singles, loads, work) + far, self._fill(columns, terms))
        # Compilers keep such elements in registers, which spills sums.
        if scalars.rereads(rows):
            step *= self.tuning.window_overlap
        chunks = self.terms // self.tuning.chain_terms
        cycles = machine.tile_overhead_cycles + self.terms * step
        cycles += work * self.tuning.chunk_cycles * chunks
        for form in self.reads.others:
            stride = form.stride(self.dim)
            if stride in (0, 1):
                cycles += work
            else:
                near = rows is not None and form.stride(rows.last) == 1
                each = machine.strided_cycles if near else 2 * machine.strided_cycles
                cycles += work * self.width * each
        is_k_outer = terms < self.terms  # `_totals` then counts the traffic of results.
        if is_k_outer:
            return cycles
        return cycles + self._result_miss_cycles(rows, block, columns, self.terms * step)

    def _result_miss_cycles(
        self, rows: Group | None, block: int, columns: int, summing: float
    ) -> float:
        """
        Cycles to fetch and write back lines of results that L2 does not hold.

        max(0, runs of lines * result_run_cycles - hidden_results * cycles of the sums).

        Adjacent lines are one run, so rows count, not vectors. If lanes are strided, each lane is
        at least one run.
        """
        if self.reads.results * self.reads.element_bytes <= self.machine.l2_bytes:
            return 0.0
        form = self.reads.others[-1]
        runs: float = block * -(-columns // self.machine.result_run_lines)
        if form.stride(self.dim) not in (0, 1):
            near = rows is not None and form.stride(rows.last) == 1
            span = (block - 1) * self.reads.element_bytes
            lines = 1 + span / self.machine.line_bytes if near else block
            runs = columns * self.width * lines
        hidden = summing * self.tuning.hidden_results
        return max(0.0, runs * self.machine.result_run_cycles - hidden)

    def _fill(self, columns: int, terms: int) -> float:
        """Cycles to load a step's vectors from L2 if L1 does not hold a panel: bytes / l2_bpc."""
        if terms * columns * self._line <= self.target.l1(self.tuning.panel_l1):
            return 0.0
        lines = columns if self.layout is not None else columns + 1  # Unaligned: one line more.
        return lines * self._line / self.machine.l2_bpc

    def l2_reload_cycles(self, rows: Group | None, block: int) -> float:
        """
        Cycles to reload operands that do not fit in L2: reloaded bytes / l2_miss_bpc.

        Between two uses of a panel, the panel itself and the scalars of a block pass through L2.
        Strided elements take the room of all bytes between them.
        """
        # Counting memory traffic chooses faster schedules: SqueezeNet and Inception v2 take 0.91 of
        # the time, ResNet-50 0.96 (25ce7b7e).
        vectors, scalars = self.reads.vectors, self.reads.scalars
        sizes = self.reads.parallel
        if self.reads.uses <= block:
            return 0.0  # Each panel is used by one block.
        lines = scalars.lines(rows, block) * scalars.lines_per_step
        touched = [self.vectors * self._line, lines * self.machine.line_bytes]
        room = [touched[0] if self.layout else max(touched[0], vectors.step_bytes)]
        room.append(max(touched[1], scalars.step_bytes))
        stored = self.reads.stored
        taken = sum(min(self.terms * one, most) for one, most in zip(room, stored, strict=True))
        if taken <= self.machine.l2_bytes:
            return 0.0
        tiles = prod(sizes) / (block * min(self.extent, self.vectors * self.width))
        reloaded = tiles * self.terms * sum(touched) - sum(stored)
        return max(0.0, reloaded) / self.machine.l2_miss_bpc

    def _totals(self, chunk: int) -> float:
        """
        Cycles to accumulate chunks of terms into totals in memory, and to run the epilogue.

        results * (2 accesses * chunks + accesses of the epilogue) * element bytes / bandwidth.
        """
        count, machine, size = prod(self.reads.parallel), self.machine, self.reads.element_bytes
        held = size * count <= machine.l2_bytes
        element_cycles = size / (machine.l2_bpc if held else machine.l2_miss_bpc)
        epilogue = 0 if has_identity_epilogue(self.op) else 2 + len(self.op.epilogue_inputs)
        strided = self.reads.others[-1].stride(self.dim) != 1
        each = 2 * (element_cycles + (2 * machine.strided_cycles if strided else 0.0))
        return count * (each * -(-self.terms // chunk) + epilogue * element_cycles)
