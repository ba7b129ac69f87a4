"""A node of a model as PopART's rules and messages see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute

from popgraph.dialects import element_types
from popgraph.dialects.onnx.types import UNKNOWN, static_shape
from popgraph.support.arrays import Array
from popgraph.support.dtypes import DType
from popgraph.support.shapes import Shape

Found = TypeVar("Found")

FIRST_NUMBER = 100
"""PopART's number of the first operator of a model."""


class Unknown(Exception):
    """A rule needs a shape, type or elements that are unknown: the rule does not apply."""


@dataclass(frozen=True)
class Node:
    """
    An operator with the names and types of its operands, "" for an absent one.

    `attributes` include annotations of the model. `streamed` operands are inputs of the
    model, so their values are unknown before a step; `values` are the elements of constants.
    Properties of operands raise `Unknown`.
    """

    op_type: str
    version: int
    name: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    types: Sequence[Attribute]
    attributes: Mapping[str, object]
    domain: str = ""
    index: int = 0
    streamed: frozenset[int] = frozenset()
    values: Mapping[int, Array] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """`ai.onnx.Clip:11`."""
        return f"{self.domain or 'ai.onnx'}.{self.op_type}:{self.version}"

    @property
    def numbered(self) -> str:
        """`100 (ai.onnx.Clip:11)`."""
        return f"{FIRST_NUMBER + self.index} ({self.id})"

    def __str__(self) -> str:
        inputs, outputs = (", ".join(filter(None, ids)) for ids in (self.inputs, self.outputs))
        titled = f"{self.name} ({self.id})" if self.name else self.id
        return f"Op({titled}, inputs=[{inputs}], outputs=[{outputs}])"

    @property
    def made(self) -> str:
        """The node in messages of PopART's operator factories."""
        inputs, outputs = ", ".join(self.inputs), ", ".join(self.outputs)
        return f"Op({self.name}[{self.id}], inputs=[{inputs}], outputs=[{outputs}])"

    # operands

    def has(self, index: int) -> bool:
        return index < len(self.inputs) and bool(self.inputs[index])

    def input(self, index: int = 0) -> str:
        return self.inputs[index] if self.has(index) else ""

    def type(self, index: int) -> Attribute:
        return self.types[index] if self.has(index) and index < len(self.types) else UNKNOWN

    def known_shape(self, index: int = 0) -> Shape | None:
        """The shape of an operand; None if absent or unknown."""
        return static_shape(self.type(index))

    def shape(self, index: int = 0) -> Shape:
        return _known(self.known_shape(index))

    def rank(self, index: int = 0) -> int:
        return len(self.shape(index))

    def known_element(self, index: int = 0) -> DType | None:
        """The element type of an operand; None if absent or unknown."""
        type_ = self.type(index)
        if not isinstance(type_, TensorType) or not element_types.is_number(type_.element_type):
            return None
        return element_types.from_ir(type_.element_type)

    def element(self, index: int = 0) -> DType:
        return _known(self.known_element(index))

    def info(self, index: int = 0) -> str:
        """`FLOAT   [2 3]`."""
        return described(self.type(index)) or "?"

    def value(self, index: int) -> Array:
        """The elements of a constant operand."""
        return _known(self.values.get(index))

    def integers(self, index: int) -> list[int]:
        """The elements of a constant operand that is a list of integers."""
        found = self.value(index)
        return [int(one) for one in _known(found if found.ndim == 1 else None)]

    # attributes

    def number(self, name: str, default: int = 0) -> int:
        value = self.attributes.get(name, default)
        return value if isinstance(value, int) else default

    def real(self, name: str, default: float) -> float:
        value = self.attributes.get(name, default)
        return value if isinstance(value, int | float) else default

    def numbers(self, name: str) -> list[int]:
        """The integers of a list; empty if absent."""
        return [one for one in self._items(name) if isinstance(one, int)]

    def word(self, name: str, default: str = "") -> str:
        return _decoded(self.attributes.get(name, default))

    def words(self, name: str) -> list[str]:
        """A list of strings; empty if absent."""
        return [*map(_decoded, self._items(name))]

    def _items(self, name: str) -> Sequence[object]:
        value = self.attributes.get(name)
        return value if isinstance(value, list | tuple) else ()


def _decoded(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _known(value: Found | None) -> Found:
    if value is None:
        raise Unknown
    return value


def described(type_: Attribute) -> str | None:
    """A known type, as PopART writes it: `FLOAT   [2 3]`."""
    shape = static_shape(type_)
    if shape is None or not isinstance(type_, TensorType):
        return None
    if not element_types.is_number(type_.element_type):
        return None
    return f"{element_types.from_ir(type_.element_type).popart}   {spaced(shape)}"


def spaced(shape: Sequence[int]) -> str:
    """A shape as PopART writes it."""
    return f"[{' '.join(map(str, shape))}]"
