"""Canonicalization of data movement: drops identities, merges chains, slices for lookups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from popgraph.dialects.graphcore import (
    AddOp,
    BroadcastOp,
    ConcatOp,
    GatherOp,
    GraphcoreOp,
    InsertOp,
    PadOp,
    ReduceMaxOp,
    ReduceMeanOp,
    ReduceMinOp,
    ReduceProdOp,
    ReduceSumOp,
    ReshapeOp,
    SliceOp,
    TransposeOp,
)
from popgraph.dialects.graphcore.base import Operand, dtype_of, integer, shape_of
from popgraph.dialects.graphcore.lookup import positions
from popgraph.dialects.graphcore.runs import gathered_by_slices
from popgraph.passes.graphcore.canonicalize.rewriting import Rule
from popgraph.support.index_laws import (
    AT,
    BROADCAST,
    CONCATENATION,
    ROW_MAJOR,
    UNIT,
    J,
    index_law,
    within,
)
from popgraph.support.laws import Law, Proof, number, variable
from popgraph.support.shapes import Shape, prod

X = variable("x")


class DropReshape(Rule[ReshapeOp]):
    """
    reshape x to the shape it has  ->  x
    """

    ROOTS = (ReshapeOp,)
    PROOF = Proof(ROW_MAJOR)

    def rewrite(self, op: ReshapeOp) -> Operand | None:
        return op.x if shape_of(op.x) == shape_of(op.result) else None


class MergeReshapes(Rule[ReshapeOp]):
    """
    reshape(reshape x)  ->  reshape x
    """

    ROOTS = (ReshapeOp,)
    PROOF = Proof(ROW_MAJOR)

    def rewrite(self, op: ReshapeOp) -> Operand | None:
        if not isinstance(op.x.owner, ReshapeOp):
            return None
        return ReshapeOp(op.x.owner.x, shape=shape_of(op.result))


class DropTranspose(Rule[TransposeOp]):
    """
    transpose x by (0, 1, 2)  ->  x
    """

    ROOTS = (TransposeOp,)
    PROOF = Proof(construction="axes in their order: index i of the result is index i of x")

    def rewrite(self, op: TransposeOp) -> Operand | None:
        return op.x if list(op.perm) == sorted(op.perm) else None


class MergeTransposes(Rule[TransposeOp]):
    """
    transpose(transpose x)  ->  transpose x
    """

    ROOTS = (TransposeOp,)
    PROOF = Proof(construction="axis k of the result is axis inner[outer[k]] of x")

    def rewrite(self, op: TransposeOp) -> Operand | None:
        inner = op.x.owner
        if not isinstance(inner, TransposeOp):
            return None
        return TransposeOp(inner.x, perm=[inner.perm.data[axis] for axis in op.perm])


class ReshapeUnits(Rule[TransposeOp]):
    """
    transpose x  ->  reshape x

    Only when axes longer than 1 keep their order.
    """

    ROOTS = (TransposeOp,)
    PROOF = Proof((*ROW_MAJOR, *UNIT))

    def rewrite(self, op: TransposeOp) -> Operand | None:
        shape = shape_of(op.x)
        if not _moves_units(op.perm, shape) or 0 in shape:
            return None
        return ReshapeOp(op.x, shape=shape_of(op.result))


def _moves_units(perm: Iterable[int], shape: Shape) -> bool:
    """Whether axes longer than 1 keep their order."""
    long = [axis for axis in perm if shape[axis] != 1]
    return long == sorted(long)


class SliceBeforeTranspose(Rule[SliceOp]):
    """
    slice(transpose x)  ->  transpose(slice x)

    Only when fewer elements move, or none. Fewer move if nothing else reads the transpose. None
    moves if all readers transpose the slice back, or if only axes of length 1 are transposed.
    """

    ROOTS = (SliceOp,)
    PROOF = Proof(construction="starts and steps are permuted with their axes")

    def rewrite(self, op: SliceOp) -> Operand | None:
        inner = op.x.owner
        if not isinstance(inner, TransposeOp):
            return None
        perm = list(inner.perm)
        back = [perm.index(axis) for axis in range(len(perm))]
        starts, sizes, steps = (
            tuple(row.data[axis] for axis in back) for row in (op.starts, op.sizes, op.steps)
        )
        moves_less = op.x.has_one_use() and prod(sizes) < prod(shape_of(op.x))
        if not (moves_less or _moves_units(perm, sizes) or _is_undone(op, perm, sizes)):
            return None
        return TransposeOp(SliceOp(inner.x, starts=starts, sizes=sizes, steps=steps), perm=perm)


def _is_undone(op: SliceOp, perm: Sequence[int], shape: Shape) -> bool:
    """Whether every reader of a slice transposes it back into the original order."""
    users = [use.operation for use in op.result.uses]
    return bool(users) and all(
        isinstance(user, TransposeOp) and _moves_units([perm[at] for at in user.perm], shape)
        for user in users
    )


class DropBroadcast(Rule[BroadcastOp]):
    """
    broadcast x to the shape it has  ->  x
    """

    ROOTS = (BroadcastOp,)
    PROOF = Proof(BROADCAST)

    def rewrite(self, op: BroadcastOp) -> Operand | None:
        return op.x if shape_of(op.x) == shape_of(op.result) else None


class MergeBroadcasts(Rule[BroadcastOp]):
    """
    broadcast(broadcast x)  ->  broadcast x
    """

    ROOTS = (BroadcastOp,)
    PROOF = Proof(BROADCAST)

    def rewrite(self, op: BroadcastOp) -> Operand | None:
        if not isinstance(op.x.owner, BroadcastOp):
            return None
        return BroadcastOp(op.x.owner.x, shape=shape_of(op.result))


class DropSlice(Rule[SliceOp]):
    """
    slice x at 0 with the shape of x  ->  x
    """

    ROOTS = (SliceOp,)
    PROOF = Proof((index_law(0 + 1 * AT, AT), index_law(0 + J * AT, AT, within(AT, 1))))

    def rewrite(self, op: SliceOp) -> Operand | None:
        shape = shape_of(op.x)
        whole = zip(shape, op.starts, op.sizes, op.steps, strict=True)
        if all(
            (start, size) == (0, dim) and (step == 1 or dim <= 1)
            for dim, start, size, step in whole
        ):
            return op.x
        return None


class DropInsert(Rule[InsertOp]):
    """
    insert(x, slice x)  ->  x;  insert(x, y with the shape of x)  ->  y

    Only when the slice is inserted where it is from.
    """

    ROOTS = (InsertOp,)
    PROOF = Proof(construction="each element of the result is that of x, or of y")

    def rewrite(self, op: InsertOp) -> Operand | None:
        if shape_of(op.piece) == shape_of(op.x):
            return op.piece
        taken = op.piece.owner
        if isinstance(taken, SliceOp) and taken.x is op.x and taken.starts == op.starts:
            return op.x if set(taken.steps) <= {1} else None
        return None


class DropPad(Rule[PadOp]):
    """
    pad x by 0 elements  ->  x
    """

    ROOTS = (PadOp,)
    PROOF = Proof(construction="without padding, index i of the result is index i of x")

    def rewrite(self, op: PadOp) -> Operand | None:
        return None if any((*op.low, *op.high, *op.interior)) else op.x


class DropConcat(Rule[ConcatOp]):
    """
    concat x, empty tensors  ->  x
    """

    ROOTS = (ConcatOp,)
    PROOF = Proof(CONCATENATION)

    def rewrite(self, op: ConcatOp) -> Operand | None:
        filled = [x for x in op.operands if 0 not in shape_of(x)]
        if len(filled) == 1 and shape_of(filled[0]) == shape_of(op.results[0]):
            return filled[0]
        return op.operands[0] if len(op.operands) == 1 else None


class ReshapeReduction(Rule[GraphcoreOp]):
    """
    reduce x along axes of size 1  ->  reshape x;  sum and mean of floats  ->  reshape x + 0

    Only of axes of size 1. Sums start at 0.0, so the sum of a single -0.0 is 0.0.
    """

    ROOTS = (ReduceSumOp, ReduceMeanOp, ReduceMaxOp, ReduceMinOp, ReduceProdOp)
    PROOF = Proof((*UNIT, Law(number(0.0) + X, X + 0.0), Law(number(1) * X, X)))

    def rewrite(self, op: GraphcoreOp) -> Operand | None:
        assert isinstance(op, self.ROOTS), "matched"
        if any(shape_of(op.x)[axis] != 1 for axis in op.axes):
            return None
        alone = ReshapeOp(op.x, shape=shape_of(op.result))
        if isinstance(op, ReduceSumOp | ReduceMeanOp) and dtype_of(op.x).is_float:
            return AddOp(alone, self.literal(np.zeros((), dtype_of(op.x).numpy)))
        return alone


class SliceLookup(Rule[GatherOp]):
    """
    gather x, [1, 3, 5]  ->  slice x

    Only when the indices are constant with a constant step. Several slices would need a
    concatenation, which does not fuse into readers as a lookup does.
    """

    ROOTS = (GatherOp,)
    PROOF = Proof(construction="indices with a constant step are those of a slice")

    def rewrite(self, op: GatherOp) -> Operand | None:
        indices, axis = self.array(op.indices), integer(op.axis)
        shape = shape_of(op.result)
        if indices is None or 0 in (*shape, *shape_of(op.data)):
            return None
        places = positions(indices, shape_of(op.data)[axis]).reshape(-1)
        found = gathered_by_slices(op.data, places, axis, 1)
        return found if found is None or indices.ndim == 1 else ReshapeOp(found, shape=shape)


RULES = (
    DropReshape,
    MergeReshapes,
    DropTranspose,
    MergeTransposes,
    ReshapeUnits,
    SliceBeforeTranspose,
    DropBroadcast,
    MergeBroadcasts,
    DropSlice,
    DropInsert,
    DropPad,
    DropConcat,
    ReshapeReduction,
    SliceLookup,
)
