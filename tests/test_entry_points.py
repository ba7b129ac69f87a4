"""Tests that Builder, `.pgraph` and PyTorch exports compile to the same program."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import BlockArgument, OpResult, SSAValue

import popgraph
from popgraph.compiler import load, lower
from popgraph.dialects.program import GraphOp
from popgraph.support.arrays import Array
from popgraph.support.errors import ModelError, ParseError, RunError

torch = pytest.importorskip("torch", reason="PyTorch is one of the three doors")

BATCH = 4
TEXT = """
opset 13

graph lenet(image: f32[4, 1, 28, 28], labels: i32[4]) -> (probabilities, loss) {
    weight w1: f32[6, 1, 5, 5] = he_normal(seed=1)
    weight b1: f32[6] = normal(std=0.1, seed=2)
    weight w2: f32[16, 6, 5, 5] = he_normal(seed=3)
    weight b2: f32[16] = normal(std=0.1, seed=4)
    weight w3: f32[84, 256] = he_normal(seed=5)
    weight b3: f32[84] = normal(std=0.1, seed=6)
    weight w4: f32[10, 84] = he_normal(seed=7)
    weight b4: f32[10] = normal(std=0.1, seed=8)

    c1 = Relu(Conv(image, w1, b1))
    p1 = MaxPool(c1, kernel_shape=[2, 2], strides=[2, 2])
    c2 = Relu(Conv(p1, w2, b2))
    p2 = MaxPool(c2, kernel_shape=[2, 2], strides=[2, 2])
    h3 = Relu(Gemm(Flatten(p2), w3, b3, transB=1))
    probabilities = Softmax(Gemm(h3, w4, b4, transB=1), axis=-1)
    loss = ai.graphcore.Nll(probabilities, labels)
}
"""
WEIGHTS = ("w1", "b1", "w2", "b2", "w3", "b3", "w4", "b4")


@pytest.fixture(scope="module")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("doors") / "lenet.pgraph"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="module")
def weights(text_file: Path) -> dict[str, Array]:
    """The weights that the text's initialisers draw, for Builder and PyTorch."""
    outputs = popgraph.compile(
        text_file, options=popgraph.Options(extra_outputs=WEIGHTS), backend="reference"
    )(data())
    return {name: outputs[name] for name in WEIGHTS}


def data() -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {
        "image": rng.standard_normal((BATCH, 1, 28, 28)).astype(np.float32),
        "labels": np.array([3, 1, 4, 1], np.int32),
    }


def by_builder(weights: dict[str, Array]) -> popgraph.Builder:
    builder = popgraph.Builder(opsets={"ai.onnx": 10, "ai.graphcore": 1})
    onnx = builder.aiOnnx
    x = builder.addInputTensor(popgraph.TensorInfo("FLOAT", [BATCH, 1, 28, 28]), "image")
    labels = builder.addInputTensor(popgraph.TensorInfo("INT32", [BATCH]), "labels")
    ids = {name: builder.addInitializedInputTensor(weights[name], name) for name in WEIGHTS}
    for w, b in (("w1", "b1"), ("w2", "b2")):
        x = onnx.relu([onnx.conv([x, ids[w], ids[b]])])
        (x,) = onnx.maxpool([x], 1, [2, 2], strides=[2, 2])
    x = onnx.relu([onnx.gemm([onnx.flatten([x]), ids["w3"], ids["b3"]], transB=1)])
    probabilities = onnx.softmax([onnx.gemm([x, ids["w4"], ids["b4"]], transB=1)])
    loss = builder.aiGraphcore.nllloss([probabilities, labels])
    builder.addOutputTensor(probabilities)
    builder.addOutputTensor(loss)
    return builder


