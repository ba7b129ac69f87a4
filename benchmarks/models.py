"""The benchmark models: CNNs of the onnx package, networks from PyTorch, trained models."""

from __future__ import annotations

import math
from pathlib import Path

import architectures
import numpy as np
import onnx
from chosen import one_of
from halved_models import HALVED, halved
from onnx import ModelProto, NodeProto, numpy_helper
from packaged import PACKAGED, fixed
from quantized_models import QUANTIZED, quantized

FOLDER = Path(onnx.__file__).parent / "backend/test/data/light"
NAMES = ("bvlc_alexnet", "squeezenet", "resnet50", "inception_v1", "vgg19")
"""The CNNs of the onnx package that are also tested."""
CNNS = (
    *("resnet50", "vgg19", "squeezenet", "bvlc_alexnet", "inception_v1", "inception_v2"),
    *("shufflenet", "densenet121"),
)
FROM_TORCH = (
    *("efficientnet_lite0", "encoder_4x256", "encoder_12x768", "decoder_1x2048"),
    *("decoder_128x2048", "mlp_4_16_3", "mlp_784_128_10"),
    *("lstm_1x64x128", "lstm_1x64x512", "lstm_16x64x128", "lstm_16x64x512"),
    *("gru_1x64x128", "gru_1x64x512", "gru_16x64x128", "gru_16x64x512"),
)
"""Recurrent networks are named by cell, batch, steps and units."""
TRAINED = ("silero_vad_op18_ifless", "nsnet2", "magika")
"""
Models with the weights of their packages; absent packages are reported.

Of silero-vad's variants, the one that peers accept with a fixed sampling rate.
"""


def model(name: str) -> ModelProto:
    """A model ready to be measured: random weights and no softmax, unless it is trained."""
    if name in CNNS:
        return logits(with_random_weights(light(name)))
    if name in PACKAGED:
        return fixed(name)
    if name in QUANTIZED:
        return quantized(name, model)
    if name in HALVED:
        return halved(name, model)
    if name in architectures.ARCHITECTURES:
        return architectures.exported(name)
    from networks import exported  # Other networks do not need PyTorch.

    return exported(name)


def known(name: str) -> str:
    """The type of an argument that names a model."""
    names = (*CNNS, *PACKAGED, *QUANTIZED, *HALVED, *architectures.ARCHITECTURES)
    if name in names:
        return name
    from networks import NETWORKS  # Other names do not need PyTorch.

    return one_of("network", (*names, *NETWORKS))(name)


def light(name: str) -> ModelProto:
    """The model as shipped: every weight is a ConstantOfShape."""
    return onnx.load(FOLDER / f"light_{name}.onnx")


def weight(shape: tuple[int, ...], op: str, position: int, rng: np.random.Generator) -> np.ndarray:
    """Random weights that keep activations in range: He for matmuls, near one for scales."""
    if (op, position) in (("BatchNormalization", 1), ("BatchNormalization", 4), ("Mul", 1)):
        return 1 + 0.01 * rng.random(shape, dtype=np.float32)
    spread = 0.01
    if op in ("Conv", "Gemm") and position == 1:
        spread = math.sqrt(2 / max(1, math.prod(shape[1:])))
    return (spread * rng.standard_normal(shape, dtype=np.float32)).astype(np.float32)


def logits(model: ModelProto) -> ModelProto:
    """The same network without the softmax at its end, which would hide every difference."""
    *nodes, last = model.graph.node
    if last.op_type == "Softmax":
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        model.graph.output[0].name = last.input[0]
        model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


def with_random_weights(model: ModelProto, seed: int = 0) -> ModelProto:
    """The same network with an initializer in place of every ConstantOfShape."""
    rng = np.random.default_rng(seed)
    graph = model.graph
    known = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    shapes: dict[str, tuple[int, ...]] = {}
    nodes: list[NodeProto] = []
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in known:
            shapes[node.output[0]] = tuple(int(dim) for dim in known[node.input[0]])
        else:
            nodes.append(node)
    uses: dict[str, tuple[str, int]] = {}
    for node in nodes:
        for position, name in enumerate(node.input):
            uses.setdefault(name, (node.op_type, position))
    for node in nodes:
        if node.op_type == "Unsqueeze":  # Scales of channels are unsqueezed.
            uses[node.input[0]] = uses[node.output[0]]
    made = [
        numpy_helper.from_array(weight(shape, *uses.get(name, ("", 0)), rng), name)
        for name, shape in shapes.items()
    ]
    kept = [each for each in graph.initializer if each.name in uses]
    weights = {each.name for each in kept} | set(shapes)
    inputs = [each for each in graph.input if each.name in uses and each.name not in weights]
    for field, items in (
        (graph.node, nodes),
        (graph.initializer, kept + made),
        (graph.input, inputs),
    ):
        del field[:]
        field.extend(items)
    model.ir_version = 8
    return model
