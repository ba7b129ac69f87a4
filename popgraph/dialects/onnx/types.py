"""IR types of ONNX values beyond tensors, symbolic dimensions, and type unification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import DYNAMIC_INDEX, TensorType, UnrankedTensorType
from xdsl.ir import Attribute, Data, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from popgraph.dialects import element_types
from popgraph.dialects.program import interned
from popgraph.dialects.program.attributes import BytesAttr, decoded, parse_quoted, quoted
from popgraph.support import dtypes
from popgraph.support.errors import TypeMismatchError
from popgraph.support.memo import by_identity, cached_property


@irdl_attr_definition
class NamesAttr(Data[tuple[bytes, ...]]):
    """A list of strings (or bytes): `#onnx.names<["x", ""]>`."""

    name = "onnx.names"

    @staticmethod
    def of(values: Sequence[str | bytes]) -> NamesAttr:
        return NamesAttr(tuple(v.encode() if isinstance(v, str) else v for v in values))

    @cached_property
    def texts(self) -> tuple[str, ...]:
        return tuple(map(decoded, self.data))

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            print_names(printer, self)

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[bytes, ...]:
        with parser.in_angle_brackets():
            return parse_names(parser).data


def print_names(printer: Printer, names: NamesAttr) -> None:
    """Prints `["x", ""]`."""
    printer.print_string("[" + ", ".join(quoted(value) for value in names.data) + "]")


def parse_names(parser: AttrParser) -> NamesAttr:
    found = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: parse_quoted(parser))
    return NamesAttr(tuple(found))


@irdl_attr_definition
class DimsAttr(ParametrizedAttribute):
    """
    The names of a tensor's symbolic dimensions: `tensor<?x3xf32, #onnx.dims<["N", ""]>>`.

    The encoding of a tensor type; an unnamed dimension has an empty name. Static types never have
    it, so patterns below this level do not see it.
    """

    name = "onnx.dims"
    names: NamesAttr

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            print_names(printer, self.names)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        with parser.in_angle_brackets():
            return [parse_names(parser)]


@irdl_attr_definition
class StringType(ParametrizedAttribute, TypeAttribute):
    """The element type of tensors of strings."""

    name = "onnx.string"


@irdl_attr_definition
class UnknownType(ParametrizedAttribute, TypeAttribute):
    """The type of a value without any known type: in functions, or of custom operators."""

    name = "onnx.unknown"


@irdl_attr_definition
class SeqType(ParametrizedAttribute, TypeAttribute):
    """A sequence."""

    name = "onnx.seq"
    element: Attribute


@irdl_attr_definition
class OptType(ParametrizedAttribute, TypeAttribute):
    """A value that may be absent at run time."""

    name = "onnx.opt"
    element: Attribute


@irdl_attr_definition
class MapType(ParametrizedAttribute, TypeAttribute):
    """A dictionary."""

    name = "onnx.map"
    key: Attribute
    value: Attribute


@irdl_attr_definition
class SparseType(ParametrizedAttribute, TypeAttribute):
    """A sparse tensor; `dense` is the type of the equivalent dense one."""

    name = "onnx.sparse"
    dense: Attribute


@irdl_attr_definition
class OpaqueType(ParametrizedAttribute, TypeAttribute):
    """A type that only its domain defines."""

    name = "onnx.opaque"
    domain: BytesAttr
    type_name: BytesAttr


UNKNOWN = UnknownType()
STRING = StringType()

Dim = int | str | None


def tensor_type(dtype: str | dtypes.DType | Attribute, shape: Sequence[Dim] | None) -> Attribute:
    """
    The tensor type of an element type (a name such as `f32`, a `DType` or an IR type) and a shape.

    A dimension is a number, a symbol's name, or None if it is unknown. A shape of None means
    unknown rank. `string` is the type of strings.
    """
    element = element_type(dtype)
    if shape is None:
        return interned.unranked_type(element)
    sizes = [dim if isinstance(dim, int) and dim >= 0 else DYNAMIC_INDEX for dim in shape]
    names = [dim if isinstance(dim, str) else "" for dim in shape]
    encoding = DimsAttr(NamesAttr.of(names)) if any(names) else interned.NOTHING
    return interned.tensor_type(element, sizes, encoding)


def element_type(dtype: str | dtypes.DType | Attribute) -> Attribute:
    if isinstance(dtype, Attribute):
        return dtype
    if isinstance(dtype, dtypes.DType):
        return element_types.to_ir(dtype)
    if dtype == "string":
        return STRING
    if dtype not in dtypes.BY_NAME:
        raise TypeMismatchError(
            f"unknown element type {dtype!r}",
            hint=f"use one of {', '.join(dtypes.BY_NAME)}, string",
        )
    return element_types.BY_NAME[dtype]


def dims(type_: Attribute) -> tuple[Dim, ...] | None:
    """The dimensions as `tensor_type` accepts them; None for unknown rank."""
    if not isinstance(type_, TensorType):
        return None
    sizes = type_.get_shape()
    if isinstance(type_.encoding, DimsAttr):
        names = type_.encoding.names.texts
        return tuple(
            (name or None) if size == DYNAMIC_INDEX else size
            for size, name in zip(sizes, names, strict=True)
        )
    return tuple(None if size == DYNAMIC_INDEX else size for size in sizes)


def static_shape(type_: Attribute) -> tuple[int, ...] | None:
    """The shape if all dimensions are numbers."""
    if not isinstance(type_, TensorType):
        return None
    sizes = type_.get_shape()
    return None if DYNAMIC_INDEX in sizes else sizes


@by_identity
def erased(type_: Attribute) -> Attribute:
    """The type without shapes, as compared by ONNX's type variables."""
    match type_:
        case TensorType() | UnrankedTensorType():
            return interned.unranked_type(type_.element_type)
        case SeqType() | OptType():
            return type(type_)(erased(type_.element))
        case MapType():
            return MapType(type_.key, erased(type_.value))
        case SparseType():
            return SparseType(erased(type_.dense))
        case _:
            return type_


