"""Reports which Dropout nodes drop elements in training, and which setting decides it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
from xdsl.dialects.builtin import IntegerAttr, ModuleOp

from popgraph.dialects.onnx import OnnxOp, model_of
from popgraph.dialects.program import WeightStore
from popgraph.passes.onnx.evaluate_constants import Constants
from popgraph.support.spelling import setting

MODES: Mapping[tuple[str, str], int] = {
    ("", "Dropout"): 2,
    ("com.microsoft", "BiasDropout"): 4,
    ("ai.graphcore", "ShapedDropout"): 1,
}
"""Operators that drop elements -> index of their training-mode input."""
DROPS, KEEPS = "drops elements", "drops nothing"

Row = tuple[str, str, str, str]
"""A row of the table that `Selection` prints."""


def dropout_rows(module: ModuleOp, weights: WeightStore, *, dropout: bool) -> tuple[Row, ...]:
    """Counts the Dropout nodes that drop elements in a step, and the ones that keep all."""
    model = model_of(module)
    constants = Constants(model, weights, trained=True)
    nodes = (op for op in model.walk() if isinstance(op, OnnxOp))
    fates = (_fate(op, constants, dropout) for op in nodes if (op.domain, op.op_type) in MODES)
    found = Counter(fate for fate in fates if fate is not None)
    return tuple(
        (does, f"{count:,} node{'s' * (count != 1)}", "", why)
        for (does, why), count in found.items()
    )


def _fate(op: OnnxOp, constants: Constants, dropout: bool) -> tuple[str, str] | None:
    """Whether a node drops elements in a step, and why; None if it never does."""
    inputs = op.input_values()
    index = MODES[op.domain, op.op_type]
    mode = inputs[index] if len(inputs) > index else None
    if mode is not None:
        held = constants.of(mode)
        says_no = held is not None and not np.any(held)
        return None if says_no else (DROPS, "Dropout with training_mode")
    tested = op.onnx_attributes().get("is_test")
    if isinstance(tested, IntegerAttr) and tested.value.data:
        return None
    switch = setting("dropout", False)
    if not dropout:
        return KEEPS, f"Dropout without training_mode, by {switch}"
    return DROPS, f"Dropout without training_mode; {switch} turns it off"
