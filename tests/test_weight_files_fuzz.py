"""Fuzzes weight files: damage ends in an error, and no other file is read."""

from __future__ import annotations

import io
import os
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import settings

import popgraph
from popgraph.builder.pgraph import parse
from popgraph.builder.pgraph.lower.document import load
from popgraph.cli.models import read_array
from popgraph.support.errors import PopgraphError
from tests.judging import in_time
from tests.onnx_mutants import some_bytes

MUTANTS = 40 if settings().max_examples <= 20 else 4000
"""Mutants per kind of file: few in every run, many in `make fuzz`."""
ARRAY = np.arange(6, dtype=np.float32).reshape(2, 3)


def text(source: str) -> str:
    return f"graph g(x: f32[2, 3]) -> y {{\n weight w: f32[2, 3] = {source}\n y = x + w\n}}\n"


def write_npz(path: Path) -> None:
    np.savez_compressed(path, w=ARRAY, v=ARRAY)


def write_safetensors(path: Path) -> None:
    header = b'{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}'
    path.write_bytes(len(header).to_bytes(8, "little") + header + ARRAY.tobytes())


FILES: dict[str, tuple[Callable[[Path], None], str]] = {
    "w.npy": (lambda path: np.save(path, ARRAY), 'load("w.npy")'),
    "w.npz": (write_npz, 'load("w.npz", "w")'),
    "w.safetensors": (write_safetensors, 'load("w.safetensors", "w")'),
    "w.bin": (lambda path: ARRAY.tofile(path), 'load("w.bin", offset=0)'),
}


@pytest.mark.parametrize("name", FILES)
def test_fuzz_of_weight_files(name: str, tmp_path: Path) -> None:
    write, source = FILES[name]
    path, model = tmp_path / name, tmp_path / "m.pgraph"
    write(path)
    whole = path.read_bytes()
    model.write_text(text(source))
    assert load(model)
    refused = 0
    for number in range(MUTANTS):
        path.write_bytes(some_bytes(Random(number), whole))
        with in_time():
            try:
                load(model)
            except PopgraphError as error:
                refused += 1
                assert error.what
            if name == "w.npy":
                read_or_refused(path)
    assert refused or name == "w.bin"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["m.pgraph", name]


def read_or_refused(path: Path) -> None:
    try:
        read_array(str(path))
    except PopgraphError as error:
        assert error.what.startswith("the array cannot be read: ")


HEADERS = (
    b"[]",
    b"{",
    b"[" * 100_000,
    b'{"w":1}',
    b'{"w":{}}',
    b'{"w":{"dtype":"F32","shape":[2,3],"data_offsets":["0","24"]}}',
    b'{"w":{"dtype":"F32","shape":[1e999,3],"data_offsets":[0,24]}}',
    b'{"w":{"dtype":"F32","shape":[-2,-3],"data_offsets":[0,24]}}',
    b'{"w":{"dtype":"F32","shape":[2.5,3],"data_offsets":[0,24]}}',
    b'{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[-24,0]}}',
    b'{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[9223372036854775807,24]}}',
    b'{"w":{"dtype":["F32"],"shape":[2,3],"data_offsets":[0,24]}}',
    b'{"w":{"dtype":"F32","shape":[4611686018427387904,4,0],"data_offsets":[0,0]}}',
    b"\xff\xfe",
)


@pytest.mark.parametrize("header", HEADERS, ids=range(len(HEADERS)))
def test_invalid_headers(header: bytes, tmp_path: Path) -> None:
    size = len(header).to_bytes(8, "little")
    (tmp_path / "w.safetensors").write_bytes(size + header + ARRAY.tobytes())
    (tmp_path / "m.pgraph").write_text(text('load("w.safetensors", "w")'))
    with pytest.raises(PopgraphError):
        load(tmp_path / "m.pgraph")


@pytest.mark.parametrize("size", [b"", b"1234", b"\xff" * 8, b"\0" * 8])
def test_missing_headers(size: bytes, tmp_path: Path) -> None:
    (tmp_path / "w.safetensors").write_bytes(size)
    (tmp_path / "m.pgraph").write_text(text('load("w.safetensors", "w")'))
    with pytest.raises(PopgraphError):
        load(tmp_path / "m.pgraph")


PATHS = {
    "a loop of links": "loop",
    "a name that is too long": "x" * 300,
    "a NUL": "a\0b",
    "no text": "\udc80",
    "a folder": ".",
    "nothing": "none",
    "below a file": "file/x",
}


