"""The lowering of operators from outside to the operations that their classes define."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeVar

from xdsl.ir import SSAValue

from popgraph.dialects.graphcore.base import GraphcoreOp
from popgraph.dialects.graphcore.outside import outside_operation
from popgraph.passes.onnx.to_graphcore.node import Node
from popgraph.passes.onnx.to_graphcore.registry import lowers_outside
from popgraph.support.errors import TypeMismatchError

Op = TypeVar("Op", bound=GraphcoreOp)


def add_operator(cls: type[Op]) -> type[Op]:
    """
    Registers an operation of the graphcore level, and the operators that its `ONNX` names.

    Attributes of a node become the properties of their names.
    """
    made = outside_operation(cls)
    for operator in made.ONNX.split():
        domain, _, name = operator.rpartition(".")
        function = partial(_lowered, made)
        function.__module__ = made.__module__
        lowers_outside(name, domain=domain)(function)
    return made


def _lowered(cls: type[GraphcoreOp], node: Node) -> Sequence[SSAValue]:
    definition = cls.get_irdl_definition()
    count = len(definition.operands)
    if len(node) > count:
        raise TypeMismatchError(f"{cls.name} takes {count} inputs, not {len(node)}")
    given = {name: node.value(name) for name in definition.properties if node.has(name)}
    given = {
        name: value.decode() if isinstance(value, bytes) else value for name, value in given.items()
    }
    try:
        made = cls(*(node[place] for place in range(count)), **given)  # type: ignore[arg-type]
    except TypeError as error:
        raise TypeMismatchError(
            f"{cls.name} cannot be made of the node's attributes: {error}",
            hint=f"the properties are {', '.join(definition.properties) or 'none'}",
        ) from error
    return made.results
