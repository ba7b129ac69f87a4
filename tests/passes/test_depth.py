"""Tests that passes neither recurse over the depth of a graph nor take quadratic time in it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import stack

import pytest
from xdsl.dialects.builtin import FloatAttr, f32
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineMap

from popgraph.compiler import lower
from popgraph.dialects import tile
from popgraph.dialects.program.interned import tensor_type
from popgraph.passes.analysis.induction import holds
from popgraph.passes.base import Compilation
from popgraph.passes.structured.analysis.inplace_concat import Joins, escapes
from popgraph.passes.structured.analysis.operand_maps import erase_unused
from popgraph.passes.structured.layout.assign_halos import Rectified
from popgraph.testing import Constant, Network, Node, build_network

DEEP = 400
"""Length of the chains of operations."""

FRAMES = 200
"""Python frames that any pass may nest."""


@contextmanager
def few_frames() -> Iterator[None]:
    """Lowers Python's recursion limit far below the depth of the graphs here."""
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(len(stack(0)) + FRAMES)
    try:
        yield
    finally:
        sys.setrecursionlimit(usual)


def zero() -> FloatAttr:
    return FloatAttr(0.0, f32)


def source(block: Block) -> SSAValue:
    """The result of a map on an input of four elements."""
    body = Block(arg_types=[f32])
    body.add_op(tile.YieldOp(body.args[0]))
    type_ = tensor_type(f32, [4])
    argument = block.insert_arg(type_, len(block.args))
    op = tile.MapOp([argument], [AffineMap.identity(1)], [4], Region(body), [f32])
    block.add_op(op)
    return op.outputs[0]


def add(block: Block, op: Operation) -> SSAValue:
    block.add_op(op)
    return op.results[0]


def views(block: Block) -> list[SSAValue]:
    found = [source(block)]
    for number in range(DEEP):
        found.append(add(block, tile.ViewOp(found[-1], [1, 4] if number % 2 else [4])))
    return found


def concatenations(block: Block) -> list[SSAValue]:
    found = [source(block)]
    for number in range(DEEP):
        length = 4 * (number + 1)
        pieces, offsets = [found[-1], source(block)], [[0], [length]]
        whole = tensor_type(f32, [length + 4])
        op = tile.AssembleOp(pieces, offsets, [[1], [1]], zero(), whole)
        found.append(add(block, op))
    return found


@pytest.mark.parametrize("chain", [views, concatenations])
def test_erasing_a_deep_chain(
    chain: Callable[[Block], list[SSAValue]],
) -> None:
    block = Block()
    last = chain(block)[-1].owner
    assert isinstance(last, Operation)
    with few_frames():
        erase_unused(last)
    assert not list(block.ops)


def test_readers_through_deep_views() -> None:
    first, *_, last = views(Block())
    with few_frames():
        assert not escapes(first) and not escapes(last)


@pytest.mark.parametrize("start", [0, DEEP - 1], ids=["from-the-first", "from-the-last"])
def test_joins_of_deep_concatenations(start: int) -> None:
    owners = [value.owner for value in concatenations(Block())[1:]]
    wholes = [op for op in owners if isinstance(op, tile.AssembleOp)]
    assert len(wholes) == len(owners)
    joins = Joins()
    with few_frames():
        assert wholes[start] in joins
        assert all(whole in joins for whole in wholes)


@pytest.mark.parametrize("chain", [views, concatenations])
def test_rectified_through_deep_chains(chain: Callable[[Block], list[SSAValue]]) -> None:
    with few_frames():
        assert chain(Block())[-1] not in Rectified()


def test_holds_visits_each_value_once() -> None:
    """Each value reaches the next one on two paths: 2^100 paths in all."""
    asked: list[int] = []

    def follows(one: int) -> bool:
        asked.append(one)
        return one == 0 or known[one - 1]

    known = dict[int, bool]()
    assert holds(100, known, lambda one: [one - 1, one - 1] if one else [], follows)
    assert len(asked) <= 202


def test_holds_is_false_on_a_cycle() -> None:
    known = dict[int, bool]()
    assert not holds(0, known, lambda one: [(one + 1) % 3], lambda one: known[(one + 1) % 3])


def test_a_long_chain_of_concatenations_compiles() -> None:
    nodes: list[Node] = [Node("Relu", (0,))]
    for number in range(1, 240, 2):
        nodes.append(Node("Concat", (number, number - 1), (("axis", 0),)))
        nodes.append(Node("Slice", (number + 1, numbers(1), numbers(5), numbers(0))))
    compilation = Compilation()
    network = Network(((4,),), tuple(nodes), "f32", (len(nodes),))
    module = build_network(network, compilation.weights)
    with few_frames():
        lower(module, compilation)


def numbers(*values: int) -> Constant:
    return Constant((len(values),), "i64", values)
