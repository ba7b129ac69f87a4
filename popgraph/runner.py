"""The callables that `popgraph.compile` returns, for static and for dynamic shapes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property, reduce
from operator import or_
from typing import Protocol

import numpy as np

from popgraph.backends.base import ComputedBy, Executable
from popgraph.background import Backlog
from popgraph.open_model import Call, OpenModel, ProgramRange
from popgraph.support.amounts import bytes_text
from popgraph.support.arrays import Array
from popgraph.support.description import Description, TensorSpec, as_html, as_text, specs
from popgraph.support.errors import PopgraphError, RunError


class Called(Protocol):
    """A model whose arrays say what is to run."""

    def run(self, inputs: Mapping[str, Array], donate: Collection[str] = ()) -> dict[str, Array]:
        """The outputs for these inputs; see `Executable.run`."""

    def program(self, inputs: Mapping[str, Array]) -> Executable:
        """The executable for inputs like these."""

    @property
    def computed_by(self) -> ComputedBy:
        """What has computed its runs so far."""


class Overriding:
    """What runs a model when a call brings other values for some of its initializers."""

    def __init__(self, names: Iterable[str], make: Callable[[frozenset[str]], Runner]) -> None:
        self.names = frozenset(names)
        """The initializers for which a call may bring other values."""
        self.make = make
        """Makes the model in which some of them are inputs."""
        self._made: dict[frozenset[str], Runner] = {}

    def runner(self, inputs: Iterable[str]) -> Runner | None:
        """What runs these inputs; None if none of them is an initializer."""
        names = self.names.intersection(inputs)
        if names and names not in self._made:
            self._made[names] = self.make(names)
        return self._made.get(names)

    @property
    def computed_by(self) -> ComputedBy:
        """What has computed the calls that brought other values."""
        return reduce(or_, (made.computed_by for made in self._made.values()), ComputedBy())


class Runner:
    """
    A model to call: `run({"x": array})` or `run(x=array)` gives a dict of outputs by name.

    With `donate=["x"]`, an output is made in the memory of the array `x`: `run.donations` says
    which one. What was in it is lost, also where the run ends with an error.

    Unknown dimensions, and the values of inputs that decide structure (the shape that Reshape
    gets), are taken from the arrays of a call. Programs are compiled when a call needs them and
    kept; `run.programs` says for which calls each one is.
    """

    backlog: Backlog | None = None
    """Where quick programs wait for tuned ones, if there are any."""

    def __init__(
        self,
        made: Executable | Called,
        overriding: Overriding | None = None,
        describe: Callable[[], Description | None] = lambda: None,
        *,
        backlog: Backlog | None = None,
    ) -> None:
        self.static = made if isinstance(made, Executable) else None
        """The only program, where there is but one."""
        self.open = made if isinstance(made, OpenModel) else None
        """The model, where the arrays of a call say which program is to run."""
        self.overriding = overriding
        """What runs calls that bring other values for initializers, where they may."""
        self.made = made
        """Those, or the steps of a model of which Python computes some nodes."""
        self.describe = describe
        """What the model says of itself, if it is known; it may have to be read again for that."""
        self.backlog = backlog

    @cached_property
    def description(self) -> Description:
        """The model's inputs, outputs and parameters; where all shapes are known, the program's."""
        said = self.describe()
        if self.static is None:
            return said or Description()
        parameters = specs(self.static.variables) if said is None else said.parameters
        inputs, outputs = specs(self.static.inputs), specs(self.static.outputs)
        return Description(said.model if said else "", inputs, outputs, parameters)

    @property
    def inputs(self) -> Mapping[str, TensorSpec]:
        """What a call brings, by name: `run.inputs["x"].shape`."""
        if self.static is not None:
            return specs(self.static.inputs)
        known = {} if self.open is None else self.open.interface.specs
        return known or self.description.inputs

    @property
    def outputs(self) -> Mapping[str, TensorSpec]:
        """What a call gives, by name."""
        return self.description.outputs

    @property
    def parameters(self) -> Mapping[str, TensorSpec]:
        """The weights, and other tensors that the model brings along, by name."""
        return self.description.parameters

    @property
    def structural(self) -> tuple[str, ...]:
        """The inputs whose values decide the structure of the program."""
        return () if self.open is None else self.open.interface.structural

    @property
    def programs(self) -> list[ProgramRange]:
        """The programs that are kept here: for which inputs, and up to which sizes, each one is."""
        return [] if self.open is None else self.open.programs

    @property
    def kept(self) -> list[Call]:
        """The calls (shapes, and values of structural inputs) for which a program is kept here."""
        return [] if self.open is None else self.open.kept

    @property
    def computed_by(self) -> ComputedBy:
        """What has computed the runs so far: programs in C, and Python where it must."""
        others = self.overriding.computed_by if self.overriding else ComputedBy()
        return self.made.computed_by | others

    def __repr__(self) -> str:
        return as_text(*self._told())

    def _repr_html_(self) -> str:
        return as_html(*self._told())

    def _told(self) -> tuple[str, list[tuple[str, str]]]:
        """What a person is told: a title, and rows."""
        try:
            said = self.description
        except PopgraphError as error:  # Whoever looks is not to end with an error.
            return "popgraph.Runner", [("model", f"is not known any more: {error.what}")]
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
        """Whether the next run is one of a tuned program: none but `quick=True` makes others."""
        return self.backlog is None or self.backlog.tuned

    def wait(self, timeout: float | None = None) -> bool:
        """
        Waits, at most `timeout` seconds, for the tuned programs that are being built.

        Says whether they are there; where one could not be built, a warning says why.
        """
        return self.backlog is None or self.backlog.wait(timeout)

    @property
    def donations(self) -> Mapping[str, str]:
        """The inputs that can be donated, with the output that is made in the memory of each."""
        return {} if self.static is None else self.static.donations

    def __call__(
        self,
        inputs: Mapping[str, Array] | None = None,
        /,
        *,
        donate: Collection[str] = (),
        **named: Array,
    ) -> dict[str, Array]:
        if isinstance(donate, np.ndarray):
            raise RunError(
                "donate is an array, not a list of names",
                hint='an input of that name is given in a dict: run({"donate": array})',
            )
        # A dict first: to ask an abstract class takes 0.3 microseconds.
        if inputs is not None and not isinstance(inputs, (dict, Mapping)):
            raise RunError(
                f"inputs are given by name, not as {type(inputs).__name__}",
                hint='run({"x": array}) or run(x=array)',
            )
        given = named if inputs is None else {**inputs, **named}
        other = self.overriding.runner(given) if self.overriding else None
        if other is not None:
            return other(given, donate=donate)
        return self.made.run(given, donate) if donate else self.made.run(given)

    def program(self, inputs: Mapping[str, Array]) -> Executable:
        """The executable for these inputs; those that are structural are none of its own."""
        other = self.overriding.runner(inputs) if self.overriding else None
        if other is not None:
            return other.program(inputs)
        return self.made if isinstance(self.made, Executable) else self.made.program(inputs)
