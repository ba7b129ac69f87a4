"""Checkpoints: the named weights of .safetensors, sharded, .gguf and .npz files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeAlias

from popgraph.support.array_files import names_of_npz, read_npz
from popgraph.support.arrays import Array
from popgraph.support.ggml_blocks import Blocks
from popgraph.support.gguf import GgufFile, read_gguf
from popgraph.support.gguf_names import NOT_WEIGHTS, Translation, translation_of
from popgraph.support.names import closest
from popgraph.support.reading import Outside, Unreadable, path_inside, read_range, reading, size_of
from popgraph.support.safetensors import entries

Stored: TypeAlias = Array | Blocks
"""A weight as a file stores it: an array, or blocks of small integers with scales."""

INDEX = "model.safetensors.index.json"
"""The file of a folder that lists the shards of its weights."""

SUFFIXES = (".safetensors", ".gguf", ".npz", ".json")
"""Suffixes of weight files; .json is the index of shards."""

_MOST_INDEX = 100_000_000
_CANDIDATES = (INDEX, "model.safetensors", "*.safetensors", "*.gguf")


@dataclass(frozen=True)
class Checkpoint:
    """
    Weights by name; each is read, or mapped into memory, when it is asked for.

    A .gguf file of a known architecture has the names, the order of rows and the values of Hugging
    Face's checkpoints; the names in the file are accepted, too, and give what the file stores.
    """

    path: Path
    readers: Mapping[str, Callable[[], Stored]] = field(repr=False)
    files: tuple[Path, ...] = ()
    """All files that hold weights."""
    hidden: Mapping[str, Callable[[], Stored]] = field(default_factory=dict, repr=False)
    """Weights under further names, which iteration leaves out."""
    gguf: GgufFile | None = None
    """The file itself, with its metadata, if it is a .gguf file."""
    is_renamed: bool = False
    """Whether the files have other names."""

    def __iter__(self) -> Iterator[str]:
        return iter(self.readers)

    def __contains__(self, name: object) -> bool:
        return name in self.readers or name in self.hidden

    def read(self, name: str) -> Stored:
        """The weight of a name; `KeyError` if there is none, `Unreadable` if it is damaged."""
        found = self.readers.get(name) or self.hidden[name]
        return found()

    def find(self, name: str) -> str | None:
        """The name under which a weight is stored: `a/b/w` may be `a.b.w`."""
        return next((one for one in (name, name.replace("/", ".")) if one in self), None)

    def closest(self, name: str) -> str:
        """The most similar name; "" if none is."""
        return closest(name.replace("/", "."), self)


def open_checkpoint(path: Path) -> Checkpoint:
    """Opens a file of weights, or those of a folder; `Unreadable` if that fails."""
    if path.is_dir():
        path = file_of_folder(path)
    match path.suffix:
        case ".safetensors":
            return Checkpoint(path, entries(path)[0], (path,))
        case ".gguf":
            return _of_gguf(path)
        case ".npz":
            readers = {name: partial(read_npz, path, name) for name in names_of_npz(path)}
            return Checkpoint(path, readers, (path,))
        case ".json":
            return _of_shards(path)
    known = ", ".join(SUFFIXES)
    raise Unreadable(f"{path.suffix or 'a file without a suffix'} is not one of {known}")


def file_of_folder(folder: Path) -> Path:
    """The file with the weights of a folder, or the index of several."""
    for pattern in _CANDIDATES:
        found = sorted(folder.glob(pattern))
        if len(found) > 1:
            names = ", ".join(one.name for one in found)
            raise Unreadable(f"the folder has several files of weights: {names}")
        if found:
            return found[0]
    raise Unreadable(f"the folder has none of {', '.join(_CANDIDATES)}")


def _of_shards(path: Path) -> Checkpoint:
    if size_of(path) > _MOST_INDEX:
        raise Unreadable("it is not an index of shards")
    with reading("it is not an index of shards"):
        text = json.loads(read_range(path, 0, size_of(path)))
        shards = {str(name): str(file) for name, file in text["weight_map"].items()}
    opened: dict[str, Mapping[str, Callable[[], Array]]] = {}
    for file in dict.fromkeys(shards.values()):
        opened[file] = entries(_shard(path.parent, file))[0]
    readers: dict[str, Callable[[], Stored]] = {}
    for name, file in shards.items():
        if name not in opened[file]:
            raise Unreadable(f"its shard {file!r} has no {name!r}")
        readers[name] = opened[file][name]
    return Checkpoint(path, readers, (path, *(_shard(path.parent, file) for file in opened)))


def _shard(folder: Path, file: str) -> Path:
    """The path of a shard, which is in the folder, or in the blobs of Hugging Face's cache."""
    try:
        return path_inside(folder, file)
    except Outside:
        # snapshots/REVISION/model.safetensors -> ../../blobs/HASH
        blobs = folder.parent.parent / "blobs"
        if Path(file).name != file:
            raise
        return path_inside(blobs, (folder / file).resolve().name)


def _of_gguf(path: Path) -> Checkpoint:
    file = read_gguf(path)
    count = file.metadata.get("split.count", 1)
    if isinstance(count, int) and count > 1:
        raise Unreadable(f"it is one of {count} parts; llama-gguf-split --merge joins them")
    translation = translation_of(file.metadata)
    if translation is None:
        readers = {name: partial(file.read, name) for name in file.tensors}
        return Checkpoint(path, readers, (path,), gguf=file)
    named: dict[str, Callable[[], Stored]] = {}
    for name in file.tensors:
        if name in NOT_WEIGHTS:
            continue
        theirs = translation.name(name)
        if theirs in named:
            raise Unreadable(f"it has two tensors for {theirs!r}")
        named[theirs] = partial(_translated, file, translation, name)
    hidden = {name: partial(file.read, name) for name in file.tensors if name not in named}
    return Checkpoint(path, named, (path,), hidden, file)


def _translated(file: GgufFile, translation: Translation, name: str) -> Stored:
    return translation.value(name, file.read(name))
