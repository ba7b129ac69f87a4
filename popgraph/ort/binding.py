"""`IOBinding`: inputs and outputs in given memory."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from popgraph.ort.errors import WrongCall, WrongValue
from popgraph.ort.values import NodeArg, OrtDevice, OrtValue, numpy_type
from popgraph.support.errors import PopgraphError
from popgraph.support.names import closest


class _Session(Protocol):
    def run(self, output_names: Any, input_feed: Any, run_options: Any = None) -> list[Any]: ...

    def get_inputs(self) -> list[NodeArg]: ...

    def get_outputs(self) -> list[NodeArg]: ...


class IOBinding:
    """
    Binds inputs and outputs of a session to arrays.

    Inputs are read from their memory. An output is computed in PopGraph's memory, then copied to a
    bound array.
    """

    def __init__(self, session: _Session) -> None:
        self._session = session
        self._inputs: dict[str, OrtValue] = {}
        self._outputs: dict[str, np.ndarray[Any, Any] | None] = {}
        self._found: dict[str, OrtValue] = {}

    def bind_cpu_input(self, name: str, arr_on_cpu: np.ndarray[Any, Any]) -> None:
        """Binds an input to an array."""
        self._check(name, self._session.get_inputs(), "input")
        self._inputs[name] = OrtValue(arr_on_cpu)

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Binds an input to a value."""
        self._check(name, self._session.get_inputs(), "input")
        self._inputs[name] = ortvalue

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Binds an input to memory at an address."""
        OrtDevice.make(device_type, device_id)
        self._check(name, self._session.get_inputs(), "input")
        self._inputs[name] = OrtValue(_at(buffer_ptr, element_type, shape))

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Binds an output to memory at an address, or to new memory."""
        OrtDevice.make(device_type, device_id)
        self._check(name, self._session.get_outputs(), "output")
        if buffer_ptr is None:
            self._outputs[name] = None
            return
        if element_type is None or shape is None:
            raise WrongValue(
                "a buffer requires element_type and shape",
                f"output {name!r}",
                'bind_output(name, "cpu", 0, np.float32, array.shape, array.ctypes.data)',
            )
        self._outputs[name] = _at(buffer_ptr, element_type, shape)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Binds an output to the memory of a value."""
        self._check(name, self._session.get_outputs(), "output")
        self._outputs[name] = ortvalue.numpy()

    def synchronize_inputs(self) -> None:
        """Does nothing: the CPU reads inputs when it needs them."""

    def synchronize_outputs(self) -> None:
        """Does nothing: a run ends when its outputs are complete."""

    def get_outputs(self) -> list[OrtValue]:
        """The outputs of the last run, in the order in which they were bound."""
        return list(self._found.values())

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The outputs of the last run as arrays that later runs do not change."""
        return [
            found.copy() if isinstance(found := value.numpy(), np.ndarray) else found
            for value in self._found.values()
        ]

    def clear_binding_inputs(self) -> None:
        """Unbinds all inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Unbinds all outputs."""
        self._outputs.clear()
        self._found.clear()

    def _run(self, run_options: Any) -> None:
        names = list(self._outputs)
        try:
            made = self._session.run(names, self._inputs, run_options)
        except PopgraphError as error:  # onnxruntime raises RuntimeError from a bound run
            raise WrongCall(error.what, error.where, error.hint) from error
        for name, value in zip(names, made, strict=False):
            self._found[name] = OrtValue(_placed(name, value, self._outputs[name]))

    def _check(self, name: str, known: Sequence[NodeArg], kind: str) -> None:
        names = [one.name for one in known]
        if name not in names:
            close = closest(str(name), names)
            raise WrongCall(
                f"the model has no {kind} {name!r}",
                hint=f"did you mean {close!r}?" if close else f"it has {', '.join(names)}",
            )


def _placed(name: str, value: Any, target: np.ndarray[Any, Any] | None) -> Any:
    """Copies an output to the bound array, if any."""
    if target is None:
        return value
    if value.shape != target.shape or value.dtype != target.dtype:
        raise WrongCall(
            f"output {name!r} is {value.dtype}{list(value.shape)}, "
            f"the bound memory {target.dtype}{list(target.shape)}",
            hint="bind memory of the output's type and shape, or bind_output(name)",
        )
    target[...] = value
    return target


def _at(address: int, element_type: Any, shape: Sequence[int]) -> np.ndarray[Any, Any]:
    """The array at an address, which the caller keeps alive."""
    dtype = numpy_type(element_type)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    buffer = (ctypes.c_char * size).from_address(address)
    return np.ndarray(tuple(shape), dtype, memoryview(buffer).cast("B"))
