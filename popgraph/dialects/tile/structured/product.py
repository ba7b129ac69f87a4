"""Bodies of contractions: they add the product of two operands to a sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import (
    AnyFloat,
    ArrayAttr,
    BFloat16Type,
    Float16Type,
    FloatAttr,
    IntegerAttr,
    StringAttr,
    TensorType,
    UnitAttr,
    f32,
)
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue
from xdsl.irdl import IRDLOperation
from xdsl.irdl.declarative_assembly_format import (
    AttributeVariable,
    CustomDirective,
    ParsingState,
    PrintingState,
    RegionVariable,
    TypeDirective,
    VariadicOperandVariable,
    irdl_custom_directive,
)
from xdsl.parser import Parser
from xdsl.printer import Printer

from popgraph.dialects.element_types import words_accumulator
from popgraph.dialects.tile.lanes import DotOp
from popgraph.dialects.tile.scalars import widening, widens
from popgraph.dialects.tile.structured.ops import IndexOp, YieldOp


@dataclass(frozen=True)
class Product:
    """
    The body of a contraction: `sum + f(left) * g(right)`.

    With `words`, it adds the dot product of the numbers in both packed words. If it is `fused`, it
    rounds once, as `math.fma` does, whatever the machine.
    """

    factors: tuple[SSAValue, SSAValue]
    """`f(left)` and `g(right)`, each computed from one argument of the body alone."""
    words: StringAttr | None = None
    fused: bool = False


def product_of(body: Block) -> Product | None:
    """The product that a body adds to its last argument; None for any other body."""
    if len(body.args) != 3 or body.last_op is None or len(body.last_op.operands) != 1:
        return None
    lhs, rhs, total = body.args
    found: Product | None = None
    match body.last_op.operands[0].owner:
        case DotOp(lhs=left, rhs=right, total=before, words=words) if before is total:
            found = Product((left, right), words)
        case math.FmaOp(a=left, b=right, c=before) if before is total:
            found = Product((left, right), fused=True)
        case arith.AddfOp() | arith.AddiOp() as added if added.operands[0] is total:
            made = added.operands[1].owner
            if isinstance(made, arith.MulfOp | arith.MuliOp):
                left, right = made.operands
                found = Product((left, right))
    if found is None or not total.has_one_use():
        return None
    # Each operand gets a body of its own (`factor_body`), so it may use its element alone.
    both = zip(found.factors, (lhs, rhs), strict=True)
    return found if all(_is_made_of(value, element) for value, element in both) else None


def _is_made_of(value: SSAValue, element: BlockArgument) -> bool:
    """Whether a value is computed only from an element, constants and indices."""
    if isinstance(value.owner, Block):
        return value is element
    return all(_is_made_of(operand, element) for operand in value.owner.operands)


def factor_body(
    value: SSAValue, element: BlockArgument, loop: Callable[[int], int]
) -> Block | None:
    """A separate body that computes an operand; None if it is the element itself."""
    if value is element:
        return None
    body = Block(arg_types=[element.type])
    body.add_op(YieldOp(copied(body, value, {element: body.args[0]}, loop)))
    return body


def copied(
    body: Block, value: SSAValue, values: dict[SSAValue, SSAValue], loop: Callable[[int], int]
) -> SSAValue:
    """
    Copies a value, with the operations that compute it, to the end of another body.

    `values` maps arguments to their replacements; indices along `dim` become those along
    `loop(dim)`.
    """
    for op in _makers(value):
        if isinstance(op, IndexOp):
            index = IndexOp(loop(op.dim.value.data))
            body.add_op(index)
            values[op.result] = index.result
        else:
            body.add_op(op.clone(value_mapper=values))
    return values[value]


def _makers(value: SSAValue) -> list[Operation]:
    """The operations that compute a value, in order."""
    needed, found = {value}, []
    last = value.owner if isinstance(value.owner, Operation) else None
    while last is not None:
        if not needed.isdisjoint(last.results):
            found.append(last)
            needed.update(last.operands)
        last = last.prev_op
    return found[::-1]


def accumulator_type(factor: Attribute, words: StringAttr | None = None) -> Attribute:
    """The accumulator type: f16 and bf16 accumulate in f32."""
    if words is not None:
        return words_accumulator(words.data)
    return f32 if isinstance(factor, Float16Type | BFloat16Type) else factor


def zero_of(kind: Attribute) -> Attribute:
    """The initial value of sums of a type."""
    return FloatAttr(0.0, kind) if isinstance(kind, AnyFloat) else IntegerAttr(0, kind)  # type: ignore[call-overload]


def product_body(
    kinds: Sequence[Attribute], words: StringAttr | None = None, *, fused: bool = False
) -> Region:
    """The body `sum + left * right` for element types and a sum type, or a dot product of words."""
    body = Block(arg_types=kinds)
    left, right, total = body.args
    with ImplicitBuilder(body):
        if words is not None:
            YieldOp(DotOp(words, left, right, total))
        else:
            lhs, rhs = (_widened(value, total.type) for value in (left, right))
            if fused:
                YieldOp(math.FmaOp(lhs, rhs, total))
            elif isinstance(total.type, AnyFloat):
                YieldOp(arith.AddfOp(total, arith.MulfOp(lhs, rhs)))
            else:
                YieldOp(arith.AddiOp(total, arith.MuliOp(lhs, rhs)))
    return Region(body)


def _widened(value: SSAValue, kind: Attribute) -> SSAValue | Operation:
    """A value converted to a type if its own is narrower."""
    return value if value.type == kind else widening(value, kind)


@irdl_custom_directive
class FoldDirective(CustomDirective):
    """
    The text form of a reduction's initial values and body: `initial [0.0 : f32] { ... }`.

    A contraction has `product` instead of `initial`. `product f32`, `fused f32` and
    `dot "u8i8" i32` abbreviate `product_body` of that sum type, with the initial value zero.
    """

    contracts: AttributeVariable
    initial: AttributeVariable
    body: RegionVariable
    inputs: TypeDirective

    def parse(self, parser: Parser, state: ParsingState) -> None:
        words, fused = None, False
        if parser.parse_optional_keyword("initial"):
            initial = parser.parse_attribute()
        else:
            self.contracts.set(state, UnitAttr())
            if parser.parse_optional_keyword("dot"):
                words = StringAttr(parser.parse_str_literal())
            elif parser.parse_optional_keyword("fused"):
                fused = True
            else:
                parser.parse_keyword("product")
            initial = parser.parse_attribute()
        if isinstance(initial, ArrayAttr):
            self.initial.set(state, initial)
            self.body.set(state, parser.parse_region())
            return
        assert isinstance(self.inputs.inner, VariadicOperandVariable)
        types = state.operand_types[self.inputs.inner.index] or ()
        kinds = [type_.element_type for type_ in types if isinstance(type_, TensorType)]
        if len(kinds) != 2:
            parser.raise_error(f"a product needs 2 inputs, not {len(kinds)}")
        self.initial.set(state, ArrayAttr([zero_of(initial)]))
        self.body.set(state, product_body([*kinds, initial], words, fused=fused))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        state.print_whitespace(printer)
        initial, body = self.initial.get(op), self.body.get(op)
        assert initial is not None, "it is required"
        found = product_of(body.block) if self.contracts.get(op) else None
        if found is not None and _is_plain(found, body, initial):
            word = "fused" if found.fused else "product"
            word = word if found.words is None else f'dot "{found.words.data}"'
            printer.print_string(f"{word} ")
            printer.print_attribute(body.block.args[-1].type)
            return
        printer.print_string("product " if self.contracts.get(op) else "initial ")
        printer.print_attribute(initial)
        printer.print_string(" ")
        printer.print_region(body)


def _is_plain(found: Product, body: Region, initial: Attribute) -> bool:
    """Whether a body multiplies unmodified elements, and its sums start at zero."""
    kinds = [argument.type for argument in body.block.args]
    if found.words is None and not all(widens(kind, kinds[-1]) for kind in kinds):
        return False  # Integers are extended by their sign or without it, so the text says which.
    written = product_body(kinds, found.words, fused=found.fused)
    return initial == ArrayAttr([zero_of(kinds[-1])]) and body.is_structurally_equivalent(written)
