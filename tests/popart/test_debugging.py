"""Tests PopART's debug contexts and debug infos."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Union

import numpy as np
import pytest

import popgraph.popart as popart
from popgraph.popart.api.builder import Builder
from popgraph.popart.api.debugging import (
    DebugContext,
    DebugInfo,
    NumIOTiles,
    OutOfMemoryError,
    SourceLocation,
)
from popgraph.support.cbor import to_cbor


def test_a_context_names_an_input_in_all_its_forms() -> None:
    place = SourceLocation("f", "program.py", 3)
    info = DebugInfo(DebugContext("layer"), "framework")
    for context in (DebugContext("x"), DebugContext("x", place), DebugContext(info, "x")):
        assert Builder().addInputTensor("FLOAT", [1], context) == "x"
    assert Builder().addInputTensor("FLOAT", [1], DebugContext()) == "input"
    assert DebugContext("x", place) == DebugContext(name="x", loc=place) != DebugContext("x")


def test_infos_have_numbers_and_values() -> None:
    one, other = DebugInfo("x", "framework"), DebugInfo("x", "framework")
    one.setValue("key", "value")
    assert one.values == {"key": "value"}
    assert one.getId() != other.getId()


def test_names_without_effect() -> None:
    assert (NumIOTiles(), NumIOTiles(32)) == (0, 32)
    assert OutOfMemoryError().isSuccessful()
    assert repr(OutOfMemoryError()) == "popart.OutOfMemoryError: No memory_allocation_err raised"
    popart.closePoplarDebugInfo()


def decoded(path: Path) -> Any:
    """The debug infos of a file."""
    return json.loads(path.read_bytes())


def test_debug_infos_are_written(tmp_path: Path) -> None:
    path = tmp_path / "infos.json"
    popart.initializePoplarDebugInfo(str(path), "json")
    info = DebugInfo(DebugContext("block", SourceLocation("f", "program.py", 3)), "mine")
    assert info.setValue("width", "2")
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 3], "x")
    w = builder.addInitializedInputTensor(np.ones((3, 2), np.float32), "w")
    y = builder.aiOnnx.matmul([x, w], DebugContext(info, "product"))
    loss = builder.aiGraphcore.l1loss([y], 0.5, debugContext="loss")
    flow = popart.DataFlow(1, [loss])
    popart.TrainingSession(builder.getModelProto(), flow, loss, popart.ConstSGD(0.1))
    popart.closePoplarDebugInfo()
    popart.Builder().addInputTensor("FLOAT", [1])
    found = decoded(path)
    contexts = {one["id"]: one for one in found["contexts"]}
    assert len(contexts) == len(found["contexts"])

    def entry(layer: str, **values: object) -> dict[str, Any]:
        """The only entry of a layer with these values."""
        (one,) = (
            one
            for one in contexts.values()
            if one["layer"] == layer and values.items() <= one.items()
        )
        return dict(one)

    texts = found["stringTable"]
    assert entry("mine")["width"] == "2"
    place = {"functionName": texts.index("f"), "fileName": texts.index("program.py")}
    assert entry("mine", name="block")["location"] == {**place, "lineNumber": 3}
    call = entry("popartbuilder", api="popart::AiOnnxOpset9::matmul")
    assert (call["category"], call["inputs"], call["outputs"]) == ("api", [x, w], [y])
    assert texts[call["location"]["fileName"]] == __file__
    assert texts[call["location"]["functionName"]] == test_debug_infos_are_written.__name__
    assert builder.getInt64NodeAttribute("__debug_info_id", {y}) == call["id"]
    node = entry("onnx", opType="MatMul")
    operator = entry("popart", opid="ai.onnx.MatMul:9")
    chain = [operator["id"], node["id"], call["id"], info.getId()]
    assert [contexts[id].get("parentId") for id in chain] == [*chain[1:], None]
    assert entry("popartbuilder", api="popart::AiGraphcoreOpset1::l1loss")["outputs"] == [loss]
    assert entry("onnx", name="w")["tensorProto"] == {
        "name": "w",
        "dims": "[3 2]",
        "dataType": "FLOAT",
    }
    assert entry("onnx", name="x")["valueInfoProto"] == {"name": "x", "type": {"shape": "[2 3]"}}
    tensors = [one for one in contexts.values() if one.get("category") == "tensor"]
    kinds = {one["tensorId"]: one["type"] for one in tensors}
    assert (kinds["x"], kinds["w"], kinds["Gradient___w"]) == ("Stream", "Variable", "ActGrad")
    assert entry("popart", tensorId="w")["elementType"] == "float32"


def test_the_file_may_be_cbor(tmp_path: Path) -> None:
    for format in ("json", "cbor"):
        popart.initializePoplarDebugInfo(str(tmp_path / format), format)
        popart.Builder().addInputTensor("FLOAT", [1], DebugContext("x", SourceLocation("f")))
        popart.closePoplarDebugInfo()
    content = decoded(tmp_path / "json")
    content["contexts"][0]["id"] += 1
    assert (tmp_path / "cbor").read_bytes() == to_cbor(content)


def test_an_unwritable_file_raises_popart_s_error(tmp_path: Path) -> None:
    popart.initializePoplarDebugInfo(str(tmp_path / "none" / "infos.json"))
    with pytest.raises(popart.popart_exception, match="the file cannot be written"):
        popart.closePoplarDebugInfo()


def test_type_hints_list_the_operator_sets_of_the_builder() -> None:
    versions = [getattr(popart, f"AiOnnxOpset{version}") for version in range(6, 12)]
    found = popart.Builder.__getattr__.__annotations__["return"]
    assert found == Union[(popart.AiGraphcoreOpset1, *versions)]
