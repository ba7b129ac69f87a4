"""ONNX forms of data movement, lookups and random numbers."""

from __future__ import annotations

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore
from popgraph.dialects.element_types import from_ir
from popgraph.dialects.graphcore.base import dtype_of, integer, shape_of
from popgraph.dialects.graphcore.random import kept_bits
from popgraph.passes.graphcore.to_onnx.printer import Printer, form
from popgraph.support import dtypes, threefry
from popgraph.support.shapes import prod


@form(graphcore.ReshapeOp, by="Reshape")
def reshape(to: Printer, op: graphcore.ReshapeOp) -> SSAValue:
    return to.reshape(to(op.x), op.shape.data)


@form(graphcore.BroadcastOp, by="Expand")
def broadcast(to: Printer, op: graphcore.BroadcastOp) -> SSAValue:
    return to.node("Expand", to(op.x), to.ints(op.shape.data))


@form(graphcore.TransposeOp, by="Transpose")
def transpose(to: Printer, op: graphcore.TransposeOp) -> SSAValue:
    return to.node("Transpose", to(op.x), perm=list(op.perm.data))


@form(graphcore.ConcatOp, by="Concat")
def concat(to: Printer, op: graphcore.ConcatOp) -> SSAValue:
    return to.node("Concat", *map(to, op.xs), axis=integer(op.axis))


@form(graphcore.SliceOp, by="Slice")
def slice_(to: Printer, op: graphcore.SliceOp) -> SSAValue:
    if not op.sizes.data:  # Slice takes at least one axis.
        return to.node("Identity", to(op.x))
    return to.slice(to(op.x), op.starts.data, op.sizes.data, op.steps.data)


@form(graphcore.InsertOp, by="ScatterND")
def insert(to: Printer, op: graphcore.InsertOp) -> SSAValue:
    """Rows of the piece, indexed by the axes up to the last one that it does not cover."""
    shape, sizes = shape_of(op.x), shape_of(op.piece)
    axes = max((at + 1 for at, size in enumerate(sizes) if size != shape[at]), default=0)
    if not axes:
        return to.node("Identity", to(op.piece))
    if not prod(sizes):
        return to.node("Identity", to(op.x))
    starts = np.array(op.starts.data[:axes], np.int64)
    places = np.moveaxis(np.indices(sizes[:axes], np.int64), 0, -1) + starts
    return to.node("ScatterND", to(op.x), to.constant(places), to(op.piece))


@form(graphcore.PadOp, by="Pad")
def pad(to: Printer, op: graphcore.PadOp) -> SSAValue:
    """Interior padding: reshape each element to an axis of 1, pad that axis, cut the last pad."""
    value, shape = to(op.x), list(shape_of(op.x))
    for axis, inner in enumerate(op.interior.data):
        size = shape[axis]
        if not inner or not size:
            continue
        before, after = shape[:axis], shape[axis + 1 :]
        value = to.reshape(value, [*before, size, 1, *after])
        zeros = [0] * (len(shape) + 1)
        high = [inner if at == axis + 1 else 0 for at in range(len(zeros))]
        value = to.pad(value, zeros, high, op.fill)
        value = to.reshape(value, [*before, size * (inner + 1), *after])
        shape[axis] = size * (inner + 1) - inner
        value = to.slice(value, [0] * len(shape), shape)
    if not any((*op.low.data, *op.high.data)):
        return value
    return to.pad(value, op.low.data, op.high.data, op.fill)


@form(graphcore.LaterOp, by="no node")
def later(to: Printer, op: graphcore.LaterOp) -> SSAValue:
    return to(op.x)


def positions(to: Printer, indices: SSAValue, size: int) -> SSAValue:
    """Positions of indices: negative ones count from the end, all are clamped to the axis."""
    key = (indices, size)
    if key not in to.positions:
        to.positions[key] = _positions(to, indices, size)
    return to.positions[key]


