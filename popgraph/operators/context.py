"""The state of lowering ONNX to graphcore, as lowering functions of operators see it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import count
from typing import TypeAlias

import numpy as np
from xdsl.ir import Block, SSAValue

from popgraph.dialects.graphcore import SEED, AddOp, MulOp
from popgraph.dialects.onnx import Graph
from popgraph.dialects.program import ConstantOp, VariableOp, WeightStore, constant_array
from popgraph.operators.data_sizes import DataSizes
from popgraph.support.arrays import Array
from popgraph.support.tuning import Tuning

Moved: TypeAlias = dict[SSAValue, SSAValue]
"""From each variable's value at the start of the step to its current value."""

ITERATION_STEPS = 0x9E3779B97F4A7C15
"""
Distance of the random streams of two iterations of a loop, in training steps.

So large that no run reaches it: an iteration never draws the numbers of a later step.
"""


@dataclass
class LoweringContext(ABC):
    """The services of lowering functions: weights, seed, variable updates, inner graphs."""

    weights: WeightStore
    training: bool
    tuning: Tuning = Tuning()
    updates: dict[str, SSAValue] = field(default_factory=dict)
    streams: Iterator[int] = field(default_factory=count)
    turns: tuple[SSAValue, ...] = ()
    """The iteration numbers of the enclosing loops, outermost first."""
    trips: dict[SSAValue, int] = field(default_factory=dict)
    """The maximal trip count of each enclosing loop, by its iteration number."""
    repeated: int = 1
    """The number of copies of the code that unrolled enclosing loops make."""
    moved: list[Moved] = field(default_factory=list)
    """The variables that each enclosing body updates, outermost first."""
    frozen: frozenset[str] = frozenset()
    """Weights that are not trained."""
    replicas: int = 1
    """The number of replicas that run this program."""
    checked: bool = True
    """Whether indices in data are checked at run time; otherwise they are clamped."""
    straight_through: bool = False
    """Whether gradients pass a quantize/dequantize pair unchanged."""
    drops: bool = False
    """Whether Dropout is active where its node does not say."""
    data_sizes: DataSizes = field(default_factory=DataSizes)
    """In training, the tensors whose sizes depend on data."""
    passages: dict[SSAValue, SSAValue] = field(default_factory=dict)
    """By quantized value, a zero that carries the gradient of the value before quantization."""
    _seed: SSAValue | None = None

    # Graphs inside nodes

    @abstractmethod
    def place(
        self, graph: Graph, arguments: Sequence[SSAValue], *, named: bool = False
    ) -> list[SSAValue | None]:
        """
        Inlines a graph at the insertion point, and returns the values that it yields.

        A value that is not a tensor is None. If `named`, inner tensors can be looked up by name,
        like tensors of the main graph.
        """

    @abstractmethod
    def check_types(self, graph: Graph) -> None:
        """Raises `TypeMismatchError` if a node of a graph does not fit its inputs."""

    @abstractmethod
    def writing(self, block: Block, *numbers: SSAValue) -> AbstractContextManager[Moved]:
        """
        A context in which operations are added to a body, whose iteration number is given, if any.

        Yields the variables that the body updates, which the enclosing operation must return.
        """

    @abstractmethod
    def append(self, block: Block) -> None:
        """Moves the operations of a block to the insertion point."""

    @abstractmethod
    def differentiate(self, block: Block) -> Sequence[SSAValue]:
        """Adds d(result)/d(arguments) to a body, and returns these gradients."""

    @abstractmethod
    def at_home(self) -> AbstractContextManager[object]:
        """A context in which operations are added to the main graph."""

    @abstractmethod
    def unrolling(self, trips: int) -> AbstractContextManager[None]:
        """A context in which code is emitted `trips` times, because a loop is unrolled."""

    # Values

    def array(self, value: SSAValue) -> Array | None:
        """The elements of a constant, or a variable's initial ones; None for other values."""
        if isinstance(value.owner, VariableOp):
            return self.weights.array(value.owner.literal)
        return constant_array(value, self.weights)

    def literal(self, array: Array) -> SSAValue:
        return ConstantOp(self.weights.attribute(array)).result

    def seed(self) -> SSAValue:
        """The random state [seed, step]; every iteration of a loop counts as a step of its own."""
        if self._seed is None:
            with self.at_home():
                start = VariableOp(SEED, self.weights.attribute(np.zeros(2, np.int64)))
            self._seed = start.result
        state = self._seed
        for depth, turn in enumerate(self.turns, 1):
            each = np.array([0, pow(ITERATION_STEPS, depth, 2**64)], np.uint64).view(np.int64)
            steps = MulOp(AddOp(turn, self.literal(np.array(1))), self.literal(each))
            state = AddOp(state, steps).result
        return state

    def moves(self, value: SSAValue) -> bool:
        """Whether a value is a weight that training may change."""
        if not self.training or not isinstance(value.owner, VariableOp):
            return False
        return value.owner.variable.text not in self.frozen

    def update(self, old: SSAValue, new: SSAValue) -> None:
        """Sets the next value of the variable `old`; no effect if `old` is not a variable."""
        if isinstance(old.owner, VariableOp) and self.moved:
            self.moved[-1][old] = new
        elif isinstance(old.owner, VariableOp):
            self.updates[old.owner.variable.text] = new

    def current(self, old: SSAValue) -> SSAValue:
        """The value of the variable `old` after the nodes lowered so far."""
        for moved in reversed(self.moved):
            if old in moved:
                return moved[old]
        if isinstance(old.owner, VariableOp):
            return self.updates.get(old.owner.variable.text, old)
        return old
