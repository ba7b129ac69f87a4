"""Looks up element types by their names in PopART, NumPy and Python."""

from __future__ import annotations

from popgraph.builder.opset.enums import DataType
from popgraph.support import dtypes
from popgraph.support.dtypes import DType
from popgraph.support.errors import CallError


def dtype_row(name: str) -> DType:
    """The element type with this PopART name; TypeError if there is none."""
    if name not in dtypes.BY_POPART:
        known = ", ".join(dtypes.BY_POPART)
        raise TypeError(f"{name!r} is not a data type of tensors; known are {known}")
    return dtypes.BY_POPART[name]


def named_row(kind: object) -> DType:
    """The element type with this PopART, NumPy or Python name."""
    if isinstance(kind, DataType):
        return dtype_row(kind.name)
    if isinstance(kind, str) and kind in DataType.__members__:
        return dtype_row(kind)
    try:
        return dtypes.from_numpy(kind)
    except (KeyError, TypeError):
        if not isinstance(kind, str):
            raise
        known = ", ".join(sorted(one.name for one in DataType))
        raise CallError(f"no ONNX type {kind}, they're [{known}].") from None
