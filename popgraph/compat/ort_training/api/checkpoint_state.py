"""`CheckpointState`: parameters, gradients, optimizer state and properties of a training."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np

from popgraph.compat.ort_training import checkpoint_file
from popgraph.compat.ort_training.checkpoint_file import Contents, Property, Tensor
from popgraph.compat.ort_training.errors import UnknownName, WrongCall, WrongType
from popgraph.support.arrays import Array
from popgraph.support.names import closest

Held = TypeVar("Held")


class Parameter:
    """One parameter of a model, as `state.parameters["w"]` returns it."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    @property
    def name(self) -> str:
        """The name of the initializer."""
        return self._tensor.name

    @property
    def data(self) -> Array:
        """A copy of the value; assign an array to change the value."""
        return value_of(self._tensor).copy()

    @data.setter
    def data(self, value: Array) -> None:
        assign(self._tensor, value)

    @property
    def grad(self) -> Array | None:
        """A copy of the gradient; None if the parameter is frozen, or before a module exists."""
        grad = self._tensor.grad
        return None if grad is None else grad.copy()

    @property
    def requires_grad(self) -> bool:
        """Whether the parameter is trained."""
        return self._tensor.requires_grad

    def __repr__(self) -> str:
        return f"Parameter(name={self.name}, requires_grad={self.requires_grad})"


class Parameters:
    """The parameters by name; iteration yields pairs of name and parameter, by name."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents

    def __getitem__(self, name: str) -> Parameter:
        tensor = self._tensor(name)
        value_of(tensor, "Please load the parameter states first.")
        return Parameter(tensor)

    def __setitem__(self, name: str, value: Array) -> None:
        tensor = self._tensor(name)
        value_of(tensor, "Please load all the parameter states first.")
        assign(tensor, value)

    def __contains__(self, name: str) -> bool:
        return name in self._contents.tensors

    def __iter__(self) -> Iterator[tuple[str, Parameter]]:
        for name in sorted(self._contents.tensors):
            yield name, Parameter(self._contents.tensors[name])

    def __len__(self) -> int:
        return len(self._contents.tensors)

    def __repr__(self) -> str:
        return f"Parameters({sorted(self._contents.tensors)})"

    def _tensor(self, name: str) -> Tensor:
        return _named(self._contents.tensors, name, "Parameter")


class Properties:
    """The user's properties by name: integers, floats and strings."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents

    def __getitem__(self, name: str) -> Property:
        return _named(self._contents.properties, name, "Property")

    def __setitem__(self, name: str, value: Property) -> None:
        if not isinstance(value, int | float | str):
            raise WrongType(
                f"a property is an int, a float or a str, not {type(value).__name__}",
                f"property {name!r}",
                "for several values, set several properties, or a JSON text",
            )
        self._contents.properties[name] = value

    def __contains__(self, name: str) -> bool:
        return name in self._contents.properties

    def __iter__(self) -> Iterator[tuple[str, Property]]:
        yield from sorted(self._contents.properties.items())

    def __len__(self) -> int:
        return len(self._contents.properties)

    def __repr__(self) -> str:
        return f"Properties({dict(self)})"


class CheckpointState:
    """The state of a training; `CheckpointState.load_checkpoint` creates it."""

    def __init__(self, state: Contents) -> None:
        if not isinstance(state, Contents):
            raise WrongType(
                f"Invalid argument for CheckpointState received {type(state)}",
                hint="CheckpointState.load_checkpoint(path)",
            )
        self._state = state
        self._parameters, self._properties = Parameters(state), Properties(state)

    @classmethod
    def load_checkpoint(cls, checkpoint_uri: str | os.PathLike[str]) -> CheckpointState:
        """Reads a checkpoint of `generate_artifacts` or `save_checkpoint`."""
        return cls(checkpoint_file.read(checkpoint_uri))

    @classmethod
    def save_checkpoint(
        cls,
        state: CheckpointState,
        checkpoint_uri: str | os.PathLike[str],
        include_optimizer_state: bool = False,
    ) -> None:
        """Writes a checkpoint; training resumes bit for bit only with the optimizer's state."""
        contents = contents_of(state)
        if contents.is_nominal:
            raise _no_values()
        checkpoint_file.write(contents, checkpoint_uri, optimizer=include_optimizer_state)

    @property
    def parameters(self) -> Parameters:
        """The parameters of the model."""
        return self._parameters

    @property
    def properties(self) -> Properties:
        """The user's properties, which checkpoints keep."""
        return self._properties


def contents_of(state: object) -> Contents:
    """The contents of a state; WrongType for anything else."""
    if not isinstance(state, CheckpointState):
        raise WrongType(
            f"the state is a {type(state).__name__}, not a CheckpointState",
            hint="CheckpointState.load_checkpoint(path)",
        )
    return state._state


NO_VALUES = "Please load the model parameters first."


def value_of(tensor: Tensor, otherwise: str = NO_VALUES) -> Array:
    """The value of a parameter; WrongCall if it has none yet."""
    if tensor.data is None:
        raise _no_values(otherwise)
    return tensor.data


def _no_values(what: str = NO_VALUES) -> WrongCall:
    return WrongCall(
        what,
        "nominal checkpoint",
        "module.copy_buffer_to_parameters(buffer, trainable_only=False) sets all parameters",
    )


def assign(tensor: Tensor, value: Any) -> None:
    """Copies an array into a parameter."""
    if not isinstance(value, np.ndarray):
        raise WrongCall(
            f"a parameter is set to a NumPy array, not to {type(value).__name__}",
            f"parameter {tensor.name!r}",
            "np.asarray(value, np.float32)",
        )
    for what, found, wanted in (
        ("shape", value.shape, tensor.shape),
        ("type", value.dtype, tensor.dtype),
    ):
        if found != wanted:
            raise WrongCall(
                f"Parameter data {what} mismatch. Expected: {wanted}, Actual: {found}",
                f"parameter {tensor.name!r}",
                "pass an array of the parameter's shape and type",
            )
    tensor.data = np.array(value, order="C")


def _named(found: dict[str, Held], name: str, kind: str) -> Held:
    if name not in found:
        close = closest(str(name), found)
        listed = ", ".join(sorted(found)[:8]) or "none"
        raise UnknownName(
            f"{kind} {name} not found.",
            hint=f"did you mean {close!r}?" if close else f"there are {listed}",
        )
    return found[name]
