"""Prints conversions between element types as C, for scalars and vectors."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import Attribute

from popgraph.backends.c.print import types
from popgraph.backends.c.print.types import Element

_UNSIGNED = frozenset({"arith.uitofp", "arith.extui"})
_FLOAT_TO_INTEGER = frozenset({"arith.fptosi", "arith.fptoui"})

_LIMIT = float(1 << 31)

CONVERSIONS = (
    _UNSIGNED
    | _FLOAT_TO_INTEGER
    | {
        *("arith.sitofp", "arith.extf", "arith.truncf"),
        *("arith.index_cast", "arith.extsi", "arith.trunci"),
    }
)
"""Conversions of element types; integers beyond the range of the result lose high bits."""


def converted(
    name: str,
    source: Attribute,
    target: Attribute,
    operand: str,
    within: tuple[float, float] | None = None,
) -> str:
    """
    The C expression of a conversion; booleans are integers of one bit.

    `within` holds the bounds of the operand, if they are known.
    """
    count = types.lanes(source)
    start, end = types.element(source), types.element(target)
    signed = name not in _UNSIGNED
    text, at = _convertible(start, end, signed, operand, count)
    # Converting a float out of range is undefined (C11 6.3.1.4); within bounds, a cast is enough.
    if (
        name in _FLOAT_TO_INTEGER
        and within is not None
        and within[0] >= -_LIMIT
        and within[1] < _LIMIT
    ):
        text, at = cast(text, at, "i32", count), "i32"
    elif name in _FLOAT_TO_INTEGER:
        text, at = _truncated(text, at, end, count)
    match end.kind:
        case "half":
            return narrowed(end, cast(text, at, "f32", count), count)
        case "narrow":
            return cast(f"({cast(text, at, 'u32', count)} & {_mask(end)})", "u32", "u8", count)
        case "bool":
            low = f"({cast(text, at, 'i32' if count is None else end.lane(count), count)} & 1)"
            return low if count is None else f"-{low}"
    return cast(text, at, end.name, count)


def _convertible(
    start: Element, end: Element, signed: bool, operand: str, count: int | None
) -> tuple[str, str]:
    """The operand in a type that C can convert, and the name of that type."""
    match start.kind:
        case "half":
            return widened(start, operand, count), "f32"
        case "bool":
            number, lane = (operand, start.lane(count)) if count else (f"(i32){operand}", "i32")
            # True is -1 as a signed integer of one bit; lanes of a mask are -1 already.
            return (number if signed == (count is not None) else f"(-({number}))"), lane
        case "narrow":
            return _widened_integer(start, signed, cast(operand, "u8", "u32", count), count)
        # Two roundings to nearest may differ from one; rounding to odd first does not (Boldo and
        # Melquiond, IEEE Transactions on Computers 57(4), 2008).
        case "float" if start.name == "f64" and end.name == "f16":
            return _each_lane("f64_to_odd_f32", operand, "f64", "f32", count), "f32"
        case "int" | "index" if not signed:
            return cast(operand, start.name, f"u{start.bits}", count), f"u{start.bits}"
    return operand, start.name


def _mask(narrow: Element) -> str:
    return f"{(1 << narrow.used) - 1}u"


def _widened_integer(
    narrow: Element, signed: bool, operand: str, count: int | None
) -> tuple[str, str]:
    """A narrow integer extended from its used bits to 32, and the name of that type."""
    if not signed:
        return f"({operand} & {_mask(narrow)})", "u32"
    unused = 32 - narrow.used
    return f"({cast(f'({operand} << {unused})', 'u32', 'i32', count)} >> {unused})", "i32"


def _truncated(operand: str, at: str, end: Element, count: int | None) -> tuple[str, str]:
    """A float truncated to an integer at least as wide as `end`, and the name of its type."""
    if count is None:
        return f"{at}_to_whole({operand})", "u64"
    if end.bits == 64:
        operand, at = cast(operand, at, "f64", count), "f64"
    to, limit = ("i64", "0x1p63") if end.bits == 64 else ("i32", "0x1p31")
    types_ = f"{at}x{count}, {at}, {to}x{count}, {to}, {count}"
    limit += "f" if at == "f32" else ""
    return f"POPGRAPH_WHOLE_LANES({types_}, {limit}, {at}_to_whole, {operand})", to


def _each_lane(function: str, operand: str, source: str, target: str, count: int | None) -> str:
    """Applies a function of one element to all lanes."""
    if count is None:
        return f"{function}({operand})"
    lanes = f"{source}x{count}, {source}, {target}x{count}, {target}, {count}"
    return f"POPGRAPH_LANES({lanes}, {function}, {operand})"


_INSTRUCTIONS = (8, 16)
"""Lane counts that may have an instruction; `vectors.h` selects it by target."""


def widened(half: Element, operand: str, count: int | None) -> str:
    """Converts halves to f32."""
    if count is None or half.bits == 8:
        return _each_lane(f"{half.half}_to_f32", operand, half.name, "f32", count)
    if half.name == "f16" and count in _INSTRUCTIONS:
        return f"POPGRAPH_F16_TO_F32_{count}(f32x{count}, u32x{count}, {operand})"
    wide = cast(operand, "u16", "u32", count)
    return f"POPGRAPH_{half.name.upper()}_TO_F32(f32x{count}, u32x{count}, {wide})"


def narrowed(half: Element, operand: str, count: int | None) -> str:
    """Converts f32 to halves."""
    if count is None or half.bits == 8:
        return _each_lane(f"f32_to_{half.half}", operand, "f32", half.name, count)
    name, lanes = f"POPGRAPH_F32_TO_{half.name.upper()}", f"f32x{count}, u32x{count}"
    if count in _INSTRUCTIONS:
        return f"{name}_{count}({lanes}, u16x{count}, {operand})"
    wide = f"{name}({lanes}, {operand})"
    return cast(wide, "u32", "u16", count)


def nearest_bf16(operand: str, count: int, *, carries: bool) -> str:
    """
    Rounds lanes of f32 to bf16, and leaves them in f32.

    `carries` says whether the lower half of a NaN may be other than 0, so that its sum may carry.
    """
    name = "NEAREST_BF16" if carries else "NEAREST_BF16_NO_CARRY"
    name = f"{name}_{count}" if count in _INSTRUCTIONS else f"PLAIN_{name}"
    return f"POPGRAPH_{name}(f32x{count}, u32x{count}, {operand})"


def exact_bf16(operand: str, count: int) -> str:
    """Converts lanes of f32 that are numbers of bf16."""
    return f"POPGRAPH_EXACT_F32_TO_BF16(u32x{count}, u16x{count}, {operand})"


def cast(operand: str, start: str, end: str, count: int | None) -> str:
    """Casts scalars or vectors between C types."""
    if count is None:
        return operand if start == end else f"(({end}){operand})"
    at = start
    for step in _steps(start, end):
        operand = _step(operand, at, step, count)
        at = step
    return operand if start[0] == end[0] else f"(({end}x{count}){operand})"


def _step(operand: str, start: str, end: str, count: int) -> str:
    # GCC takes four instructions for its own conversion where the target has one.
    if start in _SHORT and end[1:] == "32":
        pair = f"{end}x{count}, {end[0]}16x{count}"
        if count in _INSTRUCTIONS:
            return f"POPGRAPH_{start.upper()}_TO_{end.upper()}_{count}({pair}, {operand})"
        return f"POPGRAPH_PLAIN_{start[1:]}_TO_32({pair}, {operand})"
    return f"__builtin_convertvector({operand}, {end}x{count})"


_SHORT = ("i8", "u8", "i16", "u16")


def _steps(start: str, end: str) -> Iterator[str]:
    """
    The intermediate types of a cast.

    Compilers convert vectors of integers to twice or half their width, and the headers convert 8
    and 16 bits to 32.
    """
    # x86 converts floats only to and from integers of 32 and 64 bits (AVX, AVX-512DQ).
    if "f" in (start[0], end[0]):
        if start[0] == end[0]:
            yield from [end] if start != end else []
        elif start[0] == "f":
            whole = f"{end[0]}{max(32, _bits(end))}"
            yield from (whole, *_steps(whole, end))
        else:
            whole = f"{start[0]}{max(32, _bits(start))}"
            yield from (*_steps(start, whole), end)
        return
    bits = _bits(start)
    while bits != _bits(end):
        grown = 32 if bits < 32 <= _bits(end) else bits * 2
        bits = grown if bits < _bits(end) else bits // 2
        yield f"{start[0]}{bits}"


def _bits(name: str) -> int:
    return int(name[1:])
