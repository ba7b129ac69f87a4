"""One reading of a node: its operands, its attributes, and what is known of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias, cast

import numpy as np
from xdsl.ir import Attribute, SSAValue

from popgraph.dialects.onnx.attributes import RefAttr
from popgraph.dialects.onnx.op import OnnxOp, Value
from popgraph.dialects.onnx.types import UNKNOWN, Dim, dims, static_shape
from popgraph.dialects.program import WeightStore
from popgraph.support.arrays import Array
from popgraph.support.errors import PopgraphError, RunError, TypeMismatchError
from popgraph.support.shapes import Shape

Known: TypeAlias = Mapping[SSAValue, Array]
"""The elements of those values of which they are known."""

PartialShape: TypeAlias = tuple[Dim, ...]


class NodeView:
    """
    A node as its operator's page reads it.

    Numbers name operands, names name attributes. An attribute that the node does not give has its
    default, of the operator or of the question; so has one that a function's call will give.
    """

    def __init__(
        self, op: OnnxOp, known: Known = MappingProxyType({}), store: WeightStore | None = None
    ) -> None:
        self.op = op
        self._known = known
        self._store = store
        self._operands = op.input_values()
        self._attributes: Mapping[str, Value] | None = None

    @property
    def version(self) -> int:
        return self.op.since_version

    @property
    def output_count(self) -> int:
        return len(self.op.output_names)

    # Operands

    def __len__(self) -> int:
        return len(self._operands)

    def operand(self, index: int) -> SSAValue | None:
        return self._operands[index] if index < len(self._operands) else None

    def has(self, key: int | str) -> bool:
        """Whether an operand is there, or an attribute is given or has a default."""
        return self.operand(key) is not None if isinstance(key, int) else key in self.attributes

    def type_of(self, index: int) -> Attribute:
        """The type of an operand; unknown if it is absent."""
        value = self.operand(index)
        return UNKNOWN if value is None else value.type

    def shape_of(self, index: int) -> PartialShape | None:
        """The dimensions of an operand that is there and whose rank is known."""
        return dims(self.type_of(index))

    def static_shape_of(self, index: int) -> Shape | None:
        """The shape of an operand, if all of it is known."""
        return static_shape(self.type_of(index))

    def rank_of(self, index: int) -> int | None:
        shape = self.shape_of(index)
        return None if shape is None else len(shape)

    def elements_of(self, index: int) -> Array | None:
        """The elements of an operand, if they are known."""
        value = self.operand(index)
        return None if value is None else self._known.get(value)

    def integers_of(self, index: int) -> list[int] | None:
        """The elements of an operand of integers, if they are known."""
        array = self.elements_of(index)
        if array is None or array.dtype.kind not in "iu":
            return None
        return [int(number) for number in array.reshape(-1)]

    # Attributes; each is looked up under its name, whatever version the node has.

    @property
    def attributes(self) -> Mapping[str, Value]:
        """Their values, defaults included."""
        if self._attributes is None:
            found = self.op.attribute_values(self._store)
            self._attributes = {
                name: value for name, value in found.items() if not isinstance(value, RefAttr)
            }
        return self._attributes

    def gives(self, name: str) -> bool:
        """Whether the node itself gives an attribute."""
        return name in self.attributes and name in self.op.onnx_attributes()

    def attribute(self, name: str, default: object = None) -> Any:
        return self.attributes.get(name, default)

    def integer(self, name: str, default: int = 0) -> int:
        return cast(int, self._of_kind(name, default, "a whole number", int))

    def real(self, name: str, default: float = 0.0) -> float:
        return float(cast(float, self._of_kind(name, default, "a number", int, float)))

    def text(self, name: str, default: str = "") -> str:
        value = self._of_kind(name, default, "a text", str, bytes)
        return _decoded(value)

    def integers(self, name: str, default: Sequence[int] = ()) -> tuple[int, ...]:
        return cast(tuple[int, ...], self._all_of_kind(name, default, "whole numbers", int))

    def reals(self, name: str) -> tuple[float, ...]:
        return cast(tuple[float, ...], self._all_of_kind(name, (), "numbers", int, float))

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(map(_decoded, self._all_of_kind(name, (), "texts", str, bytes)))

    def given_integers(self, name: str, index: int | None = None) -> list[int] | None:
        """A list that the node gives; in new versions an operand may have taken its place."""
        if self.gives(name):
            return list(self.integers(name))
        return None if index is None else self.integers_of(index)

    def listed(self, name: str) -> list[Any]:
        """A list of any kind, empty if the node gives none; of a tensor its elements."""
        found: Any = self.attribute(name, [])
        elements = found.reshape(-1) if isinstance(found, np.ndarray) else found
        return [_decoded(one) if isinstance(one, bytes) else one for one in elements]

    def _of_kind(self, name: str, default: object, words: str, *kinds: type) -> object:
        """An attribute; of operators without a schema nobody else has looked at its kind."""
        value = self.attribute(name, default)
        if name in self.attributes and not isinstance(value, kinds):
            raise TypeMismatchError(f"the attribute {name!r} is {value!r}, and not {words}")
        return value

    def _all_of_kind(
        self, name: str, default: Sequence[object], words: str, *kinds: type
    ) -> tuple[object, ...]:
        values = self._of_kind(name, default, f"a list of {words}", list, tuple, np.ndarray)
        if isinstance(values, np.ndarray):
            values = values.reshape(-1).tolist()
        assert isinstance(values, Sequence), "it was looked at"
        for one in values:
            if not isinstance(one, kinds):
                raise TypeMismatchError(f"the attribute {name!r} has {one!r} among its {words}")
        return tuple(values)

    def first_listed(self, *names: str) -> tuple[str, list[Any]]:
        """The first of some lists that the node gives, with its name."""
        for name in names:
            if found := self.listed(name):
                return name, found
        return names[-1], []

    # Errors

    def fail(self, what: str, hint: str) -> PopgraphError:
        """The error of a run that the elements of the operands do not allow."""
        return RunError(what, self.op.where(), hint)


def _decoded(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else cast(str, value)
