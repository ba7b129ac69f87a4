"""Tests every row of the C expression tables against NumPy, on special values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects import arith, func, vector
from xdsl.dialects.builtin import (
    BFloat16Type,
    Float16Type,
    Float32Type,
    Float64Type,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    StringAttr,
    VectorType,
    i64,
)
from xdsl.ir import Attribute, SSAValue

import tests.backends.c_kernels as kernels
from popgraph.backends.c.print import conversions, rows
from popgraph.dialects.tile import CompareOp, ConvertOp, SelectOp
from popgraph.dialects.tile.scalars import EXACT, RECORDS, ROUNDED, Kind, Scalar
from popgraph.support import casts
from popgraph.support.threefry import threefry
from popgraph.support.words import WORDS, WordFormat

F16, BF16, F32, F64 = Float16Type(), BFloat16Type(), Float32Type(), Float64Type()
I1, I8, I16, I32, I64 = (IntegerType(width) for width in (1, 8, 16, 32, 64))
FLOATS, INTS = (F16, BF16, F32, F64), (I8, I16, I32, I64)
LANES = 4


def floats(type_: Attribute) -> np.ndarray:
    dtype = kernels.numpy_type(type_)
    info = ml_dtypes.finfo(dtype)
    tiny, least, most = float(info.tiny), float(info.smallest_subnormal), float(info.max)
    plain = [0.5, 1.0, 1.5, 2.5, 3.5, 0.1, 100.0]
    positive = [0.0, least, tiny, *plain, most, math.inf]
    return np.array([*positive, *(-x for x in positive), math.nan], np.float64).astype(dtype)


def integers(type_: Attribute) -> np.ndarray:
    dtype = kernels.numpy_type(type_)
    info = np.iinfo(dtype)
    values = [0, 1, 2, 3, 7, 8, 31, 63, 100, -1, -2, -7, info.max, info.max - 1, info.min]
    return np.array([*values, info.min + 1], np.int64).astype(dtype)


def values_of(type_: Attribute) -> np.ndarray:
    if type_ == I1:
        return np.array([False, True])
    return integers(type_) if type_ in INTS else floats(type_)


def operands(type_: Attribute, count: int) -> list[np.ndarray]:
    """All combinations of values, repeated to a multiple of 16 for vectors."""
    values = values_of(type_)
    if count == 3:
        values = values[::2]
    rows = list(product(values, repeat=count))
    rows += rows[: -len(rows) % 16]
    return [np.array(column, values.dtype) for column in zip(*rows, strict=True)]


def wide(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """Computes halves in f32 and rounds once."""

    def computed(*arrays: np.ndarray) -> np.ndarray:
        dtype = arrays[0].dtype
        if dtype.itemsize == 2:
            return np.asarray(function(*(a.astype(np.float32) for a in arrays))).astype(dtype)
        return np.asarray(function(*arrays))

    return computed


def truncated_division(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    pairs = zip(a.tolist(), b.tolist(), strict=True)
    quotients = [
        0 if y == 0 else abs(x) // abs(y) * (-1 if (x < 0) ^ (y < 0) else 1) for x, y in pairs
    ]
    return np.array([q % (1 << a.itemsize * 8) for q in quotients], np.uint64).astype(a.dtype)


def shifted(shift: Callable[[int, int, int], int]) -> Callable[..., np.ndarray]:
    def computed(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        bits = a.itemsize * 8
        pairs = zip(a.tolist(), as_unsigned(b).tolist(), strict=True)
        found = [shift(x, y, bits) % (1 << bits) for x, y in pairs]
        return np.array(found, np.uint64).astype(a.dtype)

    return computed


def as_unsigned(a: np.ndarray) -> np.ndarray:
    return a if a.dtype == np.bool_ else a.view(f"u{a.itemsize}")


def unsigned(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    return lambda a, b: function(as_unsigned(a), as_unsigned(b)).view(a.dtype)


def fused(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    extended = [x.astype(np.longdouble) for x in (a, b, c)]
    return (extended[0] * extended[1] + extended[2]).astype(a.dtype)


erf = np.vectorize(lambda x: math.erf(float(x)), otypes=[np.float64])


def exactly(record: Scalar) -> Callable[..., np.ndarray]:
    """The meaning of a scalar record, exact also in types wider than f32."""
    found = {
        "fma": fused,
        "erf": lambda x: erf(x).astype(x.dtype),
        "exp_nonpositive": lambda x: np.exp(-np.abs(x)),
    }.get(record.name, record.numpy)
    assert found is not None
    return found


def admitted(op: str, values: list[SSAValue]) -> list[SSAValue]:
    """The operands of an operation: -|x| if it requires numbers of at most 0."""
    if op != "tile.exp_nonpositive":
        return values
    sizes = [kernels.make("math.absf", [x], x.type) for x in values]
    return [kernels.make("arith.negf", [x], x.type) for x in sizes]


FUNCTIONS = {record.ir.name: record for record in RECORDS if Kind.FLOAT in record.kinds}

FLOAT_MEANING: dict[str, tuple[int, Callable[..., np.ndarray]]] = {
    **{
        op: (len(set(re.findall(r"{[abc]}", rows.FLOAT[op].scalar))), exactly(record))
        for op, record in FUNCTIONS.items()
    },
    "vector.fma": (3, fused),
}
"""Number of operands, and NumPy meaning, of each operation."""

ULPS = {
    **{op: 0 if record.ulps in (EXACT, ROUNDED) else 4 for op, record in FUNCTIONS.items()},
    **dict.fromkeys(("math.fma", "vector.fma"), 1),
}
"""Largest distance from NumPy's own rounding in ulp. Unlisted operations are exact."""

