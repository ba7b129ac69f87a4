"""The reference executable: runs a graph or a program with named arrays."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Self, TypeAlias

import numpy as np
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Attribute

from popgraph.backends.base import Executable, refuse_donations
from popgraph.backends.reference.graph import Graph, State
from popgraph.backends.reference.program import Program
from popgraph.dialects import element_types
from popgraph.dialects.program import GraphOp, WeightStore
from popgraph.dialects.tile import ProgramOp
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.dtypes import DType
from popgraph.support.errors import BackendError, RunError, reporting_out_of_memory
from popgraph.support.index_checks import raise_errors
from popgraph.support.shapes import Shape, text

Runnable: TypeAlias = Graph | Program


def runnable(module: ModuleOp, weights: WeightStore) -> Runnable:
    """The graph or program of a module; `main` if there are several."""
    found = [op for op in module.ops if isinstance(op, GraphOp | ProgramOp)]
    chosen = found if len(found) == 1 else [op for op in found if op.sym_name.data == "main"]
    if len(chosen) != 1:
        names = ", ".join(op.sym_name.data for op in found) or "none"
        raise BackendError(
            "the module has no unique graph to run",
            f"its graphs: {names}",
            "name one of them @main",
        )
    (op,) = chosen
    if isinstance(op, GraphOp):
        return Graph(module, op, weights)
    return Program(module, op, weights)


def input_types(module: ModuleOp) -> dict[str, TensorType[Attribute]]:
    """The type of every input."""
    return runnable(module, WeightStore()).inputs


def run(
    module: ModuleOp,
    inputs: Mapping[str, Array],
    weights: WeightStore,
    state: Mapping[str, Array] | None,
) -> tuple[dict[str, Array], State]:
    """Runs one step; returns the outputs, and the updated variables."""
    with np.errstate(all="ignore"):
        program = runnable(module, weights)
        return program.step(inputs, program.state() if state is None else state)


def _row(type_: TensorType[Attribute]) -> tuple[DType, Shape]:
    return element_types.from_ir(type_.element_type), type_.get_shape()


class ReferenceExecutable(Executable):
    """Runs a module with NumPy."""

    def __init__(self, module: ModuleOp, weights: WeightStore) -> None:
        with np.errstate(all="ignore"):
            self._program = runnable(module, weights)
        self._state = self._program.state()
        self.inputs = {name: _row(type_) for name, type_ in self._program.inputs.items()}
        self._checks = {check.output: check for check in self._program.index_checks}
        self.outputs = {
            name: _row(type_)
            for name, type_ in self._program.outputs.items()
            if name not in self._checks
        }
        self.variables = {
            name: (dtypes.from_numpy(array.dtype), array.shape)
            for name, array in self._state.items()
        }

    def run(self, inputs: Mapping[str, Array], donate: Collection[str] = ()) -> dict[str, Array]:
        refuse_donations(donate, "the reference backend computes nothing in place")
        inputs = self.fitted(inputs)
        with np.errstate(all="ignore"), reporting_out_of_memory():
            outputs, state = self._program.step(inputs, self._state)
        raise_errors((check, outputs.pop(name)) for name, check in self._checks.items())
        self._state.update(state)
        return {name: np.array(array) for name, array in outputs.items()}

    def share(self, other: Self) -> None:
        self._state = other._state

    def read(self, variable: str) -> Array:
        return np.array(self._state[self._known(variable)])

    def write(self, variable: str, value: Array) -> None:
        dtype, shape = self.variables[self._known(variable)]
        value = np.asarray(value)
        if value.shape != shape or value.dtype != dtype.numpy:
            raise RunError(
                f"variable {variable!r} is {dtype.name} of shape {text(shape)}, "
                f"not {value.dtype} of shape {text(value.shape)}"
            )
        self._state[variable] = np.array(value)

    def _known(self, variable: str) -> str:
        if variable not in self.variables:
            raise RunError(
                f"the model has no variable {variable!r}",
                hint=f"it has {', '.join(map(repr, self.variables)) or 'none'}",
            )
        return variable
