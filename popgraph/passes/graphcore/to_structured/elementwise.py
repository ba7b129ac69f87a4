"""Lowers elementwise operations to `tile.map` with broadcasting index maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import Attribute, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap

from popgraph.dialects import tile
from popgraph.dialects.graphcore import Elementwise
from popgraph.dialects.graphcore.base import shape_of, tensor_of
from popgraph.dialects.program import ConstantOp, DataAttr
from popgraph.dialects.tile.scalars import Kind
from popgraph.dialects.tile.structured.ops import element
from popgraph.passes.graphcore.to_structured.elements import (
    Operand,
    body,
    kind_of,
    number,
    to_element,
)
from popgraph.passes.graphcore.to_structured.scalars import scalar
from popgraph.support.shapes import prod


def broadcast_map(shape: Sequence[int], domain: Sequence[int]) -> AffineMap:
    """The index map from `domain` to a tensor of `shape`, by NumPy's broadcasting rule."""
    new = len(domain) - len(shape)
    return AffineMap(
        len(domain),
        0,
        tuple(
            AffineExpr.constant(0) if size == 1 else AffineExpr.dimension(new + axis)
            for axis, size in enumerate(shape)
        ),
    )


def literal(value: SSAValue) -> object | None:
    """The number in a constant of one element; None for complex ones, which bodies cannot hold."""
    owner = value.owner
    if kind_of(element(value)) is Kind.COMPLEX:
        return None
    if isinstance(owner, ConstantOp) and isinstance(owner.literal, DataAttr):
        array = owner.literal.array
        return array.reshape(()).item() if prod(array.shape) == 1 else None
    return None


def mapped(
    values: Sequence[SSAValue],
    maps: Sequence[AffineMap],
    domain: Sequence[int],
    result: Attribute,
    write: Callable[..., Operand],
) -> SSAValue:
    """
    A map: each element of the result is `write` of one element of each value.

    Equal operands are read once, and constants of one element move into the body. `write` takes
    and returns scalars as elements or in their computing type.
    """
    constants = {value: found for value in values if (found := literal(value)) is not None}
    operands = list(zip(values, maps, strict=True))
    reads = list(dict.fromkeys(each for each in operands if each[0] not in constants))

    def body_of(*scalars: SSAValue) -> Operand:
        read = dict(zip(reads, scalars, strict=True))
        arguments = [
            number(constants[value], element(value)) if value in constants else read[value, map_]
            for value, map_ in operands
        ]
        return to_element(write(*arguments), result)

    inputs, input_maps = [value for value, _ in reads], [map_ for _, map_ in reads]
    region = body([element(value) for value in inputs], body_of)
    return tile.MapOp(inputs, input_maps, domain, region, [result]).outputs[0]


def each(value: SSAValue, result: Attribute, write: Callable[[SSAValue], Operand]) -> SSAValue:
    """Applies `write` to every element of a tensor."""
    shape = shape_of(value)
    return mapped([value], [AffineMap.identity(len(shape))], shape, result, write)


def lower_elementwise(op: Elementwise) -> SSAValue:
    """
    y = f(a, b)  ->  y = tile.map f(a, b)

    Operands broadcast through their index maps.
    """
    domain = shape_of(op.result)
    maps = [broadcast_map(shape_of(operand), domain) for operand in op.operands]
    result = tensor_of(op.result).element_type
    return mapped(op.operands, maps, domain, result, lambda *scalars: scalar(op, scalars))
