"""Prints arithmetic, vector and conversion operations as C expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from xdsl.dialects import vector
from xdsl.dialects.builtin import VectorType, f32
from xdsl.ir import Attribute, Operation, SSAValue

from popgraph.backends.c.print import types
from popgraph.backends.c.print.conversions import CONVERSIONS, cast, converted, narrowed, widened
from popgraph.backends.c.print.literals import literal
from popgraph.backends.c.print.rows import BLEND, COMPARISONS, Row, clamped, find, greater_of
from popgraph.backends.c.print.types import Element
from popgraph.dialects.tile import ConvertOp, DotOp, PickOp
from popgraph.support.memo import by_identity
from popgraph.support.words import WORDS


def expression(op: Operation, operands: Sequence[str]) -> str:
    """The C expression for the result of `op`, given its operands' names or literals."""
    special = _SPECIAL.get(op.name)
    if special is not None:
        return special(op, operands)
    type_ = op.operands[0].type
    found, count = types.element(type_), types.lanes(type_)
    row = find(op, found)
    if count is not None and row.vector is not None and found.kind != "half":
        known = _templates(type_)
        template = known.get(row.vector)
        if template is None:
            template = known[row.vector] = row.vector.format_map(
                {**_vector_fields(found, count), **_PLACEHOLDERS}
            )
        for mark, operand in zip(_PLACEHOLDERS.values(), operands, strict=False):
            template = template.replace(mark, operand)
        return _as_mask(op, template)
    return _by_lanes(op, operands, lambda names: _computed(op, found, row, names))


# No C text contains a NUL, so a replacement cannot hit an operand that was inserted before.
_PLACEHOLDERS = {name: f"\0{name}" for name in "abc"}
"""Placeholders of operands in a template whose other fields are filled in."""


def _no_templates(type_: Attribute) -> dict[str, str]:
    return {}


_templates = by_identity(_no_templates)
"""The vector templates of a type, with the names of the type filled in."""


def _element(op: Operation) -> Element:
    return types.element(op.operands[0].type)


def _computed(op: Operation, found: Element, row: Row, operands: Sequence[str]) -> str:
    """The scalar expression; halves are computed in f32, and booleans compare as -1 and 0."""
    result = types.element(op.results[0].type)
    width = f"u{found.bits}"
    if found.kind == "half":
        operands = [widened(found, operand, None) for operand in operands]
    if found.kind == "bool" and op.name in COMPARISONS:
        operands, width = [f"(-(i32){operand})" for operand in operands], "u32"
    computed = row.scalar.format_map(
        {
            **dict(zip("abc", operands, strict=False)),
            "T": result.name if result.kind != "half" else "f32",
            "U": found.unsigned,
            "W": width,
            "f": "" if found.bits == 64 else "f",
            "bits": found.bits,
        }
    )
    return narrowed(result, computed, None) if result.kind == "half" else computed


@lru_cache(1024)
def _vector_fields(found: Element, count: int) -> Mapping[str, str]:
    """The fields of a vector template besides its operands; they depend only on the type."""
    unsigned = f"u{found.lane_bits(count)}x{count}"
    # POPGRAPH_EXP_F32_16 scales by one AVX-512 instruction: the same bits, softmax of 1536 rows of
    # 128 is 1.27x faster.
    return {
        "T": f"{found.lane(count)}x{count}",
        **dict.fromkeys("UWM", unsigned),
        "E": found.lane(count),
        "n": str(count),
        "f": "" if found.bits == 64 else "f",
        "bits": str(found.bits),
        "greater": _of_registers("GREATER", found, count),
        "less": _of_registers("LESS", found, count),
        "fma": _of_registers("FMA", found, count),
        "exp": "POPGRAPH_EXP_F32_16" if (found.name, count) == ("f32", 16) else "POPGRAPH_EXP",
        "exp_nonpositive": f"POPGRAPH_EXP_NONPOSITIVE_{found.name.upper()}",
    }


def _of_registers(which: str, found: Element, count: int) -> str:
    """The macro of an operation that has instructions for the vectors of registers."""
    # GCC does not recognize a maximum in a comparison of vectors: 2 to 4 instructions, not one.
    known = found.bits * count in (128, 256, 512) and found.name in ("f32", "f64")
    return f"POPGRAPH_{which}_{found.name.upper()}_{count}" if known else f"POPGRAPH_{which}"


def _as_mask(op: Operation, computed: str) -> str:
    """Casts a comparison, with lanes as wide as its operands, to the lanes of a mask."""
    if op.name not in COMPARISONS:
        return computed
    result = op.results[0].type
    count = types.lanes(result)
    lane = f"i{_element(op).lane_bits(count)}"
    return cast(f"(({lane}x{count})({computed}))", lane, types.element(result).lane(count), count)