def _positions(to: Printer, indices: SSAValue, size: int) -> SSAValue:
    dtype = dtype_of(indices)
    known = to.known(indices)
    if known is not None:
        return to.constant(graphcore.lookup.positions(known, size))
    found, zero = to(indices), to.index(0)
    last = to.index(max(0, size - 1))
    if dtype.name == "u64":  # Clamped first: large indices would become negative in i64.
        found = to.node("Min", found, to.scalar(max(0, size - 1), dtype))
    if dtype.name != "i64":
        found = to.cast(found, "i64")
    if dtype.is_unsigned:
        return to.node("Min", found, last)
    wrapped = to.node("Add", found, to.index(size))
    found = to.node("Where", to.node("Less", found, zero), wrapped, found)
    if isinstance(indices.owner, graphcore.CheckIndicesOp) and indices.owner.ignored is None:
        return found  # A runtime reports indices out of range.
    return to.node("Max", to.node("Min", found, last), zero)


@form(graphcore.GatherOp, by="Gather")
def gather(to: Printer, op: graphcore.GatherOp) -> SSAValue:
    axis = integer(op.axis)
    places = positions(to, op.indices, shape_of(op.data)[axis])
    return to.node("Gather", to(op.data), places, axis=axis)


@form(graphcore.CheckIndicesOp, by="no node")
def check_indices(to: Printer, op: graphcore.CheckIndicesOp) -> SSAValue:
    """Nothing: the runtime of ONNX checks indices itself."""
    return to(op.indices)


@form(graphcore.GatherGradOp, by="ScatterND")
def gather_grad(to: Printer, op: graphcore.GatherGradOp) -> SSAValue:
    dtype, shape = dtype_of(op.result), shape_of(op.result)
    zeros = to.node("Expand", to.scalar(0, dtype), to.ints(shape))
    return _scattered(to, zeros, op.result, op.dy, op.indices, integer(op.axis), "add")


@form(graphcore.ScatterOp, by="ScatterND")
def scatter(to: Printer, op: graphcore.ScatterOp) -> SSAValue:
    axis, reduction = integer(op.axis), op.reduction.data
    if reduction == "none":
        return _last(to, op)
    return _scattered(to, to(op.data), op.data, op.updates, op.indices, axis, reduction)


def _scattered(
    to: Printer,
    data: SSAValue,
    like: SSAValue,
    updates: SSAValue,
    indices: SSAValue,
    axis: int,
    reduction: str,
) -> SSAValue:
    """ScatterND along the first axis; `data` has the type of `like`."""
    shape, dtype = shape_of(like), dtype_of(like)
    count = prod(shape_of(indices))
    others = [at for at in range(len(shape)) if at != axis]
    front = [axis, *others]
    back = sorted(range(len(shape)), key=front.__getitem__)
    rows = to.reshape(to(updates), [*shape[:axis], count, *shape[axis + 1 :]])
    places = to.reshape(positions(to, indices, shape[axis]), [count, 1])
    is_bool = dtype.name == "bool"
    if is_bool:  # ONNX reduces numbers only.
        data, rows = to.cast(data, "i32"), to.cast(rows, "i32")
    moved = [to.transpose(value, front) for value in (data, rows)]
    result = to.node("ScatterND", moved[0], places, moved[1], reduction=reduction)
    result = to.transpose(result, back)
    return to.cast(result, dtype) if is_bool else result


def _last(to: Printer, op: graphcore.ScatterOp) -> SSAValue:
    """
    The last of the updates of each position, by their numbers.

    ScatterND leaves the order of updates with equal indices undefined.
    """
    axis, shape = integer(op.axis), shape_of(op.data)
    size, count = shape[axis], prod(shape_of(op.indices))
    if not count:
        return to.node("Identity", to(op.data))
    places = to.reshape(positions(to, op.indices, size), [count, 1])
    none = to.constant(np.full(size, -1, np.int64))
    numbers = to.constant(np.arange(count, dtype=np.int64))
    last = to.node("ScatterND", none, places, numbers, reduction="max")
    rows = to.reshape(to(op.updates), [*shape[:axis], count, *shape[axis + 1 :]])
    chosen = to.node("Gather", rows, to.node("Max", last, to.index(0)), axis=axis)
    is_set = to.node("GreaterOrEqual", last, to.index(0))
    is_set = to.reshape(is_set, [size, *[1] * (len(shape) - axis - 1)])
    return to.node("Where", is_set, chosen, to(op.data))


