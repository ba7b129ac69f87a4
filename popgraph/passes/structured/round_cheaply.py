"""Rounds to small whole numbers with fewer operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, IntegerType, ModuleOp, f32, i32
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.transforms.dead_code_elimination import is_trivially_dead

from popgraph.passes.base import Compilation, Pass
from popgraph.passes.options import Options
from popgraph.passes.structured.analysis.quotients import Reciprocal
from popgraph.support.tuning import Target

_LARGEST = 2**22
"""Whole numbers up to here, and sums and differences of two of them, are exact in f32."""


@dataclass(frozen=True)
class RoundCheaply(Pass):
    """
    cast (clip (round (x / s) + z))  ->  cast (round (clip (x * (1 / s)))) + z

    The zero z joins one that is taken away again, and numbers that are read as f32 stay f32 in
    between. The quotient is a product with the two halves of 1 / s where the pass finds, number by
    number, that both are rounded alike.
    """

    name = "round-cheaply"
    target: Target = Target()

    @classmethod
    def of(cls, options: Options) -> RoundCheaply:
        return cls(options.target)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        changed: dict[Block, None] = {}
        for op in list(module.walk()):
            found = Rounding.ending_in(op) if isinstance(op, arith.MinimumfOp) else None
            if found is not None and op.parent is not None:
                _Writer(found, self.target.machine.fuses_multiply_add).write()
                changed[op.parent] = None
        for block in changed:
            _erase_unread(block)


def _erase_unread(block: Block) -> None:
    for op in reversed(list(block.ops)):
        if is_trivially_dead(op):
            Rewriter.erase_op(op)


@dataclass(frozen=True)
class Rounding:
    """`clip (round x + zero, low, high)`, with whole numbers for the last three."""

    round: math.RoundEvenOp
    zero: int
    low: int
    high: int
    end: arith.MinimumfOp

    @staticmethod
    def ending_in(end: arith.MinimumfOp) -> Rounding | None:
        chosen, high = end.lhs.owner, _whole(end.rhs)
        if not isinstance(chosen, arith.SelectOp) or not end.lhs.has_one_use():
            return None
        above, low = chosen.cond.owner, _whole(chosen.rhs)
        if not isinstance(above, arith.CmpfOp) or above.predicate.value.data != _OGT:
            return None
        moved = chosen.lhs
        if (
            above.lhs is not moved
            or _whole(above.rhs) != low
            or set(_readers(moved)) != {chosen, above}
        ):
            return None
        zero: int | None = 0
        rounded = moved.owner
        if isinstance(rounded, arith.AddfOp) and rounded.lhs.has_one_use():
            zero, rounded = _whole(rounded.rhs), rounded.lhs.owner
        if not isinstance(rounded, math.RoundEvenOp) or zero is None or low is None:
            return None
        if high is None or max(abs(low), abs(high), abs(zero)) > _LARGEST or low > high:
            return None
        return Rounding(rounded, zero, low, high, end)


_OGT = arith.CMPF_COMPARISON_OPERATIONS.index("ogt")
"""The predicate of a comparison that no NaN passes."""


def _readers(value: SSAValue) -> list[Operation]:
    return list(dict.fromkeys(use.operation for use in value.uses))


def _number(value: SSAValue) -> float | None:
    """A constant of f32."""
    op = value.owner
    if isinstance(op, arith.ConstantOp) and isinstance(op.value, FloatAttr) and value.type == f32:
        return op.value.value.data
    return None


def _whole(value: SSAValue) -> int | None:
    """A constant that is a whole number."""
    op = value.owner
    if isinstance(op, arith.ConstantOp) and isinstance(op.value, IntegerAttr):
        return op.value.value.data
    number = _number(value)
    return int(number) if number is not None and number.is_integer() else None


_Plus: TypeAlias = Callable[[int], SSAValue]
_Sum: TypeAlias = arith.AddfOp | arith.AddiOp
_Constant: TypeAlias = FloatAttr | IntegerAttr


class _Writer:
    """Writes a rounding anew."""

    def __init__(self, found: Rounding, fuses: bool) -> None:
        self._found, self._fuses = found, fuses
        self._place = InsertPoint.before(found.end)
        self._low, self._high = found.low - found.zero, found.high - found.zero
        self._rounded = self._clipped_and_rounded()
        self._whole: SSAValue | None = None
        self._sums: dict[tuple[type[_Sum], _Constant], SSAValue] = {}

    def write(self) -> None:
        end = self._found.end.result
        for reader in _readers(end):
            if isinstance(reader, arith.FPToSIOp) and isinstance(reader.result.type, IntegerType):
                self._store(reader)
        self._replace(end, self._plus_in_f32)

    def _store(self, cast: arith.FPToSIOp) -> None:
        """Writes a cast to few bits anew, and whoever reads it."""
        for seen, signed in list(_seen(cast)):
            for reader in _readers(seen):
                self._reread(reader, signed)
        if cast.result.uses:
            cast.result.replace_all_uses_with(self._in_bits_of(cast.result.type))
        Rewriter.erase_op(cast)

    def _in_bits_of(self, type_: Attribute) -> SSAValue:
        """The number as an integer of another type."""
        number = self._plus(self._found.zero)
        assert isinstance(type_, IntegerType)
        if type_ == i32:
            return number
        other = arith.TruncIOp if type_.width.data < i32.width.data else arith.ExtSIOp
        return self._add(other(number, type_))

    def _add(self, op: Operation) -> SSAValue:
        Rewriter.insert_op(op, self._place)
        return op.results[0]

    def _constant(self, number: float) -> SSAValue:
        return self._add(arith.ConstantOp(FloatAttr(float(number), f32)))

    # the rounding itself

    def _clipped_and_rounded(self) -> SSAValue:
        """A number within bounds that are whole numbers is one after it is rounded, too."""
        value, low = self._quotient(), self._constant(self._low)
        above = self._add(arith.CmpfOp(value, low, "ogt"))
        chosen = self._add(arith.SelectOp(above, value, low))
        clipped = self._add(arith.MinimumfOp(chosen, self._constant(self._high)))
        return self._add(math.RoundEvenOp(clipped))

    def _quotient(self) -> SSAValue:
        value = self._found.round.operand
        division = value.owner
        if not self._fuses or not isinstance(division, arith.DivfOp) or not value.has_one_use():
            return value
        divisor = _number(division.rhs)
        found = None if divisor is None else Reciprocal.of(divisor, self._low, self._high)
        if found is None:
            return value
        high = self._constant(found.high)
        if not found.low:
            return self._add(arith.MulfOp(division.lhs, high))
        rest = self._add(arith.MulfOp(division.lhs, self._constant(found.low)))
        return self._add(math.FmaOp(division.lhs, high, rest))

    # its readers

    def _reread(self, reader: Operation, signed: bool) -> None:
        """Has a reader take the number as it was before it was stored in few bits."""
        floats = arith.SIToFPOp if signed else arith.UIToFPOp
        wide = arith.ExtSIOp if signed else arith.ExtUIOp
        if not isinstance(reader, floats | wide) or not self._holds(reader.operands[0], signed):
            return
        result = reader.results[0]
        if isinstance(reader, floats) and result.type == f32:
            self._replace(result, self._plus_in_f32)
        elif isinstance(reader, wide) and result.type == i32:
            self._replace(result, self._plus)

    def _holds(self, stored: SSAValue, signed: bool) -> bool:
        """Whether the bits hold all that the rounding gives."""
        assert isinstance(stored.type, IntegerType)
        bits = stored.type.width.data - signed
        return (-(2**bits) if signed else 0) <= self._found.low and self._found.high < 2**bits

    def _replace(self, value: SSAValue, plus: _Plus) -> None:
        """Has whoever reads a value read another one, and what moves it by constants, too."""
        for reader in _readers(value):
            moved = _moved_by(reader, value)
            if moved is not None:
                reader.results[0].replace_all_uses_with(plus(self._found.zero + moved))
                Rewriter.erase_op(reader)
        if value.uses:
            value.replace_all_uses_with(plus(self._found.zero))

    def _plus_in_f32(self, number: int) -> SSAValue:
        """The rounded number and a whole one; a zero takes the sign from what is rounded to -0."""
        if number == 0 and self._low >= 0:
            return self._rounded
        return self._once(arith.AddfOp, self._rounded, FloatAttr(float(number), f32))

    def _plus(self, number: int) -> SSAValue:
        if self._whole is None:
            self._whole = self._add(arith.FPToSIOp(self._rounded, i32))
        if number == 0:
            return self._whole
        return self._once(arith.AddiOp, self._whole, IntegerAttr(number, i32))

    def _once(self, kind: type[_Sum], value: SSAValue, constant: _Constant) -> SSAValue:
        if (kind, constant) not in self._sums:
            other = self._add(arith.ConstantOp(constant))
            self._sums[kind, constant] = self._add(kind(value, other))
        return self._sums[kind, constant]


def _seen(cast: arith.FPToSIOp) -> Iterator[tuple[SSAValue, bool]]:
    """The stored number, and the same bits under other types, each with and without a sign."""
    waiting: list[SSAValue] = [cast.result]
    while waiting:
        value = waiting.pop()
        yield value, True
        yield value, False
        waiting += [
            use.operation.results[0]
            for use in value.uses
            if isinstance(use.operation, arith.BitcastOp)
        ]


def _moved_by(reader: Operation, value: SSAValue) -> int | None:
    """By how much a reader moves a value, if it only does that and by a constant."""
    if (
        not isinstance(reader, arith.SubfOp | arith.AddiOp | arith.SubiOp)
        or reader.lhs is not value
    ):
        return None
    number = _whole(reader.rhs)
    if number is None or abs(number) > _LARGEST:
        return None
    return number if isinstance(reader, arith.AddiOp) else -number
