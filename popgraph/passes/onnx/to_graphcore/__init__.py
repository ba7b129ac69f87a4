"""The lowering from ONNX to graphcore: `lowering.py` walks, each theme lowers its operators."""

from __future__ import annotations

from popgraph.passes.onnx.to_graphcore import (
    arithmetic,
    bits,
    constants,
    contractions,
    control,
    deform_conv,
    determinant,
    einsum,
    features,
    folding,
    grid_sample,
    indexing,
    linear_models,
    losses,
    max_roi_pool,
    movement,
    normalization,
    popart_lstm,
    quantization,
    randomness,
    recurrent,
    reductions,
    resize,
    roi_align,
    scan,
    scatter_reduce,
    scattering,
    signals,
    support_vectors,
    tree_ensembles,
    windows,
)
from popgraph.passes.onnx.to_graphcore.context import SEED
from popgraph.passes.onnx.to_graphcore.convert import OnnxToGraphcore
from popgraph.passes.onnx.to_graphcore.registry import supported_operators

THEMES = (
    arithmetic,
    bits,
    constants,
    contractions,
    control,
    deform_conv,
    determinant,
    einsum,
    features,
    folding,
    grid_sample,
    indexing,
    linear_models,
    losses,
    movement,
    normalization,
    popart_lstm,
    quantization,
    randomness,
    recurrent,
    reductions,
    resize,
    max_roi_pool,
    roi_align,
    scan,
    scatter_reduce,
    scattering,
    signals,
    support_vectors,
    tree_ensembles,
    windows,
)
"""The modules whose functions are registered when this package is imported."""

__all__ = ["SEED", "THEMES", "OnnxToGraphcore", "supported_operators"]
