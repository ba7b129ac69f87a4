"""Fuzzes PopART's checks of operators: each returns a message or None."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from popgraph.builder.opset.checks import (
    CHECKS,
    IMMEDIATE_CHECKS,
    Node,
    complaint,
    immediate_complaint,
)
from popgraph.dialects.onnx.annotations import PARTIALS, SERIALIZED, SERIALIZED_FACTOR
from popgraph.dialects.onnx.types import UNKNOWN, tensor_type
from popgraph.support import dtypes

NAMES = [
    *("activations", "auto_pad", "axes", "axis", "axis_size", "blocksize", "clip", "degree"),
    *("dilations", "dimensions", "direction", "dtype", "group", "group_size", "hidden_size", "k"),
    *("kernel_shape", "mode", "num_scan_inputs", "outDataType", "output_shape", "pads", "perm"),
    *("ratio", "scale", "scan_input_axes", "shape", "size", "sizes", "spatial", "split", "starts"),
    *("strides", "transA", "transB", PARTIALS, SERIALIZED, SERIALIZED_FACTOR),
    *("activation_alpha", "activation_beta", "nearest_mode", "seed"),
]
IDS = ("x", "x", "", "a{b}", "{}", "%s", "{0")
"""Names of nodes and tensors, some with characters that formatting interprets."""
INTEGERS = st.integers(-3, 5)
VALUES = st.one_of(
    INTEGERS,
    st.lists(INTEGERS, max_size=5),
    st.sampled_from([0.5, float("nan"), "reducing_dim", "CRD", b"\xff", ["Tanh", b"\xff"], None]),
)
SHAPES = st.lists(st.one_of(st.integers(0, 4), st.none()), max_size=4)
ELEMENTS = st.sampled_from(["FLOAT", "FLOAT16", "INT32", "INT64", "UINT32", "BOOL"])


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    domain, op_type = draw(st.sampled_from(sorted({*CHECKS, *IMMEDIATE_CHECKS})))
    operands = draw(st.lists(st.none() | st.tuples(ELEMENTS, SHAPES), max_size=5))
    types: list[Any] = [
        UNKNOWN if one is None else tensor_type(dtypes.BY_POPART[one[0]], tuple(one[1]))
        for one in operands
    ]
    count = len(operands)
    places = st.integers(0, max(0, count - 1))
    values = draw(st.dictionaries(places, st.lists(INTEGERS, max_size=3))) if count else {}
    return Node(
        op_type,
        draw(st.sampled_from([1, 8, 10, 11])),
        draw(st.sampled_from(IDS)),
        [draw(st.sampled_from(IDS)) for _ in operands],
        [f"y{at}" for at in range(draw(st.integers(0, 3)))],
        types,
        draw(st.dictionaries(st.sampled_from(NAMES), VALUES)),
        domain,
        streamed=draw(st.frozensets(places)) if count else frozenset(),
        values={place: np.array(one) for place, one in values.items()},
    )


@given(nodes())
@example(Node("Conv", 1, "", [], [], [], {PARTIALS: [0]}))
@example(Node("Clip", 11, "a{b}", ["x", "{}"], ["{0"], [UNKNOWN] * 2, {}, streamed=frozenset([1])))
def test_fuzz_operator_checks_return_a_text_or_none(node: Node) -> None:
    for said in (complaint(node), immediate_complaint(node)):
        assert said is None or isinstance(said, str)
