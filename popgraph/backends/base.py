"""The interface of compiled programs: run a step, read and write variables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from popgraph.support.arrays import Array, ArrayStore
from popgraph.support.dtypes import DType
from popgraph.support.errors import RunError
from popgraph.support.inputs import as_array, check_names, fitted
from popgraph.support.shapes import Shape, text
from popgraph.support.sizes import Size


@dataclass(frozen=True)
class ComputedBy:
    """The engines that compute a model: compiled C programs, and Python for single nodes."""

    in_c: bool = False
    """Whether any part is a C program."""
    in_python: frozenset[str] = frozenset()
    """The operators that Python has computed so far."""

    def __or__(self, other: ComputedBy) -> ComputedBy:
        return ComputedBy(self.in_c or other.in_c, self.in_python | other.in_python)


def refuse_donations(donate: Collection[str], why: str) -> None:
    """Raises RunError if any input is donated, for programs without in-place outputs."""
    if donate:
        raise RunError(
            f"no input can be donated: {why}", hint="call without donate: the outputs are the same"
        )


class Executable(ABC):
    """A program for known shapes: named inputs and outputs, and named variables that persist."""

    inputs: dict[str, tuple[DType, Shape]]
    outputs: dict[str, tuple[DType, Shape]]
    variables: dict[str, tuple[DType, Shape]]
    key: str | None = None
    """The key in the program cache, if the program is cached."""
    sizes: tuple[Size, ...] = ()
    """The sizes that each call may choose; shapes of inputs and outputs are at their bounds."""
    unsized: str = ""
    """The reason why a program with requested sizes is for one size only."""

    @abstractmethod
    def run(self, inputs: Mapping[str, Array], donate: Collection[str] = ()) -> dict[str, Array]:
        """
        Runs one step: returns the outputs, and updates the variables.

        Outputs may overwrite the inputs in `donate`, which the caller must not use any more.
        """

    def run_stacked(self, inputs: Mapping[str, Array], count: int) -> dict[str, Array]:
        """Runs `count` steps in sequence; inputs and outputs are stacked along a leading axis."""
        runs = [
            self.run({name: array[at] for name, array in inputs.items()}) for at in range(count)
        ]
        return {name: np.stack([one[name] for one in runs]) for name in self.outputs}

    def serves(self, shapes: Mapping[str, Shape]) -> dict[str, int] | None:
        """The sizes for inputs of these shapes; None if the program does not support them."""
        fits = all(shapes[name] == shape for name, (_, shape) in self.inputs.items())
        return {} if fits else None

    @property
    def donations(self) -> Mapping[str, str]:
        """The inputs that can be donated, each with the output that overwrites it."""
        return {}

    @property
    def computed_by(self) -> ComputedBy:
        """The engines that have computed its runs so far."""
        return ComputedBy()

    @property
    def arena(self) -> int:
        """The bytes of scratch memory of a run; 0 if none is planned."""
        return 0

    @abstractmethod
    def read(self, variable: str) -> Array:
        """A copy of a variable's value."""

    @abstractmethod
    def write(self, variable: str, value: Array) -> None:
        """Assigns a variable."""

    def share(self, other: Self) -> None:
        """Makes both use the other's variables."""
        raise AssertionError(f"{type(self).__name__} has variables of its own")

    def fitted(self, inputs: Mapping[str, object]) -> dict[str, Array]:
        """The inputs in their element types; RunError if names, types or shapes differ."""
        check_names(inputs, self.inputs)
        return {name: self._fitted(name, inputs[name]) for name in self.inputs}

    def _fitted(self, name: str, value: object) -> Array:
        dtype, shape = self.inputs[name]
        array = as_array(name, value)
        if array.shape != shape:
            raise RunError(
                f"input {name!r} must have the shape {text(shape)}, not {text(array.shape)}"
            )
        return fitted(name, array, dtype)


class NativeExecutable(Executable):
    """An executable whose variables are in memory that other executables can share."""

    @abstractmethod
    def share(self, other: Self) -> None:
        """Makes both use the other's variables and one arena."""

    @abstractmethod
    def twin(self, weights: ArrayStore, own: Collection[str]) -> Self:
        """A copy with its own arena and its `own` variables; the other variables are shared."""

    @abstractmethod
    def variable(self, name: str) -> Array:
        """The memory of a variable."""

    @abstractmethod
    def place(self, variable: str, memory: Array) -> None:
        """Keeps a variable in the caller's memory from now on; its value is what that holds."""
