"""
Tensors of data-dependent size, in differentiated programs of static shapes.

Such a tensor has static room for its largest size. A count says how many elements along an axis
are valid; padding after them repeats the first one. Elementwise operations compute on all of the
axis. Operations that combine elements get a mask:

    y = reduce_sum(x)   ->   y = reduce_sum(where(iota < count, x, 0))

The mask also makes the gradients of the padding zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects.builtin import i64
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.traits import Pure

from popgraph.dialects import element_types
from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import (
    GraphcoreOp,
    Operand,
    dtype_of,
    flag,
    integer,
    is_float,
    shape_of,
    tensor_of,
)
from popgraph.dialects.graphcore.broadcasting import AxesReduction, scalar
from popgraph.dialects.graphcore.control import Control, yield_of
from popgraph.dialects.graphcore.reductions import in_type_of, widened
from popgraph.dialects.locations import origin
from popgraph.dialects.program import ConstantOp, DataAttr
from popgraph.support.arrays import Array
from popgraph.support.errors import UnsupportedError
from popgraph.support.shapes import Shape, prod


@dataclass(frozen=True)
class Extent:
    """A data-dependent size: `count * factor`."""

    count: SSAValue
    """A scalar i64."""
    factor: int = 1

    def is_same(self, other: Extent | None) -> bool:
        """Whether both sizes are provably equal."""
        if other is None or self.factor != other.factor:
            return False
        return _are_same(self.count, other.count)


def _are_same(one: SSAValue, other: SSAValue) -> bool:
    """Whether two values are computed by equal pure operations: a mask may be counted twice."""
    pending, seen = [(one, other)], set[tuple[SSAValue, SSAValue]]()
    while pending:
        pair = pending.pop()
        if pair in seen or pair[0] is pair[1]:
            continue
        seen.add(pair)
        first, second = (value.owner for value in pair)
        if not isinstance(first, Operation) or not isinstance(second, Operation):
            return False
        alike = type(first) is type(second) and first.properties == second.properties
        if not alike or first.regions or not first.has_trait(Pure):
            return False
        if first.results.index(pair[0]) != second.results.index(pair[1]):
            return False
        if len(first.operands) != len(second.operands):
            return False
        pending += zip(first.operands, second.operands, strict=True)
    return True


Extents: TypeAlias = Mapping[int, Extent]
"""The data-dependent sizes of a tensor, by axis."""

NOTHING: Extents = {}

MOST_NUMBERS = 64
"""Bound of evaluation at compile time: elements of a tensor, and number of tensors."""


@dataclass
class DataSizes:
    """The tensors of data-dependent size among those lowered so far."""

    known: dict[SSAValue, Extents] = field(default_factory=dict)
    most: dict[SSAValue, int] = field(default_factory=dict)
    """The upper bound of each count."""
    varying: dict[SSAValue, Sequence[int]] = field(default_factory=dict)
    """By reshaped tensor, the axes whose size the model computes from counts."""

    def __bool__(self) -> bool:
        return bool(self.known)

    def of(self, value: SSAValue) -> Extents:
        return self.known.get(value, NOTHING)

    def bounded(self, value: SSAValue, extents: Extents) -> SSAValue:
        """
        The value with its padding replaced by the first element along each dynamic axis.

        A function that is finite on all elements, with finite slopes, stays so on the padding.
        Without elements, floats are padded with 1.
        """
        shape = shape_of(value)
        extents = {axis: one for axis, one in extents.items() if shape[axis]}
        for axis, extent in extents.items():
            self.most[extent.count] = shape[axis] // extent.factor
            sizes = [1 if at == axis else size for at, size in enumerate(shape)]
            first: Operand = gc.SliceOp(
                value, starts=[0] * len(shape), sizes=sizes, steps=[1] * len(shape)
            )
            if is_float(value):
                some = gc.CompareOp(extent.count, scalar(0, extent.count), "gt")
                first = gc.DetachOp(gc.WhereOp(some, first, scalar(1, first)))
            value = gc.WhereOp(within(shape, axis, extent), value, first).result
        self.known[value] = extents
        return value

    def at_most(self, value: SSAValue, more: int = 0) -> Array | None:
        """The elements computed from counts, at the counts' upper bounds plus `more`."""
        found: dict[SSAValue, Array | None] = {}
        pending = [value]
        while pending:
            one = pending[-1]
            waiting = [operand for operand in self._small(one) if operand not in found]
            if waiting and len(found) < MOST_NUMBERS:
                pending += waiting
                continue
            pending.pop()
            found[one] = self._number(one, more, found)
        return found[value]

    def _small(self, value: SSAValue) -> Sequence[SSAValue]:
        """The operands of an operation on small tensors; none of other operations."""
        op = value.owner
        if value in self.most or not isinstance(op, GraphcoreOp) or op.regions:
            return ()
        is_small = all(prod(shape_of(one)) <= MOST_NUMBERS for one in op.operands)
        return op.operands if is_small else ()

    def _number(
        self, value: SSAValue, more: int, known: Mapping[SSAValue, Array | None]
    ) -> Array | None:
        if value in self.most:
            return np.array(self.most[value] + more)
        op = value.owner
        if isinstance(op, ConstantOp) and isinstance(op.literal, DataAttr):
            return op.literal.array
        arrays = [known.get(operand) for operand in self._small(value)]
        there = [array for array in arrays if array is not None]
        if not isinstance(op, GraphcoreOp) or not there or len(there) < len(arrays):
            return None
        return np.asarray(op.evaluate(*there)[op.results.index(value)])

    def substitute(self, replaced: Mapping[SSAValue, SSAValue]) -> None:
        """Updates the tables after values were replaced."""
        if not self.known or not replaced:
            return
        self.known = {
            replaced.get(value, value): {
                axis: Extent(replaced.get(extent.count, extent.count), extent.factor)
                for axis, extent in extents.items()
            }
            for value, extents in self.known.items()
        }
        self.most = {replaced.get(count, count): most for count, most in self.most.items()}

    def follow(self, ops: Iterable[Operation]) -> dict[SSAValue, SSAValue]:
        """
        Adds masks to new operations that combine elements; returns replaced results.

        Raises UnsupportedError for an operation without a rule.
        """
        replaced: dict[SSAValue, SSAValue] = {}
        for op in ops:
            if isinstance(op, Control):
                self._check_bodies(op)
            if not any(map(self.of, op.operands)):
                continue
            rule = _rule_of(op)
            with ImplicitBuilder(Builder(InsertPoint.before(op))):
                found = rule(_Site(self, op))
            if isinstance(found, SSAValue):
                found.owner.location = op.location  # type: ignore[union-attr]
                (old,) = op.results
                replaced[old] = found
                old.replace_all_uses_with(found)
                self.substitute({old: found})
                Rewriter.erase_op(op)
                continue
            for result in op.results:
                if found and result not in self.known:
                    self.known[result] = found
        return replaced

    def _check_bodies(self, op: Control) -> None:
        for block in op.bodies():
            if any(map(self.of, yield_of(block).values)):
                raise refusal(op, "a graph inside a node gives a tensor of data-dependent size")

    def check_given(self, value: SSAValue, name: str) -> None:
        """Raises an error for a model output of data-dependent size."""
        if self.of(value):
            raise UnsupportedError(
                f"output {name!r} has a data-dependent size, but a training step needs static ones",
                f"output {name!r}",
                "remove it from the outputs, or return a sum or mean of it",
            )


