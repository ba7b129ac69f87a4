"""Structural hashing: operations and regions with equal keys compute the same values."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import cache
from itertools import count
from struct import pack
from typing import Any

from xdsl.dialects.builtin import ArrayAttr, FloatData
from xdsl.ir import Attribute, Data, Operation, ParametrizedAttribute, Region, SSAValue

from popgraph.support.memo import by_identity


class _Numbers(dict[SSAValue, Hashable]):
    """Numbers of values; a value without a number is its own key."""

    def __missing__(self, value: SSAValue) -> Hashable:
        return value


class StructuralHasher:
    """
    Keys of operations and regions: equal keys mean equal computations; names are ignored.

    Attributes are compared after mapping them by `seen_as`.
    """

    def __init__(self, seen_as: Callable[[Attribute], Attribute] = lambda attribute: attribute):
        self._numbers: dict[Attribute, int] = {}

        def number(attribute: Attribute) -> Hashable:
            return self._key(seen_as(attribute))

        self._number = by_identity(number)

    def of(self, op: Operation) -> Hashable:
        """Equal for operations that compute the same from operands of equal types."""
        numbers = _Numbers(zip(op.operands, count(), strict=False))
        key: list[Hashable] = [tuple(self._number(operand.type) for operand in op.operands)]
        self._operation(op, numbers, key)
        return tuple(key)

    def of_region(self, region: Region) -> Hashable:
        """
        Equal for regions that differ in names and locations only, in linear time.

        Values are numbered in the order of definition; outer values are compared by identity.
        """
        key: list[Hashable] = []
        self._region(region, _Numbers(), key)
        return tuple(key)

    def _key(self, attribute: Attribute) -> Hashable:
        """Equal for equal attributes."""
        return self._numbers.setdefault(attribute, len(self._numbers))

    def _named(self, attributes: Mapping[str, Attribute]) -> Hashable:
        if not attributes:
            return ()
        return tuple([(name, self._number(attributes[name])) for name in sorted(attributes)])

    def _region(self, region: Region, numbers: _Numbers, key: list[Hashable]) -> None:
        for block in region.blocks:
            key.append(tuple(self._number(argument.type) for argument in block.args))
            for argument in block.args:
                numbers[argument] = len(numbers)
            for op in block.ops:
                self._operation(op, numbers, key)
        key.append(None)

    def _operation(self, op: Operation, numbers: _Numbers, key: list[Hashable]) -> None:
        key += (
            op.name,
            len(op.regions),
            tuple([numbers[operand] for operand in op.operands]),
            self._named(op.properties),
            self._named(op.attributes),
        )
        for region in op.regions:
            self._region(region, numbers, key)
        key.append(tuple([self._number(result.type) for result in op.results]))
        for result in op.results:
            numbers[result] = len(numbers)


class SpelledStructure(StructuralHasher):
    """Keys that are the same in every process: attributes are spelled out, not numbered."""

    def _key(self, attribute: Attribute) -> Hashable:
        return spelled(attribute)


def spelled(attribute: Attribute) -> str:
    """An attribute as text, with every bit of its numbers: printed IR rounds some floats."""
    return _speller(type(attribute))(attribute)


@cache
def _speller(kind: type[Attribute]) -> Callable[[Any], str]:
    """The speller for a class of attributes, cached: `isinstance` of abstract classes is slow."""
    if issubclass(kind, FloatData):
        return lambda attribute: pack("<d", attribute.data).hex()
    if issubclass(kind, ArrayAttr):
        return lambda attribute: f"[{', '.join(map(spelled, attribute.data))}]"
    if issubclass(kind, ParametrizedAttribute):
        return lambda attribute: f"{kind.name}<{', '.join(map(spelled, attribute.parameters))}>"
    assert issubclass(kind, Data), f"{kind.name} has no data"
    return lambda attribute: f"{kind.name} {attribute.data!r}"
