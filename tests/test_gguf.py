"""Tests GGUF files: their formats against GGML's reference, and damaged files."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

import popgraph
from popgraph.support.errors import PopgraphError
from popgraph.support.ggml_blocks import FORMATS, Blocks
from popgraph.support.gguf import read_gguf
from popgraph.support.reading import Unreadable
from tests.builder.small_language_models import (
    BYTES,
    Q4_0,
    Q4_K,
    Q6_K,
    Q8_0,
    gguf,
    plain,
    random_blocks,
)


@pytest.mark.parametrize("kind", FORMATS)
def test_blocks_decode_as_in_the_reference(kind: int) -> None:
    """Every bit pattern of a block: equal floats, NaN of damaged scales included."""
    quants = pytest.importorskip("gguf.quants")
    theirs = pytest.importorskip("gguf").GGMLQuantizationType(kind)
    format_ = FORMATS[kind]
    shape = 5, 3 * format_.elements
    data = np.random.default_rng(kind).integers(0, 256, (5, 3 * format_.bytes), dtype=np.uint8)
    with np.errstate(all="ignore"):
        found = format_.decoded(data, shape).floats()
        expected = quants.dequantize(data, theirs)
    np.testing.assert_array_equal(found, expected)


def test_blocks_decode_by_hand() -> None:
    """q4_0: the low halves of 16 bytes, then the high ones, less 8, times the scale."""
    data = np.frombuffer(struct.pack("<e16B", 0.5, *range(0x10, 0x20)), np.uint8)
    blocks = FORMATS[Q4_0].decoded(data, (1, 32))
    expected = 0.5 * (np.array([*range(16), *[1] * 16]) - 8)
    np.testing.assert_array_equal(blocks.floats()[0], expected)
    # q8_0: a scale and 32 signed bytes
    data = np.frombuffer(struct.pack("<e32b", 0.25, *range(-16, 16)), np.uint8)
    np.testing.assert_array_equal(
        FORMATS[Q8_0].decoded(data, (1, 32)).floats()[0], 0.25 * np.arange(-16, 16)
    )
    # q4_K: the first group of 32 has scale 3 * d and minimum 2 * dmin
    content = struct.pack("<ee12B128B", 0.5, 0.25, 3, 0, 0, 0, 2, *[0] * 7, *[0x17] * 128)
    found = FORMATS[Q4_K].decoded(np.frombuffer(content, np.uint8), (1, 256)).floats()
    assert found[0, 0] == 7 * 3 * 0.5 - 2 * 0.25 and not found[0, 32:].any()


def test_a_file_of_the_gguf_package_is_read(tmp_path: Path) -> None:
    package = pytest.importorskip("gguf")
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    path = tmp_path / "theirs.gguf"
    writer = package.GGUFWriter(path, "test")
    writer.add_array("numbers", [1, 2, 3])
    writer.add_array("words", ["a", "b"])
    writer.add_custom_alignment(64)
    writer.add_tensor("w", array)
    writer.add_tensor("half", array.astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = read_gguf(path)
    assert file.metadata["words"] == ["a", "b"] and file.metadata["numbers"].tolist() == [1, 2, 3]
    for name in ("w", "half"):
        found = file.read(name)
        np.testing.assert_array_equal(found, array)
        assert isinstance(found, np.ndarray) and np.shares_memory(found, file.mapped)


def test_a_text_multiplies_packed_weights(tmp_path: Path) -> None:
    """Blocks stay 4-bit integers in the model; results are those of dequantized weights."""
    tensors = {
        "a": random_blocks(Q4_0, (16, 256), 1),
        "b": random_blocks(Q4_K, (16, 256), 2),
        "c": random_blocks(Q6_K, (16, 256), 3),
    }
    (tmp_path / "w.gguf").write_bytes(gguf({"general.architecture": "none"}, tensors))
    lines = [f"    {one} = Transpose(w{one}, perm=[1, 0])" for one in tensors]
    weights = [f'    weight w{one}: f32[16, 256] = load("w.gguf", "{one}")' for one in tensors]
    text = "\n".join(
        ["graph g(x: f32[N, 256]) -> y {", *weights, *lines, "    y = x @ a + x @ b + x @ c", "}"]
    )
    (tmp_path / "g.pgraph").write_text(text)
    x = np.random.default_rng(4).normal(size=(2, 256)).astype(np.float32)
    file = read_gguf(tmp_path / "w.gguf")
    stored = {one: file.read(one) for one in tensors}
    expected = sum(x @ one.floats().T for one in stored.values() if isinstance(one, Blocks))
    found = popgraph.compile(tmp_path / "g.pgraph", backend="reference")(x=x)["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    shown = str(popgraph.to_pgraph(tmp_path / "g.pgraph", whole=False))
    assert "`wa/stored`: i4[16, 256]" in shown and "`wb/stored`: u4[16, 256]" in shown
    assert "`wc/stored`: i8[16, 256]" in shown and "`wb/minima`: f32[16, 8, 1]" in shown


@pytest.mark.parametrize("kind", [Q4_K, Q6_K])
def test_activations_are_rounded_by_block(kind: int, tmp_path: Path) -> None:
    """Minima multiply the sums of rounded activations."""
    (tmp_path / "w.gguf").write_bytes(gguf({}, {"a": random_blocks(kind, (16, 256), 1)}))
    lines = 'weight w: f32[16, 256] = load("w.gguf", "a")', "y = x @ Transpose(w, perm=[1, 0])"
    text = "\n    ".join(["graph g(x: f32[N, 256]) -> y {", *lines])
    (tmp_path / "g.pgraph").write_text(text + "\n}\n")
    stored = read_gguf(tmp_path / "w.gguf").read("a")
    assert isinstance(stored, Blocks)
    x = np.random.default_rng(4).normal(size=(2, 256)).astype(np.float32)
    parts = x.reshape(2, -1, stored.size)
    steps = np.abs(parts).max(axis=2, keepdims=True) / np.float32(127)
    rounded = (np.rint(parts / steps) * steps).reshape(x.shape)
    options = popgraph.Options(activations="int8")
    runner = popgraph.compile(tmp_path / "g.pgraph", options=options, backend="reference")
    found = runner(x=x)["y"]
    wanted, exact = (one @ stored.floats().T for one in (rounded, x))
    largest = np.abs(wanted).max()
    np.testing.assert_allclose(found, wanted, atol=1e-5 * largest)
    assert np.abs(found - exact).max() > 1e-4 * largest


def test_a_text_of_an_old_opset_reports_blocks(tmp_path: Path) -> None:
    tensors = {"a": random_blocks(Q4_0, (2, 32), 1)}
    (tmp_path / "w.gguf").write_bytes(gguf({}, tensors))
    path = tmp_path / "g.pgraph"
    cases = {
        ("f32[2, 32]", "a"): ("in blocks, which opset 17 lacks", "`opset 21`"),
        ("f32[32, 2]", "a"): ("the file holds blocks of f32 of shape 2x32", ""),
        ("f16[2, 32]", "a"): ("the type says f16", ""),
        ("f32[2, 32]", "aa"): ("holds no array 'aa'", "did you mean 'a'"),
    }
    for (type_, name), (what, hint) in cases.items():
        weight = f'weight w: {type_} = load("w.gguf", "{name}")'
        path.write_text(f"opset 17\ngraph g(x: f32[32]) -> y {{\n    {weight}\n    y = x * w\n}}\n")
        with pytest.raises(PopgraphError) as caught:
            popgraph.to_pgraph(path)
        assert what in str(caught.value) and hint in str(caught.value)


def valid() -> bytes:
    array = np.arange(64, dtype=np.float32).reshape(2, 32)
    tensors = {"w": plain(array), "q": random_blocks(Q4_0, (2, 32), 0)}
    return gguf({"general.architecture": "none", "words": ["a", "b"], "n": 1}, tensors)


def read_everything(path: Path) -> None:
    file = read_gguf(path)
    for name in file.tensors:
        file.read(name)


def changed(content: bytes, old: bytes, new: bytes) -> bytes:
    assert content.count(old) == 1
    return content.replace(old, new)


def one(shape: tuple[int, ...], kind: int = 0, data: bytes = b"") -> bytes:
    return gguf({}, {"w": (kind, shape, data)})


DAMAGED = {
    "not a GGUF file": b"GGML" + valid()[4:],
    "version 1": valid()[:4] + struct.pack("<I", 1) + valid()[8:],
    "big-endian": valid()[:4] + struct.pack(">I", 3) + valid()[8:],
    "header ends after the file": valid()[:8] + struct.pack("<Q", 2**62) + valid()[16:],
    "header ends after the file (metadata)": valid()[:16] + struct.pack("<Q", 2**62) + valid()[24:],
    "ends after the file": one((2**40,)),
    "ends after the file (overflow)": one((2**62, 4)),
    "has 9 axes": one((1,) * 9),
    "format iq2_xxs": one((256,), 16),
    "format number 77": one((256,), 77),
    "no multiple of its blocks": one((33,), Q4_0, bytes(64)),
    "no multiple of its blocks (scalar)": one((), Q4_0, bytes(64)),
    "two entries of metadata 'n'": changed(valid(), b"words", b"n" * 5).replace(
        struct.pack("<Q", 1) + b"n" + struct.pack("<I", 4),
        struct.pack("<Q", 5) + b"nnnnn" + struct.pack("<I", 4),
    ),
    "its alignment is 0": gguf({"general.alignment": 0}, {}),
    "unknown type 99": valid().replace(
        b"\x01\0\0\0\0\0\0\0n\x04\0\0\0", b"\x01\0\0\0\0\0\0\0n\x63\0\0\0"
    ),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_files_are_refused(tmp_path: Path, case: str) -> None:
    path = tmp_path / "w.gguf"
    path.write_bytes(DAMAGED[case])
    what = "two entries of metadata" if case.startswith("two") else case.split(" (")[0]
    with pytest.raises(Unreadable, match=what):
        read_everything(path)


def test_a_tensor_twice_is_refused(tmp_path: Path) -> None:
    content = gguf({}, {"aa": plain(np.zeros(8)), "ab": plain(np.zeros(8))})
    path = tmp_path / "w.gguf"
    path.write_bytes(content.replace(b"ab", b"aa"))
    with pytest.raises(Unreadable, match="two entries of tensor 'aa'"):
        read_gguf(path)


def test_truncated_and_changed_files_are_refused_or_read(tmp_path: Path) -> None:
    """Any prefix, and any change of a byte of the header, ends in a reading or in `Unreadable`."""
    path, content = tmp_path / "w.gguf", valid()
    read = []
    for size in range(0, len(content) - 28, 3):  # The last 28 bytes are padding.
        path.write_bytes(content[:size])
        with pytest.raises(Unreadable):
            read_everything(path)
    generator = np.random.default_rng(0)
    for at in range(0, 230, 2):
        damaged = bytearray(content)
        damaged[at] = int(generator.integers(256))
        path.write_bytes(bytes(damaged))
        try:
            read_everything(path)
            read.append(at)
        except Unreadable:
            continue
    assert 10 < len(read) < 115


@pytest.mark.parametrize("name", ["missing.gguf", "folder.gguf"])
def test_a_missing_file_is_reported(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.gguf").mkdir()
    with pytest.raises(PopgraphError, match="cannot be read"):
        popgraph.open_language_model(tmp_path / name)


def test_all_formats_have_blocks_of_a_known_size() -> None:
    for kind, size in BYTES.items():
        assert (FORMATS[kind].elements, FORMATS[kind].bytes) == size
