"""IR attributes of ONNX's attribute kinds, printed without losing a bit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
from xdsl.dialects.builtin import (
    ArrayAttr,
    IntAttr,
    StringAttr,
    TensorType,
)
from xdsl.ir import Attribute, Data, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.onnx.types import (
    STRING,
    UNKNOWN,
    NamesAttr,
    parse_names,
    print_names,
)
from popgraph.dialects.program import BlobAttr, BytesAttr, DataAttr, WeightStore
from popgraph.dialects.program.attributes import parse_quoted, quoted
from popgraph.support.arrays import Array
from popgraph.support.shapes import prod

EMPTY = BytesAttr(b"")


@irdl_attr_definition
class FloatsAttr(Data[bytes]):
    """
    A list of 32-bit floats: `#onnx.floats<"1.0 -inf nan">`.

    Stored as bytes, so that lists are equal if all bits are. NaNs with other payloads than the
    default print their bits.
    """

    name = "onnx.floats"

    @staticmethod
    def of(values: Sequence[float]) -> FloatsAttr:
        return FloatsAttr(np.asarray(values, "<f4").tobytes())

    @property
    def values(self) -> list[float]:
        return [float(value) for value in np.frombuffer(self.data, "<f4")]

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(f'"{floats_text(self)}"')

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> bytes:
        with parser.in_angle_brackets():
            return parse_floats(parser).data


_NAN = np.array(np.nan, "<f4").view("<u4").item()


def floats_text(floats: FloatsAttr) -> str:
    """The shortest decimals that parse back to the same bits."""
    values = np.frombuffer(floats.data, "<f4")
    bits = values.view("<u4")
    return " ".join(
        f"nan:{int(b):08x}" if v != v and b != _NAN else str(v)
        for v, b in zip(values, bits, strict=True)
    )


def parse_floats(parser: AttrParser) -> FloatsAttr:
    """Parses the text of `floats_text` from a string literal."""
    try:
        return floats_from_text(parser.parse_str_literal())
    except (ValueError, OverflowError):
        parser.raise_error('expected numbers, for example "1.0 -inf nan"')


def floats_from_text(text: str) -> FloatsAttr:
    words = text.split()
    array = np.array([0.0 if ":" in word else float(word) for word in words], "<f4")
    for place, word in enumerate(words):
        if ":" in word:
            array.view("<u4")[place] = int(word.partition(":")[2], 16)
    return FloatsAttr(array.tobytes())


@irdl_attr_definition
class StringTensorAttr(ParametrizedAttribute):
    """The elements of a tensor of strings: `#onnx.strings<["a", "b"] : tensor<2x!onnx.string>>`."""

    name = "onnx.strings"
    strings: NamesAttr
    type: TensorType[Attribute]

    @staticmethod
    def of(strings: Sequence[str | bytes], shape: Sequence[int]) -> StringTensorAttr:
        return StringTensorAttr(NamesAttr.of(strings), TensorType(STRING, shape))

    @property
    def array(self) -> Array:
        values = np.empty(len(self.strings.data), object)
        values[:] = [value.decode("utf-8", "surrogateescape") for value in self.strings.data]
        return values.reshape(self.type.get_shape())

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            print_names(printer, self.strings)
            printer.print_string(" : ")
            printer.print_attribute(self.type)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        with parser.in_angle_brackets():
            strings = parse_names(parser)
            parser.parse_punctuation(":")
            return [strings, parser.parse_type()]

    def verify(self) -> None:
        shape, count = self.type.get_shape(), len(self.strings.data)
        if min(shape, default=0) < 0 or prod(shape) != count:
            raise VerifyException(f"{count} strings are not the elements of {self.type}")


Elements: TypeAlias = DataAttr | BlobAttr | StringTensorAttr
_ELEMENTS = (DataAttr, BlobAttr, StringTensorAttr)


def elements_of(array: Array, store: WeightStore) -> Elements:
    """The attribute of an array; object, str and bytes arrays are tensors of strings."""
    if array.dtype.kind in "OUS":
        return StringTensorAttr.of([as_bytes(item) for item in array.flat], array.shape)
    return store.attribute(array)


def as_bytes(item: object) -> bytes:
    """An element of a tensor of strings; bytes that are not UTF-8 were surrogate-escaped."""
    return item if isinstance(item, bytes) else str(item).encode("utf-8", "surrogateescape")


def array_of(elements: Elements, store: WeightStore | None) -> Array:
    """The array of an attribute; only blobs require a store."""
    if isinstance(elements, BlobAttr):
        return (store or WeightStore()).array(elements)
    return elements.array


@irdl_attr_definition
class TensorAttr(ParametrizedAttribute):
    """
    A tensor, and its protobuf encoding: `#onnx.tensor<#pg.data<...>>`.

    `storage` is `raw` (little-endian bytes), `typed` (one number per entry of a typed field) or
    `exact` (any other encoding). `header` is the serialized TensorProto without the fields that the
    elements and the storage define: name, doc string and so on; with `exact`, the whole message.
    """

    name = "onnx.tensor"
    elements: Attribute
    storage: StringAttr
    header: BytesAttr

    @staticmethod
    def of(elements: Elements, storage: str = "raw", header: bytes = b"") -> TensorAttr:
        return TensorAttr(elements, StringAttr(storage), BytesAttr(header))

    def typed(self) -> TensorAttr:
        """The same tensor, with its elements in the field of their type."""
        return TensorAttr(self.elements, StringAttr("typed"), self.header)

    def verify(self) -> None:
        if not isinstance(self.elements, _ELEMENTS):
            raise VerifyException(f"{self.elements} cannot be the elements of a tensor")

    def with_elements(self, elements: Elements) -> TensorAttr:
        """The tensor with other elements, and the same name, doc string and encoding."""
        if self.storage.data == "exact":  # its header includes the old elements
            return TensorAttr.of(elements, "typed")
        return TensorAttr(elements, self.storage, self.header)

    @property
    def type(self) -> TensorType[Attribute]:
        return self.held.type

    @property
    def held(self) -> Elements:
        assert isinstance(self.elements, _ELEMENTS)
        return self.elements

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_attribute(self.elements)
            if self.storage.data != "raw" or self.header.data:
                printer.print_string(f", {self.storage.data}")
            if self.header.data:
                printer.print_string(f", {quoted(self.header.data)}")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        with parser.in_angle_brackets():
            elements = parser.parse_attribute()
            storage, header = "raw", b""
            if parser.parse_optional_punctuation(","):
                storage = parser.parse_identifier()
                if parser.parse_optional_punctuation(","):
                    header = parse_quoted(parser)
            return [elements, StringAttr(storage), BytesAttr(header)]


@irdl_attr_definition
class SparseTensorAttr(ParametrizedAttribute):
    """A sparse tensor: nonzero values, their indices and the shape."""

    name = "onnx.sparse_tensor"
    values: TensorAttr
    indices: TensorAttr
    shape: ArrayAttr[IntAttr]

    @property
    def type(self) -> TensorType[Attribute]:
        return TensorType(self.values.type.element_type, [dim.data for dim in self.shape])

    def dense(self, store: WeightStore | None) -> Array:
        """The dense tensor."""
        shape = self.type.get_shape()
        values = array_of(self.values.held, store)
        indices = array_of(self.indices.held, store)
        result = np.zeros(shape, values.dtype)
        if indices.ndim == 2:
            result[tuple(indices.T)] = values
        else:
            result.reshape(-1)[indices] = values
        return result


@irdl_attr_definition
class TypeAttr(ParametrizedAttribute):
    """A type as the value of an attribute; `exact` as in `ValueInfoAttr`."""

    name = "onnx.type"
    type: Attribute
    exact: BytesAttr


@irdl_attr_definition
class ManyAttr(ParametrizedAttribute):
    """A list of tensors, sparse tensors or types: `#onnx.many<"TENSORS", [...]>`."""

    name = "onnx.many"
    kind: StringAttr
    items: ArrayAttr[Attribute]


@irdl_attr_definition
class RefAttr(ParametrizedAttribute):
    """In a function: the value that the caller passed for an attribute of the function."""

    name = "onnx.ref"
    attribute: BytesAttr
    kind: StringAttr


@irdl_attr_definition
class GraphsAttr(ParametrizedAttribute):
    """The regions of an `onnx.Custom` that are the value of a GRAPH or GRAPHS attribute."""

    name = "onnx.graphs"
    kind: StringAttr
    first: IntAttr
    count: IntAttr


@irdl_attr_definition
class ValueInfoAttr(ParametrizedAttribute):
    """
    A model's declaration of a value: `#onnx.value<"x" : tensor<2xf32>>`.

    `exact` is the serialized ValueInfoProto if it has more than name and type (doc string,
    metadata, denotations). The exporter writes it as long as its type is still the same.
    """

    name = "onnx.value"
    value_name: BytesAttr
    type: Attribute
    exact: BytesAttr

    @staticmethod
    def of(name: str, type_: Attribute = UNKNOWN, exact: bytes = b"") -> ValueInfoAttr:
        return ValueInfoAttr(BytesAttr.of(name), type_, BytesAttr(exact))

    @property
    def text(self) -> str:
        return self.value_name.text

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            print_value_info(printer, self)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        with parser.in_angle_brackets():
            return list(parse_value_info(parser).parameters)


def print_value_info(printer: Printer, info: ValueInfoAttr) -> None:
    printer.print_string(quoted(info.value_name.data))
    if info.type != UNKNOWN:
        printer.print_string(" : ")
        printer.print_attribute(info.type)
    if info.exact.data:
        printer.print_string(f" exact {quoted(info.exact.data)}")


def parse_value_info(parser: AttrParser) -> ValueInfoAttr:
    name = parse_quoted(parser)
    type_: Attribute = UNKNOWN
    exact = b""
    if parser.parse_optional_punctuation(":"):
        type_ = parser.parse_type()
    if parser.parse_optional_keyword("exact"):
        exact = parse_quoted(parser)
    return ValueInfoAttr(BytesAttr(name), type_, BytesAttr(exact))


@irdl_attr_definition
class OpsetAttr(ParametrizedAttribute):
    """One imported operator set: `#onnx.opset<"ai.onnx.ml", 3>`."""

    name = "onnx.opset"
    domain: BytesAttr
    version: IntAttr
    exact: BytesAttr

    @staticmethod
    def of(domain: str, version: int, exact: bytes = b"") -> OpsetAttr:
        return OpsetAttr(BytesAttr.of(domain), IntAttr(version), BytesAttr(exact))

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(f"{quoted(self.domain.data)}, {self.version.data}")
            if self.exact.data:
                printer.print_string(f" exact {quoted(self.exact.data)}")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        with parser.in_angle_brackets():
            domain = parse_quoted(parser)
            parser.parse_punctuation(",")
            version = parser.parse_integer()
            exact = parse_quoted(parser) if parser.parse_optional_keyword("exact") else b""
            return [BytesAttr(domain), IntAttr(version), BytesAttr(exact)]


@irdl_attr_definition
class MetadataAttr(ParametrizedAttribute):
    """Metadata properties, in order: `#onnx.metadata<["key", "value", ...]>`."""

    name = "onnx.metadata"
    pairs: NamesAttr

    def verify(self) -> None:
        if len(self.pairs.data) % 2:
            raise VerifyException("metadata must be a list of pairs of key and value")

    @staticmethod
    def of(entries: Iterable[tuple[str, str]]) -> MetadataAttr:
        return MetadataAttr(NamesAttr.of([text for entry in entries for text in entry]))

    @property
    def entries(self) -> list[tuple[str, str]]:
        texts = self.pairs.texts
        return list(zip(texts[::2], texts[1::2], strict=True))

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            print_names(printer, self.pairs)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        with parser.in_angle_brackets():
            return [parse_names(parser)]
