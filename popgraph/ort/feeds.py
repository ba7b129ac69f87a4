"""Inputs and outputs of a run: conversions and checks as onnxruntime has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from popgraph.ort.errors import InvalidArgument, WrongCall, WrongType, WrongValue
from popgraph.ort.values import NodeArg, OrtValue, array_type, element_of
from popgraph.support.names import closest


class Feeds:
    """Checks the inputs of a session and converts them for a program."""

    def __init__(self, inputs: Iterable[NodeArg], overridable: Iterable[NodeArg]) -> None:
        self._required = {one.name: one for one in inputs}
        self._known = {**{one.name: one for one in overridable}, **self._required}
        self._fitting: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {}
        """Element type and shape of the last array of an input that fitted as it was."""

    def converted(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """
        The inputs as arrays or lists; InvalidArgument if one does not fit the model.

        Arrays with the element types and shapes of an earlier call need no other check: 0.3 us for
        one f32[1, 16] instead of 2 (AMD EPYC, one thread).
        """
        if type(given) is dict and given.keys() >= self._required.keys():
            fitting = self._fitting
            for name, value in given.items():
                known = fitting.get(name)
                if known is None or type(value) is not np.ndarray:
                    break
                if value.dtype is not known[0] or value.shape != known[1]:
                    break
            else:
                return given
        return self._checked(given)

    def _checked(self, given: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(given, Mapping):
            raise WrongType(
                f"inputs are given by name, not as {type(given).__name__}",
                hint='session.run(None, {"x": array})',
            )
        if missing := [name for name in self._required if name not in given]:
            raise WrongValue(
                f"Required inputs ({missing}) are missing from input feed ({list(given)})",
                hint=f"the model's inputs are {', '.join(map(repr, self._required))}",
            )
        made = {name: self._value(name, value) for name, value in given.items()}
        for name, value in given.items():
            if made[name] is value and isinstance(value, np.ndarray):
                self._fitting[name] = value.dtype, value.shape
        return made

    def _value(self, name: str, value: Any) -> Any:
        info = self._known.get(name)
        if info is None:
            close = closest(str(name), self._known)
            raise InvalidArgument(
                f"Invalid input name: {name}",
                hint=f"did you mean {close!r}?"
                if close
                else f"the model's inputs are {', '.join(map(repr, self._required))}",
            )
        found = value.numpy() if isinstance(value, OrtValue) else value
        if not info.type.startswith("tensor("):
            return _container(info, found)
        return _tensor(info, found)


def _tensor(info: NodeArg, value: Any) -> np.ndarray[Any, Any]:
    """The array of a tensor input."""
    array = _array(info, value)
    if info.type == "tensor(string)":
        array = _strings(array)
    actual = array_type(array)
    if actual != info.type:
        dtype = element_of(info.type)
        raise InvalidArgument(
            f"Unexpected input data type. Actual: ({actual}) , expected: ({info.type})",
            f"input {info.name!r}",
            f"{info.name}.astype(np.{dtype.numpy})" if dtype else "give an array of strings",
        )
    if info.rank is not None:
        _check_shape(info, array.shape)
    return array


def _array(info: NodeArg, value: Any) -> np.ndarray[Any, Any]:
    """Arrays as they are, lists in the type of the input."""
    if isinstance(value, np.ndarray):
        return value if value.dtype.isnative else value.astype(value.dtype.newbyteorder("="))
    if isinstance(value, np.generic):
        return np.asarray(value)
    if not isinstance(value, list) and not hasattr(value, "__array__"):
        raise WrongCall(
            f"Unable to handle object of type {type(value)}",
            f"input {info.name!r}",
            "give a NumPy array, a list of numbers or an OrtValue",
        )
    dtype = element_of(info.type)
    try:
        if not isinstance(value, list):
            return np.asarray(value)
        return np.array(value, object if dtype is None else dtype.numpy)
    except (TypeError, ValueError) as error:
        raise WrongCall(
            f"a list cannot be converted to {info.type}: {error}",
            f"input {info.name!r}",
            "give lists of equal lengths that hold numbers",
        ) from error


def _strings(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Text for arrays of bytes and of raw memory; objects become text by `str`."""
    if array.dtype.kind == "V":
        array = array.view(f"S{array.dtype.itemsize}")
    if array.dtype.kind == "S":
        return np.char.decode(array, "utf-8")
    if array.dtype.kind == "O":
        texts = np.array([str(one) for one in array.flat], str)
        return texts.reshape(array.shape)
    return array


def _check_shape(info: NodeArg, shape: tuple[int, ...]) -> None:
    if len(shape) != info.rank:
        raise InvalidArgument(
            f"Invalid rank for input: {info.name} Got: {len(shape)} Expected: {info.rank}",
            hint=f"its shape is {info.shape}",
        )
    wrong = [
        f"index: {axis} Got: {size} Expected: {wanted}"
        for axis, (size, wanted) in enumerate(zip(shape, info.shape, strict=True))
        if isinstance(wanted, int) and size != wanted
    ]
    if wrong:
        raise InvalidArgument(
            f"Got invalid dimensions for input: {info.name} for the following indices "
            + ", ".join(wrong),
            hint=f"its shape is {info.shape}",
        )


def _container(info: NodeArg, value: Any) -> Any:
    """A sequence, an optional or a map; arrays inside get the element type of the input."""
    inner = info.type
    if inner.startswith("optional("):
        if value is None:
            return None
        inner = inner[len("optional(") : -1]
    if not inner.startswith("seq(tensor("):
        element = NodeArg(info.name, inner, [])
        return _tensor(element, value) if inner.startswith("tensor(") else value
    if not isinstance(value, list | tuple):
        raise WrongCall(
            f"a sequence is given as a list of arrays, not as {type(value).__name__}",
            f"input {info.name!r}",
            "session.run(None, {name: [array, array]})",
        )
    element = NodeArg(info.name, inner[len("seq(") : -1], [])
    return [_tensor(element, one) for one in value]


def output(value: Any) -> Any:
    """An output as onnxruntime returns it: strings are Python objects."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "US":
        return value.astype(object)
    if isinstance(value, list):
        return [output(one) for one in value]
    return value


def check_outputs(names: Iterable[str], known: Iterable[str]) -> None:
    """InvalidArgument unless all names are outputs."""
    known = list(known)
    for name in names:
        if name not in known:
            close = closest(str(name), known)
            raise InvalidArgument(
                f"Invalid output name:{name}",
                hint=f"did you mean {close!r}?"
                if close
                else f"the model's outputs are {', '.join(map(repr, known))}",
            )
