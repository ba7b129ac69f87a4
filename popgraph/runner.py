"""The callables that `popgraph.compile` returns, for static and for dynamic shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from popgraph.backends.base import Executable
from popgraph.support.arrays import Array
from popgraph.support.errors import RunError


class Specialising(Protocol):
    """A model with unknown dimensions: inputs say which program it is."""

    def program(self, inputs: Mapping[str, Array]) -> Executable:
        """The executable for inputs of these shapes."""


class Runner:
    """
    A model to call: `run({"x": array})` or `run(x=array)` gives a dict of outputs by name.

    Unknown dimensions are taken from the arrays of a call; the program for each combination of
    shapes is compiled once and kept.
    """

    def __init__(self, made: Executable | Specialising) -> None:
        self.static = made if isinstance(made, Executable) else None
        """The only program, where all dimensions are known."""
        self._open = None if isinstance(made, Executable) else made

    def __call__(
        self, inputs: Mapping[str, Array] | None = None, /, **named: Array
    ) -> dict[str, Array]:
        if inputs is not None and not isinstance(inputs, Mapping):
            raise RunError(
                f"inputs are given by name, not as {type(inputs).__name__}",
                hint='run({"x": array}) or run(x=array)',
            )
        given = named if inputs is None else {**inputs, **named}
        program = self.static or self.program(given)
        return program.run(given)

    def program(self, inputs: Mapping[str, Array]) -> Executable:
        """The executable for inputs of these shapes."""
        if self._open is not None:
            return self._open.program(inputs)
        assert self.static is not None
        return self.static