@form(graphcore.IotaOp, by="Expand")
def iota(to: Printer, op: graphcore.IotaOp) -> SSAValue:
    shape, axis = op.shape.data, integer(op.axis)
    numbers = np.arange(shape[axis]).astype(from_ir(op.dtype).numpy)
    column = to.constant(numbers.reshape([-1] + [1] * (len(shape) - axis - 1)))
    return to.node("Expand", column, to.ints(shape))


# Random words are 32-bit numbers in i64, for which runtimes have all operators.
WORD = 2**32


@form(graphcore.RandomUniformOp, by="Mul, Div, Add, BitwiseXor (Threefry)")
def random_uniform(to: Printer, op: graphcore.RandomUniformOp) -> SSAValue:
    """Threefry in integer arithmetic: the numbers of every other backend."""
    state, shape = to(op.state), op.shape.data
    seed, step = (to.node("Gather", state, to.index(at), axis=0) for at in range(2))
    low, high = _words(to, seed)
    zero = to.index(0)
    elements = to.constant(np.arange(prod(shape), dtype=np.int64))
    for counter in (_words(to, step), _known_words(to, integer(op.stream)), (elements, zero)):
        low, high = _threefry(to, (low, high), counter)
    bits = kept_bits(op.dtype)
    # The low word is the leading one.
    kept = _shifted_right(to, low, 32 - min(bits, 32))
    if bits > 32:
        kept = to.node("Mul", kept, to.index(2 ** (bits - 32)))
        kept = to.node("Add", kept, _shifted_right(to, high, 64 - bits))
    number = to.node("Div", to.cast(kept, "f64"), to.scalar(2.0**bits, dtypes.BY_NAME["f64"]))
    return to.reshape(to.cast(number, from_ir(op.dtype)), shape)


def _known_words(to: Printer, number: int) -> tuple[SSAValue, SSAValue]:
    return to.index(number % WORD), to.index(number // WORD % WORD)


def _words(to: Printer, number: SSAValue) -> tuple[SSAValue, SSAValue]:
    """The low and the high word of an i64."""
    low = to.node("BitwiseAnd", number, to.index(WORD - 1))
    # Exact, also for negative numbers: their remainder is removed first.
    high = to.node("Div", to.node("Sub", number, low), to.index(WORD))
    return low, to.node("BitwiseAnd", high, to.index(WORD - 1))


def _shifted_right(to: Printer, word: SSAValue, bits: int) -> SSAValue:
    return to.node("Div", word, to.index(2**bits)) if bits else word


def _threefry(
    to: Printer, key: tuple[SSAValue, SSAValue], counter: tuple[SSAValue, SSAValue]
) -> tuple[SSAValue, SSAValue]:
    mask = to.index(WORD - 1)

    def add(*terms: SSAValue) -> SSAValue:
        total = terms[0]
        for term in terms[1:]:
            total = to.node("Add", total, term)
        return to.node("BitwiseAnd", total, mask)

    parity = to.node("BitwiseXor", *key)
    schedule = (*key, to.node("BitwiseXor", parity, to.index(threefry.PARITY)))
    left, right = add(counter[0], schedule[0]), add(counter[1], schedule[1])
    for done in range(threefry.ROUNDS):
        bits = threefry.ROTATIONS[done % len(threefry.ROTATIONS)]
        left = add(left, right)
        # The product overflows for the upper bits of the word, which the mask drops.
        up = to.node("BitwiseAnd", to.node("Mul", right, to.index(2**bits)), mask)
        turned = to.node("BitwiseOr", up, _shifted_right(to, right, 32 - bits))
        right = to.node("BitwiseXor", turned, left)
        if done % 4 == 3:
            number = done // 4 + 1
            left = add(left, schedule[number % 3])
            right = add(right, schedule[(number + 1) % 3], to.index(number))
    return left, right
