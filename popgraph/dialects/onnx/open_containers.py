"""
Opens sequences and optionals among a model's inputs, since programs only take and give tensors.

    inputs s : sequence(f32[3])  ->  inputs s[0], s[1]; s = SequenceConstruct(s[0], s[1])

The number of tensors must be known. For a sequence among the outputs, the program returns the
length and each tensor; `closed` rebuilds the list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from xdsl.dialects.builtin import (
    ArrayAttr,
    IntegerAttr,
    ModuleOp,
    TensorType,
    UnrankedTensorType,
    i64,
)
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue, Use

from popgraph.dialects import element_types
from popgraph.dialects.onnx.attributes import TypeAttr, ValueInfoAttr
from popgraph.dialects.onnx.containers import model_of
from popgraph.dialects.onnx.custom import OWN, Custom
from popgraph.dialects.onnx.initializer import Initializer
from popgraph.dialects.onnx.op import OnnxOp
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.onnx.schemas import op_class
from popgraph.dialects.onnx.typeproto import number_from_element
from popgraph.dialects.onnx.types import STRING, OptType, SeqType, dims, tensor_type
from popgraph.dialects.program import BytesAttr
from popgraph.support.arrays import Array
from popgraph.support.errors import RunError
from popgraph.support.names import hint

Length: TypeAlias = int | None
"""The number of tensors in a sequence; None for the tensor of an optional."""

ABSENT = -1
"""The length that a program returns for an empty optional."""


def element_name(name: str, place: int) -> str:
    """The program input or output for one tensor of a sequence."""
    return f"{name}[{place}]"


def length_name(name: str) -> str:
    """The program output for the length of a sequence."""
    return f"{name}[]"


STRINGS = (OWN, "Strings")
"""Domain and name of the operator that builds strings from code points."""

COMPARE_STRINGS = {("", "Equal"), ("ai.onnx.ml", "LabelEncoder")}
"""Operators that are compiled on code points; all others on strings run in Python."""

WIDTH = 8
"""Strings are padded to this many code points, or to a power of two times as many."""


def code_points(array: Array, width: int = 0) -> Array:
    """Strings as rows of code points plus 1, padded with zeros."""
    if array.dtype.kind == "U":
        held = array.reshape(-1)
        lengths = np.char.str_len(held)
    else:
        words = _decoded(array)
        held = np.array(words, np.str_)
        lengths = np.array([len(word) for word in words], np.int64)
    width = width or max(WIDTH, 1 << (held.dtype.itemsize // 4 - 1).bit_length())
    wide = held.astype(f"<U{width}").tobytes()
    points = np.frombuffer(wide, "<i4").astype(np.int32).reshape(-1, width)
    points += np.arange(width) < lengths.reshape(-1, 1)  # NumPy drops trailing zeros.
    return points.reshape(*array.shape, width)


def _decoded(array: Array) -> list[str]:
    """The strings as str, also from bytes."""
    return [
        one.decode("utf-8", "surrogateescape") if isinstance(one, bytes) else str(one)
        for one in array.reshape(-1).tolist()
    ]


def compares_strings(op: Operation) -> bool:
    """Whether a node compares strings by code points that are known or program inputs."""
    if isinstance(op, Custom):
        return (op.domain, op.op_type) == STRINGS
    if not isinstance(op, SchemaOp) or (op.domain, op.op_type) not in COMPARE_STRINGS:
        return False
    held = [value for value in op.operands if is_string(value.type)]
    known = all(isinstance(one.owner, Initializer) or _is_made(one.owner) for one in held)
    return bool(held) and known and _gives_numbers(op)


def _is_made(owner: object) -> bool:
    return isinstance(owner, Custom) and (owner.domain, owner.op_type) == STRINGS


def _gives_numbers(op: SchemaOp) -> bool:
    is_first = op.op_type == "LabelEncoder" and op.since_version < 2
    return not is_first and not any(is_string(value.type) for value in op.results)


def is_string(type_: Attribute) -> bool:
    return getattr(type_, "element_type", None) == STRING


def _compared(module: ModuleOp) -> set[SSAValue]:
    """String inputs that are only used by comparisons."""
    block = model_of(module).graph.block
    found: set[SSAValue] = {one for one in block.args if is_string(one.type) and one.uses}

    def is_compared(use: Use) -> bool:
        op = use.operation
        known = isinstance(op, SchemaOp) and (op.domain, op.op_type) in COMPARE_STRINGS
        return (
            known
            and isinstance(op, SchemaOp)
            and op.parent is block
            and _gives_numbers(op)
            and all(one in found or isinstance(one.owner, Initializer) for one in op.operands)
        )

    while wrong := {one for one in found if not all(map(is_compared, one.uses))}:
        found -= wrong
    return found


def is_opened(type_: Attribute) -> bool:
    """Whether a type is a sequence or an optional of numeric tensors."""
    return isinstance(type_, SeqType | OptType) and _of_numbers(type_.element)


def _of_numbers(type_: Attribute) -> bool:
    if isinstance(type_, SeqType | OptType):
        return _of_numbers(type_.element)
    element = getattr(type_, "element_type", None)
    return element is not None and element_types.is_number(element)


def opened_inputs(module: ModuleOp) -> dict[str, Attribute]:
    """{name: type} of inputs that are sequences, optionals or compared strings."""
    graph, compared = model_of(module).graph, _compared(module)
    pairs = zip(graph.input_names, graph.block.args, strict=True)
    return {name: one.type for name, one in pairs if is_opened(one.type) or one in compared}


def opened_outputs(module: ModuleOp) -> tuple[str, ...]:
    """The outputs that are sequences or optionals."""
    graph = model_of(module).graph
    pairs = zip(graph.output_names, graph.yielded, strict=True)
    return tuple(name for name, value in pairs if is_opened(value.type))


def names_clash(containers: Iterable[str], names: Iterable[str]) -> bool:
    """Whether another input or output has the name of a sequence's tensor."""
    starts = tuple(f"{name}[" for name in containers)
    return any(name.startswith(starts) for name in names)


