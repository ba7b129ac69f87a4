"""Tests ONNX's casts between all element types, in C and in the reference."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

import popgraph
from popgraph.conformance.cases import node_cases
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.casts import cast
from tests.passes.test_onnx_to_graphcore import as_array

F8 = ("f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz")
WHOLE = [row.name for row in dtypes.DTYPES if row.is_integer]
AT_LEAST = 116
"""The minimal number of ONNX's cases about casts, without expanded ones."""


@cache
def cases() -> list[Any]:
    return [
        case
        for case in node_cases()
        if case.name.startswith(("test_cast_", "test_castlike_")) and "expanded" not in case.name
    ]


def described(name: str, array: Array) -> onnx.ValueInfoProto:
    row = dtypes.from_numpy(array.dtype)
    return helper.make_tensor_value_info(name, row.onnx, array.shape)


def together(
    casts: list[tuple[onnx.NodeProto, list[Array], Array]],
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """One model of many nodes with one output each, and its inputs."""
    given: dict[str, Array] = {}
    nodes, results = [], []
    for at, (node, inputs, output) in enumerate(casts):
        made = onnx.NodeProto()
        made.CopyFrom(node)
        made.input[:] = [f"x{at}_{place}" for place in range(len(inputs))]
        made.output[:] = [f"y{at}"]
        given.update(zip(made.input, inputs, strict=True))
        nodes.append(made)
        results.append(described(f"y{at}", output))
    starts = [described(name, array) for name, array in given.items()]
    graph = helper.make_graph(nodes, "casts", starts, results)
    opset = onnx.defs.onnx_opset_version()
    domains = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=domains, ir_version=11), given


def check(casts: list[tuple[onnx.NodeProto, list[Array], Array]], backend: str) -> None:
    model, given = together(casts)
    found = popgraph.compile(model, backend=backend)(given)
    for at, (node, inputs, output) in enumerate(casts):
        assert found[f"y{at}"].dtype == output.dtype
        what = f"{node.op_type} of {inputs[0].dtype} to {output.dtype}"
        np.testing.assert_array_equal(readable(found[f"y{at}"]), readable(output), what)


def readable(array: Array) -> Array:
    """The array in a type that NumPy compares correctly: it misses some NaN of small floats."""
    return array.astype(np.float32) if dtypes.from_numpy(array.dtype).is_float else array


@pytest.mark.parametrize("backend", ["c", "reference"])
def test_casts_of_onnx(backend: str) -> None:
    casts = []
    for case in cases():
        ((inputs, outputs),) = case.data_sets
        arrays = [as_array(value) for value in inputs]
        casts.append((case.model.graph.node[0], arrays, as_array(outputs[0])))
    assert len(casts) >= AT_LEAST
    check(casts, backend)


def cast_node(to: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node("Cast", ["x"], ["y"], to=dtypes.BY_NAME[to].onnx, **attributes)


@pytest.mark.parametrize("backend", ["c", "reference"])
def test_casts_to_8_bit_floats_saturate(backend: str) -> None:
    """Integers, bools and other small floats saturate like f32."""
    casts = []
    for source in (*WHOLE, *F8, "f4e2m1", "bool"):
        values = np.array([0, 1, 1, 0] if source == "bool" else [-3, 1, 3, 2])
        whole = dtypes.BY_NAME[source]
        if source in WHOLE and whole.numpy.itemsize > 1:
            values = np.array([-100_000, -449, 460, 100_000])
        x = values.astype(np.int64).astype(np.float32 if whole.is_float else np.int64)
        x = x.astype(whole.numpy)
        for target in F8:
            row = dtypes.BY_NAME[target].numpy
            largest = float(ml_dtypes.finfo(row).max)
            y = np.clip(cast(x, np.dtype(np.float32)), -largest, largest).astype(row)
            casts.append((cast_node(target), [x], y))
    check(casts, backend)


POWERS = np.array([1.0, 1.25, 1.5, 1.75, 2.0, 3.0, 0.7, 2.0**-126, 1e30, 2.0**127])
UP = [1.0, 2.0, 2.0, 2.0, 2.0, 4.0, 1.0, 2.0**-126, 2.0**100, 2.0**127]
DOWN = [1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 0.5, 2.0**-126, 2.0**99, 2.0**127]
NEAREST = [1.0, 1.0, 2.0, 2.0, 2.0, 4.0, 0.5, 2.0**-126, 2.0**100, 2.0**127]
ENDS = np.array([0.0, 1e-44, 1.5 * 2.0**127, np.inf, np.nan])
LEAST, LARGEST = 2.0**-127, 2.0**127


@pytest.mark.parametrize("backend", ["c", "reference"])
def test_f8e8m0_rounds_by_mode(backend: str) -> None:
    """Casts to f8e8m0, which holds powers of two, follow ONNX's table for extreme values.

    ONNX leaves negative numbers open: their absolute values are used, as in ONNX's evaluator.
    """
    scale = dtypes.BY_NAME["f8e8m0"].numpy
    casts = []
    for mode, inner in (("up", UP), ("down", DOWN), ("nearest", NEAREST)):
        for saturate, ends in (
            (1, [LEAST, LEAST, LARGEST, LARGEST, np.nan]),
            (0, [np.nan, np.nan, LARGEST if mode == "down" else np.nan, np.nan, np.nan]),
        ):
            if mode == "down" and not saturate:
                continue  # ONNX leaves overflow open for this mode.
            for dtype in (np.float32, np.float64):
                x = np.concatenate([POWERS, ENDS, -POWERS]).astype(dtype)
                y = np.array([*inner, *ends, *inner], np.float32).astype(scale)
                node = cast_node("f8e8m0", saturate=saturate, round_mode=mode)
                casts.append((node, [x], y))
    check(casts, backend)


OUT_OF_RANGE = [-1.0, -1.9, 300.0, -3e9, 2.0**31, 2.0**32 + 2.0**10, 2.0**63, -(2.0**64), 1e30]


@pytest.mark.parametrize("backend", ["c", "reference"])
def test_casts_of_floats_to_integers_wrap(backend: str) -> None:
    """Out of range, the integer part wraps for all widths; infinities and NaN become 0."""
    casts = []
    for source in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x = np.array([*OUT_OF_RANGE * 3, np.inf, -np.inf, np.nan]).astype(source)
        wide = x.astype(np.float64)
        whole = [int(value) if np.isfinite(value) else 0 for value in wide]
        for name in WHOLE:
            width = int(name[1:])
            low = [value % (1 << width) for value in whole]
            if name.startswith("i"):
                low = [value - (1 << width) * (value >> (width - 1)) for value in low]
            holder = np.array(low, np.uint64 if name == "u64" else np.int64)
            y = holder.astype(dtypes.BY_NAME[name].numpy)
            casts.append((cast_node(name), [x], y))
    check(casts, backend)


def test_unused_bits_of_narrow_integers_are_ignored() -> None:
    """NumPy keeps the unused upper bits of a byte, which may hold anything."""
    casts = []
    for name, bits in (("i4", 4), ("u4", 4), ("i2", 2), ("u2", 2)):
        x = np.arange(256, dtype=np.uint8).view(dtypes.BY_NAME[name].numpy)
        low = np.arange(256) % (1 << bits)
        signed = low - (low >> (bits - 1) << bits) if name.startswith("i") else low
        casts.extend((cast_node(to), [x], signed.astype(dtypes.BY_NAME[to].numpy))
                     for to in ("i8", "i64", "f32", "f16", "bool"))  # fmt: skip
    check(casts, "c")
