"""What does a contraction read, step by step, in one order of its loops?"""

from __future__ import annotations

from collections import Counter
from functools import cache, cached_property

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute
from xdsl.ir.affine import AffineMap

from popgraph.dialects import tile
from popgraph.dialects.tile.affine import offset
from popgraph.dialects.tile.attributes import LayoutAttr, physical_shape, with_layout
from popgraph.dialects.tile.scalars import lane_bytes
from popgraph.passes.structured.analysis.loops import Group, tensor
from popgraph.passes.structured.analysis.winograd_scratch import LINE
from popgraph.passes.structured.schedule.reduction_order import Order
from popgraph.support.shapes import prod

FAR_CYCLES = 6.0
"""What a cache line costs that is a page or more away from the last one; nearer ones cost less."""

PAGE = 4096
"""In bytes."""

PAGES = 32
"""So many lines at the same place of different pages stay in the cache together."""

LINE_BYTES = 64

WAYS = 6
"""So many lines at the same place of different pages stay in the first cache beside a panel."""


class Factor:
    """One factor of a contraction: where its elements are, and how far apart."""

    def __init__(self, type_: TensorType[Attribute], map_: AffineMap, order: Order) -> None:
        self.form = offset(type_, map_, order.sizes)
        self._order = order

    @cached_property
    def lines_a_step(self) -> float:
        """Which part of a line the innermost reduction goes through in one step."""
        return 1.0 if self._pace is None else min(1.0, self._pace / LINE)

    @cached_property
    def apart(self) -> float:
        """The bytes from one step of the reduction to the next, where they are no neighbours."""
        step = PAGE if self._pace is None else 4 * self._pace
        return min(step, PAGE) if step > LINE_BYTES else 0

    @cached_property
    def _pace(self) -> float | None:
        inner = self._order.innermost
        return None if inner is None else self.form.pace(inner, self._order.sizes)

    @cached_property
    def far(self) -> float:
        """
        What a line costs more when the reduction steps far, more often than a cache keeps.

        Such lines fall into a few sets of the cache and are gone before they are read again; from
        one page to the next, nothing fetches them ahead.
        """
        sizes = self._order.sizes
        steps = [(sizes[dim], self.form.pace(dim, sizes)) for dim in self._order.reductions]
        apart = [(size, 4 * pace) for size, pace in steps if pace >= LINE]
        if prod(size for size, _ in apart) <= PAGES:
            return 0.0
        return FAR_CYCLES * min(1.0, min(step for _, step in apart) / PAGE)

    def lines(self, rows: Group | None, block: int) -> float:
        """How many cache lines the elements of all rows are in."""
        stride = self.form.stride(rows.last) if rows is not None else 0
        return block if stride is None else min(block, 1 + block * abs(stride) / LINE)

    def loads(self, rows: Group | None, block: int) -> int:
        """How many scalars all rows take in one step."""
        return block if rows is not None and self.form.uses(rows.last) else 1

    def crowded(self, rows: Group | None, block: int) -> int:
        """How many of the rows' lines find no place where the first cache would keep them."""
        stride = self.form.stride(rows.last) if rows is not None else None
        return 0 if stride is None or abs(stride) < LINE else _crowded(abs(stride), block)

    def overlaps(self, rows: Group | None) -> bool:
        """Whether a step of the innermost reduction reads what another row read before."""
        inner = self._order.innermost
        if rows is None or inner is None:
            return False
        return self.form.stride(inner) == self.form.stride(rows.last) != 0


@cache
def _crowded(stride: int, block: int) -> int:
    """How many of so many lines, this far apart, are too many for their places in the cache."""
    places = Counter(row * stride * 4 % PAGE // LINE_BYTES for row in range(block))
    return sum(max(0, lines - WAYS) for lines in places.values())


class Reads:
    """
    The operands of a contraction in one order, where one `factor` is to run along vectors.

    The other one is packed into the layout `packed`, if there is one.
    """

    def __init__(
        self, op: tile.ContractOp, order: Order, factor: int, packed: LayoutAttr | None = None
    ) -> None:
        self.op, self.order, self.factor, self.packed = op, order, factor, packed
        self.sizes, self.parallel = op.sizes, op.sizes[: op.parallel_rank]
        self.types = tensor(op.lhs), tensor(op.rhs)
        types = list(self.types)
        if packed is not None:
            types[1 - factor] = with_layout(types[1 - factor], packed)
        factors = [Factor(*each, order) for each in zip(types, order.maps, strict=True)]
        self.vectors, self.scalars = factors[factor], factors[1 - factor]
        self.element_bytes = lane_bytes(types[0].element_type)
        self.terms = prod(op.sizes[op.parallel_rank :])
        self.stored = [4 * prod(physical_shape(type_)) for type_ in self.types]
        beside = op.mapped[2:]
        self.others = [offset(tensor(value), map_, op.sizes) for value, map_ in beside]
        self.results = sum(prod(physical_shape(tensor(value))) for value, _ in beside)
