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
from popgraph.passes.loops.editor import copy_of
from popgraph.passes.loops.indices import Indices, loops_in
from popgraph.passes.structured.to_loops.emit.create import (
    create_same_type,
    create_unchecked,
    fill,
    operands_of,
)
from popgraph.passes.structured.to_loops.emit.vectors import lanes_of


def vectorize(kernel: Block) -> None:
    """Replaces the marked loops of a kernel; a loop that does not fit only loses its mark."""
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
    """One unrolled loop for each run of vectors of the same width."""
    block, start = loop.parent, constant_of(loop.lb)
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

    Elements at consecutive indices are loaded and stored as vectors. An element that all
    iterations load stays a scalar, and is broadcast where it meets a vector.
    """

    def __init__(self, loop: scf.ForOp, indices: Indices) -> None:
        self._body, self._indices = loop.body.block, indices
        self._counter = self._body.args[0]
        self._varying: set[SSAValue] = {self._counter}
        """Indices that differ between iterations; other values that differ are vectors."""
        self._strides: dict[Operation, int] = {}
        """How far consecutive iterations of an access are apart in memory."""
        self._products: dict[Operation, Operation] = {}
        """The products that are added to the sums they belong to, by these additions."""

    def fits(self) -> bool:
        """
        Whether every operation has a form for vectors.

        Indices other than of memory, strides above 1 and inner loops have none.
        """
        return all(map(self._fits, self._body.ops))

    def _fits(self, op: Operation) -> bool:
        operands = operands_of(op)
        if isinstance(op, memref.LoadOp | memref.StoreOp):
            stride = self._stride(operands[-1])
            self._strides[op] = stride
            return stride == 1 or (stride == 0 and isinstance(op, memref.LoadOp))
        varies = not self._varying.isdisjoint(operands)
        if op.results and type(op.results[0].type) is IndexType:
            self._varying.update(op.results if varies else ())
            return not op.regions
        if isinstance(op, arith.AddfOp) and (product := _product_of_sum(op)) is not None:
            self._products[op] = product
        return isinstance(op, scf.YieldOp) or (type(op) in SCALARS and not varies)

    def _stride(self, index: SSAValue) -> int:
        """The distance between the indices of consecutive iterations; -1: it is not constant."""
        form = self._indices.of(index)
        if self._varying.intersection(form.terms) <= {self._counter}:
            return form.terms.get(self._counter, 0)
        return -1

    def in_lanes(self, lanes: int) -> Block:
        """The body for so many iterations at once; its counter is that of the first."""
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
    """A copy of a body for `lanes` iterations, with the new values of old ones."""

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
        """An operation on vectors if one of its operands is a vector."""
        operands = list(map(self._value, operands_of(op)))
        if any(map(lanes_of, operands)):
            self._add(op, on_lanes(op, list(map(self._vector, operands)), self.lanes))
        else:
            self._add(op, copy_of(op, operands))

    def add_product(self, addition: Operation, product: Operation) -> None:
        """`old + lhs * rhs` in one operation."""
        (old, _), factors = operands_of(addition), operands_of(product)
        lhs, rhs, old = (self._vector(self._value(one)) for one in (*factors, old))
        self._add(addition, create_same_type(vector.FMAOp, lhs, rhs, old))

    def _value(self, old: SSAValue) -> SSAValue:
        return self._values.get(old, old)

    def _vector(self, value: SSAValue) -> SSAValue:
        """A vector as it is; a scalar in all lanes."""
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
    """The product in `s[i] = s[i] + x * y`, which nothing else reads."""
    old, product = operands_of(addition)
    found, use = product.owner, addition.results[0].uses.get_length()
    if type(found) is not arith.MulfOp or type(old.owner) is not memref.LoadOp or use != 1:
        return None
    (use_of_sum,) = addition.results[0].uses
    store = use_of_sum.operation
    accumulates = type(store) is memref.StoreOp and operands_of(store)[1:] == operands_of(old.owner)
    return found if accumulates and product.uses.get_length() == 1 else None
