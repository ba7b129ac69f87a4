"""Weights in separate files, as written by PopART's `saveInitializersExternally`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from onnx import ModelProto, TensorProto, numpy_helper
from xdsl.dialects.builtin import ModuleOp

from popgraph.builder.onnx.external import DataPlaces, Place
from popgraph.builder.onnx.write import export_model
from popgraph.dialects.onnx.tensorproto import PAYLOAD
from popgraph.dialects.program import WeightStore
from popgraph.support.errors import ModelError
from popgraph.support.writing import append_to, write_file

_WRITTEN: set[Path] = set()
"""Files written by this process; its own models may read them from any folder."""


def data_places() -> DataPlaces:
    """PopART's locations of external data: files relative to the working directory."""
    return DataPlaces(Path.cwd(), frozenset(_WRITTEN))


def save_externally(model: ModelProto, ids: Sequence[str], filename: str) -> dict[str, Place]:
    """Writes weights to a file in sequence; returns their locations."""
    path = Path(filename)
    if not path.absolute().parent.exists():
        raise ModelError(
            f"Saving tensor data to file {filename}, but its parent directory does not exist",
            "saveInitializersExternally",
            "make the folder first",
        )
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    places: dict[str, Place] = {}
    parts: list[bytes] = []
    offset = 0
    for id in ids:
        data = _data(tensors, id)
        places[id] = Place(filename, path.absolute(), offset, len(data))
        parts.append(data)
        offset += len(data)
    write_file(path, parts)
    _WRITTEN.add(path.resolve())
    return places


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


def exported(module: ModuleOp, store: WeightStore, places: Mapping[str, Place]) -> ModelProto:
    """Exports a module, with some weights stored externally at `places`."""
    message = export_model(module, store)
    mark(message, places)
    return message


def mark(model: ModelProto, places: Mapping[str, Place]) -> None:
    """Replaces the data of weights in a model by their external locations."""
    for tensor in model.graph.initializer:
        if tensor.name in places:
            for name in PAYLOAD:
                tensor.ClearField(name)
            tensor.ClearField("external_data")
            tensor.data_location = TensorProto.EXTERNAL
            place = places[tensor.name]
            for key, value in (
                ("location", place.location),
                ("length", place.length),
                ("offset", place.offset),
            ):
                tensor.external_data.add(key=key, value=str(value))


def overwrite(places: Mapping[str, Place], data: Mapping[str, bytes]) -> None:
    """Overwrites the data of weights in their files; other contents are kept."""
    for path in dict.fromkeys(place.path for place in places.values()):
        content = bytearray(path.read_bytes())
        for id, place in places.items():
            if place.path == path and id in data:
                content[place.offset : place.offset + place.length] = data[id]
        write_file(path, [bytes(content)])


def append(data: Mapping[str, bytes], places: Mapping[str, Place]) -> None:
    """Appends data to files, which may be too large to rewrite."""
    for id, content in data.items():
        append_to(places[id].path, content)


def copy_weights(places: Mapping[str, Place], location: str) -> dict[str, Place]:
    """Copies the data of weights to another file; returns the new locations."""
    path = Path(location)
    found: dict[str, Place] = {}
    parts: list[bytes] = []
    for id, place in places.items():
        data = place.path.read_bytes()[place.offset : place.offset + place.length]
        found[id] = Place(location, path.absolute(), sum(map(len, parts)), len(data))
        parts.append(data)
    write_file(path, parts)
    _WRITTEN.add(path.resolve())
    return found
