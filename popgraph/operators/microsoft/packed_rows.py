"""Rows of embeddings of onnxruntime that are packed as GGML packs weights, block by block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from popgraph.operators.microsoft.body import Value
from popgraph.operators.microsoft.call import Call, defines
from popgraph.operators.record import MICROSOFT, without_gradient
from popgraph.support.arrays import Array
from popgraph.support.dtypes import BY_NAME


@dataclass(frozen=True)
class Packing:
    """How many elements a block has, in how many bytes, and which these are."""

    elements: int
    bytes: int
    decode: Callable[[Value], Value]
    """[..., bytes], whole numbers  ->  [..., elements], or a shape that holds as many."""


@defines("GatherPacked", "data indices")
def gather_packed(call: Call) -> Value:
    """Rows by their numbers, of which those that there are not mean the first."""
    kind, size = call.integer("packed_type", -1), call.needs("K")
    packing = PACKINGS.get(kind)
    if packing is None:
        known = ", ".join(map(str, sorted(PACKINGS)))
        raise call.refuse(f"packed_type = {kind}", f"{known} are")
    if size % packing.elements or call.size("data", 1) * packing.elements != size * packing.bytes:
        raise call.unfit(
            f"rows of {call.size('data', 1)} bytes for {size} elements",
            f"{packing.elements} elements take {packing.bytes} bytes",
        )
    places = call["indices"]
    outside = (places < 0) | (places >= call["data"].length(0).CastLike(places))
    rows = call["data"].Gather(outside.Where(places.number(0), places)).typed("i32")
    blocks = rows.Reshape(places.Shape().Concat([-1, packing.bytes], axis=0))
    shape = places.Shape().Concat([size], axis=0)
    result = call.integer("output_dtype", BY_NAME["bf16"].onnx)
    return packing.decode(blocks).Reshape(shape).Cast(to=result)


def _bytes(blocks: Value, start: int, end: int) -> Value:
    return blocks.part(start, end, -1)


def _bits(value: Value, low: int, count: int) -> Value:
    """Bits of whole numbers that are not negative."""
    return value.Div(_whole(value, 1 << low)).Mod(_whole(value, 1 << count))


def _whole(value: Value, number: int) -> Value:
    return value.body.constant(np.array(number, np.int32))


def _signed(value: Value) -> Value:
    """Bytes as numbers from -128 on."""
    half = _whole(value, 128)
    return value.Add(half).Mod(_whole(value, 256)).Sub(half).typed("f32")


def _floats(value: Value, count: int, exponent: int) -> Value:
    """Floats from their bytes, the lowest first; so many bits are the exponent."""
    mantissa = 8 * count - 1 - exponent
    pairs = value.Reshape(value.Shape(end=-1).Concat([-1, count], axis=0))
    high = pairs.part(count - 1, count, -1)
    sign, number = _bits(high, 7, 1), _bits(high, 0, 7)
    for at in range(count - 2, -1, -1):
        number = number.Mul(_whole(value, 256)).Add(pairs.part(at, at + 1, -1))
    step, rest = _bits(number, mantissa, exponent), _bits(number, 0, mantissa).typed("f32")
    least = 1 - (2 ** (exponent - 1) - 1) - mantissa
    steps = [np.float32(2.0) ** (least + max(at - 1, 0)) for at in range(2**exponent - 1)]
    table = value.body.constant(np.array([*steps, np.inf], np.float32))
    hidden = (step > 0).typed("f32") * float(2**mantissa)
    found = (rest + hidden) * table.Gather(step)
    is_nan = step.same(_whole(value, 2**exponent - 1)) & (rest > 0)
    found = is_nan.Where(found.number(float("nan")), found)
    return (found * (1 - sign.typed("f32") * 2)).Squeeze([-1])


def _half(blocks: Value, start: int) -> Value:
    """The scale of a block: [..., 1]."""
    return _floats(_bytes(blocks, start, start + 2), 2, 5)


def _nibbles(values: Value) -> Value:
    """The lower halves of all bytes, and then the higher ones."""
    return _bits(values, 0, 4).Concat(_bits(values, 4, 4), axis=-1)


def _spread(values: Value, sizes: tuple[int, ...]) -> Value:
    """The last axis as several."""
    return values.Reshape(values.Shape(end=-1).Concat(list(sizes), axis=0))


def _of_four_bits(blocks: Value) -> Value:
    return (_nibbles(_bytes(blocks, 2, 18)).typed("f32") - 8) * _half(blocks, 0)


def _of_two_bits(blocks: Value) -> Value:
    codes = _single_digits(_bytes(blocks, 2, 18))
    return (codes.typed("f32") - 1) * _half(blocks, 0)


def _single_digits(values: Value) -> Value:
    """The four numbers of two bits in each byte, the lowest first."""
    bases = values.body.constant(np.array([1, 4, 16, 64], np.int32))
    digits = values.Unsqueeze([-1]).Div(bases).Mod(_whole(values, 4))
    return digits.Reshape(values.Shape(end=-1).Concat([-1], axis=0))


def _of_five_bits(blocks: Value) -> Value:
    places = np.arange(8, dtype=np.int32)
    fifth = _single_bits(_bytes(blocks, 2, 6).Unsqueeze([-1]), places)
    highest = _spread_back(fifth, 32)
    numbers = _nibbles(_bytes(blocks, 6, 22)).Add(highest.Mul(_whole(blocks, 16)))
    return (numbers.typed("f32") - 16) * _half(blocks, 0)


def _single_bits(values: Value, places: Array) -> Value:
    """The bits at these places, as 0 and 1."""
    return values.Div(values.body.constant(np.int32(1) << places)).Mod(_whole(values, 2))


def _spread_back(values: Value, size: int) -> Value:
    """The last two axes as one."""
    return values.Reshape(values.Shape(end=-2).Concat([size], axis=0))


def _of_eight_bits(blocks: Value) -> Value:
    return _signed(_bytes(blocks, 2, 34)) * _half(blocks, 0)


def _of_five_bits_in_groups(blocks: Value) -> Value:
    """Eight groups, each with a scale and a minimum of six bits."""
    first, second, third = (_bytes(blocks, at, at + 4) for at in (4, 8, 12))
    sixteen = _whole(blocks, 16)
    scales, lows = (
        _bits(own, 0, 6).Concat(_bits(third, low, 4).Add(_bits(own, 6, 2).Mul(sixteen)), axis=-1)
        for own, low in ((first, 0), (second, 4))
    )
    numbers = _spread(_bytes(blocks, 48, 176), (4, 1, 32))
    numbers = _bits(numbers, 0, 4).Concat(_bits(numbers, 4, 4), axis=-2)
    places = np.arange(8, dtype=np.int32).reshape(8, 1)
    fifth = _single_bits(_bytes(blocks, 16, 48).Unsqueeze([-2]), places)
    numbers = _spread_groups(numbers, (8, 32)).Add(fifth.Mul(sixteen)).typed("f32")
    by_group = [one.typed("f32").Unsqueeze([-1]) for one in (scales, lows)]
    step, low = (_half(blocks, at).Unsqueeze([-1]) for at in (0, 2))
    return numbers * (step * by_group[0]) - low * by_group[1]


def _spread_groups(values: Value, sizes: tuple[int, ...]) -> Value:
    """The last three axes as others."""
    return values.Reshape(values.Shape(end=-3).Concat(list(sizes), axis=0))


def _of_six_bits_in_groups(blocks: Value) -> Value:
    """Sixteen groups, each with a scale of eight bits."""
    low = _spread(_bytes(blocks, 0, 128), (2, 1, 64))
    low = _bits(low, 0, 4).Concat(_bits(low, 4, 4), axis=-2)
    high = _spread(_bytes(blocks, 128, 192), (2, 1, 32))
    bases = np.array([1, 4, 16, 64], np.int32).reshape(4, 1)
    high = high.Div(blocks.body.constant(bases)).Mod(_whole(blocks, 4))
    numbers = _spread_groups(low, (16, 16)).Add(
        _spread_groups(high, (16, 16)).Mul(_whole(blocks, 16))
    )
    scales = _signed(_bytes(blocks, 192, 208)).Unsqueeze([-1])
    return (numbers.typed("f32") - 32) * (_half(blocks, 208).Unsqueeze([-1]) * scales)


_UNEVEN = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""The numbers of four bits where they are not evenly spaced."""


