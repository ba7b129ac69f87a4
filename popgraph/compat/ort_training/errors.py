"""Errors of the training API, each also of the class that onnxruntime-training raises."""

from __future__ import annotations

from popgraph.ort.errors import InvalidArgument, NoSuchFile, WrongCall, WrongType


class UnknownName(InvalidArgument, KeyError):
    """A parameter or property that does not exist."""

    __str__ = InvalidArgument.__str__  # KeyError shows the quoted tuple.


class UnknownValue(InvalidArgument, LookupError):
    """A value that the graph does not have."""


class MissingFile(NoSuchFile, FileNotFoundError, RuntimeError):
    """An artifact or its folder does not exist."""

    __str__ = NoSuchFile.__str__


__all__ = ["MissingFile", "UnknownName", "UnknownValue", "WrongCall", "WrongType"]
