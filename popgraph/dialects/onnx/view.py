"""A read-only view of a node: operands, attributes and known elements."""

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
"""{value: elements} of values whose elements are known."""

PartialShape: TypeAlias = tuple[Dim, ...]


class NodeView:
    """
    A node as its operator's page reads it.

    Operands are addressed by index, attributes by name. An absent attribute has the operator's
    default, else the caller's; so has an attribute that a function call will bind.
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
        """Whether an operand is present, or an attribute is set or has a default."""
        return self.operand(key) is not None if isinstance(key, int) else key in self.attributes

    def type_of(self, index: int) -> Attribute:
        """The type of an operand; unknown if it is absent."""
        value = self.operand(index)
        return UNKNOWN if value is None else value.type

    def shape_of(self, index: int) -> PartialShape | None:
        """The dimensions of an operand; None if it is absent or of unknown rank."""
        return dims(self.type_of(index))

    def static_shape_of(self, index: int) -> Shape | None:
        """The shape of an operand, if it is fully known."""
        return static_shape(self.type_of(index))

    def rank_of(self, index: int) -> int | None:
        shape = self.shape_of(index)
        return None if shape is None else len(shape)

    def elements_of(self, index: int) -> Array | None:
        """The elements of an operand, if they are known."""
        value = self.operand(index)
        return None if value is None else self._known.get(value)

    def integers_of(self, index: int) -> list[int] | None:
        """The elements of an integer operand, if they are known."""
        array = self.elements_of(index)
        if array is None or array.dtype.kind not in "iu":
            return None
        return [int(number) for number in array.reshape(-1)]

    # Attributes, by name, for all versions

    @property
    def attributes(self) -> Mapping[str, Value]:
        """The values of all attributes, including defaults."""
        if self._attributes is None:
            found = self.op.attribute_values(self._store)
            self._attributes = {
                name: value for name, value in found.items() if not isinstance(value, RefAttr)
            }
        return self._attributes

    def gives(self, name: str) -> bool:
        """Whether the node itself sets an attribute."""
        return name in self.attributes and name in self.op.onnx_attributes()

    def attribute(self, name: str, default: object = None) -> Any:
        return self.attributes.get(name, default)

    def integer(self, name: str, default: int = 0) -> int:
        return cast(int, self._of_kind(name, default, "an integer", int))

    def real(self, name: str, default: float = 0.0) -> float:
        return float(cast(float, self._of_kind(name, default, "a number", int, float)))

    def text(self, name: str, default: str = "") -> str:
        value = self._of_kind(name, default, "a string", str, bytes)
        return _decoded(value)

    def integers(self, name: str, default: Sequence[int] = ()) -> tuple[int, ...]:
        return cast(tuple[int, ...], self._all_of_kind(name, default, "integers", int))

    def reals(self, name: str) -> tuple[float, ...]:
        return cast(tuple[float, ...], self._all_of_kind(name, (), "numbers", int, float))

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(map(_decoded, self._all_of_kind(name, (), "strings", str, bytes)))

    def given_integers(self, name: str, index: int | None = None) -> list[int] | None:
        """A list from an attribute, or from operand `index` that replaced it in later versions."""
        if self.gives(name):
            return list(self.integers(name))
        return None if index is None else self.integers_of(index)

    def listed(self, name: str) -> list[Any]:
        """A list of any kind; empty if absent, and the elements of a tensor."""
        found: Any = self.attribute(name, [])
        elements = found.reshape(-1) if isinstance(found, np.ndarray) else found
        return [_decoded(one) if isinstance(one, bytes) else one for one in elements]

    def _of_kind(self, name: str, default: object, words: str, *kinds: type) -> object:
        """An attribute, with its kind checked: operators without a schema have no other check."""
        value = self.attribute(name, default)
        if name in self.attributes and not isinstance(value, kinds):
            raise TypeMismatchError(f"the attribute {name!r} must be {words}, not {value!r}")
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
                raise TypeMismatchError(
                    f"the attribute {name!r} must be a list of {words}, without {one!r}"
                )
        return tuple(values)

    def first_listed(self, *names: str) -> tuple[str, list[Any]]:
        """The first of several list attributes that the node sets, with its name."""
        for name in names:
            if found := self.listed(name):
                return name, found
        return names[-1], []

    # Errors

    def fail(self, what: str, hint: str) -> PopgraphError:
        """A run-time error about the elements of the operands."""
        return RunError(what, self.op.where(), hint)


def _decoded(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else cast(str, value)
