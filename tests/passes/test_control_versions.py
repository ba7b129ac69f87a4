"""Fuzzes If, Loop and Scan in all versions that onnxruntime supports, against onnxruntime."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.passes.test_control_flow import agree

OPSETS = (8, 9, 11, 13, 16, 19, 21, 23)
"""Each opset has another version of If, Loop or Scan, or of operators in their bodies."""
STEPS = ("Add", "Sub", "Mul", "Max", "Min")


def values(size: int, seed: int, *shape: int) -> np.ndarray:
    """Small integers, so that all results are exact."""
    return np.random.default_rng(seed).integers(-3, 4, (*shape, size)).astype(np.float32)


@settings(deadline=None)
@given(
    opset=st.sampled_from(OPSETS),
    size=st.integers(1, 3),
    taken=st.booleans(),
    one=st.sampled_from(STEPS),
    other=st.sampled_from(STEPS),
    seed=st.integers(0, 99),
)
def test_if_of_all_versions_fuzz(
    opset: int, size: int, taken: bool, one: str, other: str, seed: int
) -> None:
    agree(
        f"""g (bool c, float[{size}] x, float[{size}] w) => (float[{size}] y, float[{size}] z) {{
          y, z = If (c) <
            then_branch = t () => (float[{size}] a, float[{size}] b)
              {{ a = {one}(x, w)  b = Neg(a) }},
            else_branch = e () => (float[{size}] d, float[{size}] f)
              {{ d = Abs(x)  f = {other}(d, w) }}>
        }}""",
        opset,
        c=np.array(taken),
        x=values(size, seed),
        w=values(size, seed + 1),
    )


@settings(deadline=None)
@given(
    opset=st.sampled_from(OPSETS),
    size=st.integers(1, 3),
    turns=st.integers(0, 4),
    goes_on=st.booleans(),
    bound=st.integers(-2, 12),
    step=st.sampled_from(STEPS),
    scanned=st.booleans(),
    seed=st.integers(0, 99),
)
def test_loop_of_all_versions_fuzz(
    opset: int,
    size: int,
    turns: int,
    goes_on: bool,
    bound: int,
    step: str,
    scanned: bool,
    seed: int,
) -> None:
    """
    A loop ends by a condition from data, or stacks rows, not both.

    With both, data would decide a size, and the host would run the loop.
    """
    inputs = {"x": values(size, seed), "w": values(size, seed + 1)}
    given = {"n": np.array(turns), "c": np.array(goes_on), "bound": np.array(bound, np.float32)}
    agree(
        f"""g (float[{size}] x, float[{size}] w
          {"" if scanned else ", int64 n, bool c, float bound"})
          => (float[{size}] y{f", float[N,{size}] s" if scanned else ""})
          {f"<int64 n = {{{turns}}}, bool c = {{{int(goes_on)}}}>" if scanned else ""} {{
          y{", s" if scanned else ""} = Loop (n, c, x) <body = b (int64 i, bool k, float[{size}] v)
            => (bool k2, float[{size}] v2{f", float[{size}] o" if scanned else ""}) {{
              v2 = {step}(v, w)
              {"o = Neg(v2)" if scanned else "total = ReduceMax<keepdims = 0>(v2)"}
              k2 = {"Identity(k)" if scanned else "Less(total, bound)"}
            }}>
        }}""",
        opset,
        **inputs,
        **({} if scanned else given),
    )


@settings(deadline=None)
@given(
    opset=st.sampled_from(OPSETS[1:]),
    length=st.integers(1, 4),
    size=st.integers(1, 3),
    axis=st.integers(0, 1),
    out_axis=st.integers(0, 1),
    negative=st.booleans(),
    backward=st.integers(0, 1),
    out_backward=st.integers(0, 1),
    step=st.sampled_from(STEPS),
    seed=st.integers(0, 99),
)
def test_scan_of_all_versions_fuzz(
    opset: int,
    length: int,
    size: int,
    axis: int,
    out_axis: int,
    negative: bool,
    backward: int,
    out_backward: int,
    step: str,
    seed: int,
) -> None:
    """Along either axis in either direction; negative axes since version 11."""
    if negative and opset >= 11:
        axis, out_axis = axis - 2, out_axis - 2
    shape, out = [length, size], [length, size]
    if axis % 2:
        shape.reverse()
    if out_axis % 2:
        out.reverse()
    agree(
        f"""g (float[{size}] h, float[{shape[0]},{shape[1]}] x)
          => (float[{size}] last, float[{out[0]},{out[1]}] all) {{
          last, all = Scan (h, x) <num_scan_inputs = 1, scan_input_axes = [{axis}],
            scan_output_axes = [{out_axis}], scan_input_directions = [{backward}],
            scan_output_directions = [{out_backward}],
            body = b (float[{size}] v, float[{size}] e) => (float[{size}] v2, float[{size}] o)
              {{ v2 = {step}(v, e)  o = Sub(v2, e) }}>
        }}""",
        opset,
        h=values(size, seed),
        x=values(shape[1], seed + 1, shape[0]),
    )


@settings(deadline=None)
@given(
    batch=st.integers(1, 3),
    length=st.integers(1, 4),
    size=st.integers(1, 3),
    backward=st.integers(0, 1),
    step=st.sampled_from(STEPS),
    seed=st.integers(0, 99),
)
def test_scan_8_of_batches_fuzz(
    batch: int, length: int, size: int, backward: int, step: str, seed: int
) -> None:
    """The first version scans axis 1 of every sequence in a batch."""
    agree(
        f"""g (float[{batch},{size}] h, float[{batch},{length},{size}] x)
          => (float[{batch},{size}] last, float[{batch},{length},{size}] all) {{
          last, all = Scan ("", h, x) <num_scan_inputs = 1, directions = [{backward}],
            body = b (float[{size}] v, float[{size}] e) => (float[{size}] v2, float[{size}] o)
              {{ v2 = {step}(v, e)  o = Sub(v2, e) }}>
        }}""",
        8,
        h=values(size, seed, batch),
        x=values(size, seed + 1, batch, length),
    )
