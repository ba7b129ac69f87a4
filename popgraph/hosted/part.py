"""Pieces of a model that are compiled when they first run, or computed in Python turn by turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from popgraph.backends.base import ComputedBy
from popgraph.open_model import SPECIALISATIONS, Signature
from popgraph.passes.onnx.partition import Piece
from popgraph.runner import Runner
from popgraph.support.arrays import Array
from popgraph.support.errors import NeedsHostError, PopgraphError
from popgraph.support.given import as_array
from popgraph.support.shapes import Shape, prod

LARGE = 1 << 16
"""Bytes from which on a copy takes longer than to allocate other memory for the next result."""
MOST_HELD = 4
"""The largest ratio of the memory that a result holds to its own size."""

Values: TypeAlias = dict[SSAValue, Any]
"""Arrays, lists for sequences, None for an absent optional."""


@dataclass(frozen=True)
class Role:
    """What a module is to the model that it is a piece of."""

    number: int = 0
    """Of all pieces of a model, each has another one."""
    known: tuple[str, ...] = ()
    """Inputs whose values its programs must know, beside those that operators ask for."""
    repeated: bool = False
    """Whether it runs turn by turn, with other shapes and values in each turn perhaps."""
    whole: bool = True
    """Whether it is the model itself: what needs the host in a piece is for the model to know."""


@dataclass(frozen=True)
class Maker:
    """What makes pieces ready to run."""

    start: Callable[[ModuleOp, Role], Runner]
    """Compiles a piece; `NeedsHostError` if there is no program of it."""
    steps: Callable[[ModuleOp, Role, NeedsHostError | None], Runner]
    """Makes steps of a piece, of which there is no program for this reason."""
    numbers: Iterator[int]
    repeated: bool = False
    """Whether the whole runs turn by turn."""


Interpret: TypeAlias = Callable[[], Values]
"""Computes values as a piece does, without a program."""


class Part:
    """
    A piece that is compiled when it first runs.

    If it is repeated and its programs depend on what it gets, not every turn has its program:
    only what comes again does, and only as long as few different things come.
    """

    def __init__(self, piece: Piece, role: Role, maker: Maker) -> None:
        self.piece = piece
        self.role = role
        self._maker = maker
        self._seen: set[Signature] = set()
        self.shapes: dict[str, Shape | None] = {}
        """Those of what it takes; None for one that has had several."""

    @cached_property
    def _runner(self) -> Runner:
        # Who compiles a module changes it: another thread, or steps of it, want it as it was.
        return self._maker.start(self.piece.module.clone(), self.role)

    def run(self, values: Values, interpret: Interpret | None) -> Values:
        """What it gives; `interpret` computes the same, if that can be done."""
        given = {name: values[value] for name, value in self.piece.inputs.items()}
        if interpret is not None and self.role.repeated and not self._pays(values):
            try:
                return interpret()
            except PopgraphError:
                pass  # The program says whether that was an error.
        made = self.made(given)
        return {value: made[name] for name, value in self.piece.outputs.items()}

    def made(self, given: Mapping[str, Any]) -> dict[str, Array]:
        """Runs its program; the outputs by name."""
        made: dict[str, Array] = self._runner.made.run(given)
        for name, shape in self.piece.shapes.items():
            made[name] = _cut(made[name], made.pop(shape))
        return made

    @property
    def computed_by(self) -> ComputedBy:
        """What has computed its program, if there is one."""
        runner = self.__dict__.get("_runner")
        return runner.computed_by if isinstance(runner, Runner) else ComputedBy()

    def _pays(self, values: Values) -> bool:
        """Whether a program for these values will run often enough to be compiled."""
        model = self._runner.open
        if model is None:
            return True
        given = taken(self.piece, values)
        for name, array in given.items():
            if self.shapes.setdefault(name, array.shape) != array.shape:
                self.shapes[name] = None
        signature = model.interface.call(given).signature
        is_new = signature not in self._seen
        if not self.is_restless:
            self._seen.add(signature)
        return not is_new

    @property
    def is_restless(self) -> bool:
        """Whether more has come than programs are kept for."""
        return len(self._seen) > SPECIALISATIONS

    def deciding(self, values: Values, among: set[SSAValue]) -> tuple[bytes, ...]:
        """The values, of some that it takes, that decide its structure."""
        model = self._runner.open
        structural = () if model is None else model.interface.structural
        inputs = [value for name, value in self.piece.inputs.items() if name in structural]
        return tuple(values[value].tobytes() for value in inputs if value in among)


def _cut(array: Array, shape: Array) -> Array:
    """A result that was computed up to a bound, as far as it goes."""
    sizes = tuple(shape.tolist())
    if sizes == array.shape:
        return array
    # What is as a list has no gaps, and its shape is here.
    is_list = array.ndim == 1
    part = array[: prod(sizes)].reshape(sizes) if is_list else array[tuple(map(slice, sizes))]
    # To copy a large result costs more than to hold the memory after its end.
    is_kept = part.nbytes >= LARGE and array.nbytes <= MOST_HELD * part.nbytes
    return part if is_kept and part.flags.c_contiguous else part.copy()


def taken(piece: Piece, values: Values) -> dict[str, Array]:
    """What a piece takes of these values, by the names of its inputs."""
    return {name: as_array(name, values[value]) for name, value in piece.inputs.items()}


class BodyPart(Part):
    """A graph inside a node: it becomes steps if there is no program of it, or no one program."""

    def run(self, values: Values, interpret: Interpret | None) -> Values:
        if self.is_restless:
            self._take_apart(None)
        try:
            return super().run(values, interpret)
        except NeedsHostError as error:
            self._take_apart(error)
            return super().run(values, interpret)

    def _take_apart(self, reason: NeedsHostError | None) -> None:
        self._runner = self._maker.steps(self.piece.module, self.role, reason)
        self._seen.clear()