@pytest.mark.parametrize("suffix", [".onnx", ".pgraph", ".mlir", ".npy"])
@pytest.mark.parametrize("kind", PATHS)
def test_invalid_paths(kind: str, suffix: str, tmp_path: Path) -> None:
    loop = tmp_path / f"loop{suffix}"
    os.symlink(loop, loop)
    (tmp_path / "file").write_text("")
    path = f"{tmp_path}/{PATHS[kind]}{suffix if kind != 'a folder' else ''}"
    with pytest.raises(PopgraphError) as caught:
        if suffix == ".npy":
            read_array(path)
        else:
            popgraph.compile(path)
    assert str(caught.value).encode()


@pytest.mark.parametrize("name", ["loop", "x" * 300, "../secret", "/etc/hostname", "none", "."])
def test_missing_weight_files(name: str, tmp_path: Path) -> None:
    os.symlink(tmp_path / "loop.npy", tmp_path / "loop.npy")
    model = tmp_path / "m.pgraph"
    model.write_text(text(f'load("{name}.npy")'))
    with pytest.raises(PopgraphError):
        load(model)
    with pytest.raises(PopgraphError):
        parse(text(f'load("{name}.npy")'))


def write_bomb(path: Path, header: bytes, zeros: int) -> None:
    """An archive of a few kilobytes with a member of `zeros` bytes after a header."""
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("w.npy", "w", force_zip64=True) as file,
    ):
        file.write(header)
        for _ in range(zeros >> 20):
            file.write(bytes(1 << 20))


def header_of(shape: tuple[int, ...], **changes: str) -> bytes:
    stream = io.BytesIO()
    about = {"descr": "<f4", "fortran_order": False, "shape": shape, **changes}
    np.lib.format.write_array_header_1_0(stream, about)
    return stream.getvalue()


MEBIBYTES = 16
ELEMENTS = MEBIBYTES << 18
BOMBS = {
    "another shape": header_of((ELEMENTS,)),
    "another type": header_of((2, 3), descr=f"V{ELEMENTS * 4 // 6}"),
    "more than the header says": header_of((2, 3)),
    "less than the header says": header_of((2, 3, ELEMENTS)),
    "a long header": b"\x93NUMPY\x02\x00" + (ELEMENTS * 4).to_bytes(4, "little"),
}


@pytest.mark.parametrize("kind", BOMBS)
@pytest.mark.parametrize("where", ['load("w.npz", "w")', "load"])
def test_decompression_is_bounded_by_the_type(kind: str, where: str, tmp_path: Path) -> None:
    write_bomb(tmp_path / "w.npz", BOMBS[kind], MEBIBYTES << 20)
    model, whole = tmp_path / "m.pgraph", tmp_path / "whole.pgraph"
    model.write_text(('@weights("w.npz") ' if where == "load" else "") + text(where))
    whole.write_text(text("zeros"))
    load(whole)  # Imports allocate, too, so they happen before tracing.
    tracemalloc.start()
    try:
        with pytest.raises(PopgraphError):
            load(model)
        assert tracemalloc.get_traced_memory()[1] < MEBIBYTES << 19
    finally:
        tracemalloc.stop()


def test_a_large_compressed_weight_of_its_type_is_read(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "w.npz", w=np.zeros((2, 3, 1 << 18), np.float32))
    source = text('load("w.npz", "w")').replace("f32[2, 3]", f"f32[2, 3, {1 << 18}]")
    (tmp_path / "m.pgraph").write_text(source)
    assert load(tmp_path / "m.pgraph")


def test_a_file_shorter_than_its_header_says_allocates_nothing(tmp_path: Path) -> None:
    (tmp_path / "w.npy").write_bytes(header_of((ELEMENTS,)))
    tracemalloc.start()
    try:
        with pytest.raises(PopgraphError, match="the array cannot be read"):
            read_array(str(tmp_path / "w.npy"))
        assert tracemalloc.get_traced_memory()[1] < MEBIBYTES << 19
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (2, 3)])
def test_arrays_of_every_shape_are_read(shape: tuple[int, ...], tmp_path: Path) -> None:
    array = np.asfortranarray(np.ones(shape, np.float32))
    np.save(tmp_path / "w.npy", array)
    found = read_array(str(tmp_path / "w.npy"))
    assert type(found) is np.ndarray and np.array_equal(found, array)