def _by_lanes(
    op: Operation, operands: Sequence[str], computed: Callable[[Sequence[str]], str]
) -> str:
    """The scalar expression, or a loop of it over the lanes of vectors."""
    result = op.results[0].type
    count = types.lanes(result)
    if count is None:
        return computed(operands)
    names = [f"x{number}" for number in range(len(operands))]
    parts = [
        _lanes_union(operand.type, name) + f" = {{.v = {text}}};"
        for operand, name, text in zip(op.operands, names, operands, strict=True)
    ]
    lane = computed([f"{name}.s[k]" for name in names])
    if types.element(result).kind == "bool":
        lane = f"-(i32)({lane})"
    loop = f"for (int k = 0; k < {count}; k++) y.s[k] = {lane};"
    statements = " ".join([*parts, _lanes_union(result, "y") + ";", loop, "y.v;"])
    return f"__extension__ ({{ {statements} }})"


def _lanes_union(type_: Attribute, name: str) -> str:
    count = types.lanes(type_)
    lane = types.element(type_).lane(count)
    return f"union {{ {types.value(type_)} v; {lane} s[{count}]; }} {name}"


def _conversion(op: Operation, operands: Sequence[str]) -> str:
    name = op.conversion.data if isinstance(op, ConvertOp) else op.name
    (operand,), (text,) = op.operands, operands
    return converted(name, operand.type, op.results[0].type, text, clamped(operand))


def _select(op: Operation, operands: Sequence[str]) -> str:
    condition, chosen, other = operands
    count = types.lanes(op.operands[0].type)
    if count is None:
        return f"{condition} ? {chosen} : {other}"
    type_ = op.results[0].type
    # maxps(a, b) is b if either is NaN, exactly as `a > b ? a : b`.
    pair = greater_of(op) if types.element(type_).kind == "float" else None
    if pair is not None:
        fields = _vector_fields(types.element(type_), count)
        return f"{fields['greater']}({types.value(type_)}, {fields['M']}, {chosen}, {other})"
    bits = types.element(type_).lane_bits(count)
    condition = cast(condition, _element(op).lane(count), f"i{bits}", count)
    unsigned = f"u{bits}x{count}"
    fields = {"a": chosen, "b": other, "T": types.value(type_), "M": unsigned}
    return BLEND.format_map({**fields, "mask": f"({unsigned}){condition}"})


def _bitcast(op: Operation, operands: Sequence[str]) -> str:
    source, target = types.value(op.operands[0].type), types.value(op.results[0].type)
    if "bool" in (source, target):
        return f"({target}){operands[0]}"
    # Type punning by a union is defined (C11 6.5.2.3, footnote 95).
    return f"((union {{ {source} from; {target} to; }}){{.from = {operands[0]}}}).to"


def _broadcast(op: Operation, operands: Sequence[str]) -> str:
    (operand,) = operands
    if isinstance(op.operands[0].type, VectorType):
        return operand
    found, count = types.element(op.operands[0].type), types.lanes(op.results[0].type)
    target = types.value(op.results[0].type)
    if found.kind == "bool":
        return f"(({found.lane(count)})-(i32){operand}) - ({target}){{0}}"
    if found.kind == "none":
        return f"({target}){{{', '.join([operand] * (count or 1))}}}"
    # -0 - 0 is -0, but -0 + 0 would be +0.
    return f"({found.name}){operand} - ({target}){{0}}"


def _extract(op: Operation, operands: Sequence[str]) -> str:
    assert isinstance(op, vector.ExtractOp)
    lane = f"{operands[0]}[{_position(op.get_mixed_position(), operands[1:])}]"
    return f"{lane} != 0" if _element(op).kind == "bool" else lane


def _insert(op: Operation, operands: Sequence[str]) -> str:
    assert isinstance(op, vector.InsertOp)
    inserted, target, *dynamic = operands
    if _element(op).kind == "bool":
        inserted = f"-(i32){inserted}"
    position = _position(op.get_mixed_position(), dynamic)
    copy = f"{types.value(op.result.type)} y = {target};"
    return f"__extension__ ({{ {copy} y[{position}] = {inserted}; y; }})"


