"""PopART's module `popart.builder`: the builder, and the classes of its operator sets."""

from popgraph.builder.opset.graphcore_opset import AiGraphcoreOpset1
from popgraph.popart.api.opsets import AiOnnxMl, Opset, onnx_opset
from popgraph.popart.api.opsets import OnnxOpset as AiOnnx
from popgraph.popart.builder import Builder

AiGraphcore = AiGraphcoreOpset1
AiOnnx6, AiOnnx7, AiOnnx8, AiOnnx9, AiOnnx10, AiOnnx11 = map(onnx_opset, range(6, 12))

__all__ = [
    "AiGraphcore",
    "AiGraphcoreOpset1",
    "AiOnnx",
    "AiOnnx6",
    "AiOnnx7",
    "AiOnnx8",
    "AiOnnx9",
    "AiOnnx10",
    "AiOnnx11",
    "AiOnnxMl",
    "Builder",
    "Opset",
]
