"""Attributes for names, integers and tensor data, printed without losing a bit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from urllib.parse import quote_from_bytes, unquote_to_bytes

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Data, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects import element_types
from popgraph.dialects.program.interned import tensor_type
from popgraph.support import dtypes
from popgraph.support.array_bytes import array_of_memory, memory_of
from popgraph.support.arrays import Array
from popgraph.support.errors import ModelError
from popgraph.support.memo import by_identity
from popgraph.support.shapes import prod

_PLAIN = "".join(chr(code) for code in range(32, 127) if chr(code) not in '"\\%')


def quoted(data: bytes) -> str:
    """A string literal of IR text for any bytes: percent-encoded, so ASCII without escapes."""
    return f'"{quote_from_bytes(data, safe=_PLAIN)}"'


def parse_quoted(parser: AttrParser) -> bytes:
    """The inverse of `quoted`."""
    return unquote_to_bytes(parser.parse_str_literal())


def decoded(data: bytes) -> str:
    """The UTF-8 text of bytes; ModelError if they are not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ModelError(f"the name {data!r} is not UTF-8", hint="rename it") from error


@irdl_attr_definition
class BytesAttr(Data[bytes]):
    """
    Any string or bytes: `#pg.bytes<"caf%C3%A9">`.

    A builtin string that is not ASCII parses back to a different attribute. Names of ONNX tensors
    and string attributes may hold any bytes, so they are stored here, percent-encoded.
    """

    name = "pg.bytes"

    @staticmethod
    def of(value: str | bytes) -> BytesAttr:
        return BytesAttr(value.encode() if isinstance(value, str) else value)

    @property
    def text(self) -> str:
        return decoded(self.data)

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(quoted(self.data))

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> bytes:
        with parser.in_angle_brackets():
            return unquote_to_bytes(parser.parse_str_literal())


@irdl_attr_definition
class IntsAttr(Data[tuple[int, ...]]):
    """A list of integers: `#pg.ints[4, 8]`, and just `[4, 8]` in most operations."""

    name = "pg.ints"

    @staticmethod
    def of(values: Iterable[int]) -> IntsAttr:
        return IntsAttr(tuple(int(value) for value in values))

    def __iter__(self) -> Iterator[int]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"[{', '.join(map(str, self.data))}]")

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[int, ...]:
        return tuple(
            parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
        )


@irdl_attr_definition
class HexAttr(Data[bytes]):
    """The payload of `DataAttr`; never used alone."""

    name = "pg.hex"

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f'"{self.data.hex()}"')

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> bytes:
        try:
            return bytes.fromhex(parser.parse_str_literal())
        except ValueError:
            parser.raise_error("expected pairs of hexadecimal digits")


@irdl_attr_definition
class DataAttr(ParametrizedAttribute):
    """
    The exact elements of a small tensor: `#pg.data<"0000803f" : tensor<1xf32>>`.

    The payload is the array's bytes, little-endian, in C order. The text form of builtin `dense`
    changes infinities, NaNs, negative zeros and many integers.
    """

    name = "pg.data"
    payload: HexAttr
    type: TensorType[Attribute]

    @staticmethod
    def of(array: Array) -> DataAttr:
        """The attribute of an array; copies it if it is not contiguous or not little-endian."""
        element = element_types.to_ir(dtypes.from_numpy(array.dtype))
        return _data(bytes(memory_of(array)), element, array.shape)

    @property
    def array(self) -> Array:
        """The elements, read-only, without a copy."""
        return _array(self)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            self.payload.print_parameter(printer)
            printer.print_string(" : ")
            printer.print_attribute(self.type)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        with parser.in_angle_brackets():
            payload = HexAttr.parse_parameter(parser)
            parser.parse_punctuation(":")
            return [HexAttr(payload), parser.parse_type()]

    def verify(self) -> None:
        if not element_types.is_number(self.type.element_type):
            raise VerifyException(f"{self.type.element_type} is not an element type")
        shape, size = self.type.get_shape(), len(self.payload.data)
        itemsize = element_types.from_ir(self.type.element_type).numpy.itemsize
        if min(shape, default=0) < 0 or prod(shape) * itemsize != size:
            raise VerifyException(f"{size} bytes are not the elements of {self.type}")


@by_identity
def _array(held: DataAttr) -> Array:
    dtype = element_types.from_ir(held.type.element_type).numpy
    return array_of_memory(held.payload.data, dtype, held.type.get_shape())


@lru_cache(maxsize=1 << 12)
def _data(elements: bytes, element: Attribute, shape: tuple[int, ...]) -> DataAttr:
    """The attribute of a small tensor: models repeat axes, bounds and sizes."""
    return DataAttr(HexAttr(elements), tensor_type(element, shape))


@irdl_attr_definition
class BlobAttr(ParametrizedAttribute):
    """
    A large tensor, by key: `#pg.blob<"3f2a..." : tensor<64x3x7x7xf32>>`.

    The elements are held by the `WeightStore` of the compilation.
    """

    name = "pg.blob"
    key: BytesAttr
    type: TensorType[Attribute]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(f'"{self.key.text}" : ')
            printer.print_attribute(self.type)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        with parser.in_angle_brackets():
            key = parser.parse_str_literal()
            parser.parse_punctuation(":")
            return [BytesAttr.of(key), parser.parse_type()]
