"""The state of lowering ONNX to graphcore that functions of single operators see."""

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
"""Variables, as they were when the step began, and the values that they have got since."""

TURN = 0x9E3779B97F4A7C15
"""Steps from one turn of a loop to the next, for what draws in it: no step of a run gets there."""


@dataclass
class LoweringContext(ABC):
    """What lowering functions ask for beside their node: weights, seed, updates, inner graphs."""

    weights: WeightStore
    training: bool
    tuning: Tuning = Tuning()
    updates: dict[str, SSAValue] = field(default_factory=dict)
    streams: Iterator[int] = field(default_factory=count)
    turns: tuple[SSAValue, ...] = ()
    """The numbers of the turns of the loops around what is being lowered."""
    trips: dict[SSAValue, int] = field(default_factory=dict)
    """How many turns there are at most, by the numbers of the turns."""
    repeated: int = 1
    """How often what is being lowered is written out, because loops around it are unrolled."""
    moved: list[Moved] = field(default_factory=list)
    """For each body around what is being lowered, the variables that it updates."""
    frozen: frozenset[str] = frozenset()
    """Weights that training leaves as they are."""
    replicas: int = 1
    """Of how many this is one."""
    checked: bool = True
    """Whether positions that data brings are checked; else the nearest is taken."""
    straight_through: bool = False
    """Whether gradients pass what is quantized and read back."""
    drops: bool = False
    """Whether Dropout drops elements where its node does not say whether it does."""
    data_sizes: DataSizes = field(default_factory=DataSizes)
    """In training, the tensors whose sizes data decide."""
    passages: dict[SSAValue, SSAValue] = field(default_factory=dict)
    """Of quantized values, zeros that have the gradients of what they were before."""
    _seed: SSAValue | None = None

    # Graphs inside nodes

    @abstractmethod
    def place(
        self, graph: Graph, arguments: Sequence[SSAValue], *, named: bool = False
    ) -> list[SSAValue | None]:
        """
        Lowers the nodes of a graph where operations are being built; what the graph yields.

        None stands for what is no tensor. If `named`, tensors inside can be asked for by name, as
        those around the graph can.
        """

    @abstractmethod
    def check_types(self, graph: Graph) -> None:
        """`TypeMismatchError` if a node of a graph does not fit its inputs."""

    @abstractmethod
    def writing(self, block: Block, *turns: SSAValue) -> AbstractContextManager[Moved]:
        """
        Within it, operations are added to a body; `turns` is the number of its turn, if any.

        Gives the variables that the body updates: whoever holds it has to hand them on.
        """

    @abstractmethod
    def append(self, block: Block) -> None:
        """Moves the operations of a block behind those that have been built."""

    @abstractmethod
    def differentiate(self, block: Block) -> Sequence[SSAValue]:
        """Adds the gradients of a body's result by its arguments to the body, and returns them."""

    @abstractmethod
    def at_home(self) -> AbstractContextManager[object]:
        """Within it, operations are added to the main graph."""

    @abstractmethod
    def unrolling(self, turns: int) -> AbstractContextManager[None]:
        """Within it, what is lowered is written out so many times."""

    # Values

    def array(self, value: SSAValue) -> Array | None:
        """The elements of a constant (or those that a variable starts with), else None."""
        if isinstance(value.owner, VariableOp):
            return self.weights.array(value.owner.literal)
        return constant_array(value, self.weights)

    def literal(self, array: Array) -> SSAValue:
        return ConstantOp(self.weights.attribute(array)).result

    def seed(self) -> SSAValue:
        """The seed, and the number of this step; in a loop, every turn is a step of its own."""
        if self._seed is None:
            with self.at_home():
                start = VariableOp(SEED, self.weights.attribute(np.zeros(2, np.int64)))
            self._seed = start.result
        state = self._seed
        for depth, turn in enumerate(self.turns, 1):
            each = np.array([0, pow(TURN, depth, 2**64)], np.uint64).view(np.int64)
            steps = MulOp(AddOp(turn, self.literal(np.array(1))), self.literal(each))
            state = AddOp(state, steps).result
        return state

    def moves(self, value: SSAValue) -> bool:
        """Whether a step of training may give the weight that a value is another value."""
        if not self.training or not isinstance(value.owner, VariableOp):
            return False
        return value.owner.variable.text not in self.frozen

    def update(self, old: SSAValue, new: SSAValue) -> None:
        """`new` is the next value of the variable that `old` is; nothing if it is not one."""
        if isinstance(old.owner, VariableOp) and self.moved:
            self.moved[-1][old] = new
        elif isinstance(old.owner, VariableOp):
            self.updates[old.owner.variable.text] = new

    def current(self, old: SSAValue) -> SSAValue:
        """The value that earlier nodes of this step have left in the variable that `old` is."""
        for moved in reversed(self.moved):
            if old in moved:
                return moved[old]
        if isinstance(old.owner, VariableOp):
            return self.updates.get(old.owner.variable.text, old)
        return old
