"""Interprets a `pg.graph`, which may mix operations of all levels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
from xdsl.dialects.builtin import ModuleOp, SymbolRefAttr, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from popgraph.backends.reference.kernels import Kernel
from popgraph.backends.reference.memory import allocate, check_shape, numpy_dtype
from popgraph.backends.reference.structured import STRUCTURED, up_to_ends, with_fewer_terms
from popgraph.dialects import program as pg
from popgraph.dialects import tile
from popgraph.dialects.graphcore.base import GraphcoreOp
from popgraph.dialects.graphcore.control import Control
from popgraph.dialects.program.control_signatures import Body
from popgraph.dialects.tile.attributes import memory_span
from popgraph.dialects.tile.running import ends_of, sizes_for
from popgraph.support.arrays import Array
from popgraph.support.index_checks import IndexCheck

State: TypeAlias = dict[str, Array]
Values: TypeAlias = dict[SSAValue, Array]
Run: TypeAlias = Callable[..., Sequence[Array]]
"""Computes an operation: arrays of operands -> arrays of results."""

RUNNERS: list[Callable[[Operation], Run | None]] = []
"""
Alternative interpreters of structured operations, registered by packages above this one.

The first result that is not None is used; it must compute the same values as `STRUCTURED`.
"""


class Functions:
    """The kernels of a module by name, each prepared once."""

    def __init__(self, module: ModuleOp) -> None:
        self._functions = {op.sym_name.data: op for op in module.ops if isinstance(op, FuncOp)}
        self._kernels: dict[Operation, Kernel] = {}

    def called(self, callee: SymbolRefAttr) -> Kernel:
        function = self._functions.get(callee.root_reference.data)
        assert function is not None, f"no function {callee}"
        found = self._kernels.get(function)
        if found is None:
            found = self._kernels[function] = Kernel(function.body.block)
        return found


class Graph:
    """A `pg.graph`, ready to run."""

    def __init__(self, module: ModuleOp, graph: pg.GraphOp, weights: pg.WeightStore) -> None:
        self._graph = graph
        self._weights = weights
        self._functions = Functions(module)
        self._bodies = {one.sym_name.data: one for one in pg.graphs_of(module)}

    @property
    def inputs(self) -> dict[str, TensorType[Attribute]]:
        return {name: _tensor(value) for name, value in self._graph.inputs.items()}

    @property
    def outputs(self) -> dict[str, TensorType[Attribute]]:
        return {name: _tensor(value) for name, value in self._graph.outputs.items()}

    @property
    def index_checks(self) -> tuple[IndexCheck, ...]:
        return self._graph.return_op.index_checks

    def state(self) -> State:
        """The initial variables by name; zero without an initial value."""
        made = {
            op.variable.text: np.zeros(_tensor(op.value).get_shape(), numpy_dtype(op.value.type))
            for op in self._graph.updates()
        }
        for op in self._graph.variables():
            made[op.variable.text] = self._weights.array(op.literal)
        return dict(sorted(made.items()))

    def step(
        self, inputs: Mapping[str, Array], state: Mapping[str, Array]
    ) -> tuple[dict[str, Array], State]:
        """Runs one step; returns the outputs, and the updated variables."""
        values: Values = {value: inputs[name] for name, value in self._graph.inputs.items()}
        self._run_block(self._graph.block, values, state)
        following = dict(state)
        for update in self._graph.updates():
            following[update.variable.text] = values[update.value]
        outputs = {name: values[value] for name, value in self._graph.outputs.items()}
        return outputs, dict(sorted(following.items()))

    def _run_block(self, block: Block, values: Values, state: Mapping[str, Array]) -> None:
        for op in block.ops:
            match op:
                case pg.VariableOp():
                    results: Sequence[Array] = [state[op.variable.text]]
                case pg.PrepareOp():
                    self._run_block(op.body.block, values, state)
                    results = _yielded(op.body.block, values)
                case pg.UpdateOp() | pg.ReturnOp() | pg.YieldOp():
                    continue
                case _:
                    memories = [values[operand] for operand in op.operands]
                    numbers = [values[value].item() for value in sizes_for(op)]
                    if isinstance(op, tile.LaunchOp) or not numbers:  # Kernels end by themselves.
                        results = self._runner(op)(*memories)
                    else:
                        sizes = dict(zip(ends_of(op), numbers, strict=True))
                        with with_fewer_terms(op, sizes) as fewer:
                            results = self._runner(fewer)(*memories)
                        results = up_to_ends(op, results, sizes)
            for value, array in zip(op.results, results, strict=True):
                check_shape(array, _tensor(value))
                values[value] = array

    def _run_body(self, block: Block, arrays: Sequence[Array]) -> Sequence[Array]:
        """Runs a body that only reads its arguments."""
        values: Values = dict(zip(block.args, arrays, strict=True))
        self._run_block(block, values, {})
        return _yielded(block, values)

    def _called(self, name: str) -> Body:
        """A graph of the module as a body."""
        graph = self._bodies[name]

        def run(arrays: Sequence[Array]) -> Sequence[Array]:
            values: Values = dict(zip(graph.block.args, arrays, strict=True))
            self._run_block(graph.block, values, {})
            return [values[value] for value in graph.return_op.values]

        return run

    def _runner(self, op: Operation) -> Run:
        """The function that computes an operation without effects."""
        match op:
            case pg.ConstantOp():
                return lambda: [self._weights.array(op.literal)]
            case Control():
                return partial(op.execute, self._run_body)
            case pg.CallCondOp():
                then, otherwise = map(self._called, op.graphs)
                return partial(op.branch, then, otherwise)
            case pg.CallLoopOp():
                (body,) = map(self._called, op.graphs)
                return partial(op.repeat, body)
            case GraphcoreOp():
                return op.evaluate
            case tile.LaunchOp():
                return partial(_launch, op, self._functions.called(op.callee))
            case _:
                for runner in RUNNERS:
                    if (run := runner(op)) is not None:
                        return run
                assert type(op) in STRUCTURED, f"{op.name} has no meaning in a graph"
                return partial(STRUCTURED[type(op)], op)


def _yielded(block: Block, values: Values) -> list[Array]:
    assert isinstance(block.last_op, pg.YieldOp)
    return [values[value] for value in block.last_op.values]


def _launch(op: tile.LaunchOp, kernel: Kernel, *operands: Array) -> list[Array]:
    """Calls a kernel on flat memory; operands are made read-only."""
    results = [allocate(_tensor(result)) for result in op.results]
    rows = [
        _row(np.ascontiguousarray(operand), value)
        for operand, value in zip(operands, op.operands, strict=True)
    ]
    for row in rows:
        row.flags.writeable = False
    kernel(op.chunks.value.data, [*rows, *map(_row, results, op.results)])
    return results


def _row(array: Array, value: SSAValue) -> Array:
    """The flat part of a value's memory that a kernel accesses."""
    first, count = memory_span(_tensor(value))
    return array.reshape(-1)[first : first + count]


def _tensor(value: SSAValue) -> TensorType[Attribute]:
    assert isinstance(value.type, TensorType)
    return value.type
