"""`onnxruntime.backend`: the functions of ONNX's backend interface over sessions."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from popgraph.ort.errors import WrongValue
from popgraph.ort.options import RunOptions, SessionOptions
from popgraph.ort.session import InferenceSession


class OrtBackendRep:
    """A prepared model: `run(inputs)` returns a list of its outputs."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session

    def run(self, inputs: Any, **kwargs: Any) -> list[Any]:
        """
        The outputs for inputs by name, in the model's order, or for a single array.

        Keywords set attributes of `RunOptions`.
        """
        options = RunOptions()
        for name, value in kwargs.items():
            setattr(options, name, value)
        return self._session.run(None, self._named(inputs), options)

    def _named(self, inputs: Any) -> Mapping[str, Any]:
        if isinstance(inputs, Mapping):
            return inputs
        names = [one.name for one in self._session.get_inputs()]
        many = isinstance(inputs, Sequence) and len(names) > 1
        given = list(inputs) if many else [inputs]
        if len(given) != len(names):
            raise WrongValue(
                f"{len(given)} inputs are given, the model has {len(names)}",
                hint=f"in this order: {', '.join(names)}",
            )
        return dict(zip(names, given, strict=True))


def supports_device(device: str) -> bool:
    """Whether the device is the CPU."""
    return device.split(":")[0].upper() == "CPU"


def is_compatible(model: Any, device: str | None = None, **kwargs: Any) -> bool:
    """Whether the device is the CPU; the model is checked when it is prepared."""
    return supports_device(device or "CPU")


def prepare(model: Any, device: str | None = None, **kwargs: Any) -> OrtBackendRep:
    """
    Compiles a path, bytes, a ModelProto or a session.

    Keywords set attributes of `SessionOptions`.
    """
    if isinstance(model, OrtBackendRep):
        return model
    if isinstance(model, InferenceSession):
        return OrtBackendRep(model)
    if not supports_device(device or "CPU"):
        raise WrongValue(f"there is no device {device!r}", hint="PopGraph computes on 'CPU'")
    options = SessionOptions()
    for name, value in kwargs.items():
        setattr(options, name, value)
    if not isinstance(model, str | bytes | os.PathLike):
        model = model.SerializeToString()
    return OrtBackendRep(InferenceSession(model, options))


def run(model: Any, inputs: Any, device: str | None = None, **kwargs: Any) -> list[Any]:
    """Prepares a model and runs it once."""
    return prepare(model, device, **kwargs).run(inputs)


run_model = run
