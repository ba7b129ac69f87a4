"""The callables that `popgraph.compile` returns, for static and for dynamic shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from popgraph.backends.base import Executable
from popgraph.open_model import Call, OpenModel
from popgraph.support.arrays import Array
from popgraph.support.errors import RunError


class Called(Protocol):
    """A model whose arrays say what is to run."""

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs for these inputs."""

    def program(self, inputs: Mapping[str, Array]) -> Executable:
        """The executable for inputs like these."""


class Runner:
    """
    A model to call: `run({"x": array})` or `run(x=array)` gives a dict of outputs by name.

    Unknown dimensions, and the values of inputs that decide structure (the shape that Reshape
    gets), are taken from the arrays of a call; the program for each combination is compiled once
    and kept.
    """

    def __init__(self, made: Executable | Called) -> None:
        self.static = made if isinstance(made, Executable) else None
        """The only program, where there is but one."""
        self.open = made if isinstance(made, OpenModel) else None
        """The model, where the arrays of a call say which program is to run."""
        self._made = made

    @property
    def structural(self) -> tuple[str, ...]:
        """The inputs whose values decide the structure of the program."""
        return () if self.open is None else self.open.interface.structural

    @property
    def kept(self) -> list[Call]:
        """The calls (shapes, and values of structural inputs) for which a program is kept here."""
        return [] if self.open is None else self.open.kept

    def __call__(
        self, inputs: Mapping[str, Array] | None = None, /, **named: Array
    ) -> dict[str, Array]:
        if inputs is not None and not isinstance(inputs, Mapping):
            raise RunError(
                f"inputs are given by name, not as {type(inputs).__name__}",
                hint='run({"x": array}) or run(x=array)',
            )
        return self._made.run(named if inputs is None else {**inputs, **named})

    def program(self, inputs: Mapping[str, Array]) -> Executable:
        """The executable for these inputs; those that are structural are none of its own."""
        return self._made if isinstance(self._made, Executable) else self._made.program(inputs)
