"""The state of lowering ONNX to graphcore that functions of single operators see."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects.program import ConstantOp, VariableOp, WeightStore
from popgraph.passes.graphcore.fold_constants import constant_array
from popgraph.support.arrays import Array

SEED = "randomSeed___fromHost"
"""The variable from which all random operations draw: the seed, and the steps taken with it."""


@dataclass
class LoweringContext:
    """What lowering functions ask for beside their node: weights, literals, the seed, updates."""

    weights: WeightStore
    training: bool
    updates: dict[str, SSAValue] = field(default_factory=dict)
    streams: Iterator[int] = field(default_factory=count)
    _seed: SSAValue | None = None

    def array(self, value: SSAValue) -> Array | None:
        """The elements of a constant (or those that a variable starts with), else None."""
        if isinstance(value.owner, VariableOp):
            return self.weights.array(value.owner.literal)
        return constant_array(value, self.weights)

    def literal(self, array: Array) -> SSAValue:
        return ConstantOp(self.weights.attribute(array)).result

    def seed(self) -> SSAValue:
        """The seed, and the number of this step."""
        if self._seed is None:
            start = VariableOp(SEED, self.weights.attribute(np.zeros(2, np.int64)))
            self._seed = start.result
        return self._seed

    def update(self, old: SSAValue, new: SSAValue) -> None:
        """`new` is the next value of the variable that `old` is; nothing if it is not one."""
        if isinstance(old.owner, VariableOp):
            self.updates[old.owner.variable.text] = new

    def current(self, old: SSAValue) -> SSAValue:
        """The value that earlier nodes of this step have left in the variable that `old` is."""
        if isinstance(old.owner, VariableOp):
            return self.updates.get(old.owner.variable.text, old)
        return old
