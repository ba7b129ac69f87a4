"""The networks of the other benchmarks in half precision, as exporters write them."""

from __future__ import annotations

from collections.abc import Callable

import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper, version_converter

KINDS = {"bf16": TensorProto.BFLOAT16, "f16": TensorProto.FLOAT16}
NETWORKS = (
    *("resnet50", "efficientnet_lite0", "encoder_4x256"),
    *("decoder_1x2048", "decoder_128x2048"),
)
HALVED = tuple(f"{name}_{kind}" for kind in KINDS for name in NETWORKS)
"""Weights and intermediate values are in half precision; inputs and outputs are cast."""
OLDEST = 22
"""The first opset whose operators all support bf16."""


def halved(name: str, model: Callable[[str], ModelProto]) -> ModelProto:
    """A network of `HALVED`; `model` builds the f32 network."""
    plain, _, kind = name.rpartition("_")
    found, target = model(plain), KINDS[kind]
    if found.opset_import[0].version < OLDEST:
        found = version_converter.convert_version(found, OLDEST)
    graph = found.graph
    del graph.value_info[:]
    for tensor in graph.initializer:
        _halve(tensor, target)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                _halve(attribute.t, target)
            if attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = target
    weights = {tensor.name for tensor in graph.initializer}
    given = [each for each in graph.input if each.name not in weights and _is_single(each)]
    made = [each for each in graph.output if _is_single(each)]
    cast = {each.name: f"{each.name}_{kind}" for each in (*given, *made)}
    for node in graph.node:
        node.input[:] = [cast.get(value, value) for value in node.input]
        node.output[:] = [cast.get(value, value) for value in node.output]
    for each in reversed(given):
        graph.node.insert(0, helper.make_node("Cast", [each.name], [cast[each.name]], to=target))
    for each in made:
        back = helper.make_node("Cast", [cast[each.name]], [each.name], to=TensorProto.FLOAT)
        graph.node.append(back)
    return found


def _halve(tensor: TensorProto, target: int) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        numbers = numpy_helper.to_array(tensor).astype(helper.tensor_dtype_to_np_dtype(target))
        tensor.CopyFrom(numpy_helper.from_array(numbers, tensor.name))


def _is_single(value: onnx.ValueInfoProto) -> bool:
    return bool(value.type.tensor_type.elem_type == TensorProto.FLOAT)
