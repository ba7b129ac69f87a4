"""Small modules in which each rule that no pass case covers must fire."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np
from xdsl.builder import ImplicitBuilder
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.element_types import BY_NAME
from popgraph.dialects.graphcore.base import Operand
from popgraph.dialects.program import ConstantOp, GraphOp, ReturnOp
from popgraph.passes.base import Compilation

Literal = Callable[[object], SSAValue]
Build = Callable[[SSAValue, Literal], Operand]


@dataclass(frozen=True)
class RuleModule:
    """A graph of one input x, in which a rule must fire."""

    rule: str
    build: Build
    shape: tuple[int, ...] = (2, 3)
    element: str = "f32"

    def made(self) -> tuple[Compilation, ModuleOp]:
        """The module that computes y from x."""
        compilation = Compilation()
        graph = GraphOp("main", ["x"], [TensorType(BY_NAME[self.element], self.shape)])

        def literal(value: object) -> SSAValue:
            array = np.asarray(value)
            array = array.astype(np.float32) if array.dtype == np.float64 else array
            return ConstantOp(compilation.weights.attribute(array)).result

        with ImplicitBuilder(graph.block):
            ReturnOp([self.build(graph.block.args[0], literal)], ["y"])
        return compilation, ModuleOp([graph])


def _padded(x: Operand, low: int, high: int) -> Operand:
    return gc.PadOp(x, low=(low, 0), high=(high, 0), interior=(0, 0), value=0.0)


def _shuffled(x: SSAValue) -> Operand:
    """Channels [2, 3] of an image in the order [3, 2]."""
    split = gc.ReshapeOp(x, shape=(1, 2, 3, 4, 4))
    return gc.ReshapeOp(gc.TransposeOp(split, perm=(0, 2, 1, 3, 4)), shape=(1, 6, 4, 4))


def _norm(x: Operand, c: Literal) -> Operand:
    numbers = (c(np.arange(1.0, 7) / step) for step in (1, 2, 3, 4))
    return gc.BatchNormOp(x, *numbers, epsilon=1e-5)


def _product(x: SSAValue, c: Literal) -> Operand:
    return gc.MatMulOp(x, c(np.arange(12.0).reshape(3, 4) / 4))


def rule_modules() -> Iterator[RuleModule]:
    """A module or several for each rule; movements in all orders of axes."""
    yield RuleModule("DropCast", lambda x, c: gc.CastOp(x, to=BY_NAME["f32"]))
    yield RuleModule(
        "DropRoundTrip",
        lambda x, c: gc.CastOp(gc.CastOp(x, to=BY_NAME["i16"]), to=BY_NAME["f32"]),
        element="i8",
    )
    yield RuleModule(
        "DropOperandBroadcast", lambda x, c: gc.MulOp(gc.BroadcastOp(c(3.0), shape=(2, 3)), x)
    )
    yield RuleModule("DropBroadcast", lambda x, c: gc.BroadcastOp(x, shape=(2, 3)))
    yield RuleModule(
        "MergeBroadcasts",
        lambda x, c: gc.BroadcastOp(gc.BroadcastOp(x, shape=(1, 2, 3)), shape=(4, 2, 3)),
    )
    yield RuleModule(
        "DropSlice", lambda x, c: gc.SliceOp(x, starts=(0, 0), sizes=(2, 3), steps=(1, 1))
    )
    for start, size in ((1, 2), (0, 3)):
        yield RuleModule(
            "DropInsert",
            lambda x, c, start=start, size=size: gc.InsertOp(
                x,
                gc.SliceOp(x, starts=(1, start), sizes=(1, size), steps=(1, 1)),
                starts=(1, start),
            ),
        )
    yield RuleModule("DropInsert", lambda x, c: gc.InsertOp(x, gc.NegOp(x), starts=(0, 0)))
    yield RuleModule("DropPad", lambda x, c: _padded(x, 0, 0))
    yield RuleModule("DropConcat", lambda x, c: gc.ConcatOp([c(np.zeros((0, 3))), x], axis=0))
    for axes in ((0,), (0, 1)):
        for kind in (gc.ReduceSumOp, gc.ReduceMeanOp, gc.ReduceMaxOp, gc.ReduceProdOp):
            yield RuleModule(
                "ReshapeReduction",
                lambda x, c, kind=kind, axes=axes: kind(x, axes=axes, keepdims=False),
                (1, 1, 3),
            )
    for places in ([0, 1], [1, 0], [2, 1, 0], [0, 2], [1]):
        yield RuleModule(
            "SliceLookup",
            lambda x, c, places=places: gc.GatherOp(x, c(np.array(places)), axis=1),
        )
    yield RuleModule(
        "MergeConcats",
        lambda x, c: gc.ConcatOp([gc.ConcatOp([x, c(np.ones((1, 3)))], axis=0), x], axis=0),
    )
    yield RuleModule(
        "ConcatDisjointPieces", lambda x, c: gc.AddOp(_padded(x, 0, 2), _padded(x, 2, 0))
    )
    yield from _movements()
    yield RuleModule("ScaleWeights", lambda x, c: gc.MulOp(_product(x, c), c([2.0, 3.0, 0.5, 1.5])))
    yield RuleModule(
        "ScaleBias",
        lambda x, c: gc.MulOp(gc.AddOp(_product(x, c), c(np.arange(4.0))), c([2.0, 3.0, 0.5, 1.5])),
    )
    yield RuleModule("SinkShuffleBelowNorm", lambda x, c: _norm(_shuffled(x), c), (1, 6, 4, 4))


def _movements() -> Iterator[RuleModule]:
    """Transposes, slices and reshapes of small shapes, in all orders of axes."""
    orders = list(permutations(range(3)))
    for first, second in product(orders, orders):
        both = tuple(first[axis] for axis in second)
        for shape in ((2, 3, 4), (1, 3, 2)):
            yield RuleModule(
                "MergeTransposes" if (0, 1, 2) not in (first, second) else "DropTranspose",
                lambda x, c, first=first, second=second: gc.TransposeOp(
                    gc.TransposeOp(x, perm=first), perm=second
                ),
                shape,
            )
        if both == (0, 1, 2):
            continue
        yield (
            RuleModule(
                "ReshapeUnits",
                lambda x, c, first=first: gc.TransposeOp(x, perm=first),
                tuple(5 if axis == both[0] else 1 for axis in range(3)),
            )
            if first != (0, 1, 2)
            else RuleModule(
                "DropTranspose", lambda x, c, first=first: gc.TransposeOp(x, perm=first), (2, 1, 3)
            )
        )
    for one in orders:
        shape = tuple((3, 4, 5)[axis] for axis in one)
        for starts, sizes, steps in (
            ((1, 0, 1), (1, 2, 1), (1, 1, 1)),
            ((2, 0, 4), (3, 2, 2), (-1, 3, -2)),
            ((0, 1, 0), (2, 0, 1), (1, 1, 1)),
        ):
            place = [(starts[axis], sizes[axis], steps[axis]) for axis in one]
            yield RuleModule(
                "SliceBeforeTranspose",
                lambda x, c, one=one, place=place: gc.SliceOp(
                    gc.TransposeOp(x, perm=one),
                    **dict(
                        zip(("starts", "sizes", "steps"), zip(*place, strict=True), strict=True)
                    ),
                ),
                (3, 4, 5),
            )
        yield RuleModule(
            "MergeReshapes",
            lambda x, c, shape=shape: gc.ReshapeOp(gc.ReshapeOp(x, shape=(60,)), shape=shape),
            (5, 3, 4),
        )
    yield RuleModule("DropReshape", lambda x, c: gc.ReshapeOp(x, shape=(2, 3)))
    for middle, last in (((1, 2, 3), (4, 2, 3)), ((2, 2, 3), (3, 2, 2, 3)), ((2, 3), (1, 2, 3))):
        yield RuleModule(
            "MergeBroadcasts" if middle != (2, 3) else "DropBroadcast",
            lambda x, c, middle=middle, last=last: gc.BroadcastOp(
                gc.BroadcastOp(x, shape=middle), shape=last
            ),
        )
