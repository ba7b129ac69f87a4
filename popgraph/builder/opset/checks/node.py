"""A node of a model as PopART's rules see it, and as its messages name it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute

from popgraph.dialects import element_types
from popgraph.dialects.onnx.types import UNKNOWN, static_shape
from popgraph.support.arrays import Array
from popgraph.support.dtypes import DType
from popgraph.support.shapes import Shape

FIRST_NUMBER = 100
"""The number that PopART gives to the first operator of a model."""


@dataclass(frozen=True)
class Node:
    """
    An operator with the names and types of its operands, "" for one that is absent.

    `attributes` are those that the model gives, notes among them. `streamed` are the operands that
    are inputs of the model, of which nothing is known before a step; `values` the elements of
    constants.
    """

    op_type: str
    version: int
    name: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    types: Sequence[Attribute]
    attributes: Mapping[str, object]
    domain: str = ""
    place: int = 0
    streamed: frozenset[int] = frozenset()
    values: Mapping[int, Array] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """`ai.onnx.Clip:11`."""
        return f"{self.domain or 'ai.onnx'}.{self.op_type}:{self.version}"

    @property
    def numbered(self) -> str:
        """`100 (ai.onnx.Clip:11)`."""
        return f"{FIRST_NUMBER + self.place} ({self.id})"

    @property
    def titled(self) -> str:
        """`MyClip (ai.onnx.Clip:11)`, without a name just the operator."""
        return f"{self.name} ({self.id})" if self.name else self.id

    def __str__(self) -> str:
        inputs, outputs = (", ".join(filter(None, ids)) for ids in (self.inputs, self.outputs))
        return f"Op({self.titled}, inputs=[{inputs}], outputs=[{outputs}])"

    @property
    def made(self) -> str:
        """The node in messages of what makes an operator of it."""
        inputs, outputs = ", ".join(self.inputs), ", ".join(self.outputs)
        return f"Op({self.name}[{self.id}], inputs=[{inputs}], outputs=[{outputs}])"

    def has(self, place: int) -> bool:
        """Whether an operand is there."""
        return place < len(self.inputs) and bool(self.inputs[place])

    def shape(self, place: int = 0) -> Shape | None:
        """The shape of an operand; None for one that is absent, or not known."""
        return static_shape(self._type(place))

    def element(self, place: int = 0) -> DType | None:
        """The element type of an operand, likewise."""
        type_ = self._type(place)
        if not isinstance(type_, TensorType) or not element_types.is_number(type_.element_type):
            return None
        return element_types.from_ir(type_.element_type)

    def _type(self, place: int) -> Attribute:
        return self.types[place] if self.has(place) and place < len(self.types) else UNKNOWN

    def info(self, place: int = 0) -> str:
        """`FLOAT   [2 3]`."""
        return described(self._type(place)) or "?"

    def number(self, name: str, default: int = 0) -> int:
        """An attribute that is a whole number."""
        value = self.attributes.get(name, default)
        return value if isinstance(value, int) else default

    def numbers(self, name: str) -> list[int]:
        """An attribute that is a list of whole numbers; empty where it is absent."""
        value = self.attributes.get(name)
        return [*value] if isinstance(value, list | tuple) else []

    def word(self, name: str, default: str = "") -> str:
        """An attribute that is a text."""
        value = self.attributes.get(name, default)
        return value.decode(errors="replace") if isinstance(value, bytes) else str(value)

    def words(self, name: str) -> list[str]:
        """An attribute that is a list of texts."""
        value = self.attributes.get(name)
        items = value if isinstance(value, list | tuple) else ()
        return [one.decode(errors="replace") if isinstance(one, bytes) else one for one in items]


def described(type_: Attribute) -> str | None:
    """A type that is known, as PopART writes it: `FLOAT   [2 3]`."""
    shape = static_shape(type_)
    if shape is None or not isinstance(type_, TensorType):
        return None
    if not element_types.is_number(type_.element_type):
        return None
    return f"{element_types.from_ir(type_.element_type).popart}   {spaced(shape)}"


def spaced(shape: Sequence[int]) -> str:
    """A shape as PopART writes it."""
    return f"[{' '.join(map(str, shape))}]"
