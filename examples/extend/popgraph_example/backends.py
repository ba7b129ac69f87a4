"""A backend: runs a model as a list of NumPy calls, one for each operation of graphcore."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from popgraph import PopgraphError
from popgraph.dialects.graphcore.base import Array, GraphcoreOp, dtype_of, shape_of
from popgraph.dialects.program import ConstantOp, ReturnOp, WeightStore, graphs_of
from popgraph.extend import Backend, Executable, add_backend


class ToyExecutable(Executable):
    """The operations of a graph without variables, loops or branches, in their order."""

    def __init__(self, module: ModuleOp, weights: WeightStore) -> None:
        (graph,) = graphs_of(module)
        self._graph, self._calls = graph, list[GraphcoreOp]()
        self._constants: dict[SSAValue, Array] = {}
        for op in graph.block.ops:
            self._add(op, weights)
        self.inputs = {name: (dtype_of(one), shape_of(one)) for name, one in graph.inputs.items()}
        self.outputs = {name: (dtype_of(one), shape_of(one)) for name, one in graph.outputs.items()}
        self.variables = {}

    def _add(self, op: Operation, weights: WeightStore) -> None:
        if isinstance(op, ConstantOp):
            self._constants[op.result] = weights.array(op.literal)
        elif isinstance(op, GraphcoreOp) and not op.regions:
            self._calls.append(op)
        elif not isinstance(op, ReturnOp):
            raise PopgraphError(f"the toy backend cannot run {op.name}", hint="use --backend c")

    def run(self, inputs: Mapping[str, Array], donate: Collection[str] = ()) -> dict[str, Array]:
        given = self.fitted(inputs)
        values = {value: given[name] for name, value in self._graph.inputs.items()}
        values |= self._constants
        for op in self._calls:
            results = op.evaluate(*(values[operand] for operand in op.operands))
            values |= zip(op.results, results, strict=True)
        return {name: np.array(values[value]) for name, value in self._graph.outputs.items()}

    def read(self, variable: str) -> Array:
        raise KeyError(variable)

    def write(self, variable: str, value: Array) -> None:
        raise KeyError(variable)


class ToyBackend(Backend):
    """Lowers models to graphcore, and runs the graph by NumPy."""

    name = "toy"
    level = "graphcore"

    def build(self, module: ModuleOp, weights: WeightStore, **wishes: Any) -> ToyExecutable:
        return ToyExecutable(module, weights)


add_backend(ToyBackend())