def _uneven(codes: Value) -> Value:
    return codes.body.constant(np.array(_UNEVEN, np.float32)).Gather(codes)


def _of_uneven_steps(blocks: Value) -> Value:
    return _uneven(_nibbles(_bytes(blocks, 2, 18))) * _half(blocks, 0)


def _of_uneven_steps_in_groups(blocks: Value) -> Value:
    """Eight groups, each with a scale of six bits."""
    high = _single_digits(_bytes(blocks, 2, 4))
    low = _bytes(blocks, 4, 8).Unsqueeze([-1])
    low = _spread_back(_bits(low, 0, 4).Concat(_bits(low, 4, 4), axis=-1), 8)
    scales = low.Add(high.Mul(_whole(blocks, 16))).typed("f32") - 32
    numbers = _uneven(_nibbles(_spread(_bytes(blocks, 8, 136), (8, 16))))
    return numbers * (_half(blocks, 0) * scales).Unsqueeze([-1])


PACKINGS: Mapping[int, Packing] = {
    0: Packing(1, 4, lambda blocks: _floats(blocks, 4, 8)),
    1: Packing(1, 2, lambda blocks: _floats(blocks, 2, 5)),
    2: Packing(32, 18, _of_four_bits),
    6: Packing(32, 22, _of_five_bits),
    8: Packing(32, 34, _of_eight_bits),
    13: Packing(256, 176, _of_five_bits_in_groups),
    14: Packing(256, 210, _of_six_bits_in_groups),
    20: Packing(32, 18, _of_uneven_steps),
    23: Packing(256, 136, _of_uneven_steps_in_groups),
    30: Packing(1, 2, lambda blocks: _floats(blocks, 2, 8)),
    42: Packing(64, 18, _of_two_bits),
}
"""By GGML's numbers; those with tables of whole groups are not among them."""

without_gradient("GatherPacked", "it takes integers", domain=MICROSOFT)
