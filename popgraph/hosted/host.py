"""The host: computes nodes in Python, and runs the graphs inside them as programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.ir import SSAValue

from popgraph.backends.reference.onnx_level import Interpreter, is_known
from popgraph.dialects.onnx import Graph, Model, OnnxOp
from popgraph.dialects.onnx.types import static_shape
from popgraph.dialects.program import WeightStore
from popgraph.hosted.part import Maker, Part, Role, Values
from popgraph.passes.onnx.partition import host_nodes, piece_of

TURNS = frozenset({"Loop", "Scan"})
"""Operators that run a graph turn by turn."""


class Host(Interpreter):
    """
    Computes nodes in Python; the graphs inside branches and loops are programs.

    Graphs are interpreted, too, if Python computes some of their nodes anyway.
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
        if graph not in self._parts:
            piece = piece_of(self.model, graph)
            around = graph.parent_op()
            turns = isinstance(around, OnnxOp) and around.op_type in TURNS
            role = Role(next(self._maker.numbers), repeated=turns or self._maker.repeated)
            interpreted = bool(host_nodes(piece.module))
            self._parts[graph] = None if interpreted else Part(piece, role, self._maker)
        return self._parts[graph]


def _fitted(argument: SSAValue, value: Any) -> Any:
    """One element in the shape that a graph says it has."""
    shape = static_shape(argument.type)
    if shape is None or not isinstance(value, np.ndarray) or value.size != 1:
        return value
    return value.reshape(shape) if set(shape) <= {1} else value