INT_MEANING: dict[str, tuple[int, Callable[..., np.ndarray]]] = {
    "arith.addi": (2, np.add),
    "arith.subi": (2, np.subtract),
    "arith.muli": (2, np.multiply),
    "arith.divsi": (2, truncated_division),
    "arith.remsi": (2, lambda a, b: np.where(b == 0, a * 0, np.fmod(a, b))),
    "arith.divui": (2, unsigned(lambda a, b: np.where(b == 0, a * 0, a // np.maximum(b, 1)))),
    "arith.remui": (2, unsigned(lambda a, b: np.where(b == 0, a * 0, a % np.maximum(b, 1)))),
    "arith.andi": (2, np.bitwise_and),
    "arith.ori": (2, np.bitwise_or),
    "arith.xori": (2, np.bitwise_xor),
    "arith.shli": (2, shifted(lambda x, y, bits: x << y if y < bits else 0)),
    "arith.shrui": (2, shifted(lambda x, y, bits: x % (1 << bits) >> y if y < bits else 0)),
    "arith.shrsi": (2, shifted(lambda x, y, bits: x >> min(y, bits - 1))),
    "arith.maxsi": (2, np.maximum),
    "arith.minsi": (2, np.minimum),
    "arith.maxui": (2, unsigned(np.maximum)),
    "arith.minui": (2, unsigned(np.minimum)),
    "math.absi": (1, np.abs),
}

BOOL_MEANING: dict[str, tuple[int, Callable[..., np.ndarray]]] = {
    "arith.addi": (2, np.logical_xor),
    "arith.subi": (2, np.logical_xor),
    "arith.muli": (2, np.logical_and),
    "arith.andi": (2, np.logical_and),
    "arith.ori": (2, np.logical_or),
    "arith.xori": (2, np.logical_xor),
    "arith.maxsi": (2, np.logical_and),
    "arith.minsi": (2, np.logical_or),
    "arith.maxui": (2, np.logical_or),
    "arith.minui": (2, np.logical_and),
}

COMPARE = {"eq": np.equal, "gt": np.greater, "ge": np.greater_equal, "lt": np.less}
COMPARE |= {"le": np.less_equal, "ne": np.not_equal}
CMPF_NAMES = [
    *("false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord"),
    *("ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true"),
]
CMPI_NAMES = ["eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"]


def cmpf(predicate: str) -> Callable[..., np.ndarray]:
    def computed(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        unordered = np.isnan(a.astype(np.float64)) | np.isnan(b.astype(np.float64))
        if predicate in ("false", "true"):
            return np.full(a.shape, predicate == "true")
        if predicate in ("ord", "uno"):
            return unordered if predicate == "uno" else ~unordered
        holds = COMPARE[predicate[1:]](a.astype(np.float64), b.astype(np.float64))
        return holds & ~unordered if predicate[0] == "o" else holds | unordered

    return computed


def cmpi(predicate: str) -> Callable[..., np.ndarray]:
    def computed(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if a.dtype == np.bool_:
            a, b = -a.astype(np.int8), -b.astype(np.int8)
        if predicate[0] == "u":
            a, b = as_unsigned(a), as_unsigned(b)
        return COMPARE[predicate[-2:]](a, b)

    return computed


@dataclass(frozen=True)
class Case:
    """An operation on one element type, on scalars or vectors."""

    op: str
    type: Attribute
    lanes: int | None
    arity: int
    meaning: Callable[..., np.ndarray]
    result: Attribute
    predicate: int | None = None
    ulps: int = 0
    label: str = ""
    mixed: tuple[Attribute, ...] = field(default=())

    @property
    def name(self) -> str:
        word = self.op.replace(".", "_") + self.label
        return f"{word}_{self.type}_{self.result}_{self.lanes or 'scalar'}"

    def compute(self, values: list[SSAValue]) -> SSAValue:
        result = VectorType(self.result, [self.lanes]) if self.lanes else self.result
        properties = {}
        if self.predicate is not None:
            properties["predicate"] = IntegerAttr(self.predicate, i64)
        return kernels.make(self.op, admitted(self.op, values), result, properties)


def all_cases() -> list[Case]:
    cases: list[Case] = []
    for lanes in (None, LANES, 16):
        for type_, (op, (arity, meaning)) in product(FLOATS, FLOAT_MEANING.items()):
            if op != "vector.fma" or lanes:
                ulps = ULPS[op]
                cases.append(Case(op, type_, lanes, arity, wide(meaning), type_, ulps=ulps))
        for type_, (op, (arity, meaning)) in product(INTS, INT_MEANING.items()):
            cases.append(Case(op, type_, lanes, arity, meaning, type_))
        for op, (arity, meaning) in BOOL_MEANING.items():
            cases.append(Case(op, I1, lanes, arity, meaning, I1))
        for type_, (number, name) in product(FLOATS, enumerate(CMPF_NAMES)):
            cases.append(Case("arith.cmpf", type_, lanes, 2, cmpf(name), I1, number, label=name))
        for type_, (number, name) in product((I1, *INTS), enumerate(CMPI_NAMES)):
            cases.append(Case("arith.cmpi", type_, lanes, 2, cmpi(name), I1, number, label=name))
    return cases


CASES = all_cases()


def test_every_row_of_the_expression_tables_has_a_case() -> None:
    tried = {(case.op, case.type) for case in CASES}
    for table, type_ in ((rows.FLOAT, F32), (rows.INT, I32), (rows.BOOL, I1)):
        assert {(op, type_) for op in table} <= tried
    assert len(CMPF_NAMES) == len(rows.CMPF)
    assert len(CMPI_NAMES) == len(rows.CMPI)
    assert {op for op, _, _, _ in CONVERSIONS} == conversions.CONVERSIONS


@pytest.fixture(scope="module")
def results() -> dict[str, np.ndarray]:
    """The results of all cases, from one program that is compiled once."""
    functions, inputs = [], {}
    for case in CASES:
        arrays = operands(case.type, case.arity)
        names = [f"{case.type}_{case.arity}_{number}" for number in range(case.arity)]
        inputs.update(zip(names, arrays, strict=True))
        op = kernels.elementwise(
            case.name,
            [case.type] * case.arity,
            case.result,
            arrays[0].size,
            case.compute,
            case.lanes,
        )
        functions.append((op, names, case.name))
    return kernels.executable(kernels.program(functions)).run(inputs)


def assert_close(found: np.ndarray, wanted: np.ndarray, ulps: int) -> None:
    """Checks equality up to `ulps`; NaN equals NaN, and zeros of either sign are equal."""
    assert found.dtype == wanted.dtype
    if wanted.dtype.kind in "biu":
        np.testing.assert_array_equal(found, wanted)
        return
    bits = np.dtype(f"i{wanted.dtype.itemsize}")
    low = np.iinfo(bits).min
    x, y = (np.where(a.view(bits) < 0, low - a.view(bits), a.view(bits)) for a in (found, wanted))
    nan = wanted != wanted
    np.testing.assert_array_equal(found != found, nan)
    far = ~nan & (np.abs(x.astype(np.longdouble) - y.astype(np.longdouble)) > ulps)
    assert not far.any(), (found[far], wanted[far])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_operation(case: Case, results: dict[str, np.ndarray]) -> None:
    with np.errstate(all="ignore"):
        wanted = case.meaning(*operands(case.type, case.arity))
    assert_close(results[case.name], wanted.astype(results[case.name].dtype), case.ulps)


@pytest.mark.parametrize("divisor", [3, -3, 0, -1])
@pytest.mark.parametrize("name", sorted(rows.INT_AND_NUMBER))
def test_integer_division_by_a_constant(name: str, divisor: int) -> None:
    def compute(operands: Sequence[SSAValue]) -> SSAValue:
        number = arith.ConstantOp(IntegerAttr(divisor, I32)).result
        return kernels.make(name, [operands[0], number], I32)

    (values,) = operands(I32, 1)
    op = kernels.elementwise("by_a_number", [I32], I32, values.size, compute)
    found = kernels.executable(kernels.program([(op, ["x"], "y")])).run({"x": values})["y"]
    _, meaning = INT_MEANING[name]
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found, meaning(values, np.full_like(values, divisor)))


def natural(a: np.ndarray, target: Attribute) -> np.ndarray:
    return casts.cast(a, kernels.numpy_type(target))


def from_unsigned(a: np.ndarray, target: Attribute) -> np.ndarray:
    return as_unsigned(a).astype(kernels.numpy_type(target))


def from_signed(a: np.ndarray, target: Attribute) -> np.ndarray:
    return natural(-a.astype(np.int8) if a.dtype == np.bool_ else a, target)


def low_bits(a: np.ndarray, target: Attribute) -> np.ndarray:
    return (a & 1).astype(np.bool_) if target == I1 else natural(a, target)


WIDER = [(a, b) for a, b in product((I1, *INTS), INTS) if a.width.data < b.width.data]
CONVERSIONS: list[tuple[str, Attribute, Attribute, Callable[..., np.ndarray]]] = [
    *(("arith.extsi", a, b, from_signed) for a, b in WIDER),
    *(("arith.extui", a, b, from_unsigned) for a, b in WIDER),
    *(("arith.trunci", b, a, low_bits) for a, b in WIDER),
    *(("arith.sitofp", a, b, from_signed) for a, b in product((I1, *INTS), (F32, F64))),
    *(("arith.uitofp", a, b, from_unsigned) for a, b in product((I1, *INTS), (F32, F64))),
    *(("arith.sitofp", a, b, from_signed) for a, b in product((I8, I16), (F16, BF16))),
    *(("arith.fptosi", a, b, natural) for a, b in product(FLOATS, INTS)),
    *(("arith.fptoui", a, b, natural) for a, b in product(FLOATS, INTS)),
    *(("arith.extf", a, b, natural) for a, b in product((F16, BF16), (F32, F64))),
    ("arith.extf", F32, F64, natural),
    *(("arith.truncf", b, a, natural) for a, b in product((F16, BF16), (F32, F64))),
    ("arith.truncf", F64, F32, natural),
    ("arith.index_cast", I64, I64, natural),
]


def conversion_values(op: str, source: Attribute) -> np.ndarray:
    """Special values; for float to integer, first whole vectors of values in range."""
    values = values_of(source)
    if op in ("arith.fptosi", "arith.fptoui"):
        fits = np.array([0.0, -0.0, 0.25, 0.999, 1.5, 2.5, 3.0, 100.0, 126.9])
        ends = 2.0 ** np.array([7, 8, 15, 16, 31, 32, 63, 64, 65])
        far = np.concatenate([ends, -ends, ends * 1.5, -ends * 1.25, [3e9, -5e9, 1e19, -3e38]])
        fits = np.resize(np.concatenate([fits, -fits]), 32)
        with np.errstate(over="ignore"):
            values = np.concatenate([fits.astype(values.dtype), far.astype(values.dtype), values])
    return np.resize(values, -(-values.size // 16) * 16)


def convert(op: str, value: SSAValue, target: Attribute, lanes: int | None) -> SSAValue:
    if lanes is None:
        return kernels.make(op, [value], target)
    made = ConvertOp("arith.sitofp", value, VectorType(target, [lanes]))
    made.properties["conversion"] = StringAttr(op)
    return made.result


@pytest.fixture(scope="module")
def converted() -> dict[str, np.ndarray]:
    functions, inputs = [], {}
    for (op, source, target, _), lanes in product(CONVERSIONS, CONVERTED_LANES):
        name = f"{op}_{source}_{target}_{lanes}"
        inputs[f"in_{name}"] = conversion_values(op, source)

        def compute(
            values: list[SSAValue],
            op: str = op,
            target: Attribute = target,
            lanes: int | None = lanes,
        ) -> SSAValue:
            (value,) = values
            if op == "arith.index_cast":
                value = convert(op, value, kernels.INDEX, lanes)
            return convert(op, value, target, lanes)

        size = inputs[f"in_{name}"].size
        made = kernels.elementwise(name, [source], target, size, compute, lanes)
        functions.append((made, [f"in_{name}"], name))
    return kernels.executable(kernels.program(functions)).run(inputs)


CONVERTED_LANES = (None, 4, 16)


@pytest.mark.parametrize("lanes", CONVERTED_LANES)
@pytest.mark.parametrize(
    ("op", "source", "target", "meaning"),
    CONVERSIONS,
    ids=lambda value: str(value) if not callable(value) else "",
)
def test_conversion(
    op: str,
    source: Attribute,
    target: Attribute,
    meaning: Callable[..., np.ndarray],
    lanes: int | None,
    converted: dict[str, np.ndarray],
) -> None:
    with np.errstate(all="ignore"):
        wanted = meaning(conversion_values(op, source), target)
    assert_close(converted[f"{op}_{source}_{target}_{lanes}"], wanted, 0)


EVERY_HALF = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)


@pytest.mark.parametrize("lanes", [None, 16])
@pytest.mark.parametrize("half", [F16, BF16], ids=str)
@pytest.mark.parametrize("wide", [F32, F64], ids=str)
def test_conversions_of_halves_are_exact(
    half: Attribute, wide: Attribute, lanes: int | None
) -> None:
    """All 65536 halves; on the way back, values between two halves, with ties."""
    halves = EVERY_HALF.view(kernels.numpy_type(half))
    with np.errstate(all="ignore"):
        exact = halves.astype(kernels.numpy_type(wide))
        nudges = [exact * (1 + 2.0**-12 * k) for k in (0, 1, -1, 2, -2, 3)]
        ties = (exact[:-1] / 2 + exact[1:] / 2).repeat(2)[: 1 << 16]
        between = np.concatenate([*nudges, ties, np.nextafter(ties, np.inf, dtype=exact.dtype)])
    between = np.resize(between.astype(exact.dtype), between.size // 16 * 16)

    def of(op: str, target: Attribute) -> kernels.Compute:
        return lambda values: convert(op, values[0], target, lanes)

    there = kernels.elementwise("there", [half], wide, 1 << 16, of("arith.extf", wide), lanes)
    back = kernels.elementwise("back", [wide], half, between.size, of("arith.truncf", half), lanes)
    made = kernels.executable(kernels.program([(there, ["x"], "y"), (back, ["u"], "v")]))
    found = made.run({"x": halves, "u": between})
    assert_close(found["y"], exact, 0)
    with np.errstate(all="ignore"):
        assert_close(found["v"], between.astype(halves.dtype), 0)


def wide_bits(halves: np.ndarray) -> np.ndarray:
    """Converts bits of f16 to bits of f32: a NaN keeps its payload and becomes quiet."""
    exact = halves.view(np.float16).astype(np.float32).view(np.uint32)
    payload = halves.astype(np.uint32) & 0x3FF
    nan = (halves & 0x8000).astype(np.uint32) << 16 | 0x7FC00000 | payload << 13
    return np.where((halves & 0x7FFF) > 0x7C00, nan, exact).astype(np.uint32)


def half_bits(wide: np.ndarray) -> np.ndarray:
    """
    Converts bits of f32 to bits of f16: a NaN keeps its highest payload bits and becomes quiet.
    """
    exact = wide.view(np.float32).astype(np.float16).view(np.uint16)
    nan = (wide >> 16 & 0x8000) | 0x7E00 | (wide >> 13 & 0x3FF)
    return np.where((wide & 0x7FFFFFFF) > 0x7F800000, nan, exact).astype(np.uint16)


@pytest.mark.parametrize("target", ["native", "sse2"])
@pytest.mark.parametrize("lanes", [None, 4, 8, 16])
def test_conversions_of_halves_are_the_same_on_every_machine(
    lanes: int | None, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every half, and f32 of all kinds, with and without the machine's conversion instructions."""
    monkeypatch.setenv("POPGRAPH_TARGET", target)
    near = wide_bits(EVERY_HALF)[:, None] + np.array([0, 1, 0xFFF, 0x1000, 0x1001], np.uint32)
    bits = np.concatenate([near.ravel(), EVERY_KIND.view(np.uint32)])
    bits = bits[: bits.size // 16 * 16]

    def of(op: str, target: Attribute) -> kernels.Compute:
        return lambda values: convert(op, values[0], target, lanes)

    there = kernels.elementwise("there", [F16], F32, 1 << 16, of("arith.extf", F32), lanes)
    back = kernels.elementwise("back", [F32], F16, bits.size, of("arith.truncf", F16), lanes)
    made = kernels.executable(kernels.program([(there, ["x"], "y"), (back, ["u"], "v")]))
    found = made.run({"x": EVERY_HALF.view(np.float16), "u": bits.view(np.float32)})
    np.testing.assert_array_equal(found["y"].view(np.uint32), wide_bits(EVERY_HALF))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found["v"].view(np.uint16), half_bits(bits))


@pytest.mark.parametrize("target", ["native", "sse2"])
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_vectors_rounded_to_bf16_stay_f32(
    lanes: int, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every bf16, and f32 near them: ties, subnormals, infinities, NaN whose rounding carries."""
    monkeypatch.setenv("POPGRAPH_TARGET", target)
    near = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    x = ((EVERY_HALF.astype(np.uint32) << 16)[:, None] + near).ravel().view(np.float32)
    half, single = VectorType(BF16, [lanes]), VectorType(F32, [lanes])

    def narrow(value: SSAValue) -> SSAValue:
        return kernels.make("arith.truncf", [value], half)

    def rounded(value: SSAValue) -> SSAValue:
        return kernels.make("arith.extf", [narrow(value)], single)

    computed: dict[str, tuple[kernels.Compute, Attribute]] = {
        "wide": (lambda values: rounded(values[0]), F32),
        "narrow": (
            lambda values: narrow(kernels.make("math.absf", [rounded(values[0])], single)),
            BF16,
        ),
        "twice": (lambda values: rounded(rounded(values[0])), F32),
        "square": (
            lambda values: rounded(kernels.make("arith.mulf", [rounded(values[0])] * 2, single)),
            F32,
        ),
    }
    functions = [
        (kernels.elementwise(name, [F32], type_, x.size, compute, lanes), ["x"], name)
        for name, (compute, type_) in computed.items()
    ]
    made = kernels.executable(kernels.program(functions))
    found = made.run({"x": x})
    with np.errstate(all="ignore"):
        halves = x.astype(ml_dtypes.bfloat16)
        wanted = {"wide": halves.astype("f4"), "narrow": abs(halves), "twice": halves.astype("f4")}
        wanted["square"] = (wanted["wide"] ** 2).astype(ml_dtypes.bfloat16).astype("f4")
    for name, array in wanted.items():
        same = found[name].view(f"u{array.itemsize}") == array.view(f"u{array.itemsize}")
        assert np.all(np.where(np.isnan(x), np.isnan(found[name].astype("f4")), same)), name


@pytest.mark.parametrize("lanes", [None, 4])
@pytest.mark.parametrize("type_", [F32, F64, BF16, I8, I64], ids=str)
def test_select(type_: Attribute, lanes: int | None) -> None:
    def larger(values: list[SSAValue]) -> SSAValue:
        boolean = VectorType(I1, [lanes]) if lanes else I1
        op = "arith.cmpi" if type_ in INTS else "arith.cmpf"
        greater = {"predicate": IntegerAttr(CMPI_NAMES.index("sgt") if type_ in INTS else 2, i64)}
        chosen = kernels.make(op, values, boolean, greater)
        return kernels.make("arith.select", [chosen, *values], values[0].type)

    a, b = operands(type_, 2)
    with np.errstate(all="ignore"):
        wanted = np.where(a > b, a, b)
    made = kernels.elementwise("larger", [type_] * 2, type_, a.size, larger, lanes)
    found = kernels.executable(kernels.program([(made, ["a", "b"], "y")])).run({"a": a, "b": b})
    assert_close(found["y"], wanted, 0)


def test_bitcast_keeps_every_bit() -> None:
    def there(values: list[SSAValue]) -> SSAValue:
        return kernels.make("arith.bitcast", values, I32)

    array = np.resize(floats(F32), 32)
    made = kernels.elementwise("bits", [F32], I32, 32, there)
    found = kernels.executable(kernels.program([(made, ["x"], "y")])).run({"x": array})["y"]
    np.testing.assert_array_equal(found, array.view(np.int32))


INDEX_MEANING: dict[str, Callable[..., np.ndarray]] = {
    "arith.addi": np.add,
    "arith.subi": np.subtract,
    "arith.muli": np.multiply,
    "arith.divsi": truncated_division,
    "arith.maxsi": np.maximum,
}


@pytest.mark.parametrize("op", INDEX_MEANING)
def test_index_arithmetic(op: str) -> None:
    def compute(values: list[SSAValue]) -> SSAValue:
        cast = [kernels.make("arith.index_cast", [value], kernels.INDEX) for value in values]
        computed = kernels.make(op, cast, kernels.INDEX)
        return kernels.make("arith.index_cast", [computed], I64)

    small = np.array([0, 1, 2, 7, -1, -3, 1 << 30, -(1 << 30)], np.int64)
    a, b = (grid.ravel() for grid in np.meshgrid(small, small))
    made = kernels.elementwise("index", [I64, I64], I64, a.size, compute)
    found = kernels.executable(kernels.program([(made, ["a", "b"], "y")])).run({"a": a, "b": b})
    np.testing.assert_array_equal(found["y"], INDEX_MEANING[op](a, b))


EVERY_KIND = np.arange(0, 1 << 32, 65_521, np.uint64).astype(np.uint32).view(np.float32)
"""Every 65521st bit pattern of f32, with subnormals, infinities and NaNs."""
UNIFORM = np.random.default_rng(0).uniform(-1, 1, 1 << 16)
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, 1.0, -1.0, 709.79, -745.2, 1e300])
DOUBLES = np.random.default_rng(1).integers(0, 1 << 64, 1 << 14, np.uint64).view(np.float64)
RANGES = {
    "math.log": np.exp(80 * UNIFORM),
    "math.tanh": 10 * UNIFORM,
    "math.erf": 5 * UNIFORM,
    "math.sin": 1000 * UNIFORM,
    "math.cos": 1000 * UNIFORM,
    "math.expm1": 80 * UNIFORM,
    "math.log1p": 100 * np.abs(UNIFORM),
    "math.acos": UNIFORM,
    "math.acosh": 1 + 100 * UNIFORM**2,
    "math.asin": UNIFORM,
    "math.atanh": UNIFORM,
    "math.cosh": 90 * UNIFORM,
    "math.sinh": 90 * UNIFORM,
    "math.sqrt": np.abs(1e30 * UNIFORM),
}
"""Inputs with a range other than +-100; small values and EVERY_KIND are always tried."""
STRICTER = {"math.tanh": (1, 3), "math.exp": (1, 1), "math.erf": (1, 1), "math.atan": (1, 1)}
"""
Bounds in ulp from the correctly rounded result, in f32 and f64, that are tighter than the records.

Other functions have the bound of their record, and half an ulp for rounding.
"""
ACCURACY = [
    op
    for op, (arity, _) in FLOAT_MEANING.items()
    if op in FUNCTIONS and FUNCTIONS[op].costly and arity == 1
]


@pytest.mark.parametrize("lanes", [None, 16])
@pytest.mark.parametrize("type_", [F32, F64], ids=str)
@pytest.mark.parametrize("op", ACCURACY)
def test_accuracy_against_the_correctly_rounded_result(
    op: str, type_: Attribute, lanes: int | None
) -> None:
    exact, samples = exactly(FUNCTIONS[op]), RANGES.get(op, 100 * UNIFORM)
    _, *bounds = FUNCTIONS[op].ulps
    allowed = STRICTER.get(op, [0 if bound == 0.5 else int(bound + 0.5) for bound in bounds])
    kinds = EVERY_KIND if type_ == F32 else DOUBLES
    with np.errstate(all="ignore"):
        parts = [samples, 1e-3 * samples, 1e-9 * samples, SPECIAL]
        x = np.concatenate([*(part.astype(kinds.dtype) for part in parts), kinds])
    x = x[: x.size // 16 * 16]

    def compute(values: list[SSAValue]) -> SSAValue:
        return kernels.make(op, admitted(op, values), values[0].type)

    made = kernels.elementwise("function", [type_], type_, x.size, compute, lanes)
    found = kernels.executable(kernels.program([(made, ["x"], "y")])).run({"x": x})["y"]
    # No wider oracle: sqrt is correctly rounded in f64 (rounding twice would not be), and erf comes
    # from math.erf.
    done = type_ == F32 or op in ("math.sqrt", "math.erf")
    wider = np.float64 if done else np.longdouble
    with np.errstate(all="ignore"):
        wanted = exact(x.astype(wider)).astype(x.dtype)
    assert_close(found, wanted, allowed[type_ == F64])
    zeros = found[(x == 0) & (wanted == 0)]
    np.testing.assert_array_equal(np.signbit(zeros), np.signbit(wanted[(x == 0) & (wanted == 0)]))


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_exp_of_at_most_40_has_the_bits_of_exp(lanes: int) -> None:
    ends = [-104.0, -103.98, -103.97, -87.4, 39.9, 1e-40, np.nan, -np.inf]
    x = np.concatenate([ends * 16, np.linspace(-110, 40, 1 << 12), EVERY_KIND[EVERY_KIND < 40]])
    x = x[: x.size // 16 * 16].astype(np.float32)
    ops = ("math.exp", "tile.exp_nonpositive")

    def kernel(op: str) -> tuple[func.FuncOp, list[str], str]:
        def compute(values: Sequence[SSAValue]) -> SSAValue:
            return kernels.make(op, values, values[0].type)

        return kernels.elementwise(op, [F32], F32, x.size, compute, lanes), ["x"], op

    found = kernels.executable(kernels.program([kernel(op) for op in ops])).run({"x": x})
    np.testing.assert_array_equal(*(found[op].view(np.int32) for op in ops))


@pytest.mark.parametrize("lanes", [None, 16])
def test_powers_are_within_one_unit_in_the_last_place(lanes: int | None) -> None:
    edges = [0, -0.0, 1, -1, 0.5, -0.5, 2, -2, 3, -3, 4, 2.5, 0.1, 1e-45, 3e38, -3e38, 1e10]
    edges += [2.0**105, -(2.0**105), 2.0**106]
    edges += [16777215, -16777215, 8388609, math.inf, -math.inf, math.nan]
    pairs = np.array(list(product(edges, repeat=2)), np.float32).T
    base = np.concatenate([np.exp(3 * UNIFORM), np.exp(80 * UNIFORM), pairs[0]]).astype(np.float32)
    exponent = np.concatenate([10 * UNIFORM[::-1], UNIFORM[::-1], pairs[1]]).astype(np.float32)
    whole = base.size // 16 * 16
    base, exponent = base[-whole:], exponent[-whole:]

    def compute(values: list[SSAValue]) -> SSAValue:
        return kernels.make("math.powf", values, values[0].type)

    made = kernels.elementwise("power", [F32, F32], F32, base.size, compute, lanes)
    module = kernels.program([(made, ["a", "b"], "y")])
    found = kernels.executable(module).run({"a": base, "b": exponent})["y"]
    with np.errstate(all="ignore"):
        exact = np.power(base.astype(np.longdouble), exponent.astype(np.longdouble))
        wanted = exact.astype(np.float32)
    assert_close(found, wanted, 1)
    number = wanted == wanted
    np.testing.assert_array_equal(np.signbit(found[number]), np.signbit(wanted[number]))


@pytest.mark.parametrize("lanes", [None, 16])
@pytest.mark.parametrize("type_", [F32, F64], ids=str)
def test_remainders_are_exact(type_: Attribute, lanes: int | None) -> None:
    """Also for huge quotients, and for quotients that are nearly integers."""
    kinds = EVERY_KIND if type_ == F32 else DOUBLES
    whole = np.round(1e5 * UNIFORM)
    times = np.nextafter((whole * 3e4).astype(kinds.dtype), kinds.dtype.type(0))
    dividends = [kinds, 1e10 * UNIFORM, times, whole]
    divisors = [np.roll(kinds, 7), UNIFORM[::-1], whole, 1e2 * UNIFORM]
    x, y = (
        np.concatenate([part.astype(kinds.dtype) for part in parts])
        for parts in (dividends, divisors)
    )
    count = x.size // 16 * 16
    x, y = x[:count], y[:count]

    def compute(values: list[SSAValue]) -> SSAValue:
        return kernels.make("tile.remainder", values, values[0].type)

    made = kernels.elementwise("left", [type_, type_], type_, count, compute, lanes)
    module = kernels.program([(made, ["x", "y"], "z")])
    found = kernels.executable(module).run({"x": x, "y": y})["z"]
    with np.errstate(all="ignore"):
        wanted = np.fmod(x, y)
    np.testing.assert_array_equal(found, wanted)
    number = wanted == wanted
    np.testing.assert_array_equal(np.signbit(found[number]), np.signbit(wanted[number]))


@pytest.mark.parametrize("lanes", [None, 8, 16])
@pytest.mark.parametrize("type_", [I32, I64], ids=str)
def test_threefry(type_: Attribute, lanes: int | None) -> None:
    rng = np.random.default_rng(3)
    key, counter = rng.integers(-(2**63), 2**63, (2, 64))
    counter[:16] = np.arange(16)

    def compute(values: list[SSAValue]) -> SSAValue:
        result = VectorType(type_, [lanes]) if lanes else type_
        return kernels.make("tile.threefry", values, result)

    made = kernels.elementwise("draw", [I64, I64], type_, key.size, compute, lanes)
    module = kernels.program([(made, ["key", "counter"], "words")])
    found = kernels.executable(module).run({"key": key, "counter": counter})["words"]
    wanted = threefry(key, counter).view(np.int64)
    np.testing.assert_array_equal(found, wanted if type_ == I64 else wanted.astype(np.int32))


@pytest.mark.parametrize("bound", [0.0, 1.5, math.inf, math.nan])
@pytest.mark.parametrize("lanes", [None, 16])
@pytest.mark.parametrize("op", ["arith.maximumf", "arith.minimumf"])
@pytest.mark.parametrize("type_", FLOATS, ids=str)
def test_extremes_with_a_constant(
    type_: Attribute, op: str, lanes: int | None, bound: float
) -> None:
    def compute(values: list[SSAValue]) -> SSAValue:
        constant = arith.ConstantOp(FloatAttr(bound, type_)).result  # type: ignore[arg-type]
        if lanes:
            constant = vector.BroadcastOp(constant, VectorType(type_, [lanes])).vector
        return kernels.make(op, [*values, constant], values[0].type)

    x = np.resize(floats(type_), 32)
    made = kernels.elementwise("bounded", [type_], type_, x.size, compute, lanes)
    found = kernels.executable(kernels.program([(made, ["x"], "y")])).run({"x": x})["y"]
    with np.errstate(all="ignore"):
        wanted = FLOAT_MEANING[op][1](x, np.asarray(bound, x.dtype))
    assert_close(found, wanted, 0)


@pytest.mark.parametrize("lanes", [None, 2, 4, 8, 16])
@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
def test_dot(words: WordFormat, lanes: int | None) -> None:
    """Vector widths have their own instruction, or the portable form; all give the same sums."""

    def compute(values: list[SSAValue]) -> SSAValue:
        type_ = values[2].type
        return kernels.make("tile.dot", values, type_, {"words": StringAttr(words.name)})

    sums = I32 if words.is_integer else F32
    (low, high), (least, most) = words.ranges if words.is_integer else ((-99, 128), (-128, 99))
    generator = np.random.default_rng(0)
    ends = ([low, high, 0, high], [least, most, most, least])
    extremes = [
        np.array(each, kind) for each, kind in zip(ends, (words.lhs, words.rhs), strict=True)
    ]
    sizes = (32 * words.count - 4,)
    numbers = (
        generator.integers(low, high, sizes, endpoint=True).astype(words.lhs),
        generator.integers(least, most, sizes, endpoint=True).astype(words.rhs),
    )
    x, y = (np.concatenate(parts).view(np.int32) for parts in zip(extremes, numbers, strict=True))
    largest = 1 << 31 if words.is_integer else 1 << 20
    z = generator.integers(-largest, largest, x.size).astype(words.total)
    made = kernels.elementwise("dot", [I32, I32, sums], sums, x.size, compute, lanes)
    program = kernels.program([(made, ["x", "y", "z"], "sum")])
    found = kernels.executable(program).run({"x": x, "y": y, "z": z})["sum"]
    products = x.view(words.lhs).astype(np.int64) * y.view(words.rhs).astype(np.int64)
    if words.in_pairs:
        sums_of_two = np.clip(products.reshape(-1, 2).sum(axis=1), -32768, 32767)
        wanted = (z.view(np.int16) + sums_of_two.astype(np.int16)).view(words.total)
    else:
        wanted = (products.reshape(-1, words.count).sum(axis=1) + z).astype(words.total)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(found, words.dot(x, y, z))


@pytest.mark.parametrize("lanes", [None, 4, 8, 16])
@pytest.mark.parametrize("bounds", [(0.0, 255.0), (-128.0, 127.0), (5.0, -5.0), (-1e10, 1e10)])
def test_conversion_of_clamped_floats(bounds: tuple[float, float], lanes: int | None) -> None:
    """`min (x > low ? x : low), high` cannot overflow, so its conversion needs no range check."""
    low, high = bounds

    def number(value: float) -> SSAValue:
        constant = arith.ConstantOp(FloatAttr(value, F32)).result
        return vector.BroadcastOp(constant, VectorType(F32, [lanes])).vector if lanes else constant

    def compute(values: list[SSAValue]) -> SSAValue:
        (x,), least = values, number(low)
        if lanes:
            greater: SSAValue = SelectOp(CompareOp(2, x, least).result, x, least).result
        else:
            greater = arith.SelectOp(arith.CmpfOp(x, least, "ogt"), x, least).result
        clamped = arith.MinimumfOp(greater, number(high)).result
        if lanes:
            return ConvertOp("arith.fptosi", clamped, VectorType(I32, [lanes])).result
        return arith.FPToSIOp(clamped, I32).result

    x = np.resize(floats(F32), 32)
    made = kernels.elementwise("clamped", [F32], I32, x.size, compute, lanes)
    found = kernels.executable(kernels.program([(made, ["x"], "y")])).run({"x": x})["y"]
    wanted = np.minimum(np.where(x > np.float32(low), x, np.float32(low)), np.float32(high))
    np.testing.assert_array_equal(found, casts.cast(wanted, np.dtype(np.int32)))
