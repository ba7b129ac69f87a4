"""The operations that stock dialects lack in kernels: of lanes, remainders, random words."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import numpy as np
from xdsl.dialects.builtin import (
    AnyFloat,
    ArrayAttr,
    Float32Type,
    FloatAttr,
    IndexType,
    IntegerAttr,
    MemRefType,
    StringAttr,
    UnitAttr,
    VectorType,
    i1,
    i32,
    i64,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    AnyAttr,
    IRDLOperation,
    VarConstraint,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.element_types import of_sums
from popgraph.support.arrays import Array
from popgraph.support.words import WORDS


@functools.cache
def vector_of(element: Attribute, lanes: int) -> VectorType:
    """A type of vectors, made once: xDSL checks every attribute that is made."""
    return VectorType(element, [lanes])


def mask_type(value: SSAValue) -> VectorType:
    """A boolean for every lane of a vector."""
    assert isinstance(value.type, VectorType)
    return VectorType(i1, value.type.get_shape())


@irdl_op_definition
class CompareOp(IRDLOperation):
    """`arith.cmpf` or `arith.cmpi` on vectors, lane by lane, with the numbers of its predicates."""

    T: ClassVar = VarConstraint("T", VectorType.constr(AnyAttr()))
    name = "tile.compare"
    predicate = prop_def(IntegerAttr)
    lhs = operand_def(T)
    rhs = operand_def(T)
    result = result_def(VectorType)
    traits = traits_def(Pure())
    assembly_format = "$predicate $lhs `,` $rhs attr-dict `:` type($lhs) `->` type($result)"

    def __init__(self, predicate: int, lhs: SSAValue | Operation, rhs: SSAValue) -> None:
        super().__init__(
            operands=[lhs, rhs],
            properties={"predicate": IntegerAttr(predicate, i64)},
            result_types=[mask_type(SSAValue.get(lhs))],
        )

    def verify_(self) -> None:
        if self.result.type != mask_type(self.lhs):
            raise VerifyException("a comparison gives a boolean per lane")


@irdl_op_definition
class SelectOp(IRDLOperation):
    """`arith.select` on vectors, lane by lane."""

    T: ClassVar = VarConstraint("T", VectorType.constr(AnyAttr()))
    name = "tile.select"
    condition = operand_def(VectorType)
    lhs = operand_def(T)
    rhs = operand_def(T)
    result = result_def(T)
    traits = traits_def(Pure())
    assembly_format = "$condition `,` $lhs `,` $rhs attr-dict `:` type($condition) `,` type($lhs)"

    def __init__(self, condition: SSAValue, lhs: SSAValue, rhs: SSAValue) -> None:
        super().__init__(operands=[condition, lhs, rhs], result_types=[lhs.type])

    def verify_(self) -> None:
        if self.condition.type != mask_type(self.lhs):
            raise VerifyException("a condition has a boolean per lane")


CONVERSIONS = frozenset(
    f"arith.{name}"
    for name in ("index_cast", "sitofp", "uitofp", "fptosi", "fptoui", "extsi", "extui", "trunci")
)
"""The stock conversions that have no form for vectors."""


@irdl_op_definition
class ConvertOp(IRDLOperation):
    """A stock conversion, here named, on vectors: `tile.convert "arith.sitofp"`, lane by lane."""

    name = "tile.convert"
    conversion = prop_def(StringAttr)
    operand = operand_def(VectorType)
    result = result_def(VectorType)
    traits = traits_def(Pure())
    assembly_format = "$conversion $operand attr-dict `:` type($operand) `->` type($result)"

    def __init__(self, conversion: str, operand: SSAValue, result: VectorType) -> None:
        super().__init__(
            operands=[operand],
            properties={"conversion": StringAttr(conversion)},
            result_types=[result],
        )

    def verify_(self) -> None:
        if self.conversion.data not in CONVERSIONS:
            raise VerifyException(f"{self.conversion} is no conversion")
        if mask_type(self.operand) != mask_type(self.result):
            raise VerifyException("a conversion keeps the number of lanes")


@irdl_op_definition
class RemainderOp(IRDLOperation):
    """What is left of lhs after division by rhs, exact: C's fmod of floats, or lane by lane."""

    T: ClassVar = VarConstraint("T", AnyAttr())
    name = "tile.remainder"
    lhs = operand_def(T)
    rhs = operand_def(T)
    result = result_def(T)
    traits = traits_def(Pure())
    assembly_format = "$lhs `,` $rhs attr-dict `:` type($result)"

    def __init__(self, lhs: SSAValue | Operation, rhs: SSAValue | Operation) -> None:
        super().__init__(operands=[lhs, rhs], result_types=[SSAValue.get(lhs).type])

    def verify_(self) -> None:
        type_ = self.result.type
        if not isinstance(type_.element_type if isinstance(type_, VectorType) else type_, AnyFloat):
            raise VerifyException(f"a remainder is one of floats, not of {type_}")


