"""A node of onnxruntime's operators, as the definition of its operator sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias, cast

from onnx import FunctionProto, helper
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute

from popgraph.dialects.onnx.attributes import RefAttr
from popgraph.dialects.onnx.containers import Function
from popgraph.dialects.onnx.custom import CALL, Custom
from popgraph.dialects.onnx.functions import OPSET
from popgraph.dialects.onnx.op import Graph
from popgraph.dialects.onnx.reader import read_function
from popgraph.dialects.onnx.record import enter
from popgraph.dialects.onnx.types import Dim, describe, dims
from popgraph.dialects.program import DataAttr, WeightStore
from popgraph.operators.microsoft.body import Body, Value
from popgraph.operators.record import MICROSOFT
from popgraph.support.arrays import Array
from popgraph.support.errors import TypeMismatchError, UnsupportedError

_COMPARE = "compare with the operator's definition in onnxruntime"
_LISTED = "`popgraph ops` lists the operators that compile; write the node with those of ONNX"


class NotYet(Exception):
    """A definition depends on a type or an attribute that is not known yet."""


class Call:
    """
    A node: its inputs, of what type they are, its attributes, and the body that stands for it.

    What a definition never asks for, it does not support: `refuse_unread` names it. An `exact` one
    rounds nothing that it need not: gradients are to pass it.
    """

    def __init__(self, op: Custom, inputs: str, *, exact: bool = False) -> None:
        values = op.input_values()
        names = _formal(inputs, len(values))
        if len(values) > len(names):
            raise TypeMismatchError(
                f"{op.op_type} takes at most {len(names)} inputs, and gets {len(values)}",
                op.where(),
                _COMPARE,
            )
        self.op, self.exact = op, exact
        self.body = Body()
        self.inputs = names
        self._values = dict(zip(names, values, strict=False))
        self._attributes = op.attribute_values()
        self._read: set[str] = set()
        self.graphs: dict[str, Graph] = {}
        """The graphs of the node that the body calls."""

    # Inputs

    def has(self, name: str) -> bool:
        """Whether an input is there."""
        return self._values.get(name) is not None

    def get(self, name: str) -> Value | None:
        """An input that may be absent."""
        self._read.add(name)
        return self.body.named(name) if self.has(name) else None

    def __getitem__(self, name: str) -> Value:
        found = self.get(name)
        if found is None:
            raise self._missing(name)
        return found

    def type(self, name: str) -> TensorType[Attribute]:
        value = self._values.get(name)
        if value is None:
            raise self._missing(name)
        if not isinstance(value.type, TensorType) or dims(value.type) is None:
            raise NotYet
        return value.type

    def _missing(self, name: str) -> TypeMismatchError:
        what = f"input {name!r} of {self.op.op_type} is missing"
        return TypeMismatchError(what, self.op.where(), _COMPARE)

    def element(self, name: str) -> Attribute:
        return self.type(name).element_type

    def shape(self, name: str) -> tuple[Dim, ...]:
        return dims(self.type(name)) or ()

    def rank(self, name: str) -> int:
        return len(self.shape(name))

    def size(self, name: str, axis: int) -> int:
        """A dimension that the definition depends on."""
        found = self.shape(name)[axis]
        if not isinstance(found, int):
            raise NotYet
        return found

    # Attributes

    def integer(self, name: str, default: int = 0) -> int:
        return cast(int, self._attribute(name, default))

    def real(self, name: str, default: float = 0.0) -> float:
        return cast(float, self._attribute(name, default))

    def text(self, name: str, default: str = "") -> str:
        return cast(str, self._attribute(name, default))

    def list(self, name: str) -> list[Any]:
        return cast(list[Any], self._attribute(name, []))

    def graph(self, name: str) -> Graph:
        """An attribute that is a graph, which the body can call by its name."""
        found = self._attribute(name, None)
        if not isinstance(found, Graph):
            raise TypeMismatchError(
                f"{self.op.op_type} needs the graph {name!r}", self.op.where(), _COMPARE
            )
        self.graphs[name] = found
        return found

    def copied(self, names: str) -> dict[str, Any]:
        """Those of these attributes that the node has, to be handed on."""
        found = {name: self._attribute(name, None) for name in names.split()}
        return {name: value for name, value in found.items() if value is not None}

    def needs(self, name: str) -> int:
        """An attribute without a default."""
        found = self.integer(name, 0)
        if found <= 0:
            raise TypeMismatchError(
                f"{self.op.op_type} needs the attribute {name!r}", self.op.where(), _COMPARE
            )
        return found

    def one_of(self, name: str, *admitted: str) -> str:
        """An attribute that is one of these words, the first of which is its default."""
        found = self.text(name, admitted[0])
        if found not in admitted:
            raise self.refuse(f"{name} = {found!r}", f"{', '.join(admitted)} are")
        return found

    def _attribute(self, name: str, default: object) -> object:
        self._read.add(name)
        found = self._attributes.get(name, default)
        if isinstance(found, RefAttr):
            raise NotYet
        return found

    # Refusals

    def unfit(self, what: str = "", hint: str = _COMPARE) -> TypeMismatchError:
        """The error of a node whose inputs or attributes do not belong together."""
        given = what or f"{len(self._values)} inputs as they stand here"
        return TypeMismatchError(f"{self.op.op_type} does not take {given}", self.op.where(), hint)

    def not_float(self, name: str) -> TypeMismatchError:
        """The error of an input whose elements are no floats, although only these fit."""
        what = f"{self.op.op_type} takes floats as its input {name!r}, not"
        found = describe(self.type(name))
        return TypeMismatchError(f"{what} {found}", self.op.where(), _COMPARE)

    def refuse(self, what: str, hint: str = _LISTED) -> UnsupportedError:
        return UnsupportedError(
            f"{what} of {self.op.op_type} is not supported", self.op.where(), hint
        )

    def ignore(self, names: str) -> None:
        """Inputs and attributes without which the node means the same."""
        self._read |= set(names.split())

    def refuse_unread(self) -> None:
        """Refuses inputs and attributes that the definition took no notice of."""
        for name, value in self._values.items():
            if value is not None and name not in self._read:
                raise self.refuse(f"the input {name!r} ({describe(value.type)})")
        for name, given in self._attributes.items():
            if name not in self._read and given not in (0, "", "NONE", "NOTSET", []):
                raise self.refuse(f"the attribute {name} = {given!r}")


def _formal(inputs: str, count: int) -> Sequence[str]:
    """The names of the inputs; where the last ends in `...`, as many as the node has."""
    names = inputs.split()
    if not names[-1].endswith("..."):
        return names
    more = names.pop().removesuffix("...")
    return [*names, *(f"{more}{at}" for at in range(count - len(names)))]


Written: TypeAlias = Callable[[Call], Value | Sequence[Value | None]]
"""What a node stands for: its results. None is one that is not known."""


def defines(
    name: str, inputs: str, ignored: str = "", domain: str = MICROSOFT
) -> Callable[[Written], Written]:
    """Registers the definition of an operator, with the names of its inputs."""

    def register(written: Written) -> Written:
        def define(op: Custom, exact: bool) -> Function | None:
            try:
                call = Call(op, inputs, exact=exact)
                call.ignore(ignored)
                made = written(call)
            except NotYet:
                return None
            call.refuse_unread()
            proto = _proto(call, [made] if isinstance(made, Value) else made)
            return _with_graphs(_function(proto), call.graphs) if call.graphs else _function(proto)

        enter(domain, name).define = define
        return written

    return register


def _proto(call: Call, made: Sequence[Value | None]) -> FunctionProto:
    """The function of a node with these results; what is not asked for is any value."""
    results: list[str] = []
    for at, wanted in enumerate(call.op.output_names):
        found = made[at] if wanted and at < len(made) else None
        if wanted and found is None:
            raise call.refuse(f"output {at}")
        results.append((found or _any(made)).Identity().name)
    opsets = [
        helper.make_opsetid("", OPSET),
        *(helper.make_opsetid(domain, 1) for domain in (MICROSOFT, CALL[0])),
    ]
    nodes = call.body.needed(results)
    return helper.make_function(MICROSOFT, call.op.op_type, call.inputs, results, nodes, opsets)


def _any(made: Sequence[Value | None]) -> Value:
    return next(one for one in made if one is not None)


def _with_graphs(function: Function, graphs: Mapping[str, Graph]) -> Function:
    """A copy in which the graphs of the node stand where the body calls them."""
    made = function.clone()
    for op in list(made.walk()):
        if isinstance(op, Custom) and op.is_call:
            (stands_for,) = op.graphs()["callee"]
            block = stands_for.parent_block()
            assert block is not None, "a graph stands in the region of an attribute"
            block.add_op(graphs[stands_for.graph_name.text].clone())
            block.erase_op(stands_for)
    return made


def _function(proto: FunctionProto) -> Function:
    return _read(proto.SerializeToString(deterministic=True))


class _Inline(WeightStore):
    """Keeps nothing: all literals stand in the function, which every compilation may use."""

    def attribute(self, array: Array) -> DataAttr:
        return DataAttr.of(array)


@lru_cache(maxsize=256)
def _read(data: bytes) -> Function:
    return read_function(FunctionProto.FromString(data), _Inline())
