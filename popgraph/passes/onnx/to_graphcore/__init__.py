"""The lowering from ONNX to graphcore: `lowering.py` walks, each theme lowers its operators."""

from __future__ import annotations

from popgraph.dialects.graphcore import SEED
from popgraph.passes.onnx.to_graphcore.convert import OnnxToGraphcore
from popgraph.passes.onnx.to_graphcore.outside import know_types
from popgraph.passes.onnx.to_graphcore.registry import GRAPHCORE, supported_operators

know_types(GRAPHCORE)

__all__ = ["SEED", "OnnxToGraphcore", "supported_operators"]
