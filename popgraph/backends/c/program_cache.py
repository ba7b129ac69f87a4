"""How does a program that was compiled once start again, with no pass and no compiler run?"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from typing import IO, Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.printer import Printer

from popgraph.backends.c.module import Slot, Table
from popgraph.backends.c.toolchain import digest, machine, readable_caches
from popgraph.dialects.program import WeightStore
from popgraph.dialects.program.attributes import Array, BlobAttr, DataAttr
from popgraph.support import dtypes
from popgraph.support.debug import Settings

PACKAGE = Path(__file__).parents[2]
SWITCH = "POPGRAPH_PROGRAM_CACHE"
MAGIC = "popgraph program 1"
LIMIT = 4 << 30
"""Bytes of programs that are kept; those that were not used for longest go first."""
ALIGNMENT = 64
BLOCK = 1 << 16
"""Bytes that one number of a checksum covers."""
LOADING = 2.0
"""Seconds that importing this package may have taken before this file was reached."""

_STARTED = time.time()


def aligned(size: int) -> Array:
    """Memory at an address that vectors like."""
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size]


@dataclass(frozen=True)
class Saved:
    """All that a program is, but for the code in its library."""

    name: str
    library: str
    """The key of its library, see `toolchain.library_key`."""
    table: Table
    persistent: Array


@dataclass(frozen=True)
class ProgramKey:
    """What a program is found by: everything that its compilation depends on."""

    digest: str
    text: str
    """The model; the weights that it names are not stored a second time."""

    def save(self, saved: Saved, weights: WeightStore) -> None:
        """Keeps a program for the next start; a cache that cannot be written stays as it is."""
        first, *others = readable_caches()
        if others:
            return  # the cache is read-only
        pieces = [saved.persistent]
        slots = [self._describe(slot, weights, pieces) for slot in saved.table.slots]
        header = {
            "key": self.digest,
            "name": saved.name,
            "library": saved.library,
            "arena": saved.table.arena,
            "slots": slots,
            "pieces": [{"bytes": len(piece), "sum": checksum(piece)} for piece in pieces],
        }
        with suppress(OSError):
            _write(_file(first, self.digest), json.dumps(header), pieces)
            trim(first / "programs", LIMIT)

    def load(self, weights: WeightStore) -> Saved | None:
        """The program of this key; None when there is none, or any doubt about it."""
        for cache in readable_caches():
            path = _file(cache, self.digest)
            with (
                suppress(OSError, ValueError, KeyError, TypeError, IndexError),
                path.open("rb") as file,
            ):
                found = self._read(file, weights)
                with suppress(OSError):
                    os.utime(path)
                return found
        return None

    def _read(self, file: IO[bytes], weights: WeightStore) -> Saved:
        header, pieces = _read(file)
        if header["key"] != self.digest:
            raise ValueError("another program's file")
        slots = tuple(_slot(row, weights, pieces) for row in header["slots"])
        table = Table(slots, header["arena"], len(pieces[0]))
        return Saved(header["name"], header["library"], table, pieces[0])

    def _describe(self, slot: Slot, weights: WeightStore, pieces: list[Array]) -> dict[str, Any]:
        """A slot as JSON; what passes computed for it is added to the pieces."""
        return {
            "space": slot.space,
            "label": slot.label,
            "dtype": None if slot.dtype is None else slot.dtype.name,
            "shape": slot.shape,
            "prepared": slot.prepared,
            "literal": None if slot.prepared else self._literal(slot, weights, pieces),
        }

    def _literal(
        self, slot: Slot, weights: WeightStore, pieces: list[Array]
    ) -> dict[str, Any] | None:
        literal = slot.literal
        if literal is None:
            return None
        row: dict[str, Any] = {
            "dtype": dtypes.from_ir(literal.type.element_type).name,
            "shape": literal.type.get_shape(),
        }
        if isinstance(literal, DataAttr):
            return row | {"inline": literal.payload.data.hex()}
        row["key"] = literal.key.text
        if literal.key.text not in self.text:
            row["piece"] = len(pieces)
            array = np.ascontiguousarray(weights.array(literal))
            pieces.append(array.reshape(-1).view(np.uint8))
        return row


def _slot(row: dict[str, Any], weights: WeightStore, pieces: Sequence[Array]) -> Slot:
    """The slot that `_describe` described; its literal is in `weights` then."""
    dtype = None if row["dtype"] is None else dtypes.BY_NAME[row["dtype"]]
    slot = Slot(row["space"], row["label"], dtype, tuple(row["shape"]), None, row["prepared"])
    literal = row["literal"]
    if literal is None:
        return slot
    return replace(slot, literal=_attribute(literal, weights, pieces))


def _attribute(
    row: dict[str, Any], weights: WeightStore, pieces: Sequence[Array]
) -> DataAttr | BlobAttr:
    numpy, shape = dtypes.BY_NAME[row["dtype"]].numpy, tuple(row["shape"])
    if "inline" in row:
        return DataAttr.of(np.frombuffer(bytes.fromhex(row["inline"]), numpy).reshape(shape))
    if "piece" in row:
        array = pieces[row["piece"]].view(numpy).reshape(shape)
        return weights.defer(row["key"], shape, numpy, array)
    if row["key"] not in weights:
        raise KeyError("the model does not bring this weight")
    return weights.reference(row["key"], shape, numpy)


# Keys


def program_key(module: ModuleOp, passes: Sequence[object]) -> ProgramKey | None:
    """
    The key of what `passes` would make of a module; None when the cache is not to be used.

    So it is when passes are to be watched, when they are not this package's own, and when its
    files were changed since it was imported.
    """
    if os.environ.get(SWITCH) == "0" or Settings.from_environment() != Settings():
        return None
    described = [repr(step) for step in passes]
    own = all(type(step).__module__.startswith("popgraph.") for step in passes)
    sources = _sources()
    if sources is None or not own or any(" at 0x" in text for text in described):
        return None
    output = StringIO()
    Printer(output, print_generic_format=True).print_op(module)
    text = output.getvalue()
    if "dense<" in text:
        return None  # elements that differ may read alike
    return ProgramKey(digest(MAGIC, sources, machine(), *described, text), text)


@functools.cache
def _sources() -> str | None:
    """The content of this package and the versions of those that it stands on."""
    made = hashlib.sha256()
    for file in sorted(PACKAGE.rglob("*")):
        if file.suffix in (".py", ".h", ".json"):
            if file.stat().st_mtime > _STARTED - LOADING:
                return None
            made.update(str(file.relative_to(PACKAGE)).encode())
            made.update(file.read_bytes())
    versions = [version(name) for name in ("xdsl", "onnx", "numpy", "ml_dtypes")]
    return digest(made.hexdigest(), *versions)


# Files


def _file(cache: Path, key: str) -> Path:
    return cache / "programs" / key[:2] / key


def checksum(data: Array) -> str:
    """Tells damaged data at the speed of memory; `data` is contiguous."""
    whole = len(data) // BLOCK * BLOCK
    blocks = data[:whole].view(np.uint64).reshape(-1, BLOCK // 8)
    made = hashlib.sha256(np.add.reduce(blocks, axis=1).tobytes())
    made.update(data[whole:].tobytes())
    return made.hexdigest()


def _write(path: Path, header: str, pieces: Sequence[Array]) -> None:
    """Magic and checksum, header, data; the file is there when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix="partial-")
    try:
        with open(handle, "wb") as file:
            file.write(f"{MAGIC} {digest(header)}\n{header}\n".encode())
            for piece in pieces:
                file.write(piece.data)
        os.replace(partial, path)
    except BaseException:
        os.unlink(partial)
        raise


def _read(file: IO[bytes]) -> tuple[dict[str, Any], list[Array]]:
    """Header and data; ValueError when they are damaged."""
    first, header = file.readline().decode(), file.readline().decode().rstrip("\n")
    if first != f"{MAGIC} {digest(header)}\n":
        raise ValueError("damaged header")
    content: dict[str, Any] = json.loads(header)
    pieces = []
    for row in content["pieces"]:
        piece = aligned(max(row["bytes"], 1))[: row["bytes"]]
        if file.readinto(piece.data) != len(piece) or checksum(piece) != row["sum"]:  # type: ignore[attr-defined]
            raise ValueError("damaged data")
        pieces.append(piece)
    return content, pieces


def trim(folder: Path, limit: int) -> None:
    """Removes the files of a folder that were not used for longest, until the rest fit."""
    total = 0
    for _, size, path in sorted(_uses(folder), reverse=True):
        total += size
        if total > limit:
            with suppress(OSError):
                path.unlink()


def _uses(folder: Path) -> Iterator[tuple[int, int, Path]]:
    """When each file was used last, and its size."""
    for path in folder.glob("*/*"):
        with suppress(OSError):
            state = path.stat()
            yield state.st_mtime_ns, state.st_size, path
