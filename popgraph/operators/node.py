"""The view of an ONNX node for lowering functions: graphcore inputs, Python attributes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.ir import Operation, SSAValue

from popgraph.dialects.building import building_detached
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of
from popgraph.dialects.onnx import Graph, OnnxOp
from popgraph.dialects.onnx.functions import OPSET
from popgraph.dialects.onnx.types import tensor_type
from popgraph.dialects.onnx.view import NodeView
from popgraph.dialects.onnx.writer import GraphWriter
from popgraph.dialects.program import VariableOp
from popgraph.dialects.values import backward_slice
from popgraph.operators.context import LoweringContext
from popgraph.support.arrays import Array
from popgraph.support.dtypes import DType
from popgraph.support.errors import NeedsHostError, TypeMismatchError, UnsupportedError
from popgraph.support.shapes import Shape


def _value(operand: object, place: str) -> SSAValue:
    if isinstance(operand, SSAValue | Operation):
        return SSAValue.get(operand)
    raise TypeMismatchError(
        f"{place} must be a value, not {type(operand).__name__}",
        hint="node.literal turns an array into a value",
    )


class Node(NodeView):
    """One ONNX node whose operands are graphcore values."""

    def __init__(
        self,
        op: OnnxOp,
        inputs: Sequence[SSAValue | None],
        lowering: LoweringContext,
        structural: frozenset[int] = frozenset(),
    ) -> None:
        """`structural` are the inputs whose elements `array` may read, see `lowers`."""
        super().__init__(op, store=lowering.weights)
        self.lowering = lowering
        self._structural = structural
        self._operands = list(inputs)

    # Inputs

    def __getitem__(self, index: int) -> SSAValue:
        """A required input; an error if it is absent."""
        value = self.optional(index)
        if value is None:
            raise TypeMismatchError(f"input {index} of {self.op.op_type} is missing")
        return value

    def on(self, first: Operand) -> Node:
        """The same node with its first input replaced."""
        inputs = [SSAValue.get(first), *self._operands[1:]]
        return Node(self.op, inputs, self.lowering, self._structural)

    def optional(self, index: int) -> SSAValue | None:
        return self.operand(index)

    @property
    def inputs(self) -> list[SSAValue]:
        """All inputs of a variadic operator."""
        return [self[index] for index in range(len(self))]

    @property
    def shape(self) -> Shape:
        """The shape of the first input."""
        return shape_of(self[0])

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> DType:
        """The element type of the first input."""
        return dtype_of(self[0])

    def array(self, index: int, what: str) -> Array:
        """The elements of a structural input; an error if they are unknown at compile time."""
        assert index in self._structural, f"@lowers does not say that input {index} is structural"
        found = self.lowering.array(self[index])
        if found is None:
            raise self._unknown(index, what)
        return found

    def _unknown(self, index: int, what: str) -> UnsupportedError:
        """The error for a structural input whose elements are not known."""
        said = f"{what} of {self.op.op_type} must be constant, but input {index} is computed from"
        sources = backward_slice([self[index]])
        owners = [value.owner for value in sources]
        weights = sorted(owner.variable.text for owner in owners if isinstance(owner, VariableOp))
        if weights and all(isinstance(owner, Operation) for owner in owners):
            listed = ", ".join(map(repr, weights))
            return UnsupportedError(
                f"{said} weights that may change: {listed}",
                hint=f"freeze {listed}: weights that decide a structure are not trained",
            )
        return NeedsHostError(
            f"{said} the model's inputs",
            hint="make it an initializer or a Constant, or export with static shapes",
        )

    def numbers(self, index: int, what: str) -> tuple[int, ...]:
        return tuple(int(number) for number in self.array(index, what).reshape(-1))

    def value(self, name: str) -> object:
        return self.attributes[name]

    # Other operators

    def apply(
        self,
        op_type: str,
        *inputs: Operand | None,
        domain: str = "",
        opset: int = OPSET,
        outputs: int = 1,
        **attributes: object,
    ) -> list[SSAValue]:
        """
        Lowers another operator, of ONNX or PopART (`ai.graphcore`), and returns its outputs.

        Composes an operator of others, or maps it to one with another name or order of inputs.
        `opset` is the version of ONNX's operators. An input that is None is absent.
        """
        writer = GraphWriter({"": opset, domain: opset}, self.lowering.weights, name=op_type)
        given: list[SSAValue] = []
        names: list[str | None] = []
        with building_detached():
            for number, one in enumerate(inputs):
                names.append(None if one is None else f"x{number}")
                if one is None:
                    continue
                value = _value(one, f"input {number} of {op_type}")
                writer.add_input(f"x{number}", tensor_type(dtype_of(value), shape_of(value)))
                given.append(value)
            made = writer.add_node(op_type, names, attributes, domain=domain, outputs=outputs)
            writer.set_outputs(made)
            graph = writer.graph()
        found = self.lowering.place(graph, given)
        return [value for value in found if value is not None]

    def graph(self, name: str) -> Graph:
        """A graph inside the node."""
        found = self.op.graphs().get(name)
        if not found:
            raise TypeMismatchError(f"the graph {name!r} of {self.op.op_type} is missing")
        return found[0]

    def numbers_or_ints(
        self, name: str, index: int, default: tuple[int, ...] | None = None
    ) -> tuple[int, ...] | None:
        """A list that was an attribute in old versions and is an input in new ones."""
        if self.has(name):
            return self.integers(name)
        if self.optional(index) is not None:
            return self.numbers(index, name)
        return default

    # Outputs

    def wants(self, index: int) -> bool:
        """Whether the node has this output."""
        outputs = self.op.output_values()
        value = outputs[index] if index < len(outputs) else None
        # An absent output of a variadic operator is a value without a name.
        return value is not None and bool(self.op.output_names[index] or value.uses)

    # Axes and literals

    def axis(self, axis: int, rank: int | None = None) -> int:
        """A non-negative axis."""
        rank = self.rank if rank is None else rank
        if not -rank <= axis < rank:
            raise TypeMismatchError(f"Axis {axis} is out of acceptable range [{-rank}, {rank - 1}]")
        return axis % rank if rank else 0

    def axes(self, axes: Sequence[int], rank: int | None = None) -> tuple[int, ...]:
        found = [self.axis(axis, rank) for axis in axes]
        if len(set(found)) != len(found):
            raise TypeMismatchError(f"duplicate axis in {list(axes)}")
        return tuple(found)

    def scalar(self, number: float, dtype: DType | None = None) -> SSAValue:
        """A literal scalar, by default of the first input's element type."""
        row = dtype or self.dtype
        try:
            return self.literal(np.array(number, row.numpy))
        except OverflowError as error:
            raise TypeMismatchError(f"{number} is out of the range of {row.name}") from error

    def literal(self, array: Array) -> SSAValue:
        return self.lowering.literal(array)

    # Errors

    def fail(self, what: str, hint: str) -> TypeMismatchError:
        """An error for a node that cannot be compiled; the caller adds the location."""
        return TypeMismatchError(what, hint=hint)

    def unsupported(self, what: str, hint: str = "") -> UnsupportedError:
        return UnsupportedError(f"{what} of {self.op.op_type} is not supported", hint=hint)
