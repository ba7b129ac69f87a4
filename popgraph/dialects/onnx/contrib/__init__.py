"""The operators of onnxruntime that exporters and its optimizer write, each by ONNX's own."""

from popgraph.dialects.onnx.contrib.contents import PAGES
from popgraph.dialects.onnx.functions import DEFINITIONS

MICROSOFT = "com.microsoft"
OPSET = 23
"""Of ONNX, in which the definitions are written."""

DEFINITIONS.update(PAGES)
