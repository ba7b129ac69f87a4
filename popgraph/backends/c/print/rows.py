"""Tables of C expressions by kind of element and name of the operation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isnan

from xdsl.dialects import arith, math, vector
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, f32
from xdsl.ir import Operation, SSAValue

from popgraph.backends.c.print.types import Element
from popgraph.backends.c.print.unit import headers
from popgraph.dialects.tile import CompareOp, SelectOp
from popgraph.dialects.tile.scalars import RECORDS, Kind
from popgraph.support.errors import UnsupportedError


@dataclass(frozen=True)
class Row:
    """
    The C of one operation for one kind of element.

    `{a} {b} {c}` are the operands: names or literals, which may occur several times. `{T}` is the
    C type of the result. `{U}` is the unsigned type for sums that wrap, `{W}` that of the width of
    the operand, `{M}` the same for all lanes of a vector. `{f}` is the suffix of libm's functions.
    `vector` is the form for vectors; None computes them lane by lane.
    """

    scalar: str
    vector: str | None = None


def _same(expression: str) -> Row:
    return Row(expression, expression)


# A loop over lanes became scalar code once inlined (gcc 12): softmax took 2.4 times as long.
BLEND = "({T})((({M}){a} & ({mask})) | (({M}){b} & ~({mask})))"
"""Selects lanes by a mask in every compiler: `mask ? a : b` of vectors is C++ only."""


def _function(name: str, arguments: str = "{a}") -> Row:
    return Row(f"{name}{{f}}({arguments})")


def _near(name: str) -> Row:
    """A function computed on vectors for small arguments, lane by lane for others."""
    near, far = f"popgraph_near_{name}{{f}}", f"popgraph_far_{name}{{f}}"
    return Row(
        f"(POPGRAPH_IS_NEAR({{a}}) ? {near}({{a}}) : {far}({{a}}))",
        f"POPGRAPH_NEAR_LANES({{T}}, {{E}}, {{n}}, {near}, {far}, {{a}})",
    )


_DEFINED = re.compile(r"^POPGRAPH_INLINE f64 popgraph_(\w+)\(([^)]*)\)", re.MULTILINE)


def _functions() -> Iterator[tuple[str, Row]]:
    """
    The scalar functions that the headers define, found by the names of their records.

    `popgraph_NAME` is the whole function, `popgraph_near_NAME` one of small arguments.
    """
    parameters = dict(_DEFINED.findall("".join(headers().values())))
    for record in RECORDS:
        if Kind.FLOAT not in record.kinds:
            continue
        if record.name in parameters:
            count = parameters[record.name].count(",") + 1
            operands = ", ".join(("{a}", "{b}", "{c}")[:count])
            yield record.ir.name, _function(f"popgraph_{record.name}", operands)
        elif f"near_{record.name}" in parameters:
            yield record.ir.name, _near(record.name)


FLOAT: Mapping[str, Row] = {
    **dict(_functions()),
    "arith.addf": _same("{a} + {b}"),
    "arith.subf": _same("{a} - {b}"),
    "arith.mulf": _same("{a} * {b}"),
    "arith.divf": _same("{a} / {b}"),
    "arith.negf": _same("-{a}"),
    # NaN on either side is the result, as of IEEE 754-2019 maximum; of +0 and -0, either may be.
    "arith.maximumf": Row(
        "({a} >= {b} || {a} != {a}) ? {a} : {b}",
        "POPGRAPH_EXTREMES({T}, {E}, {n}, {M}, >, {a}, {b})",
    ),
    "arith.minimumf": Row(
        "({a} <= {b} || {a} != {a}) ? {a} : {b}",
        "POPGRAPH_EXTREMES({T}, {E}, {n}, {M}, <, {a}, {b})",
    ),
    "tile.remainder": Row(
        "popgraph_remainder{f}({a}, {b})",
        "POPGRAPH_REMAINDERS({T}, {E}, {n}, {f}, {a}, {b})",
    ),
    "math.absf": Row("fabs{f}({a})", "({T})(({M}){a} << 1 >> 1)"),
    "math.ceil": _function("ceil"),
    "math.floor": _function("floor"),
    "math.exp": Row("popgraph_exp{f}({a})", "{exp}({T}, {E}, {n}, popgraph_exp{f}, {a})"),
    "tile.exp_nonpositive": Row(
        "popgraph_exp{f}({a})", "{exp_nonpositive}({T}, {E}, {n}, {M}, {greater}, {a})"
    ),
    "math.fma": Row(
        "popgraph_fma{f}({a}, {b}, {c})",
        "{fma}({T}, {E}, {n}, popgraph_fma{f}, {a}, {b}, {c})",
    ),
    # The rounding mode is never changed, so rint rounds to nearest, ties to even.
    "math.roundeven": _function("rint"),
    "math.sqrt": _function("sqrt"),
    # One rounding where the machine has the instruction (-ffp-contract=fast), two elsewhere.
    "vector.fma": _same("{a} * {b} + {c}"),
}

FLOAT_AND_NUMBER: Mapping[str, Row] = {
    # One comparison is enough if the second operand is known not to be NaN, as in Relu.
    "arith.maximumf": Row("!({a} < {b}) ? {a} : {b}", "{greater}({T}, {M}, {b}, {a})"),
    "arith.minimumf": Row("!({a} > {b}) ? {a} : {b}", "{less}({T}, {M}, {b}, {a})"),
}

INT: Mapping[str, Row] = {
    "arith.addi": _same("({T})(({U}){a} + ({U}){b})"),
    "arith.subi": _same("({T})(({U}){a} - ({U}){b})"),
    "arith.muli": _same("({T})(({U}){a} * ({U}){b})"),
    # Division by zero gives 0, as in NumPy. It and INT_MIN / -1 would be SIGFPE on x86 (undefined,
    # C11 6.5.5); the latter wraps around to INT_MIN.
    "arith.divsi": Row("{b} == 0 ? 0 : {b} == ({T})-1 ? ({T})(0 - ({U}){a}) : ({T})({a} / {b})"),
    "arith.remsi": Row("{b} == 0 || {b} == ({T})-1 ? 0 : ({T})({a} % {b})"),
    "arith.divui": Row("{b} == 0 ? 0 : ({T})(({W}){a} / ({W}){b})"),
    "arith.remui": Row("{b} == 0 ? 0 : ({T})(({W}){a} % ({W}){b})"),
    "arith.andi": _same("({T})({a} & {b})"),
    "arith.ori": _same("({T})({a} | {b})"),
    "arith.xori": _same("({T})({a} ^ {b})"),
    # A shift by the width or more gives 0 (it is undefined in C11 6.5.7).
    "arith.shli": Row(
        "({W}){b} < {bits} ? ({T})(({U}){a} << ({W}){b}) : 0",
        "({T})((({M}){a} << (({M}){b} & ({bits} - 1))) & ({M})(({M}){b} < {bits}))",
    ),
    "arith.shrui": Row(
        "({W}){b} < {bits} ? ({T})(({W}){a} >> ({W}){b}) : 0",
        "({T})((({M}){a} >> (({M}){b} & ({bits} - 1))) & ({M})(({M}){b} < {bits}))",
    ),
    "arith.shrsi": Row(
        "({T})({a} >> (({W}){b} < {bits} ? ({W}){b} : {bits} - 1))",
        "{a} >> ({T})((({M}){b} | ({M})(({M}){b} >= {bits})) & ({bits} - 1))",
    ),
    # GCC finds the one instruction lane by lane; a mask and a blend would be four.
    "arith.maxsi": Row("{a} > {b} ? {a} : {b}"),
    "arith.minsi": Row("{a} < {b} ? {a} : {b}"),
    "arith.maxui": Row("({W}){a} > ({W}){b} ? {a} : {b}"),
    "arith.minui": Row("({W}){a} < ({W}){b} ? {a} : {b}"),
    "math.absi": Row(
        "{a} < 0 ? ({T})(0 - ({U}){a}) : {a}",
        "({T})((({M}){a} ^ ({M})({a} < 0)) - ({M})({a} < 0))",
    ),
}

INT_AND_NUMBER: Mapping[str, Row] = {
    # A constant divisor other than 0 and -1 needs no checks.
    "arith.divsi": Row("({T})({a} / {b})"),
    "arith.remsi": Row("({T})({a} % {b})"),
    "arith.divui": Row("({T})(({W}){a} / ({W}){b})"),
    "arith.remui": Row("({T})(({W}){a} % ({W}){b})"),
}

INDEX: Mapping[str, Row] = {
    **INT,
    # Signed overflow is undefined, so the compiler may assume that indices do not wrap: else it
    # could not find strides.
    "arith.addi": _same("{a} + {b}"),
    "arith.subi": _same("{a} - {b}"),
    "arith.muli": _same("{a} * {b}"),
}

BOOL: Mapping[str, Row] = {
    "arith.addi": Row("{a} != {b}", "{a} ^ {b}"),
    "arith.subi": Row("{a} != {b}", "{a} ^ {b}"),
    "arith.muli": Row("{a} && {b}", "{a} & {b}"),
    "arith.andi": Row("{a} && {b}", "{a} & {b}"),
    "arith.ori": Row("{a} || {b}", "{a} | {b}"),
    "arith.xori": Row("{a} != {b}", "{a} ^ {b}"),
    # As signed integers of one bit, true is -1, so the maximum is `and`.
    "arith.maxsi": Row("{a} && {b}", "{a} & {b}"),
    "arith.minsi": Row("{a} || {b}", "{a} | {b}"),
    "arith.maxui": Row("{a} || {b}", "{a} | {b}"),
    "arith.minui": Row("{a} && {b}", "{a} & {b}"),
}

CMPF: Sequence[Row] = (
    Row("false", "{a} != {a} & {a} == {a}"),
    _same("{a} == {b}"),
    _same("{a} > {b}"),
    _same("{a} >= {b}"),
    _same("{a} < {b}"),
    _same("{a} <= {b}"),
    Row("{a} < {b} || {a} > {b}", "({a} < {b}) | ({a} > {b})"),
    Row("{a} == {a} && {b} == {b}", "({a} == {a}) & ({b} == {b})"),
    Row("!({a} < {b} || {a} > {b})", "~(({a} < {b}) | ({a} > {b}))"),
    Row("!({a} <= {b})", "~({a} <= {b})"),
    Row("!({a} < {b})", "~({a} < {b})"),
    Row("!({a} >= {b})", "~({a} >= {b})"),
    Row("!({a} > {b})", "~({a} > {b})"),
    _same("{a} != {b}"),
    Row("{a} != {a} || {b} != {b}", "({a} != {a}) | ({b} != {b})"),
    Row("true", "({a} == {a}) | ({a} != {a})"),
)
"""By the number of the predicate: false oeq ogt oge olt ole one ord ueq ugt uge ult ule une uno."""

CMPI: Sequence[Row] = (
    _same("{a} == {b}"),
    _same("{a} != {b}"),
    _same("{a} < {b}"),
    _same("{a} <= {b}"),
    _same("{a} > {b}"),
    _same("{a} >= {b}"),
    _same("({W}){a} < ({W}){b}"),
    _same("({W}){a} <= ({W}){b}"),
    _same("({W}){a} > ({W}){b}"),
    _same("({W}){a} >= ({W}){b}"),
)
"""By the number of the predicate: eq ne slt sle sgt sge ult ule ugt uge."""

_TABLES: Mapping[str, Mapping[str, Row]] = {
    "float": FLOAT,
    "half": FLOAT,
    "int": INT,
    "index": INDEX,
    "bool": BOOL,
}

GREATER = 2
"""The number of the predicate `ogt`."""

COMPARISONS = frozenset({"arith.cmpf", "arith.cmpi", "tile.compare"})


def find(op: Operation, found: Element) -> Row:
    """The row of an operation that computes within one kind of element."""
    if op.name in COMPARISONS and found.kind in _TABLES:
        predicate = op.properties["predicate"]
        assert isinstance(predicate, IntegerAttr)
        floats = found.kind in ("float", "half")
        return (CMPF if floats else CMPI)[predicate.value.data]
    if op.name in FLOAT_AND_NUMBER and _is_number(op.operands[1]):
        return FLOAT_AND_NUMBER[op.name]
    if op.name in INT_AND_NUMBER and _divides(op.operands[1]):
        return INT_AND_NUMBER[op.name]
    row = _TABLES.get(found.kind, {}).get(op.name)
    if row is None:
        raise UnsupportedError(f"C has no expression for {op.name} on {op.operands[0].type}")
    return row


def _is_number(value: SSAValue) -> bool:
    """Whether a value is a constant float, or a broadcast of one, other than NaN."""
    return _number(value) is not None


def _number(value: SSAValue) -> float | None:
    """The constant float of a value, or of its broadcast; None for other values and NaN."""
    if isinstance(value.owner, vector.BroadcastOp):
        return _number(value.owner.source)
    constant = value.owner.value if isinstance(value.owner, arith.ConstantOp) else None
    if not isinstance(constant, FloatAttr) or isnan(constant.value.data):
        return None
    return float(constant.value.data)


def greater_of(op: Operation) -> tuple[SSAValue, SSAValue] | None:
    """The operands of a select `a > b ? a : b` of floats; None for other selects."""
    condition = op.operands[0].owner
    if not isinstance(condition, CompareOp | arith.CmpfOp):
        return None
    is_greater = condition.predicate.value.data == GREATER
    found = tuple(condition.operands)
    return (found[0], found[1]) if is_greater and found == tuple(op.operands[1:]) else None


def clamped(value: SSAValue) -> tuple[float, float] | None:
    """
    The bounds of a float that is `min((a > low ? a : low), high)`; None for other floats.

    Rounding to an integer keeps integer bounds. NaN becomes `low`.
    """
    least = value.owner
    if isinstance(least, math.RoundEvenOp):
        found = clamped(least.operand)
        return found if found and all(bound.is_integer() for bound in found) else None
    if not isinstance(least, arith.MinimumfOp):
        return None
    chosen = least.lhs.owner
    pair = greater_of(chosen) if isinstance(chosen, SelectOp | arith.SelectOp) else None
    if pair is None:
        return None
    low, high = _number(pair[1]), _number(least.rhs)
    return None if low is None or high is None else (min(low, high), high)


@dataclass(frozen=True)
class Nearest:
    """The nearest integer to a float within bounds, and the operations that compute it."""

    value: SSAValue
    low: float
    high: float
    steps: tuple[Operation, ...]
    """Operations whose results nothing else reads."""


def nearest(op: Operation) -> Nearest | None:
    """`(int) roundeven(min((x > low ? x : low), high))` of scalars in f32; None for others."""
    rounded = op.operands[0].owner if isinstance(op, arith.FPToSIOp) else None
    if not isinstance(rounded, math.RoundEvenOp) or rounded.operand.type != f32:
        return None
    bounds, least = clamped(rounded.result), rounded.operand.owner
    if bounds is None or not isinstance(least, arith.MinimumfOp):
        return None
    chosen = least.lhs.owner
    assert isinstance(chosen, arith.SelectOp | SelectOp)
    compared = chosen.operands[0].owner
    steps = [one for one in (rounded, least, chosen, compared) if isinstance(one, Operation)]
    if not all(one.results[0].has_one_use() for one in steps):
        return None
    return Nearest(chosen.operands[1], *bounds, tuple(steps))


def _divides(value: SSAValue) -> bool:
    """Whether a value is a constant other than 0 and -1."""
    constant = value.owner.value if isinstance(value.owner, arith.ConstantOp) else None
    return isinstance(constant, IntegerAttr) and constant.value.data not in (0, -1)
