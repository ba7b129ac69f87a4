"""Maps IR types to C types."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import IndexType, IntegerType, MemRefType, NoneAttr, VectorType, i1
from xdsl.ir import Attribute

from popgraph.dialects import element_types
from popgraph.support.errors import UnsupportedError
from popgraph.support.memo import by_identity
from popgraph.support.shapes import Shape

_SPELLED = frozenset(
    (
        *("f32", "f64", "f16", "bf16", "c64", "c128"),
        *("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"),
    )
)
"""Element types with a C type of the same name in runtime.h; all others have a byte each."""


_MASK_BITS = 512
"""Size of the largest mask with lanes of 32 bits, a register of AVX-512."""


@dataclass(frozen=True)
class Element:
    """An element type in C."""

    name: str
    """The C type of a value in a variable."""
    kind: str
    """The column of the expression table: float, half, int, narrow, index, bool or none."""
    bits: int
    signed: bool = True
    half: str = ""
    """The name of the type in functions that convert it from and to f32."""
    used: int = 0
    """The number of low bits that a narrow integer uses."""

    @property
    def memory(self) -> str:
        """The C type of an element in memory; it may alias any other."""
        return "u8_memory" if self.kind == "bool" else f"{self.name}_memory"

    @property
    def unsigned(self) -> str:
        """The type in which sums wrap around instead of being undefined."""
        # C promotes narrower types to int, which 65535 * 65535 overflows.
        return f"u{max(self.bits, 32)}"

    def lane(self, count: int | None) -> str:
        """The C type of a lane; a vector of booleans is a mask of 0 and -1."""
        return f"i{self.lane_bits(count)}" if self.kind == "bool" else self.name

    def lane_bits(self, count: int | None) -> int:
        """Bits of a lane; masks of more than 16 lanes have narrow ones, as data of that many do."""
        if self.kind != "bool" or count is None:
            return self.bits
        return max(8, min(32, _MASK_BITS // count))


@by_identity
def element(type_: Attribute) -> Element:
    """The element type of a scalar, a vector or a memory type."""
    if isinstance(type_, VectorType | MemRefType):
        return element(type_.element_type)
    if isinstance(type_, IndexType):
        return Element("i64", "index", 64)
    if type_ == i1:
        return Element("bool", "bool", 8)
    try:
        dtype = element_types.from_ir(type_)
    except KeyError:
        raise UnsupportedError(f"C has no type for {type_}") from None
    bits, signed = dtype.numpy.itemsize * 8, not dtype.name.startswith("u")
    if dtype.name not in _SPELLED:  # a byte holds one; of an integer, the low bits count
        if dtype.is_float:
            return Element("u8", "half", bits, half=dtype.name)
        return Element("u8", "narrow", bits, signed, used=_width(type_))
    if dtype.name in ("f16", "bf16"):
        return Element(dtype.name, "half", bits, half=dtype.name)
    if dtype.name in ("f32", "f64"):
        return Element(dtype.name, "float", bits)
    if isinstance(type_, IntegerType):
        return Element(dtype.name, "int", bits, signed)
    return Element(dtype.name, "none", bits)


def _width(type_: Attribute) -> int:
    assert isinstance(type_, IntegerType)
    width: int = type_.width.data
    return width


@by_identity
def lanes(type_: Attribute) -> int | None:
    """The number of lanes of a vector type; None for scalars."""
    if not isinstance(type_, VectorType):
        return None
    shape = type_.get_shape()
    if len(shape) != 1 or shape[0] < 1 or shape[0] & (shape[0] - 1):
        raise UnsupportedError(
            f"C has no type for {type_}",
            hint="vectors have one dimension, and their length is a power of two",
        )
    return shape[0]


@by_identity
def value(type_: Attribute) -> str:
    """The C type of a variable that holds a value."""
    count = lanes(type_)
    found = element(type_)
    return found.name if count is None else f"{found.lane(count)}x{count}"


@by_identity
def vector_pointer(type_: Attribute) -> str:
    """The C type of a pointer to a vector in memory."""
    found = element(type_)
    lane = "u8" if found.kind == "bool" else found.name
    return f"{lane}x{lanes(type_)}_memory *"


@by_identity
def pointer(type_: Attribute) -> str:
    """The C type of a pointer to memory."""
    # Without `restrict`: gcc 12 would keep biases in registers across a micro-kernel and spill its
    # weights, 49 % of peak instead of 94 %.
    assert isinstance(type_, MemRefType)
    dense(type_)
    return f"{element(type_).memory} *"


@by_identity
def dense(type_: MemRefType[Attribute]) -> Shape:
    """The shape of row-major memory; kernels use no other memory."""
    shape = type_.get_shape()
    if not isinstance(type_.layout, NoneAttr) or (shape and min(shape) < 0):
        raise UnsupportedError(f"memory of type {type_} is not dense with a known shape")
    return shape
