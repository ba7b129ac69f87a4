"""Vectorization of marked loops in one kernel: their iterations become the lanes of vectors."""

from __future__ import annotations

from itertools import groupby

from xdsl.dialects import arith, memref, scf, vector
from xdsl.dialects.builtin import IndexType, MemRefType
from xdsl.ir import Block, Operation, Region, SSAValue

from popgraph.dialects.tile.lanes import vector_of
from popgraph.dialects.tile.loops.recipes import UNROLLED, VECTORIZE, widths_of
from popgraph.dialects.tile.loops.soundness import constant_of
from popgraph.dialects.tile.scalars import SCALARS, on_lanes
from popgraph.dialects.unchecked import copy_of, create_unchecked, fill, operands_of
from popgraph.passes.loops.indices import Indices, loops_in
from popgraph.passes.structured.to_loops.emit.create import create_same_type
from popgraph.passes.structured.to_loops.emit.vectors import lanes_of


def vectorize(kernel: Block) -> None:
    """Vectorizes the marked loops of a kernel; a loop that does not fit only loses its mark."""
    marked = [loop for loop in loops_in(kernel) if VECTORIZE in loop.attributes]
    if not marked:
        return
    indices = Indices(kernel)
    for loop in marked:
        body = LaneBody(loop, indices)
        if body.fits():
            _replace(loop, body, indices)
        else:
            del loop.attributes[VECTORIZE]


def _replace(loop: scf.ForOp, body: LaneBody, indices: Indices) -> None:
    """Replaces a loop by one unrolled loop for each group of vectors of equal width."""
    # [16, 16, 4, 1]: the last panel ends in narrower vectors, so one loop becomes three.
    block, start = loop.parent, constant_of(operands_of(loop)[0])
    assert block is not None and start is not None
    for lanes, alike in groupby(widths_of(loop)):
        end = start + lanes * len(list(alike))
        bounds = [indices.constant(number, loop) for number in (start, end, lanes)]
        made = create_unchecked(scf.ForOp, *bounds, regions=(Region(body.in_lanes(lanes)),))
        made.attributes.update(UNROLLED)
        block.insert_op_before(made, loop)
        start = end
    loop.detach()
    loop.erase()


class LaneBody:
    """
    The body of a loop whose iterations become lanes.

    Elements at consecutive indices are loaded and stored as vectors. An element that all iterations
    load stays a scalar, and is broadcast where an operation also has a vector operand.
    """

    def __init__(self, loop: scf.ForOp, indices: Indices) -> None:
        self._body, self._indices = loop.regions[0].blocks[0], indices
        self._counter = self._body.args[0]
        self._varying: set[SSAValue] = {self._counter}
        """Indices that differ between iterations; other differing values become vectors."""
        self._strides: dict[Operation, int] = {}
        """The strides of accesses between consecutive iterations, in elements."""
        self._products: dict[Operation, Operation] = {}
        """The products that become one operation with their addition, by addition."""

    def fits(self) -> bool:
        """
        Whether every operation has a vector form.

        Strides above 1, inner loops, and computations with a varying index have none.
        """
        return all(map(self._fits, self._body.ops))

    def _fits(self, op: Operation) -> bool:
        operands = operands_of(op)
        if type(op) in (memref.LoadOp, memref.StoreOp):
            stride = self._stride(operands[-1])
            self._strides[op] = stride
            # With stride 0, all iterations would store to one element.
            return stride == 1 or (stride == 0 and type(op) is memref.LoadOp)
        varies = not self._varying.isdisjoint(operands)
        if op.results and type(op.results[0].type) is IndexType:
            self._varying.update(op.results if varies else ())
            return not op.regions
        if type(op) is arith.AddfOp and (product := _product_of_sum(op)) is not None:
            self._products[op] = product
        return type(op) is scf.YieldOp or (type(op) in SCALARS and not varies)

    def _stride(self, index: SSAValue) -> int:
        """The difference of the indices of consecutive iterations; -1 if it is not constant."""
        form = self._indices.of(index)
        if self._varying.intersection(form.terms) <= {self._counter}:
            return form.terms.get(self._counter, 0)
        return -1

    def in_lanes(self, lanes: int) -> Block:
        """The body for `lanes` iterations at once, with the counter of the first."""
        # A width of 1, at the end of a panel, is a copy of the scalar body.
        block = Block(arg_types=[IndexType()])
        copy = LaneCopy(lanes, dict(zip(self._body.args, block.args, strict=True)))
        products = set(self._products.values()) if lanes > 1 else set[Operation]()
        for op in self._body.ops:
            if op in products:
                continue
            product = self._products.get(op) if lanes > 1 else None
            if product is not None:
                copy.add_product(op, product)
            elif self._strides.get(op) == 1 and lanes > 1:
                copy.access(op)
            else:
                copy.compute(op)
        fill(block, copy.operations)
        return block


