"""The checkpoint file: parameters, optimizer state and properties in the safetensors format."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from popgraph.compat.ort_training.errors import MissingFile, WrongCall
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
        _refuse_theirs(source)
        arrays, texts = read_all(source)
        with reading("it is not a checkpoint of this API"):
            metadata = json.loads(texts[KEY])
            if metadata["format"] != FORMAT:
                raise Unreadable(
                    f"it has format {metadata['format']}, and this version reads {FORMAT}"
                )
            contents = Contents(
                {str(one["name"]): _tensor(one, arrays) for one in metadata["parameters"]},
                {str(name): _property(one) for name, one in metadata["properties"].items()},
                int(metadata["updates"]),
                float(metadata["initial_rate"]),
                int(metadata["train_steps"]),
            )
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
    return contents


def _refuse_theirs(path: Path) -> None:
    if size_of(path) >= 8 and read_range(path, 4, 4) == _THEIR_IDENTIFIER:
        raise Unreadable(
            "onnxruntime-training has written it, in a format of its own; "
            "there, `onnxblock.load_checkpoint_to_model` moves its weights into an ONNX model"
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
