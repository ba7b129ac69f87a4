"""The view of an ONNX node that lowering functions get: graphcore inputs, Python attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from xdsl.builder import Builder, ImplicitBuilder, InsertOpInvT
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint

from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of
from popgraph.dialects.onnx import Graph, OnnxOp
from popgraph.dialects.onnx.contrib import OPSET
from popgraph.dialects.onnx.types import tensor_type
from popgraph.dialects.onnx.writer import GraphWriter
from popgraph.dialects.program import VariableOp
from popgraph.passes.analysis.graph import values_behind
from popgraph.passes.onnx.to_graphcore.context import LoweringContext
from popgraph.support.arrays import Array
from popgraph.support.dtypes import DType
from popgraph.support.errors import NeedsHostError, TypeMismatchError, UnsupportedError
from popgraph.support.shapes import Shape


class Nowhere(Builder):
    """Within this one, operations stand alone when they are made, for others to place."""

    def insert(self, op: InsertOpInvT, insertion_point: InsertPoint | None = None) -> InsertOpInvT:
        return op


def _value(operand: object, place: str) -> SSAValue:
    if isinstance(operand, SSAValue | Operation):
        return SSAValue.get(operand)
    raise TypeMismatchError(
        f"{place} is of type {type(operand).__name__}, and not a value",
        hint="node.literal makes one",
    )


class Node:
    """One ONNX node: its inputs as graphcore values, its attributes as Python values."""

    def __init__(
        self,
        op: OnnxOp,
        inputs: Sequence[SSAValue | None],
        lowering: LoweringContext,
        structural: frozenset[int] = frozenset(),
    ) -> None:
        """`structural` are the inputs whose elements may be asked for, see `lowers`."""
        self.op = op
        self.lowering = lowering
        self._structural = structural
        self._inputs = list(inputs)
        self._attributes = op.attribute_values(lowering.weights)

    @property
    def version(self) -> int:
        return self.op.since_version

    # Inputs

    def __len__(self) -> int:
        return len(self._inputs)

    def __getitem__(self, index: int) -> SSAValue:
        """An input that must be there."""
        value = self.optional(index)
        if value is None:
            raise TypeMismatchError(f"input {index} of {self.op.op_type} is missing")
        return value

    def on(self, first: Operand) -> Node:
        """The same node on another first input."""
        inputs = [SSAValue.get(first), *self._inputs[1:]]
        return Node(self.op, inputs, self.lowering, self._structural)

    def optional(self, index: int) -> SSAValue | None:
        return self._inputs[index] if index < len(self._inputs) else None

    @property
    def inputs(self) -> list[SSAValue]:
        """All inputs of an operator that takes any number."""
        return [self[index] for index in range(len(self))]

    @property
    def shape(self) -> Shape:
        """Of the first input."""
        return shape_of(self[0])

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> DType:
        """Of the first input."""
        return dtype_of(self[0])

    def array(self, index: int, what: str) -> Array:
        """The elements of a structural input: they must be known when the model is compiled."""
        assert index in self._structural, f"@lowers does not say that input {index} is structural"
        found = self.lowering.array(self[index])
        if found is None:
            raise self._unknown(index, what)
        return found

    def _unknown(self, index: int, what: str) -> UnsupportedError:
        """The error for a structural input whose elements are not known."""
        said = f"{what} of {self.op.op_type} must be constant, but input {index} is computed from"
        behind = values_behind([self[index]])
        owners = [value.owner for value in behind]
        weights = sorted(owner.variable.text for owner in owners if isinstance(owner, VariableOp))
        if weights and all(isinstance(owner, Operation) for owner in owners):
            listed = ", ".join(map(repr, weights))
            return UnsupportedError(
                f"{said} weights that may change: {listed}",
                hint=f"freeze {listed}: what decides a structure is not trained",
            )
        return NeedsHostError(
            f"{said} the model's inputs",
            hint="make it an initializer or a Constant, or export with static shapes",
        )

    def numbers(self, index: int, what: str) -> tuple[int, ...]:
        return tuple(int(number) for number in self.array(index, what).reshape(-1))

    # Attributes; each is looked up under its name, whatever version the node has.

    def has(self, name: str) -> bool:
        return name in self._attributes

    def integer(self, name: str, default: int = 0) -> int:
        return cast(int, self._of_kind(name, default, "a whole number", int))

    def real(self, name: str, default: float = 0.0) -> float:
        return cast(float, self._of_kind(name, default, "a number", int, float))

    def text(self, name: str, default: str = "") -> str:
        value = self._of_kind(name, default, "a text", str, bytes)
        return value.decode() if isinstance(value, bytes) else cast(str, value)

    def integers(self, name: str, default: Sequence[int] = ()) -> tuple[int, ...]:
        return cast(tuple[int, ...], self._all_of_kind(name, default, "whole numbers", int))

    def reals(self, name: str) -> tuple[float, ...]:
        return cast(tuple[float, ...], self._all_of_kind(name, (), "numbers", int, float))

    def texts(self, name: str) -> tuple[str, ...]:
        values = self._all_of_kind(name, (), "texts", str, bytes)
        return tuple(str(one, "utf-8") if isinstance(one, bytes) else str(one) for one in values)

    def _of_kind(self, name: str, default: object, words: str, *kinds: type) -> object:
        """An attribute; of operators without a schema nobody else has looked at its kind."""
        value = self._attributes.get(name, default)
        if name in self._attributes and not isinstance(value, kinds):
            raise TypeMismatchError(f"the attribute {name!r} is {value!r}, and not {words}")
        return value

    def _all_of_kind(
        self, name: str, default: Sequence[object], words: str, *kinds: type
    ) -> tuple[object, ...]:
        values = self._of_kind(name, default, f"a list of {words}", list, tuple, np.ndarray)
        if isinstance(values, np.ndarray):
            values = values.reshape(-1).tolist()
        assert isinstance(values, Sequence), "it was looked at"
        for one in values:
            if not isinstance(one, kinds):
                raise TypeMismatchError(f"the attribute {name!r} has {one!r} among its {words}")
        return tuple(values)

    def value(self, name: str) -> object:
        return self._attributes[name]

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
        What another operator gives for these values: of ONNX, or of PopART (`ai.graphcore`).

        `opset` is the version of ONNX's operators that is meant. An input that is None is absent.
        So an operator may be made of others, or be one of them under another name, or with its
        inputs in another order.
        """
        writer = GraphWriter({"": opset, domain: opset}, self.lowering.weights, name=op_type)
        given: list[SSAValue] = []
        names: list[str | None] = []
        with ImplicitBuilder(Nowhere(InsertPoint.at_end(Block()))):
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
        """A list that is an attribute in old versions and an input in new ones."""
        if self.has(name):
            return self.integers(name)
        if self.optional(index) is not None:
            return self.numbers(index, name)
        return default

    # Outputs

    def wants(self, index: int) -> bool:
        """Whether the node has this output at all."""
        outputs = self.op.output_values()
        value = outputs[index] if index < len(outputs) else None
        # Of any number of outputs, those that are absent are values without a name.
        return value is not None and bool(self.op.output_names[index] or value.uses)

    @property
    def output_count(self) -> int:
        return len(self.op.output_names)

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
            raise TypeMismatchError(f"an axis stands twice in {list(axes)}")
        return tuple(found)

    def scalar(self, number: float, dtype: DType | None = None) -> SSAValue:
        """A literal scalar, of the first input's element type unless told."""
        row = dtype or self.dtype
        try:
            return self.literal(np.array(number, row.numpy))
        except OverflowError as error:
            raise TypeMismatchError(f"{number} is no number of type {row.name}") from error

    def literal(self, array: Array) -> SSAValue:
        return self.lowering.literal(array)

    def unsupported(self, what: str, hint: str = "") -> UnsupportedError:
        return UnsupportedError(f"{what} of {self.op.op_type} is not supported", hint=hint)
