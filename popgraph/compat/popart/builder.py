"""PopART's module `popart.builder`: the builder, and the classes of its operator sets."""

from popgraph.builder.opset.graphcore_opset import AiGraphcoreOpset1 as AiGraphcoreOpset1
from popgraph.popart.api.opsets import AiOnnxMl as AiOnnxMl
from popgraph.popart.api.opsets import OnnxOpset, onnx_opset
from popgraph.popart.api.opsets import Opset as Opset
from popgraph.popart.builder import Builder as Builder

AiGraphcore, AiOnnx = AiGraphcoreOpset1, OnnxOpset
AiOnnx6, AiOnnx7, AiOnnx8, AiOnnx9, AiOnnx10, AiOnnx11 = map(onnx_opset, range(6, 12))
