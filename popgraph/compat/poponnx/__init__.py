"""PopONNX's module `poponnx`: `popart` by its old name, and what only the old one had."""

# ruff: noqa: F401

from __future__ import annotations

from popgraph.builder.opset.exceptions import popart_exception as poponnx_exception
from popgraph.compat import popart as _popart
from popgraph.compat.poponnx.builder import Builder
from popgraph.compat.poponnx.dataflow import AnchorReturnType, DataFlow
from popgraph.compat.poponnx.session import Session
from popgraph.session.dataflow import InputShapeInfo as EarlyInfo
from popgraph.session.session import InferenceSession
from popgraph.session.training_session import TrainingSession

__version__ = _popart.__version__
_OWN = [
    "AnchorReturnType",
    "Builder",
    "DataFlow",
    "EarlyInfo",
    "InferenceSession",
    "Session",
    "TrainingSession",
    "poponnx_exception",
]
__all__ = sorted({*_popart.__all__, *_OWN})


def __getattr__(name: str) -> object:
    if name.startswith("__") or name not in _popart.__all__:
        raise AttributeError(f"module 'poponnx' has no attribute {name!r}")
    return getattr(_popart, name)


def __dir__() -> list[str]:
    return list(__all__)
