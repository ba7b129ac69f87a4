"""How does an elementwise operation become a map?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import Attribute, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap

from popgraph.dialects import tile
from popgraph.dialects.graphcore import Elementwise
from popgraph.dialects.graphcore.base import shape_of, tensor_of
from popgraph.dialects.program import ConstantOp, DataAttr
from popgraph.dialects.tile.structured import element
from popgraph.passes.graphcore_to_tile.elements import Operand, body, number
from popgraph.passes.graphcore_to_tile.scalars import scalar
from popgraph.support.shapes import Shape, prod


def broadcast_map(shape: Sequence[int], domain: Sequence[int]) -> AffineMap:
    """Where an element of `domain` comes from in a tensor of `shape`, by NumPy's rule."""
    new = len(domain) - len(shape)
    return AffineMap(
        len(domain),
        0,
        tuple(
            AffineExpr.constant(0) if size == 1 else AffineExpr.dimension(new + axis)
            for axis, size in enumerate(shape)
        ),
    )


def mapped(
    values: Sequence[SSAValue],
    maps: Sequence[AffineMap],
    domain: Sequence[int],
    result: Attribute,
    write: Callable[..., Operand],
) -> SSAValue:
    """One tensor of elements that `write` makes of those of `values`."""
    region = body([element(value) for value in values], write)
    return tile.MapOp(values, maps, domain, region, [result]).outputs[0]


def each(value: SSAValue, result: Attribute, write: Callable[[SSAValue], Operand]) -> SSAValue:
    """`write` of every element of a tensor."""
    shape = shape_of(value)
    return mapped([value], [AffineMap.identity(len(shape))], shape, result, write)


def literal(value: SSAValue) -> object | None:
    """The number that a tensor of one element holds, where it is a constant."""
    owner = value.owner
    if isinstance(owner, ConstantOp) and isinstance(owner.literal, DataAttr):
        array = owner.literal.array
        return array.reshape(()).item() if prod(array.shape) == 1 else None
    return None


def lower_elementwise(op: Elementwise) -> SSAValue:
    """
    y = f(a, b)  ->  y = tile.map f(a, b)

    Operands broadcast through their index maps; constants of one element become part of the body.
    """
    domain: Shape = shape_of(op.result)
    constants = {value: found for value in op.operands if (found := literal(value)) is not None}
    inputs = list(dict.fromkeys(value for value in op.operands if value not in constants))

    def write(*scalars: SSAValue) -> Operand:
        of = dict(zip(inputs, scalars, strict=True))
        for value, constant in constants.items():
            of[value] = number(constant, element(value))
        return scalar(op, [of[operand] for operand in op.operands])

    maps = [broadcast_map(shape_of(value), domain) for value in inputs]
    return mapped(inputs, maps, domain, tensor_of(op.result).element_type, write)