def by_pytorch(weights: dict[str, Array]) -> popgraph.Builder:
    """The network exported by PyTorch, with a loss appended as PopART programs do."""
    nn = torch.nn
    network = nn.Sequential(
        nn.Conv2d(1, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
        nn.Softmax(dim=1),
    )
    with torch.no_grad():
        for parameter, name in zip(network.parameters(), WEIGHTS, strict=True):
            parameter.copy_(torch.from_numpy(np.array(weights[name])))
    file = io.BytesIO()
    example = torch.zeros(BATCH, 1, 28, 28)
    torch.onnx.export(
        network,
        (example,),
        file,
        input_names=["image"],
        output_names=["probabilities"],
        dynamo=False,
        opset_version=13,
    )
    builder = popgraph.Builder(file.getvalue())
    labels = builder.addInputTensor(popgraph.TensorInfo("INT32", [BATCH]), "labels")
    builder.addOutputTensor(builder.aiGraphcore.nllloss(["probabilities", labels]))
    return builder


@pytest.fixture(scope="module")
def doors(text_file: Path, weights: dict[str, Array]) -> dict[str, object]:
    return {
        "text": text_file,
        "builder": by_builder(weights),
        "pytorch": by_pytorch(weights),
    }


def shape_of(module: ModuleOp) -> object:
    """The computation of the outputs as a nested tuple, without names."""
    (graph,) = (op for op in module.ops if isinstance(op, GraphOp))
    known: dict[SSAValue, object] = {}

    def of(value: SSAValue) -> object:
        if value not in known:
            if isinstance(value, OpResult):
                op = value.op
                properties = tuple(sorted((key, str(item)) for key, item in op.properties.items()))
                known[value] = (op.name, value.index, properties, tuple(map(of, op.operands)))
            else:
                assert isinstance(value, BlockArgument)
                known[value] = ("input", value.index)
        return known[value]

    return tuple(of(value) for value in graph.return_op.values)


def lowered(model: object) -> ModuleOp:
    module, compilation = load(model)
    return lower(module, compilation, level="graphcore")


@pytest.mark.parametrize("door", ["builder", "pytorch"])
def test_the_graphcore_ir_is_the_same(doors: dict[str, object], door: str) -> None:
    assert shape_of(lowered(doors[door])) == shape_of(lowered(doors["text"]))


@pytest.mark.parametrize("backend", ["c", "reference"])
def test_the_results_are_the_same(doors: dict[str, object], backend: str) -> None:
    found = [
        list(popgraph.compile(model, backend=backend)(data()).values()) for model in doors.values()
    ]
    for probabilities, loss in found:
        np.testing.assert_array_equal(probabilities, found[0][0])
        np.testing.assert_array_equal(loss, found[0][1])
    np.testing.assert_allclose(found[0][0].sum(1), 1, rtol=1e-6)


def test_c_equals_reference(text_file: Path) -> None:
    run: Callable[..., dict[str, Array]] = popgraph.compile(text_file)
    expected = popgraph.compile(text_file, backend="reference")(data())
    for name, array in run(data()).items():
        np.testing.assert_allclose(array, expected[name], rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("x", [[[1.0, 2.0], [3.0]], [[1.0], [2.0, 3.0]]])
@pytest.mark.parametrize("rows", ["N", "2"])
def test_lists_that_are_not_arrays_are_named(tmp_path: Path, rows: str, x: Any) -> None:
    (tmp_path / "t.pgraph").write_text(f"graph g(x: f32[{rows}, 2]) -> y {{ y = Relu(x) }}")
    run = popgraph.compile(tmp_path / "t.pgraph")
    with pytest.raises(RunError, match="input 'x' has rows of different"):
        run({"x": x})


def test_sources_that_are_not_models(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot read a model from NoneType"):
        popgraph.compile(None)
    with pytest.raises(ParseError, match="cannot be read"):
        popgraph.compile(tmp_path / "nothing.mlir")


@pytest.mark.parametrize(
    "text",
    [
        "graph ramp(x: f32[N]) -> (y) {\n    y = Relu(x)\n}\n",
        "graph ramp(x: f32[N]) -> y { y = Relu(x) }",
    ],
)
def test_a_text_is_a_model_without_a_file(text: str) -> None:
    run = popgraph.compile(text)
    np.testing.assert_array_equal(run(x=np.float32([-1, 2]))["y"], [0, 2])
    assert "of ramp>" in repr(run) and "Relu" in str(popgraph.to_pgraph(text))
    with pytest.raises(ParseError, match="no operator 'Rulu'"):
        popgraph.compile(text.replace("Relu", "Rulu"))