def refusal(op: Operation, what: str) -> UnsupportedError:
    return UnsupportedError(
        what,
        origin(op),
        "in training, tensors of data-dependent size allow elementwise operators, matmuls and "
        "reductions: use a mask instead (Where, Mul), or another operator",
    )


def within(shape: Shape, axis: int, extent: Extent) -> SSAValue:
    """The mask of valid elements along an axis, which broadcasts to a tensor of this shape."""
    sizes = [size if at == axis else 1 for at, size in enumerate(shape)]
    places = gc.IotaOp(shape=sizes, axis=axis, dtype=i64)
    return gc.CompareOp(places, number_of(extent), "lt").result


def number_of(extent: Extent) -> Operand:
    """An extent as a scalar."""
    if extent.factor == 1:
        return extent.count
    return gc.MulOp(extent.count, scalar(extent.factor, extent.count))


@dataclass
class _Site:
    """An operation on a tensor of data-dependent size, with the known extents."""

    sizes: DataSizes
    op: Operation

    @property
    def x(self) -> SSAValue:
        return self.op.operands[0]

    def of(self, index: int) -> Extents:
        return self.sizes.of(self.op.operands[index])

    def refuse(self, what: str) -> UnsupportedError:
        return refusal(self.op, what)

    def only_first(self) -> Extents:
        """The extents of the first operand; an error if another operand has extents."""
        if any(map(self.sizes.of, self.op.operands[1:])):
            raise self.refuse("an operand that must have a static size has a data-dependent one")
        return self.of(0)

    def masked(self, value: SSAValue, axes: Iterable[int], neutral: float) -> SSAValue:
        """The value, with `neutral` as its padding along these axes."""
        extents = self.sizes.of(value)
        for axis in sorted({*axes} & {*extents}):
            mask = within(shape_of(value), axis, extents[axis])
            value = gc.WhereOp(mask, value, scalar(neutral, value)).result
        return value