def _shuffle(op: Operation, operands: Sequence[str]) -> str:
    """One instruction where the target has it; a narrower result lists its lanes."""
    assert isinstance(op, vector.ShuffleOp)
    first, second = operands
    picks = op.mask.get_values()
    count, result = types.lanes(op.v1.type) or 1, types.value(op.result.type)
    # GCC moves listed lanes one by one: packing kernels took three times as long to compile.
    if count == len(picks):
        whole = f"u{_element(op).lane_bits(count)}x{count}"
        return f"POPGRAPH_SHUFFLE({whole}, {first}, {second}, {', '.join(map(str, picks))})"
    lanes = [f"{first}[{at}]" if at < count else f"{second}[{at - count}]" for at in picks]
    return f"({result}){{{', '.join(lanes)}}}"


_DOT_LANES = (4, 8, 16)
"""Lane counts for which the headers have a dot-product instruction."""
_SCALAR_DOTS = ("u8i8", "i8i8")
"""Words for which they have one without vectors."""


def _dot(op: Operation, operands: Sequence[str]) -> str:
    """Adds the dot product of the elements of two packed words."""
    assert isinstance(op, DotOp)
    count, held = types.lanes(op.result.type), WORDS[op.words.data]
    lhs, rhs, total = operands
    # VPDPBUSD takes unsigned bytes first: i8u8 is u8i8 with its factors exchanged.
    if held.mirror:
        lhs, rhs = rhs, lhs
    words = (held.mirror or held.name).upper()
    type_ = types.value(op.result.type)
    unsigned = "u32" if count is None else f"u32x{count}"
    is_scalar = count is None and words.lower() in _SCALAR_DOTS
    lanes = 1 if is_scalar else count
    name = f"DOT_{words}_{lanes}" if is_scalar or count in _DOT_LANES else f"PLAIN_DOT_{words}"
    return f"POPGRAPH_{name}({type_}, {unsigned}, {lhs}, {rhs}, {total})"


def _sum_pairs(op: Operation, operands: Sequence[str]) -> str:
    """Adds both 16-bit numbers of words."""
    count = types.lanes(op.results[0].type)
    type_ = types.value(op.results[0].type)
    unsigned = "u32" if count is None else f"u32x{count}"
    name = f"SUM_PAIRS_{count}" if count in _DOT_LANES else "PLAIN_SUM_PAIRS"
    return f"POPGRAPH_{name}({type_}, {unsigned}, {', '.join(operands)})"


def _pick(op: Operation, operands: Sequence[str]) -> str:
    """A lookup in a table of constants: one permutation if a vector has a lane for each."""
    assert isinstance(op, PickOp)
    (index,), count = operands, len(op.numbers)
    listed = ", ".join(literal(number, f32) for number in op.numbers)
    lanes = types.lanes(op.result.type)
    # Weights of 4 bits pick from 16 lanes (AVX-512): a row by 4096 x 4096 weights is 1.4x faster.
    if lanes == count:
        type_ = types.value(op.result.type)
        return f"POPGRAPH_PICK_{count}((({type_}){{{listed}}}), {index})"
    mask = count - 1
    picked = [f"numbers[{index}[{lane}] & {mask}]" for lane in range(lanes or 0)]
    made = f"({types.value(op.result.type)}){{{', '.join(picked)}}}"
    chosen = f"numbers[{index} & {mask}]" if lanes is None else made
    return f"__extension__ ({{ const f32 numbers[] = {{{listed}}}; {chosen}; }})"


def _threefry(op: Operation, operands: Sequence[str]) -> str:
    """Random words by Threefry-2x32 with 20 rounds (Salmon et al., SC 2011)."""
    key, counter = operands
    result = op.results[0].type
    count, words = types.lanes(result), types.value(result)
    if count is None:
        return f"({words})popgraph_threefry((u64){key}, (u64){counter})"
    form = "FIRST_WORDS" if types.element(result).bits == 32 else "WORDS"
    return f"POPGRAPH_RANDOM_{form}({words}, u64x{count}, {count}, {key}, {counter})"


def _position(positions: Sequence[SSAValue | int], dynamic: Sequence[str]) -> str:
    (position,) = positions
    return str(position) if isinstance(position, int) else dynamic[0]


_SPECIAL: Mapping[str, Callable[[Operation, Sequence[str]], str]] = {
    "arith.select": _select,
    "tile.select": _select,
    "arith.bitcast": _bitcast,
    "vector.broadcast": _broadcast,
    "vector.extract": _extract,
    "vector.insert": _insert,
    "vector.shuffle": _shuffle,
    "tile.convert": _conversion,
    "tile.dot": _dot,
    "tile.sum_pairs": _sum_pairs,
    "tile.pick": _pick,
    "tile.threefry": _threefry,
    **dict.fromkeys(CONVERSIONS, _conversion),
}
