"""
Constructs operations without verification, for kernels that hold thousands of them.

The only place that links operations to operands and blocks itself: how is private to xDSL.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import pairwise
from typing import TypeAlias, TypeVar

from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    UNKNOWN_LOC,
    AnyFloat,
    FloatAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
)
from xdsl.ir import Attribute, Block, Operation, OpResult, Region, SSAValue, SSAValues, Use

Made = TypeVar("Made", bound=Operation)


def create_unchecked(
    kind: type[Made],
    *operands: SSAValue,
    types: Sequence[Attribute] = (),
    regions: Sequence[Region] = (),
    **properties: Attribute,
) -> Made:
    """
    Creates an operation without checks.

    The checks of constructors take three times as long as all the rest. `Operation.create` takes
    twice as long as this: it looks up the defaults of the kind and builds empty successors, for
    each of the 30,000 operations in the kernels of GoogLeNet.
    """
    default_properties, default_attributes = _defaults(kind)
    for name, value in default_properties:
        properties.setdefault(name, value)
    op = kind.__new__(kind)
    _link(op, operands)
    op.results = SSAValues([OpResult(type_, op, number) for number, type_ in enumerate(types)])
    op.properties = properties
    op.attributes = dict(default_attributes)
    op.location = UNKNOWN_LOC
    for region in regions:
        op.add_region(region)
    return op


def copy_of(op: Operation, operands: Sequence[SSAValue]) -> Operation:
    """A copy of an operation with other operands."""
    types = [result.type for result in op.results]
    made = create_unchecked(type(op), *operands, types=types, regions=(), **op.properties)
    if op.attributes:
        made.attributes.update(op.attributes)
    return made


def _link(op: Operation, operands: Sequence[SSAValue]) -> None:
    """
    Gives a new operation its operands.

    `op.operands = operands` takes twice as long: it also unlinks earlier ones.
    """
    op._operands = SSAValues(operands)
    op._operand_uses = uses = tuple([Use(op, number) for number in range(len(operands))])
    for operand, use in zip(operands, uses, strict=True):
        operand.add_use(use)


def operands_of(op: Operation) -> tuple[SSAValue, ...]:
    """The operands of an operation, without the mutable list that `op.operands` creates."""
    return op._operands


def fill(block: Block, operations: Sequence[Operation]) -> None:
    """
    Moves new operations into an empty block.

    `Block.add_ops` takes four times as long: for each operation it checks all ancestors.
    """
    for op in operations:
        op.parent = block
    _chain(block, operations)


def refill(block: Block, operations: Sequence[Operation]) -> None:
    """Replaces the operations of a block, which may keep some, in this order."""
    for op in operations:
        op.parent = block
        op._prev_op = op._next_op = None
    block._first_op = block._last_op = None
    _chain(block, operations)


def _chain(block: Block, operations: Sequence[Operation]) -> None:
    for before, after in pairwise(operations):
        before._next_op = after
        after._prev_op = before
    if operations:
        block._first_op = operations[0]
        block._last_op = operations[-1]


_Named: TypeAlias = tuple[tuple[str, Attribute], ...]


@cache
def _defaults(kind: type[Operation]) -> tuple[_Named, _Named]:
    """The default properties and attributes of an operation."""
    plain = kind.create()
    return tuple(plain.properties.items()), tuple(plain.attributes.items())


def create_same_type(kind: type[Made], *operands: SSAValue) -> Made:
    """Creates an operation whose result has the type of its first operand."""
    return create_unchecked(kind, *operands, types=(operands[0].type,))


def sum_of(kind: Attribute) -> type[arith.AddfOp | arith.AddiOp]:
    """The addition of an element type."""
    return arith.AddfOp if isinstance(kind, AnyFloat) else arith.AddiOp


@lru_cache(4096)
def numeric_attribute(value: int, type_: Attribute) -> IntegerAttr | FloatAttr:
    """A number of an element type; cached, as xDSL checks every new attribute."""
    if isinstance(type_, AnyFloat):
        return FloatAttr(float(value), type_)
    assert isinstance(type_, IntegerType | IndexType)
    return IntegerAttr(value, type_)