Found: TypeAlias = Extents | SSAValue
"""The extents of the results, or the replacement of the only result."""

Rule: TypeAlias = Callable[[_Site], Found]


def _rule_of(op: Operation) -> Rule:
    for kind, rule in RULES:
        if isinstance(op, kind):
            return rule
    if isinstance(op, gc.Elementwise):
        return _elementwise
    return _refused


def _refused(site: _Site) -> Found:
    raise site.refuse(f"{_title(site.op)} of a tensor of data-dependent size has no gradient")


def _title(op: Operation) -> str:
    return op.title if isinstance(op, GraphcoreOp) else op.name


# Element by element


def _elementwise(site: _Site) -> Found:
    """An extent may meet equal extents, sizes of 1, and generated tensors such as an iota."""
    return _aligned(site, list(site.op.operands), shape_of(site.op.results[0]))


def _aligned(site: _Site, operands: Sequence[SSAValue], shape: Shape) -> Extents:
    """The extents of the broadcast of several tensors."""
    found: dict[int, Extent] = {}
    for operand in operands:
        before = len(shape) - len(shape_of(operand))
        for axis, extent in site.sizes.of(operand).items():
            if not found.setdefault(before + axis, extent).is_same(extent):
                raise site.refuse("two tensors with different data-dependent sizes are combined")
    for operand in operands:
        before, sizes = len(shape) - len(shape_of(operand)), shape_of(operand)
        for axis in found:
            at = axis - before
            if at < 0 or at in site.sizes.of(operand):
                if at >= 0 and sizes[at] != shape[axis]:
                    raise site.refuse("an axis of data-dependent size is broadcast")
            elif sizes[at] != 1 and not _is_made(operand, at):
                raise site.refuse(
                    "a tensor of data-dependent size is combined with one of a static size"
                )
    return found


def _is_made(value: SSAValue, axis: int) -> bool:
    """Whether a tensor is generated along an axis, so that any length of it is valid."""
    match value.owner:
        case gc.IotaOp() | gc.RandomUniformOp():
            return True
        case gc.BroadcastOp(x=x):
            at = axis - len(shape_of(value)) + len(shape_of(x))
            return at < 0 or shape_of(x)[at] == 1
        case ConstantOp(literal=DataAttr() as literal):
            array = literal.array
            return bool((array == np.take(array, [0], axis)).all())
        case gc.CastOp(x=x):
            return _is_made(x, axis)
    return False


def _of_first(site: _Site) -> Found:
    return site.only_first()


# Movement


def _transpose(site: _Site) -> Found:
    op = site.op
    assert isinstance(op, gc.TransposeOp)
    return {at: site.of(0)[axis] for at, axis in enumerate(op.perm) if axis in site.of(0)}