@irdl_op_definition
class ThreefryOp(IRDLOperation):
    """
    Random words, a function of a key and a counter: see `support/threefry.py`. Or lane by lane.

    An i32 is the first word alone, an i64 both, the first one in the low half.
    """

    T: ClassVar = VarConstraint("T", AnyAttr())
    name = "tile.threefry"
    key = operand_def(T)
    counter = operand_def(T)
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = "$key `,` $counter attr-dict `:` type($key) `->` type($result)"

    def __init__(
        self, key: SSAValue | Operation, counter: SSAValue | Operation, to: Attribute
    ) -> None:
        super().__init__(operands=[key, counter], result_types=[to])

    def verify_(self) -> None:
        given, made = (_lanes(value.type) for value in (self.key, self.result))
        if given[1] != made[1] or given[0] != i64 or made[0] not in (i32, i64):
            raise VerifyException(
                "random words are an i32 or an i64, made of a key and a counter that are i64"
            )


def _lanes(type_: Attribute) -> tuple[Attribute, int]:
    """The elements of a vector, and how many; of a scalar, 0."""
    if isinstance(type_, VectorType):
        return type_.element_type, int(np.prod(type_.get_shape()))
    return type_, 0


@irdl_op_definition
class DotOp(IRDLOperation):
    """
    A sum to which the products of what two words hold are added, of scalars or lane by lane.

    `words` names what they hold; see `support/words.py`.
    """

    T: ClassVar = VarConstraint("T", AnyAttr())
    W: ClassVar = VarConstraint("W", AnyAttr())
    name = "tile.dot"
    words = prop_def(StringAttr)
    lhs = operand_def(W)
    rhs = operand_def(W)
    total = operand_def(T)
    result = result_def(T)
    traits = traits_def(Pure())
    assembly_format = "$words $lhs `,` $rhs `,` $total attr-dict `:` type($lhs) `->` type($result)"

    def __init__(
        self,
        words: StringAttr,
        lhs: SSAValue | Operation,
        rhs: SSAValue | Operation,
        total: SSAValue | Operation,
    ) -> None:
        super().__init__(
            operands=[lhs, rhs, total],
            properties={"words": words},
            result_types=[SSAValue.get(total).type],
        )

    def verify_(self) -> None:
        if self.words.data not in WORDS:
            raise VerifyException(f"there are no words {self.words}, only {', '.join(WORDS)}")
        (words, lanes), (sums, count) = map(_apart, (self.lhs.type, self.result.type))
        if words != i32:
            raise VerifyException(f"words are of type i32, not {words}")
        if sums != of_sums(self.words.data) or lanes != count:
            raise VerifyException(f"words {self.words} are not summed as {self.result.type}")


def _apart(type_: Attribute) -> tuple[Attribute, int]:
    """The type of an element, and how many lanes a vector has; 0 of a scalar."""
    if isinstance(type_, VectorType):
        return type_.element_type, type_.get_shape()[0]
    return type_, 0


@irdl_op_definition
class PickOp(IRDLOperation):
    """
    One of a few f32 `numbers`, which the lowest bits of an index choose, or lane by lane.

    There are as many as a power of two.
    """

    name = "tile.pick"
    numbers = prop_def(ArrayAttr[FloatAttr])
    index = operand_def()
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = "$numbers `[` $index `]` attr-dict `:` type($index) `->` type($result)"

    def __init__(self, numbers: ArrayAttr[FloatAttr], index: SSAValue | Operation) -> None:
        super().__init__(
            operands=[index], properties={"numbers": numbers}, result_types=[Float32Type()]
        )

    def verify_(self) -> None:
        count = len(self.numbers)
        if count & (count - 1) or not count:
            raise VerifyException(f"{count} numbers are no power of two")
        if any(number.type != Float32Type() for number in self.numbers):
            raise VerifyException("numbers are of type f32")

    def of(self, index: Any) -> Any:
        """The numbers that indices choose."""
        return f32_numbers(self.numbers)[index & (len(self.numbers) - 1)]


def f32_numbers(numbers: ArrayAttr[FloatAttr]) -> Array:
    return np.array([number.value.data for number in numbers], np.float32)


@irdl_op_definition
class ApartOp(IRDLOperation):
    """Whether two memories are apart, and not one and the same; they never overlap in part."""

    name = "tile.apart"
    lhs = operand_def(MemRefType)
    rhs = operand_def(MemRefType)
    result = result_def(i1)
    traits = traits_def(Pure())
    assembly_format = "$lhs `,` $rhs attr-dict `:` type($lhs) `,` type($rhs)"

    def __init__(self, lhs: SSAValue, rhs: SSAValue) -> None:
        super().__init__(operands=[lhs, rhs], result_types=[i1])


@irdl_op_definition
class PrefetchOp(IRDLOperation):
    """
    Asks for an element of a memory that will be read later, or `written`. It changes nothing.

    The element may be behind the end of the memory: then nothing has to come.
    """

    name = "tile.prefetch"
    memory = operand_def(MemRefType)
    index = operand_def(IndexType)
    written = opt_prop_def(UnitAttr)
    assembly_format = "$memory `[` $index `]` (`written` $written^)? attr-dict `:` type($memory)"

    def __init__(self, memory: SSAValue, index: SSAValue, *, written: bool = False) -> None:
        super().__init__(
            operands=[memory, index], properties={"written": UnitAttr() if written else None}
        )
