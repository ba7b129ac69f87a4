"""Variables of a training graph: their values before and after the step."""

from __future__ import annotations

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects.graphcore.base import dtype_of
from popgraph.dialects.program import GraphOp, UpdateOp, VariableOp, WeightStore
from popgraph.dialects.program.ops import Literal
from popgraph.dialects.program.weights import INLINE_BYTES
from popgraph.passes.graphcore.training.terms import Term
from popgraph.support.arrays import Array
from popgraph.support.dtypes import DType
from popgraph.support.errors import PassError
from popgraph.support.shapes import Shape, prod

UPDATED = "UpdatedVar___"
"""Prefix of an extra output: `UpdatedVar___w` is the value of `w` after the step."""
COUNTER = "Counter___accumulation"
"""The number of micro-batches accumulated since the last update."""
GOOD_UPDATES = "Counter___goodUpdates"
"""The number of updates since a gradient was last not finite."""


class Variables:
    """The variables of a graph, with training state, and their values after the step."""

    def __init__(self, graph: GraphOp, weights: WeightStore) -> None:
        self.graph = graph
        self.weights = weights
        self.trained: set[str] = set()
        self.now: dict[str, SSAValue] = {op.variable.text: op.result for op in graph.variables()}
        self.next: dict[str, SSAValue] = {}
        self.reported: dict[str, Term] = {}
        """Intermediate values of update rules that an extra output may show, by name."""

    def get(self, name: str, first: Array | Literal) -> Term:
        """The value of a variable at the start of the step; creates the variable if missing."""
        if name not in self.now:
            literal = self.weights.attribute(first) if isinstance(first, np.ndarray) else first
            self.now[name] = VariableOp(name, literal).result
        return self.term(self.now[name])

    def full(self, shape: Shape, dtype: DType, first: float = 0.0) -> Literal:
        """An initial value filled with `first`; large ones are created on demand."""
        if prod(shape) * dtype.numpy.itemsize <= INLINE_BYTES:
            return self.weights.attribute(np.full(shape, first, dtype.numpy))
        key = f"full:{first!r}:{dtype.name}:{shape}"
        return self.weights.defer(
            key, shape, dtype.numpy, lambda: np.full(shape, first, dtype.numpy)
        )

    def count(self, name: str, micro_batches: int) -> tuple[Term, SSAValue]:
        """The number of earlier micro-batches in the batch, and whether this is the last one."""
        before = self.get(name, np.array(0, np.float32))
        counted = before + 1.0
        last = counted.equals(float(micro_batches))
        self.set(name, counted.known(0.0).where(last, counted))
        return before, last

    def set(self, name: str, value: Term) -> None:
        self.next[name] = value.operand

    def term(self, value: SSAValue) -> Term:
        return Term(value, dtype_of(value), self.weights)

    def emit_updates(self) -> None:
        for name, value in self.next.items():
            UpdateOp(name, value)

    def after(self, name: str) -> SSAValue:
        """The value after the step of a variable or intermediate; other outputs are unchanged."""
        if name in self.reported:
            return self.reported[name].operand
        variable = name.removeprefix(UPDATED)
        given = {op.variable.text: op.value for op in self.graph.updates()}
        found = given.get(variable, self.now.get(variable, self.graph.outputs.get(name)))
        if found is None and variable in self.reported:
            found = self.reported[variable].operand
        if found is None:
            raise PassError(
                f"the program has no variable {variable!r}",
                "extra outputs",
                f"it has {', '.join(self.now) or 'none'}",
            )
        return found
