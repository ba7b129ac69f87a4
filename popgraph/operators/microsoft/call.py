"""Definitions of onnxruntime's operators: the view of a node that they get, and their registry."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias

from xdsl.dialects.builtin import AnyFloat, Float64Type, TensorType
from xdsl.ir import Attribute

from popgraph.dialects.building import building_detached
from popgraph.dialects.onnx.attributes import RefAttr
from popgraph.dialects.onnx.containers import Function
from popgraph.dialects.onnx.custom import Custom
from popgraph.dialects.onnx.op import Graph
from popgraph.dialects.onnx.record import enter
from popgraph.dialects.onnx.types import describe, dims
from popgraph.dialects.onnx.view import NodeView, PartialShape
from popgraph.operators.microsoft.body import Body, Value
from popgraph.operators.record import MICROSOFT
from popgraph.support.errors import TypeMismatchError, UnsupportedError

_COMPARE = "compare with the operator's definition in onnxruntime"
_LISTED = "use ONNX's own operators; `popgraph ops` lists those that compile"


class NotYet(Exception):
    """Raised if a definition depends on a type or an attribute that is not known yet."""


class Call(NodeView):
    """
    A node with named inputs, and the function body that its definition builds.

    A definition supports only the inputs and attributes that it reads: `refuse_unread` rejects the
    others. With `exact`, for training, it avoids optional rounding that has no gradient.
    """

    def __init__(self, op: Custom, inputs: str, *, exact: bool = False) -> None:
        super().__init__(op)
        self.inputs = _formal(inputs, len(self))
        if len(self) > len(self.inputs):
            raise TypeMismatchError(
                f"{op.op_type} takes at most {len(self.inputs)} inputs, not {len(self)}",
                op.where(),
                _COMPARE,
            )
        self.exact = exact
        self.body = Body()
        self._places = {name: at for at, name in enumerate(self.inputs)}
        self._formals = [self.body.input(name) for name in self.inputs]
        self._read: set[str] = set()

    # Inputs

    def has(self, key: int | str) -> bool:
        """Whether an input is given; False for names that only related operators have."""
        return super().has(self._places.get(key, len(self)) if isinstance(key, str) else key)

    def get(self, name: str) -> Value | None:
        """An input that may be absent."""
        self._read.add(name)
        return self._formals[self._places[name]] if self.has(name) else None

    def __getitem__(self, name: str) -> Value:
        found = self.get(name)
        if found is None:
            raise self._missing(name)
        return found

    def type(self, name: str) -> TensorType[Attribute]:
        if not self.has(name):
            raise self._missing(name)
        found = self.type_of(self._places[name])
        if not isinstance(found, TensorType) or dims(found) is None:
            raise NotYet
        return found

    def _missing(self, name: str) -> TypeMismatchError:
        return self._wrong(f"input {name!r} of {self.op.op_type} is missing")

    def element(self, name: str) -> Attribute:
        return self.type(name).element_type

    def shape(self, name: str) -> PartialShape:
        return dims(self.type(name)) or ()

    def rank(self, name: str) -> int:
        return len(self.shape(name))

    def size(self, name: str, axis: int) -> int:
        """A static dimension; raises `NotYet` while it is unknown."""
        found = self.shape(name)[axis]
        if not isinstance(found, int):
            raise NotYet
        return found

    def wide(self, name: str, value: Value | None = None) -> Value:
        """A float input, or a value of its type, in onnxruntime's accumulation type (f32, f64)."""
        element = self.element(name)
        if not isinstance(element, AnyFloat):
            what = f"input {name!r} of {self.op.op_type} must be floats, not"
            raise self._wrong(f"{what} {describe(self.type(name))}")
        return (value or self[name]).typed("f64" if element == Float64Type() else "f32")

    # Attributes

    def attribute(self, name: str, default: object = None) -> Any:
        self._read.add(name)
        if isinstance(self.op.onnx_attributes().get(name), RefAttr):
            raise NotYet
        return super().attribute(name, default)

    def graph(self, name: str) -> Graph:
        """An attribute that is a graph, which the body can call."""
        found = self.attribute(name)
        if not isinstance(found, Graph):
            raise self._wrong(f"the graph {name!r} of {self.op.op_type} is missing")
        return found

    def copied(self, names: str) -> dict[str, Any]:
        """The given attributes among these names, to be passed on."""
        found = {name: self.attribute(name) for name in names.split()}
        return {name: value for name, value in found.items() if value is not None}

    def needs(self, name: str) -> int:
        """A required positive attribute."""
        found = self.integer(name)
        if found <= 0:
            raise self._wrong(f"{self.op.op_type} needs the attribute {name!r}")
        return found

    def one_of(self, name: str, *admitted: str) -> str:
        """An attribute that must be one of these words; the first is the default."""
        found = self.text(name, admitted[0])
        if found not in admitted:
            raise self.refuse(f"{name} = {found!r}", f"use one of {', '.join(admitted)}")
        return found

    # Refusals

    def unfit(self, what: str = "", hint: str = _COMPARE) -> TypeMismatchError:
        """The error for a node whose inputs or attributes do not fit together."""
        given = what or f"these {len(self)} inputs"
        return self._wrong(f"{self.op.op_type} does not take {given}", hint)

    def _wrong(self, what: str, hint: str = _COMPARE) -> TypeMismatchError:
        return TypeMismatchError(what, self.op.where(), hint)

    def refuse(self, what: str, hint: str = _LISTED) -> UnsupportedError:
        return UnsupportedError(
            f"{what} of {self.op.op_type} is not supported", self.op.where(), hint
        )

    def ignore(self, names: str) -> None:
        """Marks inputs and attributes as read that do not change the result."""
        self._read |= set(names.split())

    def refuse_unread(self) -> None:
        """Rejects inputs and attributes that the definition has not read."""
        for name, at in self._places.items():
            if self.has(at) and name not in self._read:
                raise self.refuse(f"the input {name!r} ({describe(self.type_of(at))})")
        for name, given in self.op.attribute_values().items():
            if name not in self._read and given not in (0, "", "NONE", "NOTSET", []):
                raise self.refuse(f"the attribute {name} = {given!r}")

    def function(self, made: Sequence[Value | None]) -> Function:
        """The function with these results; outputs that the node does not use are arbitrary."""
        anything = next(one for one in made if one is not None)
        results = []
        for at, wanted in enumerate(self.op.output_names):
            found = made[at] if wanted and at < len(made) else None
            if wanted and found is None:
                raise self.refuse(f"output {at}")
            results.append(found or anything)
        return self.body.function(self.op.op_type, results)


