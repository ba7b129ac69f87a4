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
    """What computes a model: programs in C, and nodes that Python computes."""

    in_c: bool = False
    """Whether there is a program in C."""
    in_python: frozenset[str] = frozenset()
    """The operators of the nodes that Python has computed so far."""

    def __or__(self, other: ComputedBy) -> ComputedBy:
        return ComputedBy(self.in_c or other.in_c, self.in_python | other.in_python)


def refuse_donations(donate: Collection[str], why: str) -> None:
    """RunError if any input is donated, for programs that make all outputs anew."""
    if donate:
        raise RunError(
            f"no input can be donated: {why}", hint="leave donate out: the outputs are the same"
        )


class Executable(ABC):
    """A program for known shapes: named inputs and outputs, and named variables that persist."""

    inputs: dict[str, tuple[DType, Shape]]
    outputs: dict[str, tuple[DType, Shape]]
    variables: dict[str, tuple[DType, Shape]]
    key: str | None = None
    """The key in the cache of programs, if it is kept there."""
    sizes: tuple[Size, ...] = ()
    """The sizes that each call brings: the shapes of inputs and outputs are those of the bounds."""
    unsized: str = ""
    """Why the program is for one size, where others were wanted, too."""

    @abstractmethod
    def run(self, inputs: Mapping[str, Array], donate: Collection[str] = ()) -> dict[str, Array]:
        """
        One step: the outputs for these inputs; variables move on to their next values.

        Outputs may be made in the memory of the inputs in `donate`, which the caller loses.
        """

    def run_in_row(self, inputs: Mapping[str, Array], count: int) -> dict[str, Array]:
        """
        Several runs, one after the other; their arrays stand in a row, along an axis in front.
        """
        runs = [
            self.run({name: array[at] for name, array in inputs.items()}) for at in range(count)
        ]
        return {name: np.stack([one[name] for one in runs]) for name in self.outputs}

    def serves(self, shapes: Mapping[str, Shape]) -> dict[str, int] | None:
        """The sizes that inputs of these shapes bring; None if the program is not for them."""
        fits = all(shapes[name] == shape for name, (_, shape) in self.inputs.items())
        return {} if fits else None

    @property
    def donations(self) -> Mapping[str, str]:
        """The inputs that can be donated, with the output that is made in the memory of each."""
        return {}

    @property
    def computed_by(self) -> ComputedBy:
        """What has computed its runs so far."""
        return ComputedBy()

    @property
    def arena(self) -> int:
        """The bytes of the memory that a run computes in; 0 where none is planned."""
        return 0

    @abstractmethod
    def read(self, variable: str) -> Array:
        """A copy of a variable's value."""

    @abstractmethod
    def write(self, variable: str, value: Array) -> None:
        """Gives a variable a value."""

    def share(self, other: Self) -> None:
        """From here on both have the same variables, whose values are the other's."""
        raise AssertionError(f"{type(self).__name__} has variables of its own")

    def fitted(self, inputs: Mapping[str, object]) -> dict[str, Array]:
        """The inputs in their element types; RunError unless these fit, names and shapes, too."""
        check_names(inputs, self.inputs)
        return {name: self._fitted(name, inputs[name]) for name in self.inputs}

    def _fitted(self, name: str, value: object) -> Array:
        dtype, shape = self.inputs[name]
        array = as_array(name, value)
        if array.shape != shape:
            raise RunError(
                f"input {name!r} has shape {text(array.shape)}, the model wants {text(shape)}"
            )
        return fitted(name, array, dtype)


class NativeExecutable(Executable):
    """An executable whose variables are in memory that other executables can share."""

    @abstractmethod
    def share(self, other: Self) -> None:
        """From here on both have the same variables, whose values are the other's, and arena."""

    @abstractmethod
    def twin(self, weights: ArrayStore, own: Collection[str]) -> Self:
        """The same program with an arena and variables of its `own`; the others are shared."""

    @abstractmethod
    def variable(self, name: str) -> Array:
        """The memory of a variable."""