# Values


def opened(name: str, type_: Attribute, value: Any) -> tuple[Length, dict[str, Any]]:
    """The length of an input's value, and its tensors by names of program inputs."""
    if isinstance(type_, OptType):
        if value is None:
            return ABSENT, {}
        return opened(name, type_.element, value)
    if is_string(type_):
        return None, {name: code_points(np.asarray(value))}
    if not isinstance(type_, SeqType):
        return None, {name: value}
    if not isinstance(value, list | tuple):
        raise RunError(
            f"input {name!r} must be a sequence, not {type(value).__name__}",
            hint="pass a list of arrays",
        )
    return len(value), {element_name(name, place): one for place, one in enumerate(value)}


def closed(name: str, made: dict[str, Array]) -> Any:
    """The model's output, rebuilt from program outputs: an array, a list, or None."""
    if name in made:
        return made.pop(name)
    length = int(made.pop(length_name(name)))
    if length == ABSENT:
        return None
    return [made.pop(element_name(name, place)) for place in range(length)]


# Models


def open_containers(module: ModuleOp, lengths: Mapping[str, Length]) -> None:
    """Replaces sequence and optional inputs of these lengths by tensors."""
    graph = model_of(module).graph
    infos: list[ValueInfoAttr] = []
    pairs = zip(list(graph.inputs), list(graph.block.args), strict=True)
    for info, argument in pairs:
        if info.text not in lengths:
            infos.append(info)
            continue
        opening = _Opening(module, argument, info.text, lengths[info.text])
        argument.replace_all_uses_with(opening.held(argument.type))
        infos += opening.infos
        graph.block.erase_arg(argument)
    graph.properties["inputs"] = ArrayAttr(infos)


@dataclass
class _Opening:
    """The tensors that replace an input, and the nodes that rebuild it from them."""

    module: ModuleOp
    argument: BlockArgument
    name: str
    length: Length
    infos: list[ValueInfoAttr] = field(default_factory=list)
    """The tensors, in the order of the block's arguments."""
    made: list[OnnxOp] = field(default_factory=list)

    def held(self, type_: Attribute) -> SSAValue:
        """Builds the input's value by nodes at the start of the graph."""
        if isinstance(type_, OptType) and self.length == ABSENT:
            return self._node("Optional", [], type_, type=TypeAttr(type_.element, BytesAttr(b"")))
        if isinstance(type_, OptType):
            return self._node("Optional", [self.held(type_.element)], type_)
        if is_string(type_):
            return self._strings(type_)
        if not isinstance(type_, SeqType):
            return self._tensor(self.name, type_)
        assert self.length is not None
        element = _without_names(type_.element)
        tensors = [
            self._tensor(element_name(self.name, place), element) for place in range(self.length)
        ]
        if tensors:
            return self._node("SequenceConstruct", tensors, SeqType(element))
        number = IntegerAttr(number_from_element(element.element_type), i64)
        return self._node("SequenceEmpty", [], SeqType(element), dtype=number)

    def _strings(self, type_: Attribute) -> SSAValue:
        sizes = dims(type_)
        wide = None if sizes is None else (*sizes, None)
        codes = self._tensor(self.name, tensor_type("i32", wide))
        made = Custom.make(*STRINGS, [codes], {}, [f"{self.name}/strings"], [type_], {})
        return self._added(made).results[0]

    def _tensor(self, name: str, type_: Attribute) -> SSAValue:
        made = self.argument.block.insert_arg(type_, self.argument.index)
        made.name_hint = hint(name)
        self.infos.append(ValueInfoAttr.of(name, type_))
        return made

    def _node(
        self, kind: str, given: Sequence[SSAValue], type_: Attribute, **attributes: Attribute
    ) -> SSAValue:
        version = model_of(self.module).opset_versions.get("", 1)
        name = f"{self.name}/{kind}"
        made = op_class(kind, version).make(given, attributes, {}, [name], [type_], {})
        return self._added(made).results[0]

    def _added(self, made: OnnxOp) -> OnnxOp:
        made.locate()
        after = self.made[-1].next_op if self.made else self.argument.block.first_op
        assert after is not None, "a graph ends with its outputs"
        self.argument.block.insert_op_before(made, after)
        self.made.append(made)
        return made


def _without_names(type_: Attribute) -> TensorType[Attribute] | UnrankedTensorType[Attribute]:
    """The tensor type without named sizes, which may differ between the tensors."""
    assert isinstance(type_, TensorType | UnrankedTensorType)
    sizes = dims(type_)
    known = None if sizes is None else [size if isinstance(size, int) else None for size in sizes]
    made = tensor_type(type_.element_type, known)
    assert isinstance(made, TensorType | UnrankedTensorType)
    return made
