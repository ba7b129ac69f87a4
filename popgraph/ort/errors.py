"""The exceptions of onnxruntime's Python API, with PopGraph's messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from popgraph.support.errors import (
    ArgumentError,
    IndicesError,
    ModelError,
    ParseError,
    PopgraphError,
    RunError,
    TypeMismatchError,
    UnsupportedError,
)


class OrtError(PopgraphError):
    """The base of all errors with onnxruntime's names."""


class Fail(OrtError):
    """An operation failed for another reason than its arguments."""


class InvalidArgument(OrtError):
    """A name, type or shape does not fit the model."""


class NoSuchFile(OrtError):
    """The model's file does not exist."""


class NoModel(OrtError):
    """Never raised: a session always has a model."""


class EngineError(OrtError):
    """Never raised: PopGraph has no execution engines of other vendors."""


class RuntimeException(OrtError):
    """A kernel failed."""


class InvalidProtobuf(OrtError):
    """The bytes are not an ONNX model."""


class ModelLoaded(OrtError):
    """Never raised: a session loads one model."""


class NotImplemented(OrtError):
    """A valid model or call requires a feature that PopGraph does not have."""


class InvalidGraph(OrtError):
    """The model is damaged or contradicts ONNX."""


class EPFail(OrtError):
    """Never raised: the only execution provider is PopGraph's own."""


class ModelLoadCanceled(OrtError):
    """Never raised: loading cannot be cancelled."""


class ModelRequiresCompilation(OrtError):
    """Never raised: PopGraph compiles every model."""


class NotFound(OrtError):
    """Never raised: unknown names raise InvalidArgument."""


class DeviceReset(OrtError):
    """Never raised: the only device is the CPU."""


class WrongType(InvalidArgument, ArgumentError):
    """An argument has a type that onnxruntime rejects with TypeError."""


class WrongValue(InvalidArgument, ValueError):
    """An argument has a value that onnxruntime rejects with ValueError."""


class WrongCall(InvalidArgument, RuntimeError):
    """A call that onnxruntime rejects with RuntimeError."""


class UnknownOption(InvalidArgument, AttributeError):
    """An option that does not exist."""


@contextmanager
def loading() -> Iterator[None]:
    """Raises errors of loading and compiling a model as onnxruntime's exceptions."""
    try:
        yield
    except OrtError:
        raise
    except PopgraphError as error:
        raise _as(_kind_at_load(error), error) from error


def at_run(error: PopgraphError) -> OrtError:
    """The error of a run as onnxruntime's exception."""
    return _as(_kind_at_run(error), error)


def _as(kind: type[OrtError], error: PopgraphError) -> OrtError:
    return kind(error.what, error.where, error.hint)


def _kind_at_load(error: PopgraphError) -> type[OrtError]:
    if isinstance(error, UnsupportedError):
        return NotImplemented
    if isinstance(error, ModelError) and error.where.startswith(("the bytes", "file ")):
        return InvalidProtobuf  # Errors inside a graph name a graph, node or value instead.
    if isinstance(error, ModelError | ParseError | TypeMismatchError):
        return InvalidGraph
    return InvalidArgument if isinstance(error, RunError) else Fail


def _kind_at_run(error: PopgraphError) -> type[OrtError]:
    if isinstance(error, UnsupportedError):
        return NotImplemented
    if isinstance(error, RunError | IndicesError | TypeMismatchError):
        return InvalidArgument
    return InvalidGraph if isinstance(error, ModelError) else Fail
