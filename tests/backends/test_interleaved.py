"""Tests the interleaving of tensors that are concatenated along a last axis of size 1."""

from __future__ import annotations

import ml_dtypes  # noqa: F401  (NumPy then knows the names of its types)
import numpy as np
import pytest
from onnx import helper
from xdsl.dialects import vector

import popgraph
from popgraph.compiler import load, lower
from popgraph.passes.options import Options
from popgraph.support.machine import PRESETS

COUNTS = (1, 2, 3, 8, 9)
"""Tensors to interleave: one, two, three, the most that is vectorized, and one more."""


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", ["f4", "f8", "u1", "i8", "?", "bfloat16"])
@pytest.mark.parametrize("rows", [1, 3, 21, 12345])
def test_concatenation_along_a_last_axis(rows: int, dtype: str, threads: int) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    names = [f"x{at}" for at in range(max(COUNTS))]
    made = helper.make_graph(
        [
            helper.make_node("Concat", [*names[1:count], names[0]], [f"y{count}"], axis=-1)
            for count in COUNTS
        ],
        "g",
        [helper.make_tensor_value_info(name, kind, (1, rows, 1)) for name in names],
        [helper.make_tensor_value_info(f"y{count}", kind, (1, rows, count)) for count in COUNTS],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    numbers = np.random.default_rng(0).integers(0, 120, (len(names), 1, rows, 1))
    given = dict(zip(names, numbers.astype(dtype), strict=True))
    found = popgraph.compile(model, threads=threads)(given)
    for count in COUNTS:
        wanted = [given[name] for name in (*names[1:count], names[0])]
        np.testing.assert_array_equal(found[f"y{count}"], np.concatenate(wanted, axis=-1))


@pytest.mark.parametrize(("count", "woven"), [(2, True), (8, True), (9, False)])
def test_interleaving_of_few_tensors_is_vectorized(count: int, woven: bool) -> None:
    inputs = ", ".join(f"x{at}: f32[64, 1]" for at in range(count))
    names = ", ".join(f"x{at}" for at in range(count))
    text = f"graph g({inputs}) -> y {{ y = Concat({names}, axis=1) }}"
    module, compilation = load(text)
    lower(module, compilation, Options(machine=PRESETS["zen4"]), level="loops")
    assert any(isinstance(op, vector.ShuffleOp) for op in module.walk()) == woven
