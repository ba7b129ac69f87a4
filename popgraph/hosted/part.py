"""Parts of a model, compiled when they first run or interpreted in each iteration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from popgraph.backends.base import ComputedBy
from popgraph.open_model import SPECIALISATIONS, Signature
from popgraph.passes.onnx.partition import Piece
from popgraph.runner import Runner
from popgraph.support.arrays import Array
from popgraph.support.errors import NeedsHostError, PopgraphError
from popgraph.support.inputs import as_array
from popgraph.support.memo import cached_property
from popgraph.support.shapes import Shape, prod

LARGE_BYTES = 1 << 16
"""Bytes above which copying a result takes longer than to allocate new memory for the next one."""
MAX_HELD_RATIO = 4
"""The largest accepted ratio of memory kept alive to the size of a result."""

Values: TypeAlias = dict[SSAValue, Any]
"""Arrays, lists for sequences, None for absent optionals."""


@dataclass(frozen=True)
class Role:
    """The role of a part in its model."""

    number: int = 0
    """Unique number within the model; selects its random streams."""
    known: tuple[str, ...] = ()
    """Inputs to specialise for, besides inputs that operators require as constants."""
    repeated: bool = False
    """Whether it runs repeatedly, maybe with other shapes and values each time."""
    whole: bool = True
    """Whether it is the whole model. A part reports `NeedsHostError` to its model."""


@dataclass(frozen=True)
class RunnerFactory:
    """Builds runners of parts."""

    start: Callable[[ModuleOp, Role], Runner]
    """Compiles a part; raises `NeedsHostError` if it cannot be one program."""
    steps: Callable[[ModuleOp, Role, NeedsHostError | None], Runner]
    """Splits a part into steps, because of an error."""
    numbers: Iterator[int]
    repeated: bool = False
    """Whether the whole model runs repeatedly."""


Interpret: TypeAlias = Callable[[], Values]
"""Computes the values of a part without a program."""


class LazyProgram:
    """
    A part of a model that is compiled when it first runs.

    If it runs repeatedly and is specialised to its inputs, it is compiled only for inputs that
    occur again, and only while there are few different ones.
    """

    def __init__(self, piece: Piece, role: Role, factory: RunnerFactory) -> None:
        self.piece = piece
        self.role = role
        self._factory = factory
        self._seen: set[Signature] = set()
        self.shapes: dict[str, Shape | None] = {}
        """Shape of each input; None once it has changed."""

    @cached_property
    def _runner(self) -> Runner:
        # Compilation mutates the module, so each thread, and the step splitter, uses a clone.
        return self._factory.start(self.piece.module.clone(), self.role)

    def run(self, values: Values, interpret: Interpret | None) -> Values:
        """Computes the outputs; `interpret` does the same without a program, if possible."""
        given = {name: values[value] for name, value in self.piece.inputs.items()}
        if interpret is not None and self.role.repeated and not self._is_worth_compiling(values):
            try:
                return interpret()
            except PopgraphError:
                pass  # The program says whether that was an error.
        made = self.call(given)
        return {value: made[name] for name, value in self.piece.outputs.items()}

    def call(self, given: Mapping[str, Any]) -> dict[str, Array]:
        """Runs its program; returns the outputs by name."""
        made: dict[str, Array] = self._runner.made.run(given)
        for name, shape in self.piece.shapes.items():
            made[name] = _cropped(made[name], made.pop(shape))
        return made

    @property
    def computed_by(self) -> ComputedBy:
        """C or Python, for its program; empty before it is compiled."""
        runner = self.__dict__.get("_runner")
        return runner.computed_by if isinstance(runner, Runner) else ComputedBy()

    def _is_worth_compiling(self, values: Values) -> bool:
        """
        Whether a program for these values is worth compiling: its signature has occurred before.
        """
        model = self._runner.open
        if model is None:
            return True
        given = input_arrays(self.piece, values)
        for name, array in given.items():
            if self.shapes.setdefault(name, array.shape) != array.shape:
                self.shapes[name] = None
        signature = model.interface.call(given).signature
        is_new = signature not in self._seen
        if not self.has_many_signatures:
            self._seen.add(signature)
        return not is_new

    @property
    def has_many_signatures(self) -> bool:
        """Whether there were more signatures than programs are kept for."""
        return len(self._seen) > SPECIALISATIONS

    def structural_values(self, values: Values, among: set[SSAValue]) -> tuple[bytes, ...]:
        """The values among its inputs that determine its structure."""
        model = self._runner.open
        structural = () if model is None else model.interface.structural
        inputs = [value for name, value in self.piece.inputs.items() if name in structural]
        return tuple(values[value].tobytes() for value in inputs if value in among)


def _cropped(array: Array, shape: Array) -> Array:
    """Cuts a result that was computed up to a bound to its actual shape."""
    sizes = tuple(shape.tolist())
    if sizes == array.shape:
        return array
    # A list is dense, and its shape is known here.
    is_list = array.ndim == 1
    part = array[: prod(sizes)].reshape(sizes) if is_list else array[tuple(map(slice, sizes))]
    # For a large result, keeping the rest of the memory alive is cheaper than a copy.
    is_kept = part.nbytes >= LARGE_BYTES and array.nbytes <= MAX_HELD_RATIO * part.nbytes
    return part if is_kept and part.flags.c_contiguous else part.copy()


def input_arrays(piece: Piece, values: Values) -> dict[str, Array]:
    """The inputs of a part by name, as arrays."""
    return {name: as_array(name, values[value]) for name, value in piece.inputs.items()}


class LazyBody(LazyProgram):
    """A subgraph of a node; split into steps if it cannot be one program."""

    def run(self, values: Values, interpret: Interpret | None) -> Values:
        if self.has_many_signatures:
            self._split_into_steps(None)
        try:
            return super().run(values, interpret)
        except NeedsHostError as error:
            self._split_into_steps(error)
            return super().run(values, interpret)

    def _split_into_steps(self, reason: NeedsHostError | None) -> None:
        self._runner = self._factory.steps(self.piece.module, self.role, reason)
        self._seen.clear()
