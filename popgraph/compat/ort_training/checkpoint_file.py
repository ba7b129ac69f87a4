"""Checkpoint files: written in the safetensors format, also read in onnxruntime-training's."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from popgraph.compat.ort_training.errors import MissingFile, WrongCall
from popgraph.compat.ort_training.flatbuffer import Table
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.reading import Missing, Unreadable, read_range, reading, size_of
from popgraph.support.safetensors import as_type, read_all, safetensors
from popgraph.support.writing import write_file

Property: TypeAlias = int | float | str

FORMAT = 1
KEY = "popgraph.ort_training"
"""Metadata key of the JSON that holds everything except arrays."""
_MOMENTS = ("moment0", "moment1")
"""Keys of the optimizer's states."""
_THEIR_IDENTIFIER = b"ODTC"
"""Bytes 4 to 8 of a checkpoint of onnxruntime-training, a flatbuffer."""


@dataclass
class Tensor:
    """A parameter: its value, its gradient and the optimizer's states."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    requires_grad: bool
    data: Array | None = None
    """None in a nominal checkpoint, until all parameters are set."""
    grad: Array | None = None
    """None if frozen, and before a module exists."""
    moments: list[Array] = field(default_factory=list)

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass
class Contents:
    """The contents of a checkpoint."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    properties: dict[str, Property] = field(default_factory=dict)
    updates: int = 0
    """The number of steps of the optimizer."""
    initial_rate: float = 0.001
    train_steps: int = 0
    """The number of training steps, which select the random numbers of Dropout."""

    @property
    def is_nominal(self) -> bool:
        """Whether parameters have names, types and shapes only."""
        return any(one.data is None for one in self.tensors.values())


def write(contents: Contents, path: str | os.PathLike[str], *, optimizer: bool) -> None:
    """Writes a checkpoint atomically; the optimizer's state is left out unless `optimizer`."""
    target = Path(path)
    if not target.parent.is_dir():
        raise MissingFile(
            f"there is no folder {str(target.parent)!r}", str(target), "create it first"
        )
    arrays = {}
    for name, one in contents.tensors.items():
        if one.data is not None:
            arrays[f"parameter/{name}"] = one.data
        for key, moment in zip(_MOMENTS, one.moments if optimizer else (), strict=False):
            arrays[f"{key}/{name}"] = moment
    metadata = {
        "format": FORMAT,
        "parameters": [
            {
                "name": one.name,
                "type": dtypes.from_numpy(one.dtype).name,
                "shape": one.shape,
                "requires_grad": one.requires_grad,
            }
            for one in contents.tensors.values()
        ],
        "properties": contents.properties,
        "updates": contents.updates if optimizer else 0,
        "initial_rate": contents.initial_rate,
        "train_steps": contents.train_steps,
    }
    write_file(target, safetensors(arrays, {KEY: json.dumps(metadata)}))


def read(path: str | os.PathLike[str]) -> Contents:
    """Reads a checkpoint; MissingFile or WrongCall if that is impossible."""
    source = Path(path)
    try:
        if size_of(source) >= 8 and read_range(source, 4, 4) == _THEIR_IDENTIFIER:
            with reading():
                return _of_flatbuffer(source.read_bytes())
        return _of_safetensors(source)
    except Missing as error:
        raise MissingFile(
            f"the checkpoint cannot be read: {error}", str(source), "check the path"
        ) from error
    except Unreadable as error:
        raise WrongCall(
            f"the checkpoint cannot be read: {error}",
            str(source),
            "load a file of generate_artifacts or save_checkpoint",
        ) from error


def _of_safetensors(path: Path) -> Contents:
    arrays, texts = read_all(path)
    with reading("it is not a checkpoint of this API"):
        metadata = json.loads(texts[KEY])
        if metadata["format"] != FORMAT:
            raise Unreadable(f"it has format {metadata['format']}, and this version reads {FORMAT}")
        return Contents(
            {str(one["name"]): _tensor(one, arrays) for one in metadata["parameters"]},
            {str(name): _property(one) for name, one in metadata["properties"].items()},
            int(metadata["updates"]),
            float(metadata["initial_rate"]),
            int(metadata["train_steps"]),
        )


def _tensor(entry: dict[str, Any], arrays: dict[str, Array]) -> Tensor:
    name, shape = str(entry["name"]), tuple(int(size) for size in entry["shape"])
    dtype = dtypes.BY_NAME[entry["type"]].numpy
    made = Tensor(name, dtype, shape, bool(entry["requires_grad"]))
    made.data = _array(arrays, f"parameter/{name}", made)
    moments = [_array(arrays, f"{key}/{name}", made) for key in _MOMENTS]
    made.moments = [one for one in moments if one is not None]
    return made


def _array(arrays: dict[str, Array], key: str, tensor: Tensor) -> Array | None:
    """A writable copy of an array; None if the file does not have it."""
    if key not in arrays:
        return None
    typed = as_type(arrays[key], tensor.dtype, tensor.shape)
    if typed is None:
        raise Unreadable(f"{key!r} has another type or shape than its entry")
    return np.array(typed, order="C")


def _property(value: object) -> Property:
    if not isinstance(value, int | float | str):
        raise Unreadable(f"{value!r} is not a property")
    return value


def _of_flatbuffer(content: bytes) -> Contents:
    """A checkpoint of onnxruntime-training, by the fields of its schema."""
    root, contents = Table.root(content), Contents()
    module = root.table(1)
    if module is None:
        raise Unreadable("it has no parameters")
    if module.number(2, "?"):
        raise Unreadable("a nominal checkpoint of onnxruntime-training has no shapes")
    if module.number(3, "?"):
        raise Unreadable("its arrays are in another file")
    left = len(content)  # Damaged files may name the same bytes many times.
    for at, is_trained in enumerate((True, False)):
        for one in module.tables(at):
            tensor = _their_tensor(one, is_trained)
            left -= tensor.size * tensor.dtype.itemsize
            tensor.data = _their_array(one, tensor, left)
            contents.tensors[tensor.name] = tensor
    for group in root.tables(2):
        contents.updates = contents.train_steps = group.number(1, "q") or 0
        contents.initial_rate = group.number(2, "f") or contents.initial_rate
        for state in group.tables(3):
            tensor = contents.tensors[state.text(0)]
            moments = sorted(state.tables(1), key=lambda moment: moment.text(0))
            left -= len(moments) * tensor.size * tensor.dtype.itemsize
            tensor.moments = [_their_array(moment, tensor, left) for moment in moments]
    if bag := root.table(3):
        found = contents.properties
        found |= {one.text(0): int(one.number(1, "q") or 0) for one in bag.tables(0)}
        found |= {one.text(0): float(one.number(1, "f") or 0) for one in bag.tables(1)}
        found |= {one.text(0): one.text(1) for one in bag.tables(2)}
    return contents


def _their_tensor(table: Table, is_trained: bool) -> Tensor:
    dtype = dtypes.BY_ONNX[table.number(3, "i")].numpy
    return Tensor(table.text(0), dtype, table.numbers(2, "q"), is_trained)


def _their_array(table: Table, tensor: Tensor, left: int) -> Array:
    if left < 0:
        raise Unreadable("it is damaged")
    return np.frombuffer(table.data(4), tensor.dtype).reshape(tensor.shape).copy()
