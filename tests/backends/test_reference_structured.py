"""Tests the reference backend on structured operations, and its bounds checks."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects import arith
from xdsl.dialects.builtin import FloatAttr, IndexType, TensorType, f16, f32, i32, i64
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException

from popgraph.backends.reference import evaluate
from popgraph.backends.reference.structured import STRUCTURED
from popgraph.dialects import tile
from popgraph.dialects.tile.structured.product import accumulator_type
from popgraph.dialects.value_types import set_type
from popgraph.passes.base import Compilation
from popgraph.support.arrays import Array


def run(text: str, **inputs: Array) -> Array:
    """The output `y` of a graph with this body, for these inputs."""
    names = ", ".join(f'#pg.bytes<"{name}">' for name in inputs)
    kinds = {"float32": "f32", "int64": "i64", "int32": "i32", "float16": "f16"}
    arguments = ", ".join(
        f"%{name}: tensor<{''.join(f'{size}x' for size in array.shape)}{kinds[array.dtype.name]}>"
        for name, array in inputs.items()
    )
    compilation = Compilation()
    module = Parser(
        compilation,
        f"builtin.module {{ pg.graph @main inputs [{names}] {{ ^bb0({arguments}): {text} }} }}",
    ).parse_module()
    module.verify()
    outputs, _ = evaluate(module, inputs, compilation.weights)
    return outputs["y"]


def counting(*shape: int) -> Array:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


RETURN = 'pg.return [#pg.bytes<"y">], %y : tensor'


def test_map_reads_through_its_maps_and_its_index() -> None:
    x = counting(3, 2)
    y = run(
        """%y = tile.map ins(%x : tensor<3x2xf32>) domain [2, 3]
             maps [affine_map<(d0, d1) -> (d1, d0)>] {
           ^bb1(%a: f32):
             %i = tile.index 1
             %j = arith.index_cast %i : index to i64
             %f = arith.sitofp %j : i64 to f32
             %s = arith.addf %a, %f : f32
             tile.yield %s : f32
           } -> tensor<2x3xf32> """
        + RETURN
        + "<2x3xf32>",
        x=x,
    )
    np.testing.assert_array_equal(y, [[0, 3, 6], [1, 4, 7]])


TABLE = (
    """%y = tile.map ins(%i : tensor<2xi64>) tables(%x : tensor<3x2xf32>) domain [2, 2]
         maps [affine_map<(d0, d1) -> (d0)>] {
       ^bb1(%a: i64, %t: tensor<3x2xf32>):
         %r = arith.index_cast %a : i64 to index
         %c = tile.index 1
         %e = tile.element %t[%r, %c] : tensor<3x2xf32> -> f32
         tile.yield %e : f32
       } -> tensor<2x2xf32> """
    + RETURN
    + "<2x2xf32>"
)


def test_elements_of_tables() -> None:
    x = counting(3, 2)
    np.testing.assert_array_equal(run(TABLE, i=np.array([2, 0]), x=x), x[[2, 0]])


@pytest.mark.parametrize("index", [3, -1])
def test_an_element_outside_its_table_is_an_error(index: int) -> None:
    with pytest.raises(AssertionError, match=r"outside dimension 0 .*tile\.element"):
        run(TABLE, i=np.array([index, 0]), x=counting(3, 2))


def test_a_map_that_leaves_its_operand_is_an_error() -> None:
    read = """%y = tile.map ins(%x : tensor<{size}xf32>) domain [3]
        maps [affine_map<(d0) -> ({index})>] {{
        ^bb1(%a: f32): tile.yield %a : f32
        }} -> tensor<3xf32> """
    with pytest.raises(VerifyException, match="exceeds tensor<3xf32>"):
        run(read.format(size=3, index="d0 + 1") + RETURN + "<3xf32>", x=counting(3))
    with pytest.raises(AssertionError, match="index 0 to 2 is outside dimension 0"):
        run(read.format(size=2, index="d0 * 2 mod 4") + RETURN + "<3xf32>", x=counting(2))


def test_reduce_runs_in_index_order_from_the_initial_value() -> None:
    x = counting(2, 3)
    y = run(
        """%y = tile.reduce ins(%x : tensor<2x3xf32>) epilogue_inputs(%b : tensor<2xf32>)
             domain [2, 3] parallel 1 maps [affine_map<(d0, d1) -> (d0, d1)>]
             epilogue_maps [affine_map<(d0) -> (d0)>] initial [1.0 : f32] {
           ^bb1(%a: f32, %acc: f32):
             %two = arith.constant 2.0 : f32
             %d = arith.mulf %acc, %two : f32
             %s = arith.addf %d, %a : f32
             tile.yield %s : f32
           } epilogue {
           ^bb2(%acc: f32, %e: f32):
             %s = arith.subf %acc, %e : f32
             tile.yield %s : f32
           } -> tensor<2xf32> """
        + RETURN
        + "<2xf32>",
        x=x,
        b=np.array([10, 20], np.float32),
    )
    folded = [((1 * 2 + a) * 2 + b) * 2 + c for a, b, c in x]
    np.testing.assert_array_equal(y, np.array(folded, np.float32) - np.array([10, 20], "f4"))


def arguments(*types: Attribute) -> list[SSAValue]:
    return list(Block(arg_types=types).args)


def body(block: Block, *ops: Operation, results: list[SSAValue | Operation]) -> Block:
    block.add_ops([*ops, tile.YieldOp(*results)])
    return block


def identity_finish(kind: Attribute) -> Block:
    block = Block(arg_types=[kind])
    return body(block, results=[block.args[0]])


def contract(lhs: Array, rhs: Array, kind: Attribute) -> Array:
    """A matrix product."""
    n, k = lhs.shape
    m = rhs.shape[1]
    left, right = arguments(TensorType(kind, lhs.shape), TensorType(kind, rhs.shape))
    maps = [
        AffineMap.from_callable(lambda i, j, k: (i, k)),
        AffineMap.from_callable(lambda i, j, k: (k, j)),
    ]
    total = accumulator_type(kind)
    op = tile.contraction(left, right, maps, [n, m, k], 2, Region(identity_finish(total)), [total])
    (result,) = STRUCTURED[tile.ReduceOp](op, lhs, rhs)
    return result


def test_contract_sums_in_order_in_float32() -> None:
    generator = np.random.default_rng(3)
    lhs = generator.standard_normal((40, 4)).astype(np.float32)
    rhs = generator.standard_normal((4, 40)).astype(np.float32)
    expected = np.zeros((40, 40), np.float32)
    for k in range(4):
        expected += lhs[:, k : k + 1] * rhs[k : k + 1]
    np.testing.assert_array_equal(contract(lhs, rhs, f32), expected)


def test_contract_of_halves_sums_in_float32() -> None:
    lhs, rhs = np.full((1, 4096), 1, np.float16), np.full((4096, 1), 1, np.float16)
    assert contract(lhs, rhs, f16) == 4096  # An f16 accumulator of ones would end at 2048.


def test_contract_over_nothing_is_zero() -> None:
    lhs, rhs = np.zeros((2, 0), np.float32), np.zeros((0, 3), np.float32)
    np.testing.assert_array_equal(contract(lhs, rhs, f32), np.zeros((2, 3), np.float32))


def scatter(places: Array, values: Array, size: int, parallel: int = 0) -> Array:
    """Adds `values` at the indices `places`."""
    types = [TensorType(i64, places.shape), TensorType(f32, values.shape)]
    block = Block(arg_types=[i64, f32])
    place = arith.IndexCastOp(block.args[0], IndexType())
    op = tile.ScatterOp(
        arguments(*types),
        [AffineMap.identity(1)] * 2,
        places.shape,
        parallel,
        Region(body(block, place, results=[place, block.args[1]])),
        TensorType(f32, [size]),
    )
    (result,) = STRUCTURED[tile.ScatterOp](op, places, values)
    return result


def test_scatter_adds_duplicates() -> None:
    found = scatter(np.array([2, 0, 2]), np.array([1, 2, 4], np.float32), 4)
    np.testing.assert_array_equal(found, [2, 0, 5, 0])


def test_scatter_outside_its_target_is_an_error() -> None:
    for place in (-1, 4):
        with pytest.raises(AssertionError, match="outside dimension 0"):
            scatter(np.array([place]), np.ones(1, np.float32), 4)


def test_parallel_loops_of_a_scatter_must_not_overlap() -> None:
    ones = np.ones(3, np.float32)
    np.testing.assert_array_equal(scatter(np.arange(3), ones, 3, parallel=1), ones)
    with pytest.raises(AssertionError, match="index 0 is not the loop's own"):
        scatter(np.array([0, 2, 1]), ones, 3, parallel=1)


def test_assemble_places_pieces_with_gaps() -> None:
    x, z = np.array([1, 2], np.float32), np.array([9], np.float32)
    types = [TensorType(f32, [2]), TensorType(f32, [1])]
    op = tile.AssembleOp(
        arguments(*types), [[1], [5]], [[2], [1]], FloatAttr(-1.0, f32), TensorType(f32, [6])
    )
    op.verify_()
    (result,) = STRUCTURED[tile.AssembleOp](op, x, z)
    np.testing.assert_array_equal(result, [-1, 1, -1, 2, -1, 9])


def blocked() -> TensorType[Attribute]:
    """Packs six rows in blocks of four, with a halo of one column in front."""
    d0, d1 = AffineExpr.dimension(0), AffineExpr.dimension(1)
    map_ = AffineMap(2, 0, (d0 // 4, d1 + 1, d0 % 4))
    return TensorType(i32, [6, 3], tile.LayoutAttr.of(map_, [2, 4, 4]))


def test_packed_values_have_the_shape_of_their_memory() -> None:
    x = np.arange(18, dtype=np.int32).reshape(6, 3)
    dense = TensorType(i32, [6, 3])
    (source,) = arguments(dense)
    pack = tile.PackOp(source, blocked())
    (memory,) = STRUCTURED[tile.PackOp](pack, x)
    assert memory.shape == (2, 4, 4)
    assert memory[1, 3, 1] == x[5, 2] and memory[0, 1, 2] == x[2, 0]
    assert memory.sum() == x.sum(), "what the layout does not reach is zero"
    unpack = tile.PackOp(pack.output, dense)
    np.testing.assert_array_equal(STRUCTURED[tile.PackOp](unpack, memory)[0], x)


def test_structured_operations_read_and_write_layouts() -> None:
    x = np.arange(18, dtype=np.int32).reshape(6, 3)
    (source,) = arguments(TensorType(i32, [6, 3]))
    pack = tile.PackOp(source, blocked())
    (memory,) = STRUCTURED[tile.PackOp](pack, x)
    block = Block(arg_types=[i32])
    double = arith.AddiOp(block.args[0], block.args[0])
    map_ = tile.MapOp(
        [pack.output],
        [AffineMap.identity(2)],
        [6, 3],
        Region(body(block, double, results=[double])),
        [i32],
    )
    set_type(map_.outputs[0], blocked())
    (result,) = STRUCTURED[tile.MapOp](map_, memory)
    np.testing.assert_array_equal(result, memory * 2)
