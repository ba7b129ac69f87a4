"""Random networks as plain data: nodes, constants, and the module that they build."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from popgraph.dialects.onnx import tensor_type
from popgraph.dialects.onnx.attributes import ValueInfoAttr
from popgraph.dialects.onnx.writer import GraphWriter
from popgraph.dialects.program import WeightStore
from popgraph.support.arrays import Array
from popgraph.support.shapes import Shape

OPSETS = {"": 18, "ai.graphcore": 1}


@dataclass(frozen=True)
class Constant:
    """An initializer: every element `fill`, or small halves drawn from `seed`."""

    shape: Shape
    dtype: str = "f32"
    values: tuple[int, ...] | None = None
    fill: float | None = None
    seed: int = 0

    def array(self) -> Array:
        dtype = {"f32": np.float32, "f64": np.float64, "i64": np.int64, "bool": np.bool_}[
            self.dtype
        ]
        if self.values is not None:
            return np.array(self.values, dtype).reshape(self.shape)
        if self.fill is not None:
            return np.full(self.shape, self.fill, dtype)
        generator = np.random.default_rng(self.seed)
        return (generator.integers(-4, 5, self.shape) / 4).astype(dtype)


@dataclass(frozen=True)
class Node:
    """One operator; operands are numbers of earlier values, or constants of its own."""

    op: str
    operands: tuple[int | Constant | None, ...]
    attributes: tuple[tuple[str, object], ...] = ()
    domain: str = ""
    shape: Shape | None = None
    """Of the result, which no schema infers in domains other than ONNX's own."""


@dataclass(frozen=True)
class Network:
    """Inputs of one element type, then nodes; values are numbered in that order."""

    inputs: tuple[Shape, ...]
    nodes: tuple[Node, ...]
    dtype: str = "f32"
    outputs: tuple[int, ...] = field(default=())
    """Values that are outputs besides the last one; inputs may be among them."""
    gradients: tuple[int, ...] = field(default=())
    """Values of which training gives the gradients as well."""

    def name(self, number: int, last: str | None = None) -> str:
        """What a value is called; the last one may have a name of its own."""
        if number < len(self.inputs):
            return f"x{number}"
        node = number - len(self.inputs)
        return last if last and node == len(self.nodes) - 1 else f"v{node}"

    def read_by_last(self) -> tuple[int, ...]:
        """The last value and all that it is computed from."""
        found = {len(self.inputs) + len(self.nodes) - 1}
        for number, node in reversed(list(enumerate(self.nodes, len(self.inputs)))):
            if number in found:
                found |= {operand for operand in node.operands if isinstance(operand, int)}
        return tuple(sorted(found))


DISTURBANCE = "added_to_"
"""An input of this name and a value's is added to that value in a disturbed network."""
STILL = "_still"
"""What the value is called before."""


def build_network(
    network: Network, weights: WeightStore, last: str | None = None, *, disturbed: bool = False
) -> ModuleOp:
    """
    The network as a module of the onnx level; `last` names its last value.

    `disturbed`: what every node gives is moved by an input of its own before others read it.
    """
    writer = GraphWriter(OPSETS, weights)
    names = [network.name(number) for number in range(len(network.inputs))]
    values = [
        writer.add_input(name, tensor_type(network.dtype, shape))
        for name, shape in zip(names, network.inputs, strict=True)
    ]
    for number, node in enumerate(network.nodes):
        operands: list[SSAValue | None] = []
        for position, operand in enumerate(node.operands):
            match operand:
                case None:
                    operands.append(None)
                case int():
                    operands.append(values[operand])
                case Constant():
                    name = f"c{number}_{position}"
                    operands.append(writer.add_initializer(name, operand.array()))
        names.append(network.name(len(names), last))
        (result,) = writer.add_node(
            node.op,
            operands,
            dict(node.attributes),
            domain=node.domain,
            outputs=[names[-1] + STILL if disturbed else names[-1]],
            name=f"n{number}",
            result_types=None if node.shape is None else [tensor_type(network.dtype, node.shape)],
        )
        values.append(_moved(writer, result, names[-1]) if disturbed else result)
    chosen = sorted({*network.outputs, len(values) - 1})
    infos = [ValueInfoAttr.of(names[number], values[number].type) for number in chosen]
    writer.set_outputs([values[number] for number in chosen], infos)
    return writer.module()


def _moved(writer: GraphWriter, value: SSAValue, name: str) -> SSAValue:
    """A value and its disturbance."""
    disturbance = writer.add_input(DISTURBANCE + name, value.type)
    return writer.add_node("Add", [value, disturbance], outputs=[name])[0]