def _reshape(site: _Site) -> Found:
    """A dynamic axis may keep its size, merge with static axes after it, or split again."""
    before, after = shape_of(site.x), shape_of(site.op.results[0])
    found: dict[int, Extent] = {}
    for axis, extent in site.of(0).items():
        leading, size = prod(before[:axis]), before[axis]
        places = [at for at in range(len(after)) if prod(after[:at]) == leading]
        if before[: axis + 1] == after[: axis + 1]:
            at = axis
        elif (size == 1 and len(places) != 1) or not places:
            raise site.refuse("an axis of data-dependent size is reshaped")
        else:
            at = places[-1]  # Axes with the same leading product before it have size 1.
        new = after[at]
        if new == size:
            found[at] = extent
        elif new > size and new % size == 0 and leading == 1:
            found[at] = Extent(extent.count, extent.factor * (new // size))
        elif new < size and extent.factor % (size // max(1, new)) == 0 and size % new == 0:
            found[at] = Extent(extent.count, extent.factor // (size // new))
        else:
            raise site.refuse("an axis of data-dependent size is reshaped")
    if not {*site.sizes.varying.get(site.op.results[0], ())} <= {*found}:
        raise site.refuse("a tensor is reshaped to the data-dependent size of another one")
    return found


def _broadcast(site: _Site) -> Found:
    return _aligned(site, [site.x], shape_of(site.op.results[0]))


def _slice(site: _Site) -> Found:
    op = site.op
    assert isinstance(op, gc.SliceOp)
    for axis in site.of(0):
        if op.sizes.data[axis] != shape_of(site.x)[axis] or op.steps.data[axis] != 1:
            raise site.refuse("an axis of data-dependent size is sliced")
    return site.of(0)


def _pad(site: _Site) -> Found:
    op = site.op
    assert isinstance(op, gc.PadOp)
    for axis in site.of(0):
        if op.low.data[axis] or op.high.data[axis] or op.interior.data[axis]:
            raise site.refuse("an axis of data-dependent size is padded")
    return site.of(0)


def _concat(site: _Site) -> Found:
    op = site.op
    assert isinstance(op, gc.ConcatOp)
    if any(integer(op.axis) in site.sizes.of(x) for x in op.operands):
        raise site.refuse("tensors are concatenated along an axis of data-dependent size")
    return _aligned(site, list(op.operands), shape_of(op.results[0]))


def _gather(site: _Site) -> Found:
    op = site.op
    assert isinstance(op, gc.GatherOp)
    axis, more = integer(op.axis), len(shape_of(op.indices)) - 1
    if axis in site.of(0):
        raise site.refuse("elements are gathered from an axis of data-dependent size")
    kept = {at if at < axis else at + more: one for at, one in site.of(0).items()}
    return {**kept, **{axis + at: one for at, one in site.of(1).items()}}


# Reductions and contractions

NEUTRAL: Mapping[type[Operation], float] = {
    gc.ReduceSumOp: 0,
    gc.ReduceProdOp: 1,
    gc.ReduceMaxOp: -math.inf,
    gc.ReduceMinOp: math.inf,
    gc.ArgMaxOp: -math.inf,
    gc.ArgMinOp: math.inf,
}
"""Neutral elements. Integers use their minimum and maximum in place of infinities."""


def _neutral(op: Operation, value: SSAValue) -> float:
    number = NEUTRAL[type(op)]
    dtype = dtype_of(value)
    if math.isfinite(number) or dtype.is_float:
        return number
    if dtype.name == "bool":
        return number > 0
    held = np.iinfo(np.dtype(dtype.numpy.str))
    return int(held.max if number > 0 else held.min)


def _left(extents: Extents, axes: Sequence[int], *, keepdims: bool) -> Extents:
    """The extents that remain after a reduction along `axes`."""
    return {
        at if keepdims else at - sum(axis < at for axis in axes): one
        for at, one in extents.items()
        if at not in axes
    }


def _reduction(site: _Site) -> Found:
    op = site.op
    assert isinstance(op, AxesReduction)
    axes, extents = op.axes.data, site.of(0)
    left = _left(extents, axes, keepdims=flag(op.keepdims))
    if not {*axes} & {*extents}:
        return left
    if isinstance(op, gc.ReduceMeanOp):
        made = _mean(site, site.x, axes, keepdims=flag(op.keepdims))
    else:
        value = site.masked(site.x, axes, _neutral(op, site.x))
        made = type(op)(value, axes=axes, keepdims=flag(op.keepdims)).results[0]
    site.sizes.known[made] = left
    return made


def _mean(site: _Site, value: SSAValue, axes: Sequence[int], *, keepdims: bool) -> SSAValue:
    """The sum of the valid elements, divided by their number."""
    if not is_float(value):
        raise site.refuse("a mean of a data-dependent number of integers is not supported")
    extents = site.sizes.of(value)
    wide = SSAValue.get(widened(site.masked(value, axes, 0)))
    total = gc.ReduceSumOp(wide, axes=axes, keepdims=keepdims)
    count: Operand = scalar(
        prod(size for at, size in enumerate(shape_of(value)) if at in axes and at not in extents),
        next(iter(extents.values())).count,
    )
    for axis in axes:
        if axis in extents:
            count = gc.MulOp(count, number_of(extents[axis]))
    number = gc.CastOp(count, to=tensor_of(wide).element_type)
    return SSAValue.get(in_type_of(value, gc.DivOp(total, number)))


def _position(site: _Site) -> Found:
    op = site.op
    assert isinstance(op, gc.ArgMaxOp | gc.ArgMinOp)
    axis, keepdims = integer(op.axis), flag(op.keepdims)
    left = _left(site.of(0), [axis], keepdims=keepdims)
    if axis not in site.of(0):
        return left
    if flag(op.last):
        raise site.refuse("`select_last_index` along an axis of data-dependent size is unsupported")
    value = site.masked(site.x, [axis], _neutral(op, site.x))
    made = type(op)(value, axis=axis, keepdims=keepdims).result
    site.sizes.known[made] = left
    return made


def _positions(site: _Site) -> Found:
    """A selection among valid elements: padding of its mask is False."""
    return gc.CompressOp(site.masked(site.x, [0], False)).result


def _softmax(site: _Site) -> Found:
    op = site.op
    assert isinstance(op, gc.SoftmaxOp | gc.LogSoftmaxOp)
    axis, extents = integer(op.axis), site.of(0)
    if axis not in extents:
        return extents
    made = type(op)(site.masked(site.x, [axis], -math.inf), axis=axis).result
    mask = within(shape_of(made), axis, extents[axis])
    made = gc.WhereOp(mask, made, scalar(0, made)).result  # -inf (of a log) times 0 is NaN
    site.sizes.known[made] = extents
    return made


def _mat_mul(site: _Site) -> Found:
    """Rows, columns and batches keep their extents; the contracted axis is masked."""
    op = site.op
    assert isinstance(op, gc.MatMulOp)
    left, right = len(shape_of(op.lhs)), len(shape_of(op.rhs))
    mine, its = site.of(0), site.of(1)
    rank = len(shape_of(op.result))
    batches = [
        {at + rank - own: one for at, one in extents.items() if at < own - 2}
        for own, extents in ((left, mine), (right, its))
    ]
    _check_batches(site, op, batches)
    found = {**batches[0], **batches[1]}
    if left - 2 in mine:
        found[rank - 2] = mine[left - 2]
    if right - 1 in its:
        found[rank - 1] = its[right - 1]
    inner = (mine.get(left - 1), its.get(right - 2))
    if inner == (None, None):
        return found
    if inner[0] is None or not inner[0].is_same(inner[1]):
        raise site.refuse("a matmul contracts an axis of data-dependent size with a static one")
    made = gc.MatMulOp(
        site.masked(op.lhs, [left - 1], 0), site.masked(op.rhs, [right - 2], 0)
    ).result
    site.sizes.known[made] = found
    return made


def _check_batches(site: _Site, op: gc.MatMulOp, batches: Sequence[Extents]) -> None:
    """A dynamic batch axis meets an equal one, or one of size 1."""
    rank = len(shape_of(op.result))
    for own, other, operand in zip(batches, batches[::-1], (op.rhs, op.lhs), strict=True):
        shape = (1,) * (rank - len(shape_of(operand))) + shape_of(operand)
        if any(not one.is_same(other.get(at)) and shape[at] != 1 for at, one in own.items()):
            raise site.refuse(
                "a matmul combines a batch of data-dependent size with one of static size"
            )


def _batch(site: _Site) -> Found:
    """Only the batch axis of a convolution or pool may be dynamic: its samples are independent."""
    extents = site.only_first()
    if {*extents} - {0}:
        raise site.refuse("an image has a data-dependent number of channels or spatial size")
    return extents


# Composites


def _layer_norm(site: _Site) -> Found:
    op = site.op
    assert isinstance(op, gc.LayerNormOp)
    if max(site.only_first()) >= integer(op.axis):
        raise site.refuse("an axis of data-dependent size is normalized")
    return site.of(0)


def _loss(site: _Site) -> Found:
    op = site.op
    assert isinstance(op, gc.IdentityLossOp | gc.L1LossOp)
    axes, how = range(len(shape_of(site.x))), op.reduction.data
    if how == "none":
        return site.of(0)
    if how == "sum":
        value = site.masked(site.x, axes, 0)
        if isinstance(op, gc.L1LossOp):
            return gc.L1LossOp(value, scale=op.scale.value.data, reduction=how).result
        return gc.IdentityLossOp(value, reduction=how).result
    each = site.x
    if isinstance(op, gc.L1LossOp):
        each = gc.L1LossOp(each, scale=op.scale.value.data, reduction="none").result
        site.sizes.known[each] = site.of(0)
    return _mean(site, each, axes, keepdims=False)


def _nll(site: _Site) -> Found:
    """Labels of the padding become the ignored class; both inputs have the same extents."""
    op = site.op
    assert isinstance(op, gc.NllLossOp)
    *samples, classes = shape_of(op.probabilities)
    extents = site.of(0)
    labels = site.of(1)
    if len(samples) in extents or {*extents} != {*labels}:
        raise site.refuse("data decide how many classes there are, or of samples but not of labels")
    if not all(one.is_same(labels[axis]) for axis, one in extents.items()):
        raise site.refuse("data decide how many classes there are, or of samples but not of labels")
    if op.reduction.data == "none":
        return extents
    signed = not dtype_of(op.labels).name.startswith("u")
    ignored = -1 if signed else classes
    if op.ignore_index is not None:
        ignored = integer(op.ignore_index)
    return gc.NllLossOp(
        op.probabilities,
        site.masked(op.labels, extents, ignored),
        reduction=op.reduction.data,
        ignore_index=ignored,
        log_probabilities=op.is_log,
    ).result


RULES: Sequence[tuple[type[Operation] | tuple[type[Operation], ...], Rule]] = (
    ((gc.GeluOp, gc.LeakyReluOp, gc.DetachOp, gc.DropoutOp), _of_first),
    ((gc.CheckIndicesOp, gc.RoundStochasticallyOp), _of_first),
    (gc.TransposeOp, _transpose),
    (gc.ReshapeOp, _reshape),
    (gc.BroadcastOp, _broadcast),
    (gc.SliceOp, _slice),
    (gc.PadOp, _pad),
    (gc.ConcatOp, _concat),
    (gc.GatherOp, _gather),
    ((gc.ReduceSumOp, gc.ReduceProdOp, gc.ReduceMaxOp, gc.ReduceMinOp), _reduction),
    (gc.ReduceMeanOp, _reduction),
    ((gc.ArgMaxOp, gc.ArgMinOp), _position),
    (gc.CompressOp, _positions),
    ((gc.SoftmaxOp, gc.LogSoftmaxOp), _softmax),
    (gc.MatMulOp, _mat_mul),
    ((gc.ConvOp, gc.MaxPoolOp, gc.AveragePoolOp), _batch),
    (gc.LayerNormOp, _layer_norm),
    ((gc.IdentityLossOp, gc.L1LossOp), _loss),
    (gc.NllLossOp, _nll),
)
"""The rules of operations that are not elementwise."""


def extents_of(shape: SSAValue) -> Extents:
    """The data-dependent sizes in a computed shape."""
    parts = shape.owner.operands if isinstance(shape.owner, gc.ConcatOp) else (shape,)
    found: dict[int, Extent] = {}
    for axis, part in enumerate(parts):
        if (
            isinstance(part.owner, gc.ReshapeOp)
            and element_types.from_ir(tensor_of(part).element_type).name == "i64"
        ):
            found[axis] = Extent(part.owner.x)
    return found
