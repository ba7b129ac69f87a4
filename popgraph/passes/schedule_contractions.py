"""How is each contraction blocked, and which of its factors is packed into panels for it?"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import Float64Type, ModuleOp, TensorType
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineExpr, AffineMap
from xdsl.rewriter import InsertPoint, Rewriter

from popgraph.dialects import tile
from popgraph.dialects.program import ConstantOp, IntsAttr
from popgraph.dialects.tile.affine import Linear, linear, offset
from popgraph.dialects.tile.attributes import LayoutAttr, ScheduleAttr, layout_of
from popgraph.dialects.tile.scalars import lane_bytes
from popgraph.dialects.tile.structured import maps_attribute
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.collapse_contractions import collapse
from popgraph.passes.outline_kernels import structure_of
from popgraph.passes.reduction_order import Order, orders
from popgraph.passes.tile_loops.access import Group, group_loops, tensor
from popgraph.passes.tile_loops.bodies import indexed_dims, lane_type
from popgraph.passes.tile_loops.panels import balanced, last_panel
from popgraph.support.shapes import prod

TERMS = 256
"""Longest chain of float32 additions."""

PACK_CYCLES = 2.0
"""What packing costs per element, once per step when the factor is not constant."""

ROW_PACK_CYCLES = 0.5
"""The same, when whole rows are copied."""

PLAIN_CYCLES = 3.0
"""What a plain loop costs per vector."""

STRIDED_CYCLES = 1.25
"""What it costs to store or load one element that is not next to the last one."""

FAR_CYCLES = 6.0
"""What a cache line costs that is a page or more away from the last one."""

PAGE = 4096
"""In bytes."""

PAGES = 32
"""So many lines at the same place of different pages stay in the cache together."""

LINE = 16
"""Elements of a cache line."""

NEAR = 32 * 1024
"""So many bytes of a panel stay in the first cache while all rows go by."""

FILL = 24
"""Bytes that come from the second cache in a cycle."""

FEWEST = 4096
"""Contractions of fewer multiplications stay plain loops."""


@dataclass(frozen=True)
class ScheduleContractions(Pass):
    """
    Choose how contractions are blocked in registers, and pack the factor that runs along vectors.

    `vector_bytes` is the size of a vector register, `registers` how many there are.
    """

    name = "schedule-contractions"
    TOLERANCE = 1e-5
    vector_bytes: int = 64
    registers: int = 32

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        packed: dict[tuple[SSAValue, LayoutAttr], SSAValue] = {}
        chosen: dict[Hashable, Choice | None] = {}
        constants = Constants()
        for op in list(module.walk()):
            if isinstance(op, tile.ContractOp) and op.schedule is None:
                op = collapse(op)
                fixed = constants.holds(op.lhs), constants.holds(op.rhs)
                key = structure_of(op), fixed
                if key not in chosen:
                    chosen[key] = choose(op, fixed, self.vector_bytes, self.registers)
                choice = chosen[key]
                if choice is not None:
                    _apply(op, choice, packed)
            for result in op.results:
                constants.holds(result)


@dataclass(frozen=True)
class Choice:
    """An order, a schedule, which factor runs along vectors, the layout to pack it into, if any."""

    order: Order
    schedule: ScheduleAttr
    factor: int
    layout: LayoutAttr | None
    cycles: float


def replaced(choice: Choice, **fields: int) -> Choice:
    """The same choice with another schedule."""
    return replace(choice, schedule=ScheduleAttr.of(**fields))


def choose(
    op: tile.ContractOp, fixed: tuple[bool, bool], vector_bytes: int, registers: int
) -> Choice | None:
    """
    The cheapest schedule by estimate; None when plain loops are as good.

    `fixed` tells which factors are known when the program is loaded.
    """
    kind = lane_type([tensor(op.lhs).element_type])
    if kind is None or prod(op.sizes) < FEWEST or indexed_dims(op.finish.block):
        return None
    width = vector_bytes // lane_bytes(kind)
    estimates = [
        Estimate(op, order, factor, fixed[factor], dim, layout, width, registers)
        for order in orders(op, TERMS)
        for factor in (0, 1)
        for dim in range(op.parallel_rank)
        for layout in _layouts(op, order, factor, dim, width)
    ]
    choices = [choice for estimate in estimates for choice in estimate.choices()]
    best = min(choices, key=lambda choice: choice.cycles, default=None)
    if best is None or best.cycles > _plain_cycles(op, width):
        return None
    return best


def _plain_cycles(op: tile.ContractOp, width: int) -> float:
    """An estimate of what the contraction costs without a schedule."""
    forms = [
        offset(tensor(value), map_, op.sizes)
        for value, map_ in zip((op.lhs, op.rhs), op.input_maps, strict=True)
    ]
    inner = [dim for dim, size in enumerate(op.sizes) if size > 1]
    ends = {dim for dim in inner if dim < op.parallel_rank}, set(inner)
    for dims in ends:
        if dims:
            strides = {form.stride(max(dims)) for form in forms}
            if strides <= {0, 1} and 1 in strides and op.sizes[max(dims)] >= width:
                return PLAIN_CYCLES * prod(op.sizes) / width
    return prod(op.sizes) * 1.5


def _layouts(
    op: tile.ContractOp, order: Order, factor: int, dim: int, width: int
) -> Iterator[tuple[LayoutAttr | None, int]]:
    """
    The ways to have `factor` contiguous along `dim`, each with a number of vectors.

    As it is, or packed into panels `[what stays outside][dim / lanes][the rest][lanes]`.
    """
    values, maps = (op.lhs, op.rhs), order.maps
    extent = order.sizes[dim]
    other = offset(tensor(values[1 - factor]), maps[1 - factor], order.sizes)
    if other.stride(dim) not in (0, 1) or dim not in maps[factor].used_dims() or extent < 4:
        return
    type_ = tensor(values[factor])
    most = min(8, -(-extent // width))
    form = offset(type_, maps[factor], order.sizes)
    if form.stride(dim) == 1 and extent >= width:
        for vectors in range(1, most + 1):
            yield None, vectors
    if layout_of(type_) is not None or other.uses(dim):
        return
    plain = [at for at, result in enumerate(maps[factor].results) if _is(result, dim)]
    users = [at for at, result in enumerate(maps[factor].results) if dim in result.used_dims()]
    if len(plain) == 1 and users == plain and type_.get_shape()[plain[0]] == extent:
        for vectors in range(1, most + 1):
            yield panel_layout(type_, maps[factor], order, plain[0], vectors * width), vectors


def _is(result: AffineExpr, dim: int) -> bool:
    return isinstance(result, AffineDimExpr) and result.position == dim


def panel_layout(
    type_: TensorType[Attribute], map_: AffineMap, order: Order, dim: int, lanes: int
) -> LayoutAttr:
    """
    `[outside...][dim / lanes][the rest...][lanes]`, padded with zeros.

    Outside stands what only parallel loops go over; the rest stands in the order of the loops.
    """
    shape = type_.get_shape()
    digits: list[tuple[int, AffineExpr, int]] = []
    for at, result in enumerate(map_.results):
        if at != dim:
            digits += _digits(AffineExpr.dimension(at), shape[at], result, order)
    digits.sort(key=lambda digit: digit[0])
    outside = [digit for digit in digits if digit[0] < order.parallel]
    rest = [digit for digit in digits if digit[0] >= order.parallel]
    panels = AffineExpr.dimension(dim)
    all_digits = [
        *outside,
        (0, panels // lanes, -(-shape[dim] // lanes)),
        *rest,
        (0, panels % lanes, lanes),
    ]
    results = tuple(result for _, result, _ in all_digits)
    return LayoutAttr.of(AffineMap(len(shape), 0, results), [size for _, _, size in all_digits])


def _digits(
    index: AffineExpr, size: int, result: AffineExpr, order: Order
) -> list[tuple[int, AffineExpr, int]]:
    """The loops that go over one index of a factor: (loop, its part of the index, how many)."""
    form = linear(result, order.sizes)
    used = sorted(result.used_dims())
    if len(used) == 2 and not form.constant:
        strides = {form.stride(dim): dim for dim in used}
        inner = strides.get(1)
        block = order.sizes[inner] if inner is not None else 0
        outer = strides.get(block)
        if inner is not None and outer is not None and order.sizes[outer] * block == size:
            return [(outer, index // block, size // block), (inner, index % block, block)]
    return [(max(used, default=-1), index, size)]


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
    ) -> None:
        self.op, self.factor, self.dim, self.width = op, factor, dim, width
        self.fixed = fixed
        self.order = order
        self.layout, self.vectors = layout
        self.registers = registers
        self.extent = op.sizes[dim]
        self.terms = prod(op.sizes[op.parallel_rank :])
        self.forms = [
            offset(tensor(value), map_, order.sizes)
            for value, map_ in zip([op.lhs, op.rhs], order.maps, strict=True)
        ]
        identity = AffineMap.identity(op.parallel_rank)
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
        for group in [None, *groups]:
            yield self._choice(group)

    @staticmethod
    def _joined(group: Group, form: Linear) -> bool:
        """Whether a group stays together beside the packed factor too."""
        return len(group.dims) == 1 or not any(form.uses(dim) for dim in group.dims)

    def _choice(self, rows: Group | None) -> Choice:
        budget = self.registers - 4 if self.registers > 16 else self.registers - 3
        most = min(budget // self.vectors, (self.registers - 1 - self.vectors) // self.vectors)
        block = min(max(1, most), rows.extent) if rows else 1
        double = isinstance(tensor(self.op.lhs).element_type, Float64Type)
        schedule = ScheduleAttr.of(
            vector=self.dim,
            vectors=self.vectors,
            rows=rows.last if rows else -1,
            block=block,
            chunk=0 if double else TERMS,
            width=self.width,
        )
        return Choice(self.order, schedule, self.factor, self.layout, self._cycles(rows, block))

    def _cycles(self, rows: Group | None, block: int) -> float:
        total = 0.0
        extent = rows.extent if rows else 1
        full, rest = divmod(self.extent, self.vectors * self.width)
        tails = last_panel(rest, self.width, self.layout is not None)
        panels = [(self.vectors, full)] if full else []
        for at in range(0, len(tails), self.vectors):
            panels.append((len(tails[at : at + self.vectors]), 1))
        for blocks in balanced(extent, block):
            for columns, count in panels:
                total += blocks.count * count * self._tile_cycles(rows, blocks.size, columns)
        dims = self.op.sizes[: self.op.parallel_rank]
        total *= prod(dims) / (extent * self.extent)
        value = (self.op.lhs, self.op.rhs)[self.factor]
        if self.layout is not None and not self.fixed:
            rows_kept = self.forms[self.factor].stride(self.dim) == 1
            cycles = ROW_PACK_CYCLES if rows_kept else PACK_CYCLES
            total += prod(tensor(value).get_shape()) * cycles
        return total

    def _tile_cycles(self, rows: Group | None, block: int, columns: int) -> float:
        """Two products, two loads a cycle; a sum is ready for the next after four cycles."""
        vectors, scalars = self.forms[self.factor], self.forms[1 - self.factor]
        work = block * columns
        loads: float = columns * (block if rows and vectors.uses(rows.last) else 1)
        far = self._lines(rows, scalars, block) if self._is_far(scalars) else 0.0
        if self.layout is None:
            far += loads if self._is_far(vectors) else 0.0
            loads *= 2  # They cross cache lines.
        if scalars.stride(self.dim):  # Both run along vectors: channels that do not mix.
            loads += columns * (block if rows and scalars.uses(rows.last) else 1)
        else:
            loads += self._scalar_loads(rows, scalars, block)
        step = max(work / 2, loads / 2, 4.0) + 0.5 + far * FAR_CYCLES
        step = max(step, self._fill(columns))
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
        return cycles

    def _fill(self, columns: int) -> float:
        """Cycles in which the vectors of one step arrive, when a panel is too long to stay near."""
        line = self.width * lane_bytes(tensor(self.op.lhs).element_type)
        if self.terms * columns * line <= NEAR:
            return 0.0
        lines = columns if self.layout is not None else columns + 1  # They begin anywhere.
        return lines * line / FILL

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

    def _is_far(self, form: Linear) -> bool:
        """
        Whether the innermost reduction steps by pages, more of them than a cache keeps.

        Such lines fall into a few sets of the cache and are gone before they are read again.
        """
        inner = self._innermost()
        if inner is None or self.order.sizes[inner] <= PAGES:
            return False
        stride = form.stride(inner)
        return stride is None or abs(stride) * 4 >= PAGE

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


class Constants:
    """
    Which values are known when the program is loaded?

    To be asked in the order of the program: answers are remembered, and lead to the next ones.
    """

    def __init__(self) -> None:
        self._known: dict[SSAValue, bool] = {}

    def holds(self, value: SSAValue) -> bool:
        if value not in self._known:
            self._known[value] = self._find(value.owner)
        return self._known[value]

    def _find(self, owner: Operation | Block) -> bool:
        if isinstance(owner, Block):
            return False
        if isinstance(owner, ConstantOp):
            return True
        operands = owner.operands
        return owner.name.startswith("tile.") and bool(operands) and all(map(self.holds, operands))


def _apply(
    op: tile.ContractOp, choice: Choice, packed: dict[tuple[SSAValue, LayoutAttr], SSAValue]
) -> None:
    """Packs the factor (once for all that want it so) and writes the schedule down."""
    op.properties["schedule"] = choice.schedule
    op.properties["domain"] = IntsAttr.of(choice.order.sizes)
    op.properties["maps"] = maps_attribute(choice.order.maps)
    if choice.layout is None:
        return
    value = (op.lhs, op.rhs)[choice.factor]
    key = (value, choice.layout)
    if key not in packed:
        type_ = tensor(value)
        pack = tile.PackOp(value, TensorType(type_.element_type, type_.get_shape(), choice.layout))
        pack.location = op.location
        Rewriter.insert_op(pack, _behind(value))
        packed[key] = pack.output
    op.operands[choice.factor] = packed[key]


def _behind(value: SSAValue) -> InsertPoint:
    owner = value.owner
    if isinstance(owner, Operation):
        return InsertPoint.after(owner)
    return InsertPoint.at_start(owner)
