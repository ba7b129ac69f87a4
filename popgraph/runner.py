"""Runners, the callables that `popgraph.compile` returns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import reduce
from operator import or_
from typing import Protocol, cast

import numpy as np

from popgraph.backends.base import ComputedBy, Executable
from popgraph.background import Backlog
from popgraph.open_model import Call, OpenModel, ProgramRange
from popgraph.support.amounts import bytes_text
from popgraph.support.arrays import Array
from popgraph.support.description import Description, TensorSpec, as_html, as_text, specs
from popgraph.support.errors import PopgraphError, RunError
from popgraph.support.memo import cached_property


class Called(Protocol):
    """A model that selects its program by the arrays of a call."""

    def run(self, inputs: Mapping[str, Array], donate: Collection[str] = ()) -> dict[str, Array]:
        """The outputs for these inputs; see `Executable.run`."""

    def program(self, inputs: Mapping[str, Array]) -> Executable:
        """The executable for inputs like these."""

    @property
    def computed_by(self) -> ComputedBy:
        """C or Python, for the runs so far."""


class Overriding:
    """Runs calls that override initializers."""

    def __init__(self, names: Iterable[str], make: Callable[[frozenset[str]], Runner]) -> None:
        self.names = frozenset(names)
        """The initializers that a call may override."""
        self.make = make
        """Builds the runner of a model in which some initializers are inputs."""
        self._made: dict[frozenset[str], Runner] = {}

    def runner(self, inputs: Iterable[str]) -> Runner | None:
        """The runner for these inputs; None if they override no initializer."""
        names = self.names.intersection(inputs)
        if names and names not in self._made:
            self._made[names] = self.make(names)
        return self._made.get(names)

    @property
    def computed_by(self) -> ComputedBy:
        """C or Python, for the calls that overrode initializers."""
        return reduce(or_, (made.computed_by for made in self._made.values()), ComputedBy())


class Runner:
    """
    A callable model: `run({"x": array})` or `run(x=array)` returns a dict of outputs by name.

    With `donate=["x"]`, an output is computed in the memory of the array `x`: `run.donations` says
    which one. The previous contents of `x` are lost, also if the run fails.

    Unknown dimensions, and the values of structural inputs (such as the shape operand of Reshape),
    are taken from the arrays of a call. Programs are compiled on demand and cached; `run.programs`
    lists the calls that each one serves.
    """

    backlog: Backlog | None = None
    """Queue of quick programs until tuned ones replace them, if any."""

    def __init__(
        self,
        made: Executable | Called,
        overriding: Overriding | None = None,
        describe: Callable[[], Description | None] = lambda: None,
        *,
        backlog: Backlog | None = None,
    ) -> None:
        self.static = made if isinstance(made, Executable) else None
        """The only program of a static model."""
        self.open = made if isinstance(made, OpenModel) else None
        """The model, if the arrays of a call select the program."""
        self.overriding = overriding
        """Runs calls that override initializers, if possible."""
        self.made = made
        """The program, the open model, or the steps of a model with host steps."""
        self.describe = describe
        """Describes the model; may read it again."""
        self.backlog = backlog

    @cached_property
    def description(self) -> Description:
        """
        The model's inputs, outputs and parameters; those of the program if all shapes are static.
        """
        said = self.describe()
        if self.static is None:
            return said or Description()
        parameters = specs(self.static.variables) if said is None else said.parameters
        inputs, outputs = specs(self.static.inputs), specs(self.static.outputs)
        return Description(said.model if said else "", inputs, outputs, parameters)

    @property
    def inputs(self) -> Mapping[str, TensorSpec]:
        """The inputs by name: `run.inputs["x"].shape`."""
        if self.static is not None:
            return specs(self.static.inputs)
        known = {} if self.open is None else self.open.interface.specs
        return known or self.description.inputs

    @property
    def outputs(self) -> Mapping[str, TensorSpec]:
        """The outputs by name."""
        return self.description.outputs

    @property
    def parameters(self) -> Mapping[str, TensorSpec]:
        """The weights and other tensors stored in the model, by name."""
        return self.description.parameters

    @property
    def structural(self) -> tuple[str, ...]:
        """The inputs whose values decide the structure of the program."""
        return () if self.open is None else self.open.interface.structural

    @property
    def programs(self) -> list[ProgramRange]:
        """The cached programs, with the inputs and the largest sizes that each serves."""
        return [] if self.open is None else self.open.programs

    @property
    def kept(self) -> list[Call]:
        """The calls (shapes and structural values) of the cached programs."""
        return [] if self.open is None else self.open.kept

    @property
    def computed_by(self) -> ComputedBy:
        """C or Python, for the runs so far."""
        others = self.overriding.computed_by if self.overriding else ComputedBy()
        return self.made.computed_by | others

    def __repr__(self) -> str:
        return as_text(*self._told())

    def _repr_html_(self) -> str:
        return as_html(*self._told())

    def _told(self) -> tuple[str, list[tuple[str, str]]]:
        """Title and rows of the text that `repr` and notebooks show."""
        try:
            said = self.description
        except PopgraphError as error:  # Whoever looks is not to end with an error.
            return "popgraph.Runner", [("model", f"is unknown: {error.what}")]
        title = f"popgraph.Runner of {said.model}" if said.model else "popgraph.Runner"
        rows = said.rows()
        rows += [("structure", f"is decided by the values of {name}") for name in self.structural]
        if self.open is not None:
            programs = self.programs
            rows.append(("programs", f"{len(programs)} compiled"))
            sized = [one for one in programs if one.bounds]
            rows += [("program", f"{one}, memory {bytes_text(one.memory)}") for one in sized]
        if not self.tuned:
            rows.append(("quick", "until tuned programs have been built in the background"))
        return title, rows

    @property
    def tuned(self) -> bool:
        """Whether the next run uses a tuned program; always true without `quick=True`."""
        return self.backlog is None or self.backlog.tuned

    def wait(self, timeout: float | None = None) -> bool:
        """
        Waits at most `timeout` seconds for tuned programs; returns whether they are ready.

        If one could not be built, a warning gives the reason.
        """
        return self.backlog is None or self.backlog.wait(timeout)

    @property
    def donations(self) -> Mapping[str, str]:
        """The inputs that can be donated -> the output that is computed in each one's memory."""
        return {} if self.static is None else self.static.donations

    def __call__(
        self,
        inputs: Mapping[str, Array] | None = None,
        /,
        *,
        donate: Collection[str] = (),
        **named: Array,
    ) -> dict[str, Array]:
        given = named if inputs is None else _combined(inputs, named)
        if self.overriding is not None and (other := self.overriding.runner(given)) is not None:
            return other(given, donate=donate)
        # The default is an empty tuple; the truth value of an array would be an error of NumPy.
        if type(donate) is tuple and not donate:
            return self.made.run(given)
        if isinstance(donate, np.ndarray):
            raise RunError(
                "donate is an array, not a list of names",
                hint='an input of that name is given in a dict: run({"donate": array})',
            )
        return self.made.run(given, donate)

    def program(self, inputs: Mapping[str, Array]) -> Executable:
        """The executable for these inputs; structural inputs are not inputs of the executable."""
        other = self.overriding.runner(inputs) if self.overriding else None
        if other is not None:
            return other.program(inputs)
        # Faster than an instance check against an abstract class.
        return cast(Called, self.made).program(inputs) if self.static is None else self.static


def _combined(inputs: Mapping[str, Array], named: Mapping[str, Array]) -> Mapping[str, Array]:
    """The inputs of a call in a dict and by keyword; an element of another mapping is read once."""
    if type(inputs) is dict and not named:
        return inputs
    if not isinstance(inputs, Mapping):
        raise RunError(
            f"inputs are given by name, not as {type(inputs).__name__}",
            hint='run({"x": array}) or run(x=array)',
        )
    return {**inputs, **named}
