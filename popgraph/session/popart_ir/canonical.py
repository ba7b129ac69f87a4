"""Operators that PopART writes as others as soon as it reads a model."""

from __future__ import annotations

import math
from collections.abc import Callable

from popgraph.builder.opset.tensorinfo import TensorInfo
from popgraph.session.popart_ir.expression import (
    Expression,
    added,
    finish,
    of,
    replace_by,
    reshaped,
)
from popgraph.session.popart_ir.graph import Op, OpGraph
from popgraph.support.shapes import prod

_REMAINDER = of("Fmod", of("Add", 1, of("Fmod", 0, 1)), 1)

_EXPRESSIONS = {
    "Tan": of("Div", of("Sin", 0), of("Cos", 0)),
    "Asinh": of("Log", of("Add", 0, of("Sqrt", of("Add", of("Pow", 0, 2.0), 1.0)))),
    "Acosh": of("Log", of("Add", 0, of("Sqrt", of("Sub", of("Pow", 0, 2.0), 1.0)))),
    "Acos": of("Sub", math.pi / 2, of("Asin", 0)),
    "Atanh": of("Mul", 0.5, of("Log", of("Div", of("Add", 1.0, 0), of("Sub", 1.0, 0)))),
    "Remainder": _REMAINDER,
}


def canonicalise(graph: OpGraph) -> None:
    """Writes the operators of a graph as PopART's own."""
    for op in list(graph.ops):
        if op.type in _EXPRESSIONS:
            replace_by(graph, op, _EXPRESSIONS[op.type])
        elif op.type in _RULES:
            _RULES[op.type](graph, op)


def _mod(graph: OpGraph, op: Op) -> None:
    expression: Expression = of("Fmod", 0, 1) if op.attributes.get("fmod") else _REMAINDER
    replace_by(graph, op, expression)


def _gemm(graph: OpGraph, op: Op) -> None:
    """Gemm -> Add(Scale(MatMul(a, b)), Scale(c))."""
    a = _transposed(graph, op, 0, "transA")
    b = _transposed(graph, op, 1, "transB")
    info = graph.infos[op.output]
    product = added(graph, op, "MatMul", [a, b], info, _notes(op))
    result = added(graph, op, "Scale", [product], info, {"scale": _number(op, "alpha")})
    if 2 in op.inputs:
        c = op.input(2)
        scaled = added(graph, op, "Scale", [c], graph.infos[c], {"scale": _number(op, "beta")})
        result = added(graph, op, "Add", [result, scaled], info)
    finish(graph, op, result)


def _transposed(graph: OpGraph, op: Op, index: int, attribute: str) -> str:
    id = op.input(index)
    if not op.attributes.get(attribute):
        return id
    info = TensorInfo(graph.infos[id].data_type(), graph.shape(id)[::-1])
    return added(graph, op, "Transpose", [id], info, {"perm": [1, 0]})


def _number(op: Op, name: str) -> float:
    value = op.attributes.get(name, 1.0)
    return float(value) if isinstance(value, int | float) else 1.0


def _notes(op: Op) -> dict[str, object]:
    return {name: value for name, value in op.attributes.items() if name.startswith("__")}


def _bias(graph: OpGraph, op: Op) -> None:
    """Conv(x, w, b) -> AddBias(Conv(x, w), b)."""
    if 2 not in op.inputs:
        return
    info = graph.infos[op.output]
    result = added(graph, op, op.type, [op.input(0), op.input(1)], info, op.attributes)
    finish(graph, op, added(graph, op, "AddBias", [result, op.input(2)], info))


def _depth(graph: OpGraph, op: Op) -> None:
    """DepthToSpace -> Reshape, Transpose, Reshape."""
    mode = str(op.attributes.get("mode", "DCR"))
    block = _number_of_blocks(op)
    n, c, h, w = graph.shape(op.input(0))
    parts = [block, block, c // block**2]
    parts = parts if mode == "DCR" else [parts[2], *parts[:2]]
    perm = [0, 3, 4, 1, 5, 2] if mode == "DCR" else [0, 1, 4, 2, 5, 3]
    _through_transpose(graph, op, [n, *parts, h, w], perm)


def _space(graph: OpGraph, op: Op) -> None:
    """SpaceToDepth -> Reshape, Transpose, Reshape."""
    block = _number_of_blocks(op)
    n, c, h, w = graph.shape(op.input(0))
    shape = [n, c, h // block, block, w // block, block]
    _through_transpose(graph, op, shape, [0, 3, 5, 1, 2, 4])


def _number_of_blocks(op: Op) -> int:
    value = op.attributes.get("blocksize", 1)
    return value if isinstance(value, int) else 1


def _through_transpose(graph: OpGraph, op: Op, shape: list[int], perm: list[int]) -> None:
    info = graph.infos[op.output]
    assert prod(shape) == info.nelms(), "blocks are only moved"
    opened = reshaped(graph, op, op.input(0), shape)
    turned = TensorInfo(info.data_type(), [shape[axis] for axis in perm])
    moved = added(graph, op, "Transpose", [opened], turned, {"perm": perm})
    finish(graph, op, reshaped(graph, op, moved, info.shape()))


_RULES: dict[str, Callable[[OpGraph, Op], None]] = {
    "Mod": _mod,
    "Gemm": _gemm,
    "Conv": _bias,
    "ConvTranspose": _bias,
    "DepthToSpace": _depth,
    "SpaceToDepth": _space,
}
