"""How is a type of the IR spelled in C?"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from xdsl.dialects.builtin import IndexType, IntegerType, MemRefType, NoneAttr, VectorType, i1
from xdsl.ir import Attribute

from popgraph.dialects import element_types
from popgraph.support.errors import UnsupportedError
from popgraph.support.shapes import Shape

_OPAQUE = {1: "u8", 2: "u16"}
"""Element types without arithmetic (8 bits and less) are moved as these, by their size."""

_SPELLED = frozenset(
    (
        *("f32", "f64", "f16", "bf16", "c64", "c128"),
        *("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"),
    )
)
"""Element types with a C type of the same name in runtime.h."""


@dataclass(frozen=True)
class Element:
    """An element type as C sees it."""

    name: str
    """The C type of a value in a variable."""
    kind: str
    """Which column of the expression table it takes: float, half, int, index, bool or none."""
    bits: int
    signed: bool = True

    @property
    def memory(self) -> str:
        """The C type of an element in memory; it may alias any other."""
        return "u8_memory" if self.kind == "bool" else f"{self.name}_memory"

    @property
    def unsigned(self) -> str:
        """The type in which sums wrap around instead of being undefined."""
        return f"u{max(self.bits, 32)}"

    @property
    def lanes_name(self) -> str:
        """What a vector of it holds: a vector of booleans is a mask of 0 and -1."""
        return "i32" if self.kind == "bool" else self.name

    @property
    def lane_bits(self) -> int:
        return 32 if self.kind == "bool" else self.bits


@lru_cache(4096)
def element(type_: Attribute) -> Element:
    """The element type behind a scalar, a vector or a memory type."""
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
    bits = dtype.numpy.itemsize * 8
    if dtype.name not in _SPELLED:
        return Element(_OPAQUE[dtype.numpy.itemsize], "none", bits)
    if dtype.name in ("f16", "bf16"):
        return Element(dtype.name, "half", bits)
    if dtype.name in ("f32", "f64"):
        return Element(dtype.name, "float", bits)
    if isinstance(type_, IntegerType):
        return Element(dtype.name, "int", bits, signed=dtype.name.startswith("i"))
    return Element(dtype.name, "none", bits)


def lanes(type_: Attribute) -> int | None:
    """How many lanes a vector type has; None for scalars."""
    if not isinstance(type_, VectorType):
        return None
    shape = type_.get_shape()
    if len(shape) != 1 or shape[0] < 1 or shape[0] & (shape[0] - 1):
        raise UnsupportedError(
            f"C has no type for {type_}",
            hint="vectors have one dimension, and their length is a power of two",
        )
    return shape[0]


@lru_cache(4096)
def value(type_: Attribute) -> str:
    """The C type of a variable that holds a value."""
    count = lanes(type_)
    found = element(type_)
    return found.name if count is None else f"{found.lanes_name}x{count}"


@lru_cache(4096)
def vector_pointer(type_: Attribute) -> str:
    """The C type of a pointer to a vector in memory."""
    found = element(type_)
    lane = "u8" if found.kind == "bool" else found.name
    return f"{lane}x{lanes(type_)}_memory *"


def pointer(type_: Attribute) -> str:
    """The C type of a pointer to memory."""
    assert isinstance(type_, MemRefType)
    dense(type_)
    return f"{element(type_).memory} *"


def dense(type_: MemRefType[Attribute]) -> Shape:
    """The shape of row-major memory; other memory has no place in a kernel."""
    shape = type_.get_shape()
    if not isinstance(type_.layout, NoneAttr) or (shape and min(shape) < 0):
        raise UnsupportedError(f"memory of type {type_} is not dense with a known shape")
    return shape
