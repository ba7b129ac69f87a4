"""Memory access of a contraction: cache lines, strides and evictions in one loop order."""

from __future__ import annotations

from functools import cache

from xdsl.dialects.builtin import IntegerType, TensorType
from xdsl.ir import Attribute
from xdsl.ir.affine import AffineMap

from popgraph.dialects import tile
from popgraph.dialects.tile.affine import offset
from popgraph.dialects.tile.attributes import LayoutAttr, physical_shape, with_layout
from popgraph.dialects.tile.scalars import lane_bytes
from popgraph.passes.structured.analysis.loops import Group, tensor
from popgraph.passes.structured.schedule.reduction_order import Order
from popgraph.support.machine import Machine
from popgraph.support.memo import cached_property
from popgraph.support.shapes import prod
from popgraph.support.tuning import Target

_evicted_lines = cache(Machine.evicted_lines)


class Factor:
    """One operand of a product: the addresses of its elements in one loop order."""

    def __init__(
        self, type_: TensorType[Attribute], map_: AffineMap, order: Order, target: Target
    ) -> None:
        self.form = offset(type_, map_, order.sizes)
        self._order, self._machine = order, target.machine
        self._element_bytes = lane_bytes(type_.element_type)
        self._line = self._machine.line_elements(self._element_bytes)

    @cached_property
    def lines_per_step(self) -> float:
        """Cache lines per step of the innermost reduction: min(1, pace / elements of a line)."""
        return 1.0 if self._pace is None else min(1.0, self._pace / self._line)

    @cached_property
    def step_bytes(self) -> float:
        """Bytes between two steps of the reduction, a page at most; 0 within a cache line."""
        # Strided lines fill only some cache sets, as if all bytes between them were loaded. Sets
        # repeat with each page, so longer steps need no more room.
        page = self._machine.page_bytes
        step = page if self._pace is None else self._element_bytes * self._pace
        return min(step, page) if step > self._machine.line_bytes else 0

    @cached_property
    def _pace(self) -> float | None:
        """Average distance of two steps of the innermost reduction, in elements."""
        inner = self._order.innermost
        return None if inner is None else self.form.pace(inner, self._order.sizes)

    @cached_property
    def far_cycles(self) -> float:
        """
        Extra cycles of a cache line when the reduction strides over more lines than a cache keeps.

        far_line_cycles * min(1, bytes of the shortest far step / page_bytes).

        These lines fall into a few cache sets, so they are evicted before they are read again.
        Hardware prefetchers stop at the end of a page.
        """
        # Constant weights whose rows are powers of two are packed for this reason: an encoder
        # takes a fifth less time (11f48b19).
        sizes, machine = self._order.sizes, self._machine
        steps = [(sizes[dim], self.form.pace(dim, sizes)) for dim in self._order.reductions]
        far = [(size, self._element_bytes * pace) for size, pace in steps if pace >= self._line]
        if prod(size for size, _ in far) <= machine.page_aliases:
            return 0.0
        shortest = min(step for _, step in far)
        return machine.far_line_cycles * min(1.0, shortest / machine.page_bytes)

    def lines(self, rows: Group | None, block: int) -> float:
        """Cache lines with the elements of all rows: min(rows, 1 + span of rows / line)."""
        stride = self.form.stride(rows.last) if rows is not None else 0
        return block if stride is None else min(block, 1 + block * abs(stride) / self._line)

    def loads(self, rows: Group | None, block: int) -> int:
        """Scalars that all rows load in one step."""
        return block if rows is not None and self.form.uses(rows.last) else 1

    def evicted_lines(self, rows: Group | None, block: int) -> int:
        """Lines of rows beyond the associativity of their L1 sets."""
        stride = self.form.stride(rows.last) if rows is not None else None
        if stride is None or abs(stride) < self._line:
            return 0
        return _evicted_lines(self._machine, abs(stride) * self._element_bytes, block)

    def rereads(self, rows: Group | None) -> bool:
        """Whether a step of the innermost reduction rereads an element of another row."""
        inner = self._order.innermost
        if rows is None or inner is None:
            return False
        return self.form.stride(inner) == self.form.stride(rows.last) != 0


class Reads:
    """
    The operands of a contraction in one loop order, with operand number `factor` in vectors.

    The other operand provides scalars; it is packed into the layout `packed`, if any. `elements`
    counts the elements of the operand in vectors, `uses` the results that share each of them.
    """

    def __init__(
        self,
        op: tile.ReduceOp,
        order: Order,
        factor: int,
        packed: LayoutAttr | None,
        target: Target,
    ) -> None:
        self.target = target
        self.registers = target.machine.registers
        if isinstance(op.sum_type, IntegerType):
            self.registers = target.machine.integer_registers or self.registers
        self.op, self.order, self.factor, self.packed = op, order, factor, packed
        self.sizes, self.parallel = op.sizes, op.sizes[: op.parallel_rank]
        self.types = tensor(op.lhs), tensor(op.rhs)
        types = list(self.types)
        if packed is not None:
            types[1 - factor] = with_layout(types[1 - factor], packed)
        factors = [
            Factor(type_, map_, order, target)
            for type_, map_ in zip(types, order.maps, strict=True)
        ]
        self.vectors, self.scalars = factors[factor], factors[1 - factor]
        self.element_bytes = lane_bytes(types[0].element_type)
        self.terms = prod(op.sizes[op.parallel_rank :])
        self.elements = prod(types[factor].get_shape())
        self.uses = prod(
            size for dim, size in enumerate(self.parallel) if not self.vectors.form.uses(dim)
        )
        self.stored = [
            lane_bytes(type_.element_type) * prod(physical_shape(type_)) for type_ in self.types
        ]
        beside = op.mapped[2:]
        self.others = [offset(tensor(value), map_, op.sizes) for value, map_ in beside]
        self.results = sum(prod(physical_shape(tensor(value))) for value, _ in beside)
