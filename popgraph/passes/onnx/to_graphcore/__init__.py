"""The lowering from ONNX to graphcore: `lowering.py` walks graphs, operator pages lower nodes."""

from __future__ import annotations

from popgraph.dialects.graphcore import SEED
from popgraph.passes.onnx.to_graphcore.convert import OnnxToGraphcore

__all__ = ["SEED", "OnnxToGraphcore"]
