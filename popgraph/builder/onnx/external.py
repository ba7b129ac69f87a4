"""External tensor data: resolves files, checks their paths, and maps them into memory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

import numpy as np
from onnx import FunctionProto, GraphProto, ModelProto, TensorProto

from popgraph.builder.onnx.message import graphs_of
from popgraph.dialects.onnx.tensorproto import IN_STORE, PACKED, check_tensor
from popgraph.dialects.program import WeightStore
from popgraph.support import dtypes
from popgraph.support.array_bytes import array_of_memory
from popgraph.support.arrays import Array
from popgraph.support.errors import ModelError
from popgraph.support.files import is_settled, state_of
from popgraph.support.reading import (
    Missing,
    Outside,
    Unreadable,
    path_inside,
    read_range,
    reading,
    size_of,
)


def _tensors(proto: ModelProto) -> Iterator[TensorProto]:
    """Every tensor of a model."""
    bodies: list[GraphProto | FunctionProto] = [proto.graph, *proto.functions]
    while bodies:
        body = bodies.pop()
        if isinstance(body, GraphProto):
            yield from body.initializer
            for sparse in body.sparse_initializer:
                yield from (sparse.values, sparse.indices)
        for node in body.node:
            for attribute in node.attribute:
                yield from attribute.tensors
                if attribute.HasField("t"):
                    yield attribute.t
                bodies.extend(graphs_of(attribute))


@dataclass(frozen=True)
class FileRange:
    """The location of a tensor's elements: a file, as named in the model, offset and length."""

    location: str
    path: Path
    offset: int
    length: int


@dataclass(frozen=True)
class DataFolders:
    """Further locations for the data of a model, and the locations actually used."""

    folder: Path
    """A folder whose files may be read; names are relative to it."""
    files: Collection[Path] = ()
    """Files outside the folder that may be read."""
    found: dict[str, FileRange] = field(default_factory=dict)
    """Locations by tensor name."""

    def names(self, location: str, path: Path) -> bool:
        """Whether the name of a file, relative to the folder, refers to `path`."""
        return (self.folder / location).resolve() == path.resolve()

    def path(self, location: str) -> Path:
        """The path of a file; `Unreadable` if it must not be read."""
        home = self.folder.resolve()
        path = home / location
        if path.resolve() in self.files:
            return path
        inside = path.resolve().is_relative_to(home)
        return path_inside(home, os.path.relpath(path, home) if inside and location else location)


class ExternalData:
    """Resolves the files with a model's large tensors, next to the model or in `folders`."""

    def __init__(
        self, folder: Path | None, store: WeightStore, folders: DataFolders | None = None
    ) -> None:
        self.folder = None if folder is None else folder.resolve()
        self.store = store
        self._folders = folders

    def resolve(self, proto: ModelProto) -> None:
        """Registers every external tensor in the store, to be mapped on first use."""
        for tensor in _tensors(proto):
            if tensor.data_location == TensorProto.EXTERNAL:
                self._resolve_tensor(tensor)

    def _resolve_tensor(self, tensor: TensorProto) -> None:
        check_tensor(tensor)
        path, offset, length = self._file_range(tensor)
        with _reporting_unreadable(tensor.name, path):
            state = self.store.files.setdefault(path, state_of(path))
        row = dtypes.BY_ONNX.get(tensor.data_type)
        if row is None or row.name in PACKED:
            with _reporting_unreadable(tensor.name, path):
                tensor.raw_data = read_range(path, offset, length)
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            return
        shape = tuple(tensor.dims)
        wanted = prod(shape) * row.numpy.itemsize
        if length != wanted:
            raise ModelError(
                f"tensor {tensor.name!r} of shape {list(shape)} takes {wanted} bytes, "
                f"its file holds {length}",
                f"file {path.name!r}",
                "export the model again together with its data",
            )
        source = _mapping(path, offset, shape, row.numpy, tensor.name)
        if is_settled(state):
            marks = (path, state, offset, shape, row.name)
            key = hashlib.sha256(repr(marks).encode()).hexdigest()
            self.store.defer(key, shape, row.numpy, source)
        else:
            key = self.store.keep(source()).key.text
        del tensor.external_data[:]
        tensor.external_data.add(key=IN_STORE, value=key)

    def _file_range(self, tensor: TensorProto) -> tuple[Path, int, int]:
        """File, offset and length; ModelError if the file is outside the model's folder."""
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        where = f"tensor {tensor.name!r}"
        try:
            path = self._path(location)
            size = size_of(path)
        except Unreadable as error:
            if self._folders is not None:
                raise _unrecognised(location, tensor.name, error, self._folders) from error
            raise _outside_error(location, where, error, self.folder) from error
        try:
            offset = int(entries.get("offset") or 0)
            length = int(entries.get("length") or size - offset)
        except ValueError:
            offset = length = -1
        if offset < 0 or length < 0 or offset + length > size:
            raise ModelError(
                f"the external data file {location!r} has {size} bytes; bytes "
                f"{entries.get('offset', 0)} to +{entries.get('length', 'end')} are required",
                where,
                "the file was not copied whole, or belongs to another model",
            )
        if self._folders is not None and self._folders.names(location, path):
            self._folders.found[tensor.name] = FileRange(location, path, offset, length)
        return path, offset, length

    def _path(self, location: str) -> Path:
        """The file in the model's folder, otherwise at one of the further locations."""
        if self._folders is None:
            assert self.folder is not None, "a model without a folder has other folders"
            return path_inside(self.folder, location)
        if self.folder is not None:
            with suppress(Unreadable):
                path = path_inside(self.folder, location)
                size_of(path)
                return path
        return self._folders.path(location)


def _outside_error(location: str, where: str, error: Unreadable, folder: Path | None) -> ModelError:
    if isinstance(error, Outside):
        return ModelError(
            f"the external data file {location!r} is outside the model's folder",
            where,
            "a model may only read files in its own folder; move the file there",
        )
    wrong = "is missing" if isinstance(error, Missing) else f"cannot be read: {error}"
    return ModelError(
        f"the external data file {location!r} {wrong}",
        where,
        f"put it into the model's folder {str(folder)!r}",
    )


def _unrecognised(location: str, name: str, error: Unreadable, folders: DataFolders) -> ModelError:
    """The error message of PopART and ONNX, which programs match."""
    if isinstance(error, Outside):
        wrong = "but it is outside the working directory, and this program did not write it"
    else:
        wrong = "but it doesn't exist or is not accessible"
    return ModelError(
        f"Unrecognised file name '{location}' for externally stored tensor '{name}': its data "
        f"should be stored in {location}, {wrong}",
        f"tensor {name!r}",
        f"names are relative to the working directory, {str(folders.folder)!r}",
    )


@contextmanager
def _reporting_unreadable(name: str, path: Path) -> Iterator[None]:
    """Converts an error for a file that disappeared."""
    try:
        with reading():
            yield
    except Unreadable as error:
        raise ModelError(
            f"the external data file {path.name!r} cannot be read: {error}", f"tensor {name!r}"
        ) from error


def _mapping(
    path: Path, offset: int, shape: tuple[int, ...], dtype: np.dtype[np.generic], name: str
) -> Callable[[], Array]:
    """A function that maps the file when the tensor is first used."""

    def load() -> Array:
        if prod(shape) == 0:
            return np.empty(shape, dtype)
        size = prod(shape) * dtype.itemsize
        with _reporting_unreadable(name, path):
            mapped: Array = np.memmap(path, np.uint8, "r", offset, (size,))
        return array_of_memory(mapped, dtype, shape)

    return load
