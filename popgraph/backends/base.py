"""The interface of compiled programs: run a step, read and write variables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping

import numpy as np

from popgraph.support.arrays import Array
from popgraph.support.dtypes import DType
from popgraph.support.errors import RunError
from popgraph.support.shapes import Shape, text


def as_array(name: str, value: object) -> Array:
    """What was given for an input, lists of numbers for example."""
    try:
        return np.asarray(value)
    except ValueError as error:
        raise RunError(f"input {name!r} is no array: {error}") from error


def check_dtype(name: str, array: Array, dtype: DType) -> None:
    """RunError unless the array of an input has the element type that the model wants."""
    if array.dtype != dtype.numpy:
        kind = dtype.numpy.type
        home = "np" if kind.__module__ == np.__name__ else kind.__module__
        raise RunError(
            f"input {name!r} holds {array.dtype}, the model wants {dtype.numpy}",
            hint=f"pass np.asarray({name}, {home}.{kind.__name__})",
        )


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

    @property
    def donations(self) -> Mapping[str, str]:
        """The inputs that can be donated, with the output that is made in the memory of each."""
        return {}

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

    def check(self, inputs: Mapping[str, Array]) -> None:
        """RunError unless `inputs` are exactly the inputs, with their shapes and dtypes."""
        missing = [name for name in self.inputs if name not in inputs]
        if missing:
            raise RunError(
                f"input {', '.join(map(repr, missing))} is missing",
                hint=f"the model's inputs are {', '.join(map(repr, self.inputs))}",
            )
        unknown = [name for name in inputs if name not in self.inputs]
        if unknown:
            raise RunError(
                f"the model has no input {', '.join(map(repr, unknown))}",
                hint=f"the model's inputs are {', '.join(map(repr, self.inputs)) or 'none'}",
            )
        for name, (dtype, shape) in self.inputs.items():
            array = inputs[name]
            if array.shape != shape:
                raise RunError(
                    f"input {name!r} has shape {text(array.shape)}, the model wants {text(shape)}"
                )
            check_dtype(name, array, dtype)
