"""Lowers reductions, argmax and argmin to `tile.reduce`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import i64
from xdsl.ir import Attribute, SSAValue
from xdsl.ir.affine import AffineMap

from popgraph.dialects import tile
from popgraph.dialects.graphcore import (
    ArgMaxOp,
    ArgMinOp,
    ReduceMaxOp,
    ReduceMinOp,
    ReduceProdOp,
    ReduceSumOp,
)
from popgraph.dialects.graphcore.base import flag, integer, shape_of, tensor_of
from popgraph.dialects.tile.affine import permutation
from popgraph.dialects.tile.scalars import Kind
from popgraph.dialects.tile.structured.ops import element
from popgraph.passes.graphcore.to_structured.elements import (
    Operand,
    attribute,
    body,
    computing_type,
    highest,
    kind_of,
    lowest,
    to_computing,
    to_element,
)
from popgraph.passes.graphcore.to_structured.lower_movement import viewed
from popgraph.passes.graphcore.to_structured.scalars import TABLES, compare
from popgraph.support.shapes import Shape

INITIAL: dict[str, Callable[[Attribute], float]] = {
    "add": lambda element: 0,
    "mul": lambda element: 1,
    "max": lowest,
    "min": highest,
}
"""The identity element of each combining function."""


def reduce(
    value: SSAValue,
    map_: AffineMap,
    domain: Sequence[int],
    parallel: int,
    combine: str,
    epilogue: Callable[..., Operand] = lambda total: total,
    epilogue_inputs: Sequence[SSAValue] = (),
    epilogue_maps: Sequence[AffineMap] = (),
    result: Attribute | None = None,
) -> SSAValue:
    """
    Combines elements of `value` over all but the `parallel` leading loops.

    Accumulators have the computing type; `epilogue` takes them and the elements of its inputs.
    """
    source = element(value)
    inner, result = computing_type(source), result or source
    write = TABLES[kind_of(source)][combine]
    return tile.ReduceOp(
        [value],
        [map_],
        domain,
        parallel,
        [attribute(INITIAL[combine](source), inner)],
        body([source, inner], lambda x, total: write(total, to_computing(x, source))),
        body(
            [inner, *map(element, epilogue_inputs)],
            lambda *values: to_element(epilogue(*values), result),
        ),
        [result],
        epilogue_inputs,
        epilogue_maps,
    ).outputs[0]


def axes_last(shape: Shape, axes: Sequence[int]) -> tuple[Shape, int, AffineMap]:
    """A domain whose last loops run along `axes`, its parallel rank, and the operand's map."""
    order = [axis for axis in range(len(shape)) if axis not in axes]
    parallel = len(order)
    order += sorted(axes)
    domain = tuple(shape[axis] for axis in order)
    return domain, parallel, permutation(order)


def lower_reduction(op: ReduceSumOp | ReduceMaxOp | ReduceMinOp | ReduceProdOp) -> SSAValue:
    """y = reduce(x)  ->  y = view(tile.reduce x)"""
    domain, parallel, map_ = axes_last(shape_of(op.x), op.axes.data)
    return viewed(reduce(op.x, map_, domain, parallel, op.SCALAR), shape_of(op.result))


def is_better(kind: Kind, predicate: str, x: SSAValue, best: SSAValue) -> Operand:
    """
    Whether x replaces the best element so far.

    A NaN beats every number. `predicate` compares numbers; among NaNs, the last wins if equals do.
    """
    if kind is not Kind.FLOAT:
        return compare(kind, predicate, x, best)
    better = arith.CmpfOp(x, best, f"u{predicate}")
    was_number = arith.CmpfOp(best, best, "ord")
    if predicate in ("gt", "lt"):
        return arith.AndIOp(better, was_number)
    return arith.AndIOp(better, arith.OrIOp(was_number, arith.CmpfOp(x, x, "uno")))


def lower_position(op: ArgMaxOp | ArgMinOp) -> SSAValue:
    """y = arg_max(x)  ->  y = view(tile.reduce x), with (best, index) as accumulators"""
    domain, parallel, map_ = axes_last(shape_of(op.x), [integer(op.axis)])
    source = tensor_of(op.x).element_type
    kind, inner = kind_of(source), computing_type(source)
    predicate = ("g" if op.SCALAR == "max" else "l") + ("e" if flag(op.last) else "t")

    def write(x: SSAValue, best: SSAValue, place: SSAValue) -> list[Operand]:
        x = to_computing(x, source)
        here = arith.IndexCastOp(tile.IndexOp(parallel), i64)
        better = is_better(kind, predicate, x, best)
        return [arith.SelectOp(better, x, best), arith.SelectOp(better, here, place)]

    start = lowest(source) if op.SCALAR == "max" else highest(source)
    found = tile.ReduceOp(
        [op.x],
        [map_],
        domain,
        parallel,
        [attribute(start, inner), attribute(0, i64)],
        body([source, inner, i64], write),
        body([inner, i64], lambda best, place: place),
        [i64],
    )
    return viewed(found.outputs[0], shape_of(op.result))
