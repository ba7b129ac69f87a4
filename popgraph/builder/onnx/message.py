"""The message of an ONNX model, read from its file without a copy of large weights."""

from __future__ import annotations

from mmap import ACCESS_READ, mmap
from pathlib import Path

import numpy as np
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import AttributeProto, GraphProto, ModelProto

from popgraph.builder.onnx.wire import Marking, without_weights
from popgraph.support.errors import ModelError
from popgraph.support.files import SIZE, State
from popgraph.support.reading import Unreadable, opened, read_stream, reading

LARGE_MODEL = 1 << 20
"""Bytes from which on a model's weights are not copied through protobuf."""
BYTES_LOCATION = "the bytes given"
"""The location in errors about a model without a file."""


def read_message(model: str | Path | bytes, weights: Marking | None = None) -> ModelProto:
    """The message of a model, a file or its bytes; `weights` may put others in their place."""
    if isinstance(model, bytes | bytearray | memoryview):
        return parsed(memoryview(model), BYTES_LOCATION, weights)
    where = where_of(Path(model))
    content, _ = content_of(Path(model), where)
    return parsed(content, where, weights)


def where_of(path: Path) -> str:
    """The name of a file for messages."""
    return f"file {str(path)!r}"


def content_of(path: Path, where: str, *, mapped: bool = False) -> tuple[memoryview, State]:
    """The content of a file, and the file state when it was read."""
    try:
        file, state = opened(path)
        with reading(), file:
            size = state[SIZE]
            if size == 0:  # a pipe, for example
                return memoryview(read_stream(file)), state
            if mapped:
                return memoryview(mmap(file.fileno(), 0, access=ACCESS_READ)), state
            content = np.empty(size, np.uint8)
            read = file.readinto(content.data)  # type: ignore[attr-defined]
    except Unreadable as error:
        raise ModelError(f"the model cannot be read: {error}", where, "check the path") from error
    return content[:read].data, state


def parsed(content: memoryview, where: str, weights: Marking | None = None) -> ModelProto:
    """Parses a model; `weights` receives large weights and may replace them by markers."""
    slim = None
    if weights is not None and len(content) > LARGE_MODEL:
        slim = without_weights(content, weights)
    try:
        proto = ModelProto.FromString(slim or bytes(content))
    except DecodeError as error:
        raise ModelError(
            "not an ONNX model, or a truncated one",
            where,
            "check that the file was copied whole, and that it is not a Git LFS pointer",
        ) from error
    check(proto, where)
    return proto


def check(proto: ModelProto, where: str) -> None:
    """ModelError for a message that parses but is not a model."""
    if not proto.HasField("graph") or (not proto.opset_import and proto.ir_version >= 3):
        missing = "opset import" if proto.HasField("graph") else "graph"
        raise ModelError(
            f"the model has no {missing}", where, "not an ONNX model, or a truncated one"
        )


def graphs_of(attribute: AttributeProto) -> list[GraphProto]:
    """The graphs in an attribute."""
    return [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]
