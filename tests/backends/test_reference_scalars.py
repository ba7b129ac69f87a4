"""Tests the reference backend's scalar functions in every element type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from xdsl.dialects import arith, math, scf
from xdsl.dialects.builtin import (
    Float8E8M0FNUType,
    FloatAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    Signedness,
    StringAttr,
    bf16,
    f16,
    f32,
    f64,
    i1,
    i8,
    i16,
    i32,
    i64,
)
from xdsl.ir import Attribute, Block, Operation

from popgraph.backends.c.print import conversions, rows
from popgraph.backends.c.print.unit import headers
from popgraph.backends.reference.memory import numpy_dtype
from popgraph.backends.reference.scalars import TYPED, function_of
from popgraph.dialects.tile import DotOp, RemainderOp
from popgraph.dialects.tile.scalars import (
    EXACT,
    RECORDS,
    SCALARS,
    Kind,
    Scalar,
    has_nan_of_bf16,
    is_exact,
    named,
)

u8 = IntegerType(8, Signedness.UNSIGNED)


def scalars(*types: Attribute) -> Any:
    return Block(arg_types=types).args


def results(op: Operation, *columns: Any) -> list[Any]:
    """The results on arrays, after a check against the results on scalars."""
    kinds = [numpy_dtype(operand.type) for operand in op.operands]
    arrays = [np.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    function = function_of(op)
    with np.errstate(all="ignore"):
        whole = np.asarray(function(*arrays))
        single = [function(*values) for values in zip(*arrays, strict=True)]
    expected = numpy_dtype(op.results[0].type)
    assert whole.dtype == expected
    assert all(value.dtype == expected for value in single)
    np.testing.assert_array_equal(whole.astype(np.float64), np.array(single, np.float64))
    return whole.tolist()  # type: ignore[no-any-return]


def test_every_scalar_operation_has_a_meaning_and_a_form_in_c() -> None:
    """The scalar records are the single list; tables of both backends agree with it."""
    meaningless = [record.ir.name for record in RECORDS if record.numpy is None]
    assert set(meaningless) <= {op.name for op in TYPED}
    elsewhere = {
        "arith.select",
        "arith.bitcast",
        "arith.cmpf",
        "arith.cmpi",
        "tile.dot",
        "tile.pick",
        "tile.sum_pairs",
        "tile.threefry",
    }
    tables = (rows.FLOAT, rows.INT, conversions.CONVERSIONS, elsewhere)
    formed = {name for table in tables for name in table}
    assert {op.name for op in SCALARS} <= formed
    assert formed <= {op.name for op in (*SCALARS, *TYPED)}


def test_scalar_records_have_distinct_operations() -> None:
    assert len(SCALARS) == len(RECORDS)
    for kind in Kind:
        names = [record.name for record in RECORDS if kind in record.kinds]
        assert sorted(names) == sorted(named(kind))


@pytest.mark.parametrize(
    "record",
    [record for record in RECORDS if Kind.FLOAT in record.kinds],
    ids=lambda record: record.ir.name,
)
def test_functions_of_the_headers_have_both_widths(record: Scalar) -> None:
    text = "".join(headers().values())
    for name in (f"popgraph_{record.name}", f"popgraph_near_{record.name}"):
        assert (f" {name}(" in text) == (f" {name}f(" in text)


def test_float32_is_not_computed_in_double() -> None:
    x, y = scalars(f32, f32)
    (total,) = results(arith.AddfOp(x, y), [16777216.0], [1.0])
    assert total == 16777216.0


def test_division_truncates_and_never_traps() -> None:
    x, y = scalars(i32, i32)
    least = -(2**31)
    lhs, rhs = [7, -7, 7, -7, 5, least, 0], [2, 2, -2, -2, 0, -1, 0]
    assert results(arith.DivSIOp(x, y), lhs, rhs) == [3, -3, -3, 3, 0, least, 0]
    assert results(arith.RemSIOp(x, y), lhs, rhs) == [1, -1, 1, -1, 0, 0, 0]


def test_unsigned_operations_reinterpret_signed_bits() -> None:
    x, y = scalars(i8, i8)
    lhs, rhs = [-1, 1, -128], [1, -1, 3]
    assert results(arith.DivUIOp(x, y), lhs, rhs) == [-1, 0, 42]
    assert results(arith.RemUIOp(x, y), lhs, rhs) == [0, 1, 2]
    assert results(arith.MaxUIOp(x, y), lhs, rhs) == [-1, -1, -128]
    assert results(arith.MinUIOp(x, y), lhs, rhs) == [1, 1, 3]
    assert results(arith.ShRUIOp(x, y), [-1, -1, 64], [1, 7, 9]) == [127, 1, 0]
    assert results(arith.ShRSIOp(x, y), [-2, -1, 64], [1, 7, 9]) == [-1, -1, 0]


INTEGER_PREDICATES = {
    "eq": [False, False, True],
    "ne": [True, True, False],
    "slt": [True, False, False],
    "sle": [True, False, True],
    "sgt": [False, True, False],
    "sge": [False, True, True],
    "ult": [False, True, False],
    "ule": [False, True, True],
    "ugt": [True, False, False],
    "uge": [True, False, True],
}


@pytest.mark.parametrize(("predicate", "expected"), INTEGER_PREDICATES.items())
def test_integer_comparison(predicate: str, expected: list[bool]) -> None:
    x, y = scalars(i16, i16)
    assert results(arith.CmpiOp(x, y, predicate), [-1, 1, 4], [1, -1, 4]) == expected


NAN = float("nan")
FLOAT_PREDICATES = {
    "false": [False, False, False, False],
    "oeq": [False, True, False, False],
    "ogt": [False, False, True, False],
    "oge": [False, True, True, False],
    "olt": [True, False, False, False],
    "ole": [True, True, False, False],
    "one": [True, False, True, False],
    "ord": [True, True, True, False],
    "ueq": [False, True, False, True],
    "ugt": [False, False, True, True],
    "uge": [False, True, True, True],
    "ult": [True, False, False, True],
    "ule": [True, True, False, True],
    "une": [True, False, True, True],
    "uno": [False, False, False, True],
    "true": [True, True, True, True],
}


@pytest.mark.parametrize(("predicate", "expected"), FLOAT_PREDICATES.items())
def test_float_comparison(predicate: str, expected: list[bool]) -> None:
    x, y = scalars(f32, f32)
    op = arith.CmpfOp(x, y, predicate)
    assert results(op, [1, 2, 3, NAN], [2, 2, 2, 2]) == expected


def test_maximum_keeps_nan() -> None:
    x, y = scalars(f32, f32)
    found = results(arith.MaximumfOp(x, y), [1, NAN, 3], [2, 2, NAN])
    assert found[0] == 2 and np.isnan(found[1:]).all()


CONVERSIONS: list[tuple[Any, Attribute, Attribute, list[Any], list[Any]]] = [
    (arith.SIToFPOp, i8, f32, [-1, 5], [-1.0, 5.0]),
    (arith.SIToFPOp, i1, f32, [True, False], [-1.0, 0.0]),
    (arith.UIToFPOp, i8, f32, [-1, 5], [255.0, 5.0]),
    (arith.UIToFPOp, i1, f64, [True, False], [1.0, 0.0]),
    (arith.FPToSIOp, f32, i32, [-1.9, 2.9], [-1, 2]),
    (arith.FPToUIOp, f64, i64, [3.7, 2.0**63], [3, -(2**63)]),
    (arith.ExtSIOp, i8, i32, [-1, 5], [-1, 5]),
    (arith.ExtSIOp, i1, i8, [True, False], [-1, 0]),
    (arith.ExtUIOp, i8, i32, [-1, 5], [255, 5]),
    (arith.ExtUIOp, i1, i8, [True, False], [1, 0]),
    (arith.TruncIOp, i32, i8, [257, -129], [1, 127]),
    (arith.TruncIOp, i32, i1, [2, 3], [False, True]),
    (arith.ExtFOp, f16, f32, [0.5, 65504.0], [0.5, 65504.0]),
    (arith.TruncFOp, f32, bf16, [1.00390625, 3.0], [1.0, 3.0]),
    (arith.BitcastOp, i8, u8, [-1, 5], [255, 5]),
    (arith.BitcastOp, f32, i32, [1.0, -0.0], [0x3F800000, -(2**31)]),
    (arith.IndexCastOp, i32, IndexType(), [-3, 4], [-3, 4]),
]


@pytest.mark.parametrize(("op", "source", "target", "before", "after"), CONVERSIONS)
def test_conversion(
    op: Any, source: Attribute, target: Attribute, before: list[Any], after: list[Any]
) -> None:
    (x,) = scalars(source)
    assert results(op(x, target), before) == after


def test_an_index_may_be_a_python_number() -> None:
    x, y = scalars(IndexType(), IndexType())
    assert function_of(arith.AddiOp(x, y))(3, 4) == 7
    assert function_of(arith.DivSIOp(x, y))(-7, 2) == -3
    assert function_of(arith.IndexCastOp(x, i32))(7).dtype == np.int32
    assert function_of(arith.CmpiOp(x, y, "ult"))(1, -1)
    assert function_of(arith.ShRUIOp(x, y))(8, 2) == 2


def test_fused_multiply_add_rounds_once() -> None:
    x, y, z = scalars(f32, f32, f32)
    tiny = 2.0**-12
    (found,) = results(math.FmaOp(x, y, z), [1 + tiny], [1 - tiny], [-1.0])
    assert found == -(tiny**2)


def test_powf_with_exponent_one_half() -> None:
    x, y = scalars(f32, f32)
    infinity = float("inf")
    assert results(math.PowFOp(x, y), [-infinity, 4, 2], [0.5, 0.5, 3]) == [infinity, 2, 8]
    with np.errstate(invalid="ignore"):
        of_all = function_of(math.PowFOp(x, y))(np.array([-infinity, 4], "f4"), np.float32(0.5))
    np.testing.assert_array_equal(of_all, np.array([infinity, 2], np.float32))


@pytest.mark.parametrize("half", [f16, bf16], ids=str)
def test_exact_functions_of_halves_are_halves(half: Attribute) -> None:
    """All halves, and pairs of them: rounding what `is_exact` accepts keeps every number."""
    dtype = numpy_dtype(half)
    every = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(dtype).astype(np.float32)
    other = np.random.default_rng(0).permutation(every)
    tried = 0
    for record in RECORDS:
        if record.ulps != EXACT or record.numpy is None or Kind.FLOAT not in record.kinds:
            continue
        binary = record.ir in (arith.MaximumfOp, arith.MinimumfOp, RemainderOp)
        arguments = [arith.ExtFOp(one, f32).result for one in scalars(half, half)[: 1 + binary]]
        assert is_exact(record.ir(*arguments).results[0], half)
        assert not is_exact(record.ir(*scalars(f32, f32)[: 1 + binary]).results[0], half)
        with np.errstate(all="ignore"):
            found = record.numpy(*(every, other)[: 1 + binary])
            back = found.astype(dtype).astype(np.float32)
        np.testing.assert_array_equal(back, found)
        tried += 1
    assert tried == 8


def test_literals_and_choices_of_halves_are_exact() -> None:
    x, condition = scalars(bf16, i1)
    wide = arith.ExtFOp(x, f32).result
    for number, types in ((6.0, (bf16, f16)), (0.1, ()), (1e6, ()), (2.0**100, (bf16,))):
        literal = arith.ConstantOp(FloatAttr(number, f32)).result
        assert tuple(one for one in (bf16, f16) if is_exact(literal, one)) == types
        chosen = arith.SelectOp(condition, wide, literal).result
        assert is_exact(chosen, bf16) == (bf16 in types) and not is_exact(chosen, f16)
    assert not is_exact(arith.AddfOp(wide, wide).result, bf16)
    # The negative of a float without a sign is not a number of its type.
    unsigned = arith.ExtFOp(scalars(Float8E8M0FNUType())[0], f32).result
    assert not is_exact(arith.NegfOp(unsigned).result, Float8E8M0FNUType())


def test_only_arithmetic_on_bf16_has_its_nan() -> None:
    """A load of f32 may give a NaN of any bits; a loop carries the NaN of any of its values."""
    half, single, word = scalars(bf16, f32, i32)
    wide = arith.ExtFOp(half, f32).result
    total = DotOp(StringAttr("bf16"), word, word, arith.AddfOp(wide, wide)).result
    assert has_nan_of_bf16(arith.MaximumfOp(total, arith.ConstantOp(FloatAttr(0, f32))).result)
    assert not has_nan_of_bf16(arith.MulfOp(total, single).result)
    assert not has_nan_of_bf16(DotOp(StringAttr("bf16"), word, word, single).result)
    assert not has_nan_of_bf16(math.ExpOp(wide).result)
    assert not has_nan_of_bf16(arith.ConstantOp(FloatAttr(float("nan"), f32)).result)
    low, one = (arith.ConstantOp(IntegerAttr.from_index_int_value(at)) for at in (0, 1))
    for first, added in ((wide, wide), (single, wide), (wide, single)):
        block = Block(arg_types=[IndexType(), f32])
        step = arith.AddfOp(block.args[1], added)
        block.add_ops([step, scf.YieldOp(step)])
        loop = scf.ForOp(low, one, one, [first], block)
        found = {has_nan_of_bf16(loop.results[0]), has_nan_of_bf16(step.result)}
        assert found == {first is added is wide}


def test_constants_are_strict_in_their_type() -> None:
    value = function_of(arith.ConstantOp(FloatAttr(0.1, f32)))()
    assert value.dtype == np.float32 and value == np.float32(0.1)
    assert function_of(arith.ConstantOp(IntegerAttr(-1, i8)))() == np.int8(-1)
    assert function_of(arith.ConstantOp(IntegerAttr(1, i1)))() is np.True_
    assert isinstance(function_of(arith.ConstantOp(IntegerAttr(3, IndexType())))(), int)


def test_the_error_function() -> None:
    (x,) = scalars(f32)
    assert results(math.ErfOp(x), [0.0, 0.5, -3.0]) == pytest.approx([0, 0.5204999, -0.9999779])


def test_operations_outside_the_vocabulary_are_named() -> None:
    (x,) = scalars(i32)
    with pytest.raises(AssertionError, match=r"math\.ctpop is not in the scalar vocabulary"):
        function_of(math.CtPopOp(x))
