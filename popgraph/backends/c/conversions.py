"""How does an element become one of another type in C, alone or on all lanes of a vector?"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import Attribute

from popgraph.backends.c import types
from popgraph.backends.c.types import Element

_UNSIGNED = frozenset({"arith.uitofp", "arith.extui", "arith.fptoui"})

CONVERSIONS = _UNSIGNED | {
    *("arith.sitofp", "arith.fptosi", "arith.extf", "arith.truncf"),
    *("arith.index_cast", "arith.extsi", "arith.trunci"),
}
"""From one element type to another. What no integer can be is whatever the machine makes of it."""


def converted(name: str, source: Attribute, target: Attribute, operand: str) -> str:
    """The C expression of a conversion. Booleans are numbers of one bit."""
    count = types.lanes(source)
    start, end = types.element(source), types.element(target)
    signed = name not in _UNSIGNED
    text, at = _entered(start, end, signed, operand, count)
    match end.kind:
        case "half":
            return narrowed(end, cast(text, at, "f32", count), count)
        case "bool":
            low = f"({cast(text, at, 'i32', count)} & 1)"
            return low if count is None else f"-{low}"
    return cast(text, at, end.name, count)


def _entered(
    start: Element, end: Element, signed: bool, operand: str, count: int | None
) -> tuple[str, str]:
    """An operand in a type that C converts from, and the name of that type."""
    match start.kind:
        case "half":
            return widened(start, operand, count), "f32"
        case "bool":
            number = operand if count else f"(i32){operand}"
            # True is -1 for those who see a sign; the lanes of a mask are that already.
            return (number if signed == (count is not None) else f"(-({number}))"), "i32"
        case "float" if start.name == "f64" and end.name == "f16":
            return _rounded_once(operand, count), "f32"
        case "int" | "index" if not signed:
            return cast(operand, start.name, f"u{start.bits}", count), f"u{start.bits}"
    return operand, start.name


def _rounded_once(operand: str, count: int | None) -> str:
    """An f64 as an f32 that rounds to f16 as the f64 would."""
    if count is None:
        return f"f64_to_odd_f32({operand})"
    return f"POPGRAPH_LANES(f64x{count}, f64, f32x{count}, f32, {count}, f64_to_odd_f32, {operand})"


_INSTRUCTIONS = (8, 16)
"""So many halves may have an instruction of their own: `runtime.h` knows where."""


def widened(half: Element, operand: str, count: int | None) -> str:
    """Halves as f32."""
    if count is None:
        return f"{half.name}_to_f32({operand})"
    if half.name == "f16" and count in _INSTRUCTIONS:
        return f"POPGRAPH_F16_TO_F32_{count}(f32x{count}, u32x{count}, {operand})"
    wide = cast(operand, "u16", "u32", count)
    return f"POPGRAPH_{half.name.upper()}_TO_F32(f32x{count}, u32x{count}, {wide})"


def narrowed(half: Element, operand: str, count: int | None) -> str:
    """f32 as halves."""
    if count is None:
        return f"f32_to_{half.name}({operand})"
    if half.name == "f16" and count in _INSTRUCTIONS:
        return f"POPGRAPH_F32_TO_F16_{count}(f32x{count}, u32x{count}, u16x{count}, {operand})"
    wide = f"POPGRAPH_F32_TO_{half.name.upper()}(f32x{count}, u32x{count}, {operand})"
    return cast(wide, "u32", "u16", count)


def cast(operand: str, start: str, end: str, count: int | None) -> str:
    """What a C cast does, between types that C has."""
    if count is None:
        return operand if start == end else f"(({end}){operand})"
    for step in _steps(start, end):
        operand = f"__builtin_convertvector({operand}, {step}x{count})"
    return operand if start[0] == end[0] else f"(({end}x{count}){operand})"


def _steps(start: str, end: str) -> Iterator[str]:
    """The types on the way: of integers, compilers know vectors twice and half as wide."""
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
        bits = bits * 2 if bits < _bits(end) else bits // 2
        yield f"{start[0]}{bits}"


def _bits(name: str) -> int:
    return int(name[1:])
