"""Errors of the training API, each also of the class that onnxruntime-training raises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from popgraph.ort.errors import InvalidArgument, NoSuchFile, WrongCall, WrongType
from popgraph.support.errors import PopgraphError


class UnknownName(InvalidArgument, KeyError):
    """A parameter or property that does not exist."""

    __str__ = InvalidArgument.__str__  # KeyError shows the quoted tuple.


class UnknownValue(InvalidArgument, LookupError):
    """A value that the graph does not have."""


class MissingFile(NoSuchFile, FileNotFoundError, RuntimeError):
    """An artifact or its folder does not exist."""

    __str__ = NoSuchFile.__str__


@contextmanager
def running() -> Iterator[None]:
    """Raises errors of compilation and runs as RuntimeErrors, as onnxruntime-training does."""
    try:
        yield
    except PopgraphError as error:
        if isinstance(error, RuntimeError):
            raise
        raise WrongCall(error.what, error.where, error.hint) from error


__all__ = ["MissingFile", "UnknownName", "UnknownValue", "WrongCall", "WrongType", "running"]
