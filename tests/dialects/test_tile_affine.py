"""Tests the simplification and composition of affine index maps."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st
from xdsl.dialects.builtin import TensorType, f32
from xdsl.ir.affine import AffineExpr, AffineMap

from popgraph.dialects.tile.affine import composed, linear, offset, reads_whole, simplified
from popgraph.dialects.tile.attributes import LayoutAttr

DIMS = 3
leaves = st.one_of(
    st.integers(0, DIMS - 1).map(AffineExpr.dimension),
    st.integers(-3, 5).map(AffineExpr.constant),
)
divisors = st.sampled_from([1, 2, 3, 4, 6, 8])


def grown(inner: st.SearchStrategy[AffineExpr]) -> st.SearchStrategy[AffineExpr]:
    return st.one_of(
        st.builds(lambda a, b: a + b, inner, inner),
        st.builds(lambda a, by: a * by, inner, st.integers(-2, 6)),
        st.builds(lambda a, by: a // by, inner, divisors),
        st.builds(lambda a, by: a % by, inner, divisors),
    )


expressions = st.recursive(leaves, grown, max_leaves=6)
sizes = st.tuples(*[st.sampled_from([1, 2, 3, 5, 7])] * DIMS)


@given(expressions, sizes)
def test_linear_forms_keep_values_and_bounds(
    expression: AffineExpr, sizes: tuple[int, ...]
) -> None:
    form = linear(expression, sizes)
    low, high = form.bounds(sizes)
    again = form.expression()
    for index in product(*map(range, sizes)):
        value = expression.eval(index, ())
        assert again.eval(index, ()) == value
        assert low <= value <= high
    assert linear(again, sizes) == form


@given(expressions, sizes, st.integers(0, DIMS - 1))
def test_strides_of_linear_forms(expression: AffineExpr, sizes: tuple[int, ...], dim: int) -> None:
    """A stride is the difference between all neighbours along its dimension."""
    stride = linear(expression, sizes).stride(dim)
    for index in product(*map(range, sizes)):
        if index[dim] + 1 < sizes[dim]:
            following = (*index[:dim], index[dim] + 1, *index[dim + 1 :])
            step = expression.eval(following, ()) - expression.eval(index, ())
            assert stride is None or step == stride


def test_quotient_and_remainder_recombine() -> None:
    """i // 56 and i % 56 recombine: a split followed by its inverse is the identity."""
    split = AffineMap.from_callable(lambda i: (i // 56, i % 56))
    flat = AffineMap.from_callable(lambda i, j: (i * 56 + j,))
    assert reads_whole(TensorType(f32, [3136]), composed(flat, split, (3136,)), (3136,))
    assert reads_whole(TensorType(f32, [56, 56]), composed(split, flat, (56, 56)), (56, 56))


def test_a_blocked_layout_is_contiguous_along_its_block() -> None:
    """Loops over blocks and over elements of a block leave no division in the offset."""
    layout = LayoutAttr.of(AffineMap.from_callable(lambda c, x: (c // 16, x, c % 16)), [4, 9, 16])
    type_ = TensorType(f32, [64, 9], layout)
    form = offset(type_, AffineMap.from_callable(lambda b, k, x: (b * 16 + k, x)), (4, 16, 9))
    assert [form.stride(dim) for dim in range(3)] == [144, 1, 16]


def test_dimensions_of_size_one_vanish() -> None:
    map_ = AffineMap.from_callable(lambda i, j: (i, i + j))
    assert simplified(map_, (1, 5)) == AffineMap.from_callable(lambda i, j: (0, j))