def _formal(inputs: str, count: int) -> Sequence[str]:
    """The names of the inputs; a last name with `...` is repeated to the node's number."""
    names = inputs.split()
    if not names[-1].endswith("..."):
        return names
    more = names.pop().removesuffix("...")
    return [*names, *(f"{more}{at}" for at in range(count - len(names)))]


Written: TypeAlias = Callable[[Call], Value | Sequence[Value | None]]
"""A definition: builds the results of a node; None is an unsupported output."""


def defines(
    names: str,
    inputs: str,
    ignored: str = "",
    domain: str = MICROSOFT,
    without_gradient: str = "",
) -> Callable[[Written], Written]:
    """
    Registers the definition of operators, with the names of their inputs.

    `ignored` are inputs and attributes that do not change the result; `without_gradient` is the
    reason for a missing gradient.
    """

    def register(written: Written) -> Written:
        def define(op: Custom, exact: bool) -> Function | None:
            key = _key(op, exact)
            if (known := _FUNCTIONS.get(key)) is not None:
                return known
            with building_detached():
                call = Call(op, inputs, exact=exact)
                call.ignore(ignored)
                try:
                    made = written(call)
                except NotYet:
                    return None
                call.refuse_unread()
                found = call.function([made] if isinstance(made, Value) else made)
            _remember(key, found)
            return found

        for name in names.split():
            record = enter(domain, name)
            record.define, record.without_gradient = define, without_gradient
        return written

    return register


_FUNCTIONS: dict[Hashable, Function] = {}
"""A cache of functions: networks have many equal nodes, and passes visit each several times."""
_MOST = 256


def _key(op: Custom, exact: bool) -> Hashable:
    """The cache key: all that a definition can read of a node; None for a node with graphs."""
    if op.regions:
        return None
    types = tuple(value.type for value in op.operands)
    return exact, types, tuple(op.properties.items()), tuple(map(bool, op.output_names))


def _remember(key: Hashable, function: Function) -> None:
    if len(_FUNCTIONS) >= _MOST:
        _FUNCTIONS.clear()
    if key is not None:
        _FUNCTIONS[key] = function
