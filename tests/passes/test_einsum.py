"""Tests Einsum against NumPy: values, gradients, and the order of contraction."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

import popgraph
from popgraph.compiler import load, lower
from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import shape_of
from popgraph.passes.options import Options
from popgraph.support.arrays import Array
from popgraph.support.errors import TypeMismatchError
from popgraph.support.shapes import prod
from tests.passes.test_onnx_gradients import check

BACKENDS = ("reference", "c")


def model(equation: str, arrays: Sequence[Array], opset: int = 12) -> onnx.ModelProto:
    names = [f"x{number}" for number in range(len(arrays))]
    infos = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in zip(names, arrays, strict=True)
    ]
    node = helper.make_node("Einsum", names, ["y"], equation=equation)
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def run(equation: str, arrays: Sequence[Array], backend: str) -> Array:
    made = model(equation, arrays)
    given = {info.name: one for info, one in zip(made.graph.input, arrays, strict=True)}
    return popgraph.compile(made, backend=backend)(**given)["y"]


def normal(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape)


CASES = [
    ("ij,jk->ik", [(3, 4), (4, 5)]),
    ("bij,bjk", [(2, 3, 4), (2, 4, 5)]),
    ("...ij,...jk->...ik", [(2, 1, 3, 4), (1, 5, 4, 2)]),
    ("i...->...", [(3, 2, 4)]),
    ("...->...", [(3, 2)]),
    ("ii->i", [(4, 4)]),
    ("ii", [(4, 4)]),
    ("iji->ji", [(3, 2, 3)]),
    ("iiij->ij", [(2, 2, 2, 3)]),
    ("ijij->", [(2, 3, 2, 3)]),
    ("ij->ji", [(2, 3)]),
    ("ij->", [(2, 3)]),
    ("b a", [(2, 3)]),
    (",->", [(), ()]),
    ("i,->i", [(3,), ()]),
    ("i,j->ij", [(3,), (4,)]),
    ("i,i->", [(3,), (3,)]),
    ("i,i->i", [(3,), (3,)]),
    ("ij,ij->j", [(3, 4), (3, 4)]),
    ("ij,j->i", [(2, 1), (3,)]),
    ("ij,j->ij", [(2, 1), (3,)]),
    ("ij,jk->ki", [(1, 4), (4, 1)]),
    ("aB,Bc->", [(2, 3), (3, 4)]),
    ("ab,bc,cd->ad", [(2, 3), (3, 4), (4, 5)]),
    ("ab,cd,bc,da->", [(2, 3), (4, 5), (3, 4), (5, 2)]),
    ("bhid,bhjd->bhij", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    ("ij,jk->ik", [(3, 0), (0, 5)]),
    ("ij,kj->ik", [(0, 3), (2, 3)]),
    (",".join("abcdefghi") + "->", [(2,)] * 9),
    ("ab,bc,cd,de,ef,fg,gh,hi,ij->aj", [(2, 3)] + [(3, 3)] * 7 + [(3, 2)]),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("equation", "shapes"), CASES)
def test_einsum_is_that_of_numpy(
    equation: str, shapes: Sequence[tuple[int, ...]], backend: str
) -> None:
    arrays = [normal(*shape) for shape in shapes]
    found = run(equation, arrays, backend)
    np.testing.assert_allclose(found, np.einsum(equation, *arrays), 1e-9, 1e-9)


@st.composite
def sums(draw: st.DrawFn) -> tuple[str, list[Array]]:
    letters = draw(st.permutations("abcDE"))[: draw(st.integers(1, 5))]
    sizes = {letter: draw(st.integers(1, 4)) for letter in letters}
    dtype = draw(st.sampled_from(["float64", "int32", "int64"]))
    dots = draw(st.integers(0, 2))
    terms, arrays = [], []
    for number in range(draw(st.integers(1, 4))):
        term = "".join(draw(st.lists(st.sampled_from(letters), max_size=4)))
        shape = [
            1 if term.count(letter) == 1 and draw(st.integers(0, 9)) == 0 else sizes[letter]
            for letter in term
        ]
        if draw(st.booleans()):
            place = draw(st.integers(0, len(term)))
            term = f"{term[:place]}...{term[place:]}"
            shape[place:place] = [draw(st.sampled_from([1, 2 + at])) for at in range(dots)]
        terms.append(term)
        generator = np.random.default_rng(number)
        arrays.append(generator.integers(-3, 4, shape).astype(dtype))
    left = ",".join(terms)
    if draw(st.booleans()):
        return left, arrays
    used = sorted({letter for letter in left if letter.isalpha()})
    kept = draw(st.permutations(used))[: draw(st.integers(0, len(used)))]
    result = "".join(kept)
    place = draw(st.integers(0, len(result)))
    return f"{left}->{result[:place]}{'...' if '...' in left else ''}{result[place:]}", arrays


@given(sums(), st.sampled_from(BACKENDS))
def test_fuzz_einsum(case: tuple[str, list[Array]], backend: str) -> None:
    equation, arrays = case
    found = run(equation, arrays, backend)
    wanted = np.einsum(equation, *arrays)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


def test_einsum_sums_an_ellipsis_missing_from_the_result() -> None:
    x = normal(2, 3, 4)
    np.testing.assert_allclose(run("...i->i", [x], "c"), x.sum((0, 1)))


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "uint8", "int16", "uint32"])
def test_einsum_of_other_element_types(dtype: str) -> None:
    generator = np.random.default_rng(0)
    arrays = [generator.integers(0, 9, shape).astype(dtype) for shape in ((2, 3), (3, 4), (4,))]
    for backend in BACKENDS:
        found = run("ij,jk,k->ik", arrays, backend)
        assert found.dtype == arrays[0].dtype
        np.testing.assert_array_equal(found, np.einsum("ij,jk,k->ik", *arrays))


@pytest.mark.parametrize(("equation", "shapes"), CASES[:12] + CASES[18:25])
def test_einsum_gradients_are_slopes(equation: str, shapes: Sequence[tuple[int, ...]]) -> None:
    arrays = [normal(*shape) for shape in shapes]
    assert check(model(equation, arrays), arrays, [np.einsum(equation, *arrays)])


def products(equation: str, shapes: Sequence[tuple[int, ...]]) -> int:
    """Multiplications in the matmuls of the program."""
    arrays = [normal(*shape) for shape in shapes]
    module = lower(*load(model(equation, arrays)), Options(), level="graphcore")
    return sum(
        prod(shape_of(op.result)) * shape_of(op.lhs)[-1]
        for op in module.walk()
        if isinstance(op, gc.MatMulOp)
    )


def test_einsum_contracts_in_the_cheapest_order() -> None:
    """A chain of matrices that begins with a row is multiplied from the row on."""
    shapes = [(2, 100), (100, 100), (100, 100), (100, 100)]
    assert products("ab,bc,cd,de->ae", shapes) == 3 * 2 * 100 * 100
    assert products("de,cd,bc,ab->ae", shapes[::-1]) == 3 * 2 * 100 * 100


def test_einsum_of_unequal_sizes_is_refused() -> None:
    with pytest.raises(TypeMismatchError) as raised:
        run("ij,jk->ik", [normal(2, 3), normal(4, 5)], "c")
    assert "axis 'j' has sizes 3 and 4" in raised.value.what
    assert raised.value.where and raised.value.hint
