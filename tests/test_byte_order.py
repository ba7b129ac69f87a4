"""Tests that files are little-endian on hosts of either byte order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from popgraph.builder.onnx import message
from popgraph.builder.onnx import wire as onnx_wire
from popgraph.builder.onnx.read import import_model
from popgraph.builder.onnx.write import export_model
from popgraph.dialects.onnx import model_of
from popgraph.dialects.onnx.tensorproto import PACKED
from popgraph.dialects.program import DataAttr, WeightStore
from popgraph.support import array_bytes
from popgraph.support.arrays import Array
from popgraph.support.dtypes import BY_ONNX, DTYPES, DType
from popgraph.support.safetensors import read_key, safetensors
from popgraph.support.writing import write_file

PLAIN = [row for row in DTYPES if row.name not in PACKED]
COUNT = 1500
"""Number of elements, large enough for the weight store in some types."""


def elements(row: DType) -> tuple[bytes, Array]:
    """The bytes of a file, and their value on a machine of the other byte order."""
    size = row.numpy.itemsize // (2 if row.numpy.kind == "c" else 1)
    data = np.arange(COUNT * row.numpy.itemsize, dtype=np.uint8) % 2
    turned = data.reshape(-1, size)[:, ::-1].copy().reshape(-1)
    return data.tobytes(), turned.view(row.numpy)


@pytest.fixture
def turned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulates a big-endian machine: bytes are swapped on reading and writing."""
    monkeypatch.setattr(array_bytes, "HOST", "big")


def same(found: Array, wanted: Array) -> bool:
    return found.dtype == wanted.dtype and found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("row", PLAIN, ids=lambda row: row.name)
@pytest.mark.parametrize("where", ["inside", "set aside", "beside"])
def test_raw_data_of_onnx(
    tmp_path: Path, turned: None, row: DType, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights in the message, in the store, and in an external file."""
    data, wanted = elements(row)
    tensor = TensorProto(name="w", data_type=row.onnx, dims=[COUNT])
    if where == "beside":
        (tmp_path / "w.bin").write_bytes(data)
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="w.bin")
    else:
        tensor.raw_data = data
    output = helper.make_tensor_value_info("y", row.onnx, [COUNT])
    node = helper.make_node("Identity", ["w"], ["y"])
    graph = helper.make_graph([node], "g", [], [output], [tensor])
    path = tmp_path / "model.onnx"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    monkeypatch.setattr(onnx_wire, "LARGE", 1 if where == "set aside" else 1 << 20)
    monkeypatch.setattr(message, "LARGE_MODEL", 0)
    store = WeightStore()
    module = import_model(path, store, mapped=where == "set aside")
    (op,) = model_of(module).graph.initializers
    assert same(op.array(store), wanted)
    written = export_model(module, store).graph.initializer[0]
    assert written.raw_data == data


@pytest.mark.parametrize("row", PLAIN, ids=lambda row: row.name)
def test_safetensors_and_text(tmp_path: Path, turned: None, row: DType) -> None:
    data, wanted = elements(row)
    path = tmp_path / "w.safetensors"
    write_file(path, safetensors({"w": wanted}))
    assert path.read_bytes().endswith(data)
    found = read_key(path, "w")
    assert found.tobytes() == wanted.tobytes() or found.dtype == np.uint8
    attribute = DataAttr.of(wanted[:16])
    assert attribute.payload.data == data[: wanted[:16].nbytes]
    assert same(attribute.array, wanted[:16])


def test_on_this_machine_nothing_is_copied() -> None:
    array = np.arange(6, dtype=np.float32)
    assert np.shares_memory(np.frombuffer(array_bytes.memory_of(array), np.uint8), array)
    again = array_bytes.array_of_memory(array_bytes.memory_of(array), array.dtype, (2, 3))
    assert np.shares_memory(again, array)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (2, 1)])
def test_shapes(shape: tuple[int, ...]) -> None:
    array = np.ones(shape, np.float32)
    found = array_bytes.array_of_memory(array_bytes.memory_of(array), array.dtype, shape)
    assert found.shape == shape and same(found, array)
    assert BY_ONNX[onnx.TensorProto.FLOAT].numpy == found.dtype
