"""Tests `fuse-elementwise` and `fuse-epilogue`: which maps disappear, and the values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st
from xdsl.dialects import math
from xdsl.dialects.builtin import FloatAttr, ModuleOp, TensorType, f32
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineMap

from popgraph.backends.reference.meaning import assert_same_meaning
from popgraph.dialects import tile
from popgraph.dialects.program import GraphOp, ReturnOp, WeightStore
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.passes.structured.fusion.fuse_elementwise import FuseElementwise
from popgraph.passes.structured.fusion.fuse_epilogue import FuseEpilogue
from popgraph.support.tuning import Tuning
from popgraph.testing.structured import Body, expression, sum_epilogue
from tests.checking import check_ir

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """An operation of a random chain; its operands are earlier values."""

    kind: str
    first: int
    second: int
    style: str = "sum"


kinds = st.sampled_from(
    ["map", "map", "transpose", "broadcast", "head", "view", "reduce", "product", "row"]
)
steps = st.builds(
    Step,
    kinds,
    st.integers(0, 5),
    st.integers(0, 5),
    st.sampled_from(["sum", "relu", "index", "select", "constant"]),
)


class Chain:
    """A graph built from steps; every value has three dimensions."""

    def __init__(self, shapes: Sequence[Shape]) -> None:
        types = [TensorType(f32, shape) for shape in shapes]
        self.graph = GraphOp("main", [f"x{at}" for at in range(len(types))], types)
        self.values: list[SSAValue] = list(self.graph.block.args)

    def add(self, op: Operation) -> None:
        self.graph.block.add_op(op)
        self.values.append(op.results[0])

    def mapped(
        self, inputs: Sequence[SSAValue], maps: Sequence[AffineMap], domain: Shape, style: str
    ) -> None:
        body = Body(f32, [f32] * len(inputs))
        region = body.end(expression(body, list(body.block.args), style))
        self.add(tile.MapOp(inputs, maps, domain, region, [f32]))

    def moved(self, value: SSAValue, map_: AffineMap, domain: Shape) -> None:
        body = Body(f32, [f32])
        self.add(tile.MapOp([value], [map_], domain, body.end(body.block.args[0]), [f32]))

    def step(self, step: Step) -> None:
        first = self.values[-1 - step.first % len(self.values)]
        second = self.values[-1 - step.second % len(self.values)]
        shape = tensor(first).get_shape()
        a, b, c = shape
        identity = AffineMap.identity(3)
        match step.kind:
            case "map":
                both = tensor(second).get_shape() == shape
                inputs = [first, second] if both else [first]
                self.mapped(inputs, [identity] * len(inputs), shape, step.style)
            case "row":
                row = AffineMap.from_callable(lambda i, j, k: (0, 0, k))
                fits = tensor(second).get_shape()[2] == c
                inputs = [first, second] if fits else [first]
                self.mapped(inputs, [identity, row][: len(inputs)], shape, step.style)
            case "transpose":
                self.moved(first, AffineMap.from_callable(lambda i, j, k: (k, i, j)), (b, c, a))
            case "broadcast":
                self.moved(first, AffineMap.from_callable(lambda i, j, k: (i, 0, k)), (a, 3, c))
            case "head":
                self.moved(first, identity, (a, (b + 1) // 2, (c + 1) // 2))
            case "view":
                self.add(tile.ViewOp(first, (a * b, 1, c) if step.second % 2 else (1, a, b * c)))
            case "reduce":
                body = Body(f32, [f32, f32])
                value = expression(body, [body.block.args[0]], step.style)
                region = body.end(body.sum(body.block.args[1], value))
                zero = FloatAttr(0.0, f32)
                order = AffineMap.from_callable(lambda i, j, k, r: (i, r, k))
                self.add(
                    tile.ReduceOp(
                        [first],
                        [order],
                        (a, 1, c, b),
                        3,
                        [zero],
                        region,
                        sum_epilogue(f32, 1, 0),
                        [f32],
                    )
                )
            case "product":
                d = tensor(second).get_shape()[0]
                rows = AffineMap.from_callable(lambda i, j, k, r: (i, j, r))
                other = tensor(second).get_shape()
                if other[2] != c:
                    return
                columns = AffineMap.from_callable(lambda i, j, k, r: (k, 0, r))
                self.add(
                    tile.contraction(
                        first,
                        second,
                        [rows, columns],
                        (a, b, d, c),
                        3,
                        sum_epilogue(f32, 1, 0),
                        [f32],
                    )
                )

    def module(self, outputs: int) -> ModuleOp:
        results = self.values[-outputs:]
        self.graph.block.add_op(ReturnOp(results, [f"y{at}" for at in range(len(results))]))
        return ModuleOp([self.graph])


def check(before: ModuleOp, *passes: Pass) -> list[str]:
    """Runs the passes, compares the meaning, and returns the names of the remaining operations."""
    check_ir(before)
    after = before.clone()
    for step in passes:
        step.run(Compilation(), after)
        check_ir(after)
    assert_same_meaning(before, after, WeightStore(), tolerance=1e-5, steps=1)
    again = after.clone()
    for step in passes:
        step.run(Compilation(), again)
    assert str(again) == str(after)
    (graph,) = (op for op in after.walk() if isinstance(op, GraphOp))
    return [op.name for op in graph.block.ops if op.name.startswith("tile.")]


@given(st.lists(steps, min_size=1, max_size=6), st.integers(1, 2), st.booleans())
def test_fuzz_chains_of_maps(program: list[Step], outputs: int, epilogue: bool) -> None:
    chain = Chain([(2, 3, 4), (1, 3, 4), (2, 3, 4)])
    for step in program:
        chain.step(step)
    passes: list[Pass] = [FuseElementwise()]
    if epilogue:
        passes.append(FuseEpilogue())
    check(chain.module(outputs), *passes)


def left(program: Sequence[Step], *passes: Pass) -> list[str]:
    chain = Chain([(2, 3, 4), (1, 3, 4), (2, 3, 4)])
    for step in program:
        chain.step(step)
    return check(chain.module(1), *passes)


def test_a_chain_of_maps_is_one_map() -> None:
    program = [Step("map", 0, 1, "sum"), Step("map", 0, 0, "relu"), Step("row", 0, 4, "select")]
    assert left(program, FuseElementwise()) == ["tile.map"]


def test_a_map_with_two_readers_is_not_fused() -> None:
    program = [Step("map", 0, 0), Step("reduce", 0, 0), Step("broadcast", 0, 0), Step("map", 0, 2)]
    assert left(program, FuseElementwise()) == ["tile.map", "tile.reduce", "tile.map"]


def test_a_map_is_fused_into_its_reduction() -> None:
    assert left([Step("map", 0, 0), Step("reduce", 0, 0)], FuseElementwise()) == ["tile.reduce"]


def test_a_transposed_factor_is_read_in_place() -> None:
    """A transpose becomes part of the index map of the contraction."""
    chain = Chain([(3, 4, 2), (2, 3, 4)])
    first, second = chain.values
    order = AffineMap.from_callable(lambda i, j, k: (j, k, i))
    chain.moved(first, order, (2, 3, 4))
    chain.step(Step("product", 0, 1))
    assert tensor(second).get_shape() == (2, 3, 4)
    assert check(chain.module(1), FuseElementwise()) == ["tile.reduce"]


def test_bias_and_activation_are_fused_into_the_contraction() -> None:
    """Also when both follow a view of the product."""
    program = [Step("product", 0, 0), Step("map", 0, 0, "relu")]
    assert left(program, FuseElementwise(), FuseEpilogue()) == ["tile.reduce"]
    viewed = [Step("product", 0, 0), Step("view", 0, 0), Step("map", 0, 0, "relu")]
    names = left(viewed, FuseElementwise(), FuseEpilogue())
    assert names == ["tile.reduce", "tile.view"]


def test_a_leading_slice_is_not_fused() -> None:
    """A slice reads element by element, but not all of them."""
    program = [Step("product", 0, 0), Step("head", 0, 0)]
    assert left(program, FuseElementwise(), FuseEpilogue()) == ["tile.reduce", "tile.map"]


def test_the_contraction_may_be_any_operand_of_its_epilogue() -> None:
    """A residual that is the first operand remains the first operand."""
    chain = Chain([(2, 3, 4), (4, 3, 4), (2, 3, 4)])
    x, w, residual = chain.values
    maps = [
        AffineMap.from_callable(lambda i, j, k, r: (i, j, r)),
        AffineMap.from_callable(lambda i, j, k, r: (k, j, r)),
    ]
    chain.add(tile.contraction(x, w, maps, (2, 3, 4, 4), 3, sum_epilogue(f32, 1, 0), [f32]))
    identity = AffineMap.identity(3)
    chain.mapped([residual, chain.values[-1]], [identity] * 2, (2, 3, 4), "sum")
    assert check(chain.module(1), FuseElementwise(), FuseEpilogue()) == ["tile.reduce"]


def test_a_bias_behind_a_view_is_fused() -> None:
    """
    conv, reshape of the bias to [1, c, 1], add -> one contraction with the bias in its epilogue.
    """
    chain = Chain([(2, 3, 4), (5, 3, 4), (5, 1, 1)])
    x, w, bias = chain.values
    places = [lambda n, c, y, k: (n, y, k), lambda n, c, y, k: (c, y, k)]
    maps = [AffineMap.from_callable(place) for place in places]
    chain.add(tile.contraction(x, w, maps, (2, 5, 3, 4), 3, sum_epilogue(f32, 1, 0), [f32]))
    chain.add(tile.ViewOp(bias, (1, 5, 1)))
    column = AffineMap.from_callable(lambda n, c, y: (0, c, 0))
    chain.mapped(
        [chain.values[-2], chain.values[-1]], [AffineMap.identity(3), column], (2, 5, 3), "sum"
    )
    names = check(chain.module(1), FuseElementwise(), FuseEpilogue())
    assert names == ["tile.reduce"]


def test_costly_maps_are_not_recomputed() -> None:
    """An exponential runs once per element, not once per element that reads it."""
    chain = Chain([(2, 3, 4)])
    body = Body(f32, [f32])
    region = body.end(body.add(math.ExpOp(body.block.args[0])))
    identity = AffineMap.identity(3)
    chain.add(tile.MapOp(chain.values, [identity], (2, 3, 4), region, [f32]))
    wide = AffineMap.from_callable(lambda i, j, k: (i % 2, j, k))
    chain.mapped([chain.values[-1]], [wide], (8, 3, 4), "sum")
    assert check(chain.module(1), FuseElementwise()) == ["tile.map", "tile.map"]


def test_long_chains_become_several_maps() -> None:
    """Each fusion copies the body, so a single map would cost quadratic time in its length."""
    chain = Chain([(2, 3, 4)])
    identity = AffineMap.identity(3)
    for _ in range(3 * Tuning().longest_body):
        value = chain.values[-1]
        body = Block(arg_types=[f32])
        body.add_op(tanh := math.TanhOp(body.args[0]))
        body.add_op(tile.YieldOp(tanh.result))
        chain.add(tile.MapOp([value], [identity], (2, 3, 4), Region(body), [f32], []))
    chain.graph.block.add_op(ReturnOp([chain.values[-1]], ["y"]))
    module = ModuleOp([chain.graph])
    before = module.clone()
    FuseElementwise().run(Compilation(), module)
    check_ir(module)
    assert_same_meaning(before, module, WeightStore())
    lengths = [len(op.body.block.ops) for op in module.walk() if isinstance(op, tile.MapOp)]
    assert len(lengths) < 6
    assert max(lengths) <= Tuning().longest_body
