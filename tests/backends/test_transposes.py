"""Tests transposes of all shapes and types, in registers and at edges."""

from __future__ import annotations

import ml_dtypes  # noqa: F401  (NumPy then knows the names of its types)
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import DTypeLike
from onnx import helper
from xdsl.dialects import vector

import popgraph
from popgraph.compiler import load, lower
from popgraph.passes.options import Options
from popgraph.support.machine import PRESETS


def transposed(
    shape: tuple[int, ...], order: tuple[int, ...], dtype: DTypeLike, threads: int
) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = helper.make_node("Transpose", ["x"], ["y"], perm=order)
    x = helper.make_tensor_value_info("x", kind, shape)
    y = helper.make_tensor_value_info("y", kind, [shape[axis] for axis in order])
    model = helper.make_model(
        helper.make_graph([node], "g", [x], [y]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    array = (np.arange(np.prod(shape)) % 251).reshape(shape).astype(dtype)
    found = popgraph.compile(model, threads=threads)(x=array)
    (result,) = found.values()
    np.testing.assert_array_equal(result, array.transpose(order))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "dtype", ["f4", "f8", "i8", "i4", "u1", "f2", "?", "bfloat16", "float8_e4m3fn"]
)
@pytest.mark.parametrize("shape", [(256, 192), (100, 77), (17, 640), (640, 9), (33, 1)], ids=str)
def test_transposes_of_matrices(shape: tuple[int, int], dtype: str, threads: int) -> None:
    transposed(shape, (1, 0), dtype, threads)


@given(
    st.lists(st.integers(1, 40), min_size=2, max_size=4).flatmap(
        lambda shape: st.tuples(st.just(tuple(shape)), st.permutations(range(len(shape))))
    )
)
@example(((5, 16, 9, 3), [0, 2, 3, 1]))
@example(((3, 9, 40), [2, 1, 0]))
@example(((40, 8), [1, 0]))
@example(((3, 40, 7), [0, 2, 1]))
def test_transposes_in_any_order(drawn: tuple[tuple[int, ...], list[int]]) -> None:
    shape, order = drawn
    transposed(shape, tuple(order), "f4", 1)


@pytest.mark.parametrize(("columns", "lanes"), [(2, 2), (3, 2), (4, 4), (8, 8), (12, 8), (64, 16)])
def test_transposes_of_few_columns_use_smaller_tiles(columns: int, lanes: int) -> None:
    text = f"graph g(x: f32[4096, {columns}]) -> y {{ y = Transpose(x, perm=[1, 0]) }}"
    module, compilation = load(text)
    lower(module, compilation, Options(machine=PRESETS["zen4"]), level="loops")
    loads = [op for op in module.walk() if isinstance(op, vector.LoadOp)]
    assert {op.result.type.get_shape() for op in loads} == {(lanes,)}