def refined(first: Attribute, second: Attribute) -> Attribute:
    """
    The more exact of two types of a value; `first` wins where they conflict.

    Element types are not compared: the caller has checked them.
    """
    if isinstance(first, UnknownType):
        return second
    if isinstance(first, SeqType | OptType) and type(second) is type(first):
        return type(first)(refined(first.element, second.element))
    if not isinstance(first, TensorType | UnrankedTensorType) or static_shape(first) is not None:
        return first
    mine, other = dims(first), dims(second)
    if other is None:
        return first
    if mine is None:
        return second if isinstance(second, TensorType) else first
    if len(mine) != len(other):
        return first
    return tensor_type(
        first.element_type, [_better(a, b) for a, b in zip(mine, other, strict=True)]
    )


def _better(first: Dim, second: Dim) -> Dim:
    if isinstance(first, int) or second is None:
        return first
    if first is None or isinstance(second, int):
        return second
    return first


def joined(first: Attribute, second: Attribute) -> Attribute:
    """The most exact type that covers both types, which have equal element types."""
    if first == second:
        return first
    if isinstance(first, SeqType | OptType) and type(second) is type(first):
        return type(first)(joined(first.element, second.element))
    mine, other = dims(first), dims(second)
    if mine is None or other is None or len(mine) != len(other):
        return erased(first)
    assert isinstance(first, TensorType)
    both = [a if a == b else None for a, b in zip(mine, other, strict=True)]
    return tensor_type(first.element_type, both)


def substituted(type_: Attribute, sizes: Mapping[str, int]) -> Attribute:
    """The type with symbolic dimensions replaced by `sizes`."""
    match type_:
        case TensorType(encoding=DimsAttr()):
            given = [sizes.get(d, d) if isinstance(d, str) else d for d in dims(type_) or ()]
            return tensor_type(type_.element_type, given)
        case SeqType() | OptType():
            return type(type_)(substituted(type_.element, sizes))
        case _:
            return type_


def describe(type_: Attribute) -> str:
    """Formats a type for messages: `f32[N, 3]`."""
    match type_:
        case UnknownType():
            return "unknown"
        case SeqType():
            return f"sequence({describe(type_.element)})"
        case OptType():
            return f"optional({describe(type_.element)})"
        case MapType():
            return f"map({describe(type_.key)}, {describe(type_.value)})"
        case SparseType():
            return f"sparse({describe(type_.dense)})"
        case TensorType() | UnrankedTensorType():
            return dtypes.tensor_text(describe(type_.element_type), dims(type_))
        case StringType():
            return "string"
        case _:
            return (
                element_types.from_ir(type_).name if element_types.is_number(type_) else str(type_)
            )