class LaneCopy:
    """A copy of a body for `lanes` iterations; maps old values to new ones."""

    def __init__(self, lanes: int, values: dict[SSAValue, SSAValue]) -> None:
        self.lanes, self.operations = lanes, list[Operation]()
        self._values = values
        self._broadcasts: dict[SSAValue, SSAValue] = {}

    def access(self, op: Operation) -> None:
        """A load or a store of consecutive elements."""
        *stored, memory, index = map(self._value, operands_of(op))
        if stored:
            self._add(op, create_unchecked(vector.StoreOp, self._vector(*stored), memory, index))
        else:
            assert isinstance(memory.type, MemRefType)
            type_ = vector_of(memory.type.element_type, self.lanes)
            self._add(op, create_unchecked(vector.LoadOp, memory, index, types=(type_,)))

    def compute(self, op: Operation) -> None:
        """An operation on vectors if an operand is a vector, else on scalars."""
        operands = list(map(self._value, operands_of(op)))
        if any(map(lanes_of, operands)):
            self._add(op, on_lanes(op, list(map(self._vector, operands)), self.lanes))
        else:
            self._add(op, copy_of(op, operands))

    def add_product(self, addition: Operation, product: Operation) -> None:
        """`old + lhs * rhs` as one multiply-add."""
        (old, _), factors = operands_of(addition), operands_of(product)
        lhs, rhs, old = (self._vector(self._value(one)) for one in (*factors, old))
        self._add(addition, create_same_type(vector.FMAOp, lhs, rhs, old))

    def _value(self, old: SSAValue) -> SSAValue:
        return self._values.get(old, old)

    def _vector(self, value: SSAValue) -> SSAValue:
        """Broadcasts a scalar, once for the whole body; a vector is unchanged."""
        if lanes_of(value):
            return value
        found = self._broadcasts.get(value)
        if found is None:
            type_ = vector_of(value.type, self.lanes)
            made = create_unchecked(vector.BroadcastOp, value, types=(type_,))
            self.operations.append(made)
            found = self._broadcasts[value] = made.results[0]
        return found

    def _add(self, op: Operation, made: Operation) -> None:
        self.operations.append(made)
        self._values.update(zip(op.results, made.results, strict=True))


def _product_of_sum(addition: Operation) -> Operation | None:
    """The product in `s[i] = s[i] + x * y`, if nothing else uses it."""
    # x * y + z of an epilogue stays two operations: only accumulation is fused.
    old, product = operands_of(addition)
    found, use = product.owner, addition.results[0].uses.get_length()
    if type(found) is not arith.MulfOp or type(old.owner) is not memref.LoadOp or use != 1:
        return None
    (use_of_sum,) = addition.results[0].uses
    store = use_of_sum.operation
    accumulates = type(store) is memref.StoreOp and operands_of(store)[1:] == operands_of(old.owner)
    return found if accumulates and product.uses.get_length() == 1 else None
