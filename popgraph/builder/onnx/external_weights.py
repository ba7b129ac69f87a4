"""Weights in separate files, as written by PopART's `saveInitializersExternally`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from onnx import ModelProto, TensorProto, numpy_helper
from xdsl.dialects.builtin import ModuleOp

from popgraph.builder.onnx.external import DataFolders, FileRange
from popgraph.builder.onnx.write import export_model
from popgraph.dialects.onnx.tensorproto import PAYLOAD
from popgraph.dialects.program import WeightStore
from popgraph.support.errors import ModelError
from popgraph.support.writing import append_to, write_file

_WRITTEN: set[Path] = set()
"""Files written by this process; its own models may read them from any folder."""


def data_folders() -> DataFolders:
    """PopART's locations of external data: files relative to the working directory."""
    return DataFolders(Path.cwd(), frozenset(_WRITTEN))


def save_externally(model: ModelProto, ids: Sequence[str], filename: str) -> dict[str, FileRange]:
    """Writes weights to a file in sequence; returns their locations."""
    path = Path(filename)
    if not path.absolute().parent.exists():
        raise ModelError(
            f"Saving tensor data to file {filename}, but its parent directory does not exist",
            "saveInitializersExternally",
            "make the folder first",
        )
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    ranges: dict[str, FileRange] = {}
    parts: list[bytes] = []
    offset = 0
    for id in ids:
        data = _data(tensors, id)
        ranges[id] = FileRange(filename, path.absolute(), offset, len(data))
        parts.append(data)
        offset += len(data)
    write_file(path, parts)
    _WRITTEN.add(path.resolve())
    return ranges


def _data(tensors: Mapping[str, TensorProto], id: str) -> bytes:
    if id not in tensors:
        raise _refused(f"Tensor '{id}' is not an initializer")
    tensor = tensors[id]
    if tensor.data_location == TensorProto.EXTERNAL:
        raise _refused(f"Tensor '{id}' already has an external data_location")
    data = bytes(numpy_helper.to_array(tensor).tobytes())
    if not data:
        raise _refused(f"Tensor '{id}' has no data to save externally")
    return data


def _refused(what: str) -> ModelError:
    return ModelError(
        what, "saveInitializersExternally", "name weights whose data stand in the model"
    )


def exported(module: ModuleOp, store: WeightStore, ranges: Mapping[str, FileRange]) -> ModelProto:
    """Exports a module, with some weights stored externally at `ranges`."""
    message = export_model(module, store)
    mark(message, ranges)
    return message


def mark(model: ModelProto, ranges: Mapping[str, FileRange]) -> None:
    """Replaces the data of weights in a model by their external locations."""
    for tensor in model.graph.initializer:
        if tensor.name in ranges:
            for name in PAYLOAD:
                tensor.ClearField(name)
            tensor.ClearField("external_data")
            tensor.data_location = TensorProto.EXTERNAL
            range_ = ranges[tensor.name]
            for key, value in (
                ("location", range_.location),
                ("length", range_.length),
                ("offset", range_.offset),
            ):
                tensor.external_data.add(key=key, value=str(value))


def overwrite(ranges: Mapping[str, FileRange], data: Mapping[str, bytes]) -> None:
    """Overwrites the data of weights in their files; other contents are kept."""
    for path in dict.fromkeys(range_.path for range_ in ranges.values()):
        content = bytearray(path.read_bytes())
        for id, range_ in ranges.items():
            if range_.path == path and id in data:
                content[range_.offset : range_.offset + range_.length] = data[id]
        write_file(path, [bytes(content)])


def append(data: Mapping[str, bytes], ranges: Mapping[str, FileRange]) -> None:
    """Appends data to files, which may be too large to rewrite."""
    for id, content in data.items():
        append_to(ranges[id].path, content)


def copy_weights(ranges: Mapping[str, FileRange], location: str) -> dict[str, FileRange]:
    """Copies the data of weights to another file; returns the new locations."""
    path = Path(location)
    found: dict[str, FileRange] = {}
    parts: list[bytes] = []
    for id, range_ in ranges.items():
        data = range_.path.read_bytes()[range_.offset : range_.offset + range_.length]
        found[id] = FileRange(location, path.absolute(), sum(map(len, parts)), len(data))
        parts.append(data)
    write_file(path, parts)
    _WRITTEN.add(path.resolve())
    return found
