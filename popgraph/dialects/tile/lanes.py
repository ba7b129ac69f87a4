"""Operations of kernels that stock dialects lack: on vector lanes, remainders, random words."""

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

from popgraph.dialects.element_types import words_accumulator
from popgraph.support.arrays import Array
from popgraph.support.words import WORDS


@functools.cache
def vector_of(element: Attribute, lanes: int) -> VectorType:
    """A cached vector type (measured: 0.15 us, construction 59 us, since xDSL verifies it)."""
    return VectorType(element, [lanes])


def mask_type(value: SSAValue) -> VectorType:
    """The type of a mask: one bool per lane of a vector."""
    assert isinstance(value.type, VectorType)
    return VectorType(i1, value.type.get_shape())


@irdl_op_definition
class CompareOp(IRDLOperation):
    """
    `arith.cmpf` or `arith.cmpi` on each lane; `predicate` is the number of their predicate.

    xDSL defines their result as a scalar i1.
    """

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
            raise VerifyException("a comparison must have one bool per lane as its result")


@irdl_op_definition
class SelectOp(IRDLOperation):
    """`arith.select` on each lane of vectors; xDSL defines its condition as a scalar i1."""

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
            raise VerifyException("a condition must have one bool per lane")


CONVERSIONS = frozenset(
    f"arith.{name}"
    for name in ("index_cast", "sitofp", "uitofp", "fptosi", "fptoui", "extsi", "extui", "trunci")
)
"""The stock conversions that accept no vectors."""


@irdl_op_definition
class ConvertOp(IRDLOperation):
    """A stock conversion by name, on each lane of a vector: `tile.convert "arith.sitofp"`."""

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
            raise VerifyException(f"{self.conversion} is not a conversion")
        if mask_type(self.operand) != mask_type(self.result):
            raise VerifyException("a conversion must keep the number of lanes")


def _verify_floats(op: Operation, type_: Attribute) -> None:
    if not isinstance(type_.element_type if isinstance(type_, VectorType) else type_, AnyFloat):
        raise VerifyException(f"{op.name} requires floats, not {type_}")


@irdl_op_definition
class RemainderOp(IRDLOperation):
    """lhs - trunc(lhs / rhs) * rhs of floats, exact: C's fmod; on vectors, lane by lane."""

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
        _verify_floats(self, self.result.type)


@irdl_op_definition
class ExpNonpositiveOp(IRDLOperation):
    """e^x of x <= 0: the bits of `math.exp` where x <= 40, unspecified above; on vectors, too."""

    T: ClassVar = VarConstraint("T", AnyAttr())
    name = "tile.exp_nonpositive"
    operand = operand_def(T)
    result = result_def(T)
    traits = traits_def(Pure())
    assembly_format = "$operand attr-dict `:` type($result)"

    def __init__(self, operand: SSAValue | Operation) -> None:
        super().__init__(operands=[operand], result_types=[SSAValue.get(operand).type])

    def verify_(self) -> None:
        _verify_floats(self, self.result.type)


@irdl_op_definition
class ThreefryOp(IRDLOperation):
    """
    Random words as a function of key and counter (`support/threefry.py`); on vectors, lane by lane.

    An i32 result is the first word, an i64 both, with the first one in the low half.
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
                "key and counter must be i64, and the result i32 or i64, with equal lanes"
            )


def _lanes(type_: Attribute) -> tuple[Attribute, int]:
    """The element type of a vector and its number of lanes; 0 for a scalar."""
    if isinstance(type_, VectorType):
        return type_.element_type, int(np.prod(type_.get_shape()))
    return type_, 0


@irdl_op_definition
class DotOp(IRDLOperation):
    """
    total + dot product of the small numbers in two packed words; on vectors, lane by lane.

    `words` names the packing; see `support/words.py`.
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
            raise VerifyException(
                f"unknown packed words {self.words}: use one of {', '.join(WORDS)}"
            )
        (words, lanes), (sums, count) = map(_element_and_lanes, (self.lhs.type, self.result.type))
        if words != i32:
            raise VerifyException(f"packed words must be i32, not {words}")
        if sums != words_accumulator(self.words.data) or lanes != count:
            raise VerifyException(f"words {self.words} cannot accumulate in {self.result.type}")


@irdl_op_definition
class SumPairsOp(IRDLOperation):
    """
    The sum of both 16-bit numbers of a word, after those of `offset` are added, which wraps.

    On vectors, lane by lane. It finishes sums of `tile.dot "u8i8_i16"`.
    """

    T: ClassVar = VarConstraint("T", AnyAttr())
    name = "tile.sum_pairs"
    pairs = operand_def(T)
    offset = operand_def(T)
    result = result_def(T)
    traits = traits_def(Pure())
    assembly_format = "$pairs `,` $offset attr-dict `:` type($result)"

    def __init__(self, pairs: SSAValue | Operation, offset: SSAValue | Operation) -> None:
        super().__init__(operands=[pairs, offset], result_types=[SSAValue.get(pairs).type])

    def verify_(self) -> None:
        if _element_and_lanes(self.result.type)[0] != i32:
            raise VerifyException(f"pairs of 16-bit numbers must be i32, not {self.result.type}")


def _element_and_lanes(type_: Attribute) -> tuple[Attribute, int]:
    """The element type of a vector and its number of lanes; 0 for a scalar."""
    if isinstance(type_, VectorType):
        return type_.element_type, type_.get_shape()[0]
    return type_, 0


@irdl_op_definition
class PickOp(IRDLOperation):
    """
    A lookup in a small table of f32 `numbers`, by the low bits of an index; or lane by lane.

    The table has 2^n entries.
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
            raise VerifyException(f"a table must have a power of two entries, not {count}")
        if any(number.type != Float32Type() for number in self.numbers):
            raise VerifyException("table entries must be f32")

    def of(self, index: Any) -> Any:
        """The table entries at `index`."""
        return f32_numbers(self.numbers)[index & (len(self.numbers) - 1)]


def f32_numbers(numbers: ArrayAttr[FloatAttr]) -> Array:
    return np.array([number.value.data for number in numbers], np.float32)


@irdl_op_definition
class ApartOp(IRDLOperation):
    """Whether two memories are different; either they are the same one or they do not overlap."""

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
    Prefetches the cache line of an element that is read later, or `written`. It has no effect.

    The element may be beyond the end of the memory: the prefetch is then ignored.
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
