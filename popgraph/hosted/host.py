"""The host: computes nodes in Python, and runs the graphs inside them as programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.ir import SSAValue

from popgraph.backends.reference.onnx_level import Interpreter, is_known
from popgraph.dialects.onnx import Graph, Model, OnnxOp
from popgraph.dialects.onnx.containers import input_types
from popgraph.dialects.onnx.types import UNKNOWN, static_shape
from popgraph.dialects.program import WeightStore
from popgraph.hosted.part import BodyPart, Maker, Part, Role, Values
from popgraph.passes.onnx.partition import host_nodes, piece_of

TURNS = frozenset({"Loop", "Scan"})
"""Operators that run a graph turn by turn."""


class Host(Interpreter):
    """
    Computes nodes in Python; the graphs inside branches and loops are programs.

    Graphs are interpreted, too, if Python computes some of their nodes anyway, or if types of
    what they see are not known.
    """

    def __init__(self, model: Model, store: WeightStore, maker: Maker) -> None:
        super().__init__(model, store)
        self._maker = maker
        self._parts: dict[Graph, Part | None] = {}

    def body(self, graph: Graph, arguments: Sequence[Any], values: Values) -> list[Any]:
        inner = dict(values)
        for argument, value in zip(graph.block.args, arguments, strict=True):
            inner[argument] = _fitted(argument, value)
        part = self._part(graph)

        def interpreted() -> Values:
            again = dict(inner)
            self.nodes(graph, again)
            return again

        if part is None:
            inner = interpreted()
        elif part.piece.outputs:
            inner |= part.run(inner, interpreted if self.computes(graph) else None)
        return [inner[value] for value in graph.yielded]

    def computes(self, *places: Graph | OnnxOp) -> bool:
        """Whether Python can compute nodes, with what stands in them, as a program would."""
        return all(is_known(op, self.functions) for place in places for op in place.walk())

    def _part(self, graph: Graph) -> Part | None:
        if not self.model.is_ancestor(graph):
            return None  # Of a function's copy for one call, whose values have no types.
        if graph not in self._parts:
            self._parts[graph] = self._made(graph)
        return self._parts[graph]

    def _made(self, graph: Graph) -> Part | None:
        piece = piece_of(self.model, graph)
        types = input_types(piece.module).values()
        if host_nodes(piece.module) or any(type_ == UNKNOWN for type_ in types):
            return None
        around = graph.parent_op()
        turns = isinstance(around, OnnxOp) and around.op_type in TURNS
        repeated = turns or self._maker.repeated
        role = Role(next(self._maker.numbers), repeated=repeated, whole=False)
        return BodyPart(piece, role, self._maker)


def _fitted(argument: SSAValue, value: Any) -> Any:
    """One element in the shape that a graph says it has."""
    shape = static_shape(argument.type)
    if shape is None or not isinstance(value, np.ndarray) or value.size != 1:
        return value
    return value.reshape(shape) if set(shape) <= {1} else value
