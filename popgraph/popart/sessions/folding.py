"""Which operators PopART computes when it reads a model, because their inputs are constant."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from popgraph.dialects.onnx import Graph, value_name

_OF_WEIGHTS = frozenset(
    {
        *("Add", "Cast", "Concat", "Detach", "Div", "Flatten", "Floor", "Fmod", "Gather"),
        *("Identity", "Mul", "ReduceProd", "Reshape", "Scale", "Slice", "Squeeze", "Sub"),
        *("Transpose", "Unsqueeze"),
    }
)

_OF_LITERALS = _OF_WEIGHTS | {
    *("Abs", "ConstantOfShape", "Exp", "Expand", "IdentityLoss", "Neg", "Reciprocal", "Relu"),
    "Shape",
}
"""What it computes of constants in the model, before it knows which weights are constant."""


def is_folded(type_: str, *, literal: bool) -> bool:
    """Whether an operator of constants is computed; they are `literal` as nodes of the model."""
    return type_ in (_OF_LITERALS if literal else _OF_WEIGHTS)


def left_to_the_device(
    graph: Graph, weights: Collection[str], anchors: Collection[str]
) -> Iterator[str]:
    """The types of operators of constants that are not computed; `weights` are constant."""
    literal, known = set[str](), set(weights)
    for op in graph.nodes:
        inputs = {value_name(value) for value in op.input_values() if value is not None}
        if op.op_type in ("Constant", "Shape"):
            literal.update(op.output_names)
        elif (
            not inputs
            or not inputs <= known | literal
            or not set(anchors).isdisjoint(op.output_names)
        ):
            continue
        elif not is_folded(op.op_type, literal=inputs <= literal):
            yield op.op_type
        elif inputs <= literal:
            literal.update(op.output_names)
        else:
            known.update(op.output_names)


def without_implementation(graph: Graph) -> Iterator[str]:
    """The types of the operators that are never computed, whatever their inputs are."""
    known = _OF_WEIGHTS | {"Constant", "ConstantOfShape", "Shape"}
    return (op.op_type for op in graph.nodes if op.op_type not in known)
