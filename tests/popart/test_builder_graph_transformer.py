"""Tests PopART's `GraphTransformer`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

from popgraph.popart.api.builder import Builder
from popgraph.popart.api.graph_transformer import GraphTransformer
from popgraph.popart.exceptions import popart_exception
from popgraph.support.arrays import Array


def model_of(weight: Array, constant: Array | None = None) -> bytes:
    """The model `y = x + w + c`, whose weight has a doc string."""
    tensor = numpy_helper.from_array(weight, "w")
    tensor.doc_string = "a weight"
    held = numpy_helper.from_array(weight if constant is None else constant, "c")
    nodes = [
        make_node("Constant", [], ["c"], value=held),
        make_node("Add", ["x", "w"], ["t"]),
        make_node("Add", ["t", "c"], ["y"]),
    ]
    kind = tensor.data_type
    infos = [make_tensor_value_info(name, kind, weight.shape) for name in ("x", "w", "y")]
    graph = make_graph(nodes, "g", infos[:2], infos[2:], [tensor])
    model = make_model(graph, opset_imports=[make_opsetid("", 10)])
    return bytes(model.SerializeToString())


CONVERSIONS: list[tuple[Callable[[GraphTransformer], None], type, type]] = [
    (GraphTransformer.convertFloatsToHalfs, np.float32, np.float16),
    (GraphTransformer.convertDoublesToFloats, np.float64, np.float32),
    (GraphTransformer.convertDoublesToHalfs, np.float64, np.float16),
    (GraphTransformer.convertBFloats16ToFloat32, ml_dtypes.bfloat16, np.float32),
    (GraphTransformer.convertUINT8ToINT32, np.uint8, np.int32),
    (GraphTransformer.convertUINT16ToINT32, np.uint16, np.int32),
    (GraphTransformer.convertINT8ToINT32, np.int8, np.int32),
    (GraphTransformer.convertINT16ToINT32, np.int16, np.int32),
    (GraphTransformer.convertINT64ToINT32, np.int64, np.int32),
]


@pytest.mark.parametrize(("convert", "before", "after"), CONVERSIONS)
def test_a_conversion_reaches_weights_constants_and_declarations(
    convert: Callable[[GraphTransformer], None], before: type, after: type
) -> None:
    values = np.array([[0, 1, 2], [3, 100, 127]]).astype(before)
    transformer = GraphTransformer(model_of(values))
    convert(transformer)
    model = onnx.ModelProto.FromString(transformer.getModelProto())
    weight = model.graph.initializer[0]
    constant = model.graph.node[0].attribute[0].t
    for tensor in (weight, constant):
        found = numpy_helper.to_array(tensor)
        assert found.dtype == np.dtype(after)
        np.testing.assert_array_equal(found, values.astype(after))
    assert (weight.name, weight.doc_string) == ("w", "a weight")
    infos = [*model.graph.input, *model.graph.output]
    assert {one.type.tensor_type.elem_type for one in infos} == {weight.data_type}
    Builder(model)  # The builder checks all types.


def test_conversion_keeps_other_types() -> None:
    given = model_of(np.ones(2, np.float32))
    transformer = GraphTransformer(given)
    transformer.convertDoublesToHalfs()
    transformer.convertINT64ToINT32()
    assert transformer.getModelProto() == given


def test_overflowing_values_are_clipped_only_on_request() -> None:
    large = np.array([2**40, -(2**40), 7, 2**31 - 1, -(2**31)])
    transformer = GraphTransformer(model_of(large))
    with pytest.raises(popart_exception, match="number is too large"):
        transformer.convertINT64ToINT32()
    transformer = GraphTransformer(model_of(large))
    transformer.convertINT64ToINT32(clip=True)
    model = onnx.ModelProto.FromString(transformer.getModelProto())
    clipped = numpy_helper.to_array(model.graph.initializer[0])
    assert clipped.tolist() == [2**31 - 1, -(2**31), 7, 2**31 - 1, -(2**31)]


def test_graphs_inside_of_nodes_are_converted() -> None:
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [2])
    flag = builder.addInputTensor("BOOL", [])
    branches = []
    for number in (1.0, 2.0):
        inner = builder.createSubgraphBuilder()
        inner.addInputTensorFromParentGraph(x)
        held = inner.aiOnnx.constant(np.full(2, number, np.float32))
        inner.addOutputTensor(inner.aiOnnx.add([x, held]))
        branches.append(inner)
    (y,) = builder.aiOnnx.logical_if([flag], 1, branches[0], branches[1])
    builder.addOutputTensor(y)
    transformer = GraphTransformer(builder.getModelProto())
    transformer.convertFloatsToHalfs()
    assert Builder(transformer.getModelProto()).getTensorDtypeString(y) == "float16"


def test_weights_become_constants() -> None:
    transformer = GraphTransformer(model_of(np.arange(3)))
    with pytest.raises(popart_exception, match="TensorId v not in the model initalizers"):
        transformer.convertInitializersToConstants(["v"])
    transformer.convertAllFixedPointInitializersToConstants()
    model = onnx.ModelProto.FromString(transformer.getModelProto())
    assert (model.graph.node[0].op_type, list(model.graph.node[0].output)) == ("Constant", ["w"])
    assert [one.name for one in model.graph.input] == ["x"]
    assert not model.graph.initializer
    onnx.checker.check_model(model)


def test_floats_are_not_fixed_point() -> None:
    given = model_of(np.ones(3, np.float32))
    transformer = GraphTransformer(given)
    transformer.convertAllFixedPointInitializersToConstants()
    assert transformer.getModelProto() == given


def test_unused_inputs_are_removed(tmp_path: Path) -> None:
    model = onnx.ModelProto.FromString(model_of(np.ones(2, np.float32)))
    model.graph.input.append(make_tensor_value_info("unread", TensorProto.FLOAT, [1]))
    model.graph.initializer.append(numpy_helper.from_array(np.ones(1, np.float32), "idle"))
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    transformer = GraphTransformer(str(path))
    transformer.removeUnusedInputs()
    left = onnx.ModelProto.FromString(transformer.getModelProto())
    assert [one.name for one in left.graph.input] == ["x", "w"]
    assert [one.name for one in left.graph.initializer] == ["w"]


def test_batch_normalizations_get_their_five_outputs() -> None:
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [1, 2, 2, 2])
    ones = [builder.addInitializedInputTensor(np.ones(2, np.float32)) for _ in range(4)]
    (y,) = builder.aiOnnxOpset9.batchnormalization([x, *ones], 1)
    builder.addOutputTensor(y)
    transformer = GraphTransformer(builder.getModelProto())
    transformer.prepareNodesForTraining()
    model = onnx.ModelProto.FromString(transformer.getModelProto())
    (node,) = model.graph.node
    assert node.output[0] == y
    assert len(set(node.output)) == 5
    onnx.checker.check_model(model)


def test_sources_that_are_not_models_are_refused() -> None:
    with pytest.raises(popart_exception, match="Failed to load a ModelProto from the string"):
        GraphTransformer(b"abc")
