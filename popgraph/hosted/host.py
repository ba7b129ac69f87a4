"""The host: computes nodes in Python, and runs their subgraphs as programs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Any

import numpy as np
from xdsl.ir import Attribute, SSAValue

from popgraph.backends.base import ComputedBy
from popgraph.backends.reference.onnx_level import Interpreter, is_known
from popgraph.dialects.onnx import Graph, Model, OnnxOp
from popgraph.dialects.onnx.containers import input_types
from popgraph.dialects.onnx.open_containers import is_opened
from popgraph.dialects.onnx.types import UNKNOWN, static_shape, tensor_type
from popgraph.dialects.program import WeightStore
from popgraph.hosted.part import LazyBody, LazyProgram, Role, RunnerFactory, Values
from popgraph.passes.onnx.partition import alone, host_nodes, is_literal, piece_of
from popgraph.support import dtypes
from popgraph.support.inputs import as_array

LOOPS = frozenset({"Loop", "Scan"})
"""Operators that run a subgraph repeatedly."""


class Host(Interpreter):
    """
    Computes nodes in Python; the bodies of branches and loops are compiled.

    A body is interpreted if Python computes some of its nodes anyway, or if types of the values
    that it reads are unknown.
    """

    def __init__(self, model: Model, store: WeightStore, factory: RunnerFactory) -> None:
        super().__init__(model, store, self._random_results)
        self._factory = factory
        self._parts: dict[Graph, LazyProgram | None] = {}
        self._random_programs: dict[tuple[OnnxOp, tuple[Attribute, ...]], LazyProgram] = {}
        """Nodes that draw random numbers, each compiled for inputs of these types."""
        self._computed: set[str] = set()

    @property
    def computed_by(self) -> ComputedBy:
        """The nodes computed in Python so far, and the programs of subgraphs."""
        own = ComputedBy(False, frozenset(self._computed))
        parts = [*filter(None, self._parts.values()), *self._random_programs.values()]
        return reduce(or_, (part.computed_by for part in parts), own)

    def node(self, op: OnnxOp, values: Values) -> None:
        if not is_literal(op):
            self._computed.add(op.op_type)
        super().node(op, values)

    def body(self, graph: Graph, arguments: Sequence[Any], values: Values) -> list[Any]:
        inner = dict(values)
        for argument, value in zip(graph.block.args, arguments, strict=True):
            inner[argument] = _with_declared_shape(argument, value)
        part = self._body_program(graph)

        def interpreted() -> Values:
            again = dict(inner)
            self.nodes(graph, again)
            return again

        if part is None:
            inner = interpreted()
        elif part.piece.outputs:
            inner |= part.run(inner, interpreted if self.computes(graph) else None)
        return [inner[value] for value in graph.yielded]

    def computes(self, *nodes: Graph | OnnxOp) -> bool:
        """Whether Python can compute these nodes and their bodies exactly as a program would."""
        return all(is_known(op, self.functions) for node in nodes for op in node.walk())

    def _body_program(self, graph: Graph) -> LazyProgram | None:
        if not self.model.is_ancestor(graph):
            return None  # Of a function's copy for one call, whose values have no types.
        if graph not in self._parts:
            self._parts[graph] = self._build_body(graph)
        return self._parts[graph]

    def _build_body(self, graph: Graph) -> LazyProgram | None:
        piece = piece_of(self.model, graph)
        values = [*input_types(piece.module).values(), *(one.type for one in graph.yielded)]
        if host_nodes(piece.module) or any(map(_is_python, values)):
            return None
        parent = graph.parent_op()
        is_loop = isinstance(parent, OnnxOp) and parent.op_type in LOOPS
        repeated = is_loop or self._factory.repeated
        role = Role(next(self._factory.numbers), repeated=repeated, whole=False)
        return LazyBody(piece, role, self._factory)

    def _random_results(self, op: OnnxOp, values: Values) -> list[Any]:
        """
        The random results of a node inside a host step.

        The node is compiled with random streams of its own; every iteration counts as a step.
        """
        values = dict(values) | {value: _without_strings(values[value]) for value in op.operands}
        types = _types(op, values)
        key = op, tuple(types.values())
        if key not in self._random_programs:
            role = Role(next(self._factory.numbers), whole=False)
            self._random_programs[key] = LazyProgram(
                alone(self.model, op, types), role, self._factory
            )
        made = self._random_programs[key].run(values, None)
        return [None if value is None else made.get(value) for value in op.output_values()]


def _is_python(type_: Attribute) -> bool:
    """Whether a type is unknown, or that of a sequence whose length changes between iterations."""
    return type_ == UNKNOWN or is_opened(type_)


def _without_strings(value: Any) -> Any:
    """Replaces strings by zeros of the same shape: only the shape of the operand matters."""
    return (
        np.zeros(value.shape, bool) if getattr(value, "dtype", None) == np.dtype(object) else value
    )


def _types(op: OnnxOp, values: Values) -> dict[SSAValue, Attribute]:
    """Types of a node's inputs with their elements and ranks, but no sizes."""
    arrays = {value: as_array("", values[value]) for value in op.operands}
    return {
        value: tensor_type(dtypes.from_numpy(array.dtype), [None] * array.ndim)
        for value, array in arrays.items()
    }


def _with_declared_shape(argument: SSAValue, value: Any) -> Any:
    """Reshapes a single element to the declared shape of an argument."""
    shape = static_shape(argument.type)
    if shape is None or not isinstance(value, np.ndarray) or value.size != 1:
        return value
    return value.reshape(shape) if set(shape) <= {1} else value
