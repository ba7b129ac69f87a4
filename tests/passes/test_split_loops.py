"""Tests `split-loops`: blocks have constant, balanced sizes, and memory for their own rows."""

from __future__ import annotations

import pytest
from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import MemRefType, ModuleOp
from xdsl.ir import Operation

from popgraph import compiler
from popgraph.dialects.program import WeightStore
from popgraph.dialects.tile import is_contraction
from popgraph.dialects.tile.attributes import ScheduleAttr
from popgraph.dialects.tile.loops.recipes import INTERCHANGE, SPLIT, UNROLL
from popgraph.dialects.tile.loops.soundness import iterations
from popgraph.passes.base import Compilation
from popgraph.passes.loops.split_loops import SplitLoops
from popgraph.passes.structured.to_loops import StructuredToLoops
from popgraph.support.errors import ParseError
from popgraph.testing import assert_same_meaning
from popgraph.testing.structured import ContractSpec, Operand

LANES = 4


def product(rows: int, most: int) -> ModuleOp:
    """The kernel of a matmul with blocks of at most `most` rows, before the split."""
    lhs, rhs = Operand(((1, 0, 0, 0), (0, 0, 1, 0))), Operand(((0, 0, 1, 0), (0, 1, 0, 0)))
    module = ContractSpec("f32", (rows, LANES, 5), 2, lhs, rhs).module()
    (op,) = (op for op in module.walk() if is_contraction(op))
    op.properties["schedule"] = ScheduleAttr.of(
        n_dim=1, n_vectors=1, m_dim=0, mr=most, kc=256, lanes=LANES
    )
    StructuredToLoops().run(Compilation(), module)
    return module


def split(module: ModuleOp) -> ModuleOp:
    """The module after `split-loops`, which keeps its meaning."""
    after = module.clone()
    SplitLoops().run(Compilation(), after)
    assert_same_meaning(module, after, WeightStore(), tolerance=1e-6, steps=1)
    return after


def rows_of_tiles(module: ModuleOp) -> list[int]:
    """The rows of each register tile, in order of the code."""
    return [
        len(iterations(op) or ())
        for op in module.walk()
        if INTERCHANGE in op.attributes and UNROLL in op.attributes
    ]


def is_marked(op: Operation) -> bool:
    return SPLIT in op.attributes


@pytest.mark.parametrize(
    ("rows", "most", "tiles"),
    [
        (17, 14, [9, 8]),
        (49, 14, [13, 12]),
        (24, 14, [12]),
        (28, 14, [14]),
        (38, 14, [13, 12]),
        (14, 14, [14]),
        (5, 2, [2]),  # a block of one row has no loop over rows
    ],
)
def test_blocks_are_balanced(rows: int, most: int, tiles: list[int]) -> None:
    before = product(rows, most)
    after = split(before)
    assert any(map(is_marked, before.walk())) == (rows > most)
    assert not any(map(is_marked, after.walk()))
    assert rows_of_tiles(after) == tiles
    assert not any(isinstance(op, arith.MinSIOp | arith.SubiOp) for op in after.walk())


def test_a_block_has_memory_for_its_rows() -> None:
    types = [op.memref.type for op in split(product(17, 14)).walk() if type(op) is memref.AllocaOp]
    assert [one.get_shape() for one in types if isinstance(one, MemRefType)] == [
        (9 * LANES,),
        (8 * LANES,),
    ]


def test_memory_that_blocks_cannot_divide_is_refused() -> None:
    text = str(product(17, 14)).replace("memref<56xf32>", "memref<57xf32>")
    with pytest.raises(ParseError, match="an equal part for each of 14 iterations"):
        compiler.parse_ir(text, Compilation(), "product.mlir")


def test_blocks_of_one_row_are_one_loop() -> None:
    """Blocks that all have one row need no split."""
    module = product(7, 1)
    assert not any(map(is_marked, module.walk()))
    assert str(split(module)) == str(module)


def test_a_second_use_of_the_rows_left_is_kept() -> None:
    """The difference in the size of a block may be used for something else, too."""
    module = product(17, 14)
    (loop,) = (op for op in module.walk() if isinstance(op, scf.ForOp) and is_marked(op))
    left = next(op for op in loop.body.block.ops if isinstance(op, arith.SubiOp))
    inner = next(op for op in loop.body.block.ops if isinstance(op, scf.ForOp))
    clamped = arith.MinSIOp(left.result, inner.ub)
    loop.body.block.insert_op_before(clamped, inner)
    inner.operands[1] = clamped.result
    split(module)
