"""Strategies for random structured operations: index maps, sizes, bodies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import (
    Float32Type,
    Float64Type,
    FloatAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    ModuleOp,
    TensorType,
    bf16,
    f32,
    f64,
    i8,
    i32,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap

from popgraph.dialects import tile
from popgraph.dialects.program import GraphOp, ReturnOp
from popgraph.dialects.tile.affine import linear
from popgraph.dialects.tile.scalars import NARROW
from popgraph.support.shapes import Shape

KINDS: dict[str, Attribute] = {"f32": f32, "f64": f64, "i32": i32}
SIZES = (1, 2, 3, 4, 5, 7, 16, 17)
Row = tuple[int, ...]
"""One result of an index map: a factor per dimension, then a constant."""


@dataclass(frozen=True)
class Operand:
    """An operand by its index map; its shape is the range of the map plus a margin."""

    rows: tuple[Row, ...]
    margin: int = 0

    def map(self, rank: int) -> AffineMap:
        return AffineMap(rank, 0, tuple(map(_expression, self.rows)))

    def shape(self, sizes: Shape) -> Shape:
        reached = [linear(_expression(row), sizes).bounds(sizes)[1] for row in self.rows]
        return tuple(most + 1 + self.margin for most in reached)


def _expression(row: Row) -> AffineExpr:
    result = AffineExpr.constant(row[-1])
    for dim, factor in enumerate(row[:-1]):
        if factor:
            result = result + AffineExpr.dimension(dim) * factor
    return result


def graph_of(
    inputs: Sequence[tuple[Shape, Attribute]],
    build: Callable[[Sequence[SSAValue]], Sequence[Operation]],
) -> ModuleOp:
    """A module whose graph has these inputs and returns the results of the last operation."""
    types = [TensorType(kind, shape) for shape, kind in inputs]
    graph = GraphOp("main", [f"x{number}" for number in range(len(types))], types)
    ops = build(graph.block.args)
    graph.block.add_ops(ops)
    results = list(ops[-1].results)
    graph.block.add_op(ReturnOp(results, [f"y{number}" for number in range(len(results))]))
    return ModuleOp([graph])


def literal(value: int, kind: Attribute) -> FloatAttr | IntegerAttr:
    """A scalar literal of type `kind`."""
    if isinstance(kind, IntegerType):
        return IntegerAttr(value, kind)
    assert isinstance(kind, Float32Type | Float64Type)
    return FloatAttr(float(value), kind)


class Body:
    """Builds a block of scalar operations on one element type."""

    def __init__(self, kind: Attribute, arguments: Sequence[Attribute]) -> None:
        self.kind = kind
        self.floating = kind in (f32, f64)
        self.block = Block(arg_types=arguments)

    def add(self, op: Operation) -> SSAValue:
        self.block.add_op(op)
        return op.results[0]

    def number(self, value: int) -> SSAValue:
        return self.add(arith.ConstantOp(literal(value, self.kind)))

    def sum(self, lhs: SSAValue, rhs: SSAValue) -> SSAValue:
        return self.add((arith.AddfOp if self.floating else arith.AddiOp)(lhs, rhs))

    def product(self, lhs: SSAValue, rhs: SSAValue) -> SSAValue:
        return self.add((arith.MulfOp if self.floating else arith.MuliOp)(lhs, rhs))

    def largest(self, lhs: SSAValue, rhs: SSAValue) -> SSAValue:
        return self.add((arith.MaximumfOp if self.floating else arith.MaxSIOp)(lhs, rhs))

    def less(self, lhs: SSAValue, rhs: SSAValue) -> SSAValue:
        if self.floating:
            return self.add(arith.CmpfOp(lhs, rhs, "olt"))
        return self.add(arith.CmpiOp(lhs, rhs, "slt"))

    def converted(self, value: SSAValue) -> SSAValue:
        """A 32-bit integer, converted to this body's type."""
        if isinstance(self.kind, Float32Type | Float64Type):
            return self.add(arith.SIToFPOp(value, self.kind))
        return value

    def narrowed(self, value: SSAValue) -> SSAValue:
        """A value rounded to fewer bits and widened again."""
        if isinstance(self.kind, Float32Type | Float64Type):
            return self.add(arith.ExtFOp(self.add(arith.TruncFOp(value, bf16)), self.kind))
        assert isinstance(self.kind, IntegerType)
        return self.add(arith.ExtSIOp(self.add(arith.TruncIOp(value, i8)), self.kind))

    def whole(self, value: SSAValue) -> SSAValue:
        """A value truncated to a 32-bit integer."""
        return self.add(arith.FPToSIOp(value, i32)) if self.floating else value

    def end(self, *values: SSAValue) -> Region:
        self.block.add_op(tile.YieldOp(*values))
        return Region(self.block)


STYLES = ("sum", "relu", "abs", "index", "select", "narrow", "constant")


def expression(body: Body, values: Sequence[SSAValue], style: str) -> SSAValue:
    """
    An expression that depends on each of `values` differently, with the operations of `style`.
    """
    value = body.number(2)
    for at, other in enumerate(values):
        value = body.sum(body.product(other, body.number(3 - 2 * at)), value)
    match style:
        case "relu":
            return body.largest(value, body.number(0))
        case "abs" if body.floating:
            return body.add(math.AbsFOp(value))
        case "index":
            small = body.add(arith.IndexCastOp(body.add(tile.IndexOp(0)), i32))
            return body.sum(value, body.converted(small))
        case "narrow":
            return body.narrowed(value)
        case "select":
            condition = body.less(value, body.number(1))
            return body.add(arith.SelectOp(condition, value, body.number(1)))
        case "constant":
            return body.number(5)
    return value


def sum_epilogue(kind: Attribute, accumulators: int, epilogue_inputs: int) -> Region:
    """Each accumulator plus all epilogue inputs."""
    body = Body(kind, [kind] * (accumulators + epilogue_inputs))
    results = []
    for total in body.block.args[:accumulators]:
        value: SSAValue = total
        for extra in body.block.args[accumulators:]:
            value = body.sum(value, extra)
        results.append(value)
    return body.end(*results)


@dataclass(frozen=True)
class MapSpec:
    """A `tile.map` with one result per style."""

    kind: str
    sizes: Shape
    operands: tuple[Operand, ...]
    styles: tuple[str, ...]

    def module(self) -> ModuleOp:
        kind, rank = KINDS[self.kind], len(self.sizes)
        body = Body(kind, [kind] * len(self.operands))
        arguments = list(body.block.args)
        region = body.end(*[expression(body, arguments, style) for style in self.styles])
        maps = [operand.map(rank) for operand in self.operands]

        def build(values: Sequence[SSAValue]) -> list[Operation]:
            return [tile.MapOp(values, maps, self.sizes, region, [kind] * len(self.styles))]

        return graph_of([(operand.shape(self.sizes), kind) for operand in self.operands], build)


@dataclass(frozen=True)
class ReduceSpec:
    """A `tile.reduce` with one accumulator per combiner."""

    kind: str
    sizes: Shape
    parallel: int
    operands: tuple[Operand, ...]
    epilogue_inputs: tuple[Operand, ...]
    style: str
    combiners: tuple[str, ...]

    def module(self) -> ModuleOp:
        kind, rank = KINDS[self.kind], len(self.sizes)
        count = len(self.combiners)
        body = Body(kind, [kind] * (len(self.operands) + count))
        arguments = list(body.block.args)
        value = expression(body, arguments[: len(self.operands)], self.style)
        nexts = [
            self._combined(body, combiner, accumulator, value)
            for combiner, accumulator in zip(
                self.combiners, arguments[len(self.operands) :], strict=True
            )
        ]
        region = body.end(*nexts)
        maps = [operand.map(rank) for operand in self.operands]
        epilogue_maps = [operand.map(self.parallel) for operand in self.epilogue_inputs]

        def build(values: Sequence[SSAValue]) -> list[Operation]:
            return [
                tile.ReduceOp(
                    values[: len(maps)],
                    maps,
                    self.sizes,
                    self.parallel,
                    [literal(1, kind)] * count,
                    region,
                    sum_epilogue(kind, count, len(epilogue_maps)),
                    [kind] * count,
                    values[len(maps) :],
                    epilogue_maps,
                )
            ]

        outer = self.sizes[: self.parallel]
        shapes = [operand.shape(self.sizes) for operand in self.operands]
        shapes += [operand.shape(outer) for operand in self.epilogue_inputs]
        return graph_of([(shape, kind) for shape in shapes], build)

    @staticmethod
    def _combined(body: Body, combiner: str, old: SSAValue, value: SSAValue) -> SSAValue:
        match combiner:
            case "sum":
                return body.sum(old, value)
            case "largest":
                return body.largest(value, old)
            case "last":
                return value
        return body.add(arith.SelectOp(body.less(old, value), old, value))


@dataclass(frozen=True)
class ContractSpec:
    """A contraction whose epilogue adds the epilogue inputs."""

    kind: str
    sizes: Shape
    parallel: int
    lhs: Operand
    rhs: Operand
    epilogue_inputs: tuple[Operand, ...] = ()
    stored: Attribute | None = None
    """Storage type of the right operand, if narrower than that of the multiplication."""

    def module(self) -> ModuleOp:
        kind, rank = KINDS[self.kind], len(self.sizes)
        outer = self.sizes[: self.parallel]

        def build(values: Sequence[SSAValue]) -> list[Operation]:
            return [
                tile.contraction(
                    values[0],
                    values[1],
                    [self.lhs.map(rank), self.rhs.map(rank)],
                    self.sizes,
                    self.parallel,
                    sum_epilogue(kind, 1, len(self.epilogue_inputs)),
                    [kind],
                    values[2:],
                    [operand.map(self.parallel) for operand in self.epilogue_inputs],
                )
            ]

        shapes = [self.lhs.shape(self.sizes), self.rhs.shape(self.sizes)]
        shapes += [operand.shape(outer) for operand in self.epilogue_inputs]
        inputs = [(shape, kind) for shape in shapes]
        inputs[1] = shapes[1], self.stored or kind
        return graph_of(inputs, build)


@dataclass(frozen=True)
class AssembleSpec:
    """A `tile.assemble` of equal pieces in a row along one axis, with gaps."""

    kind: str
    piece: Shape
    axis: int
    count: int
    low: Shape
    high: Shape
    steps: Shape
    gap: int

    def module(self) -> ModuleOp:
        kind = KINDS[self.kind]
        pitch = self.piece[self.axis] * self.steps[self.axis] + self.gap
        offsets = [
            [low + (number * pitch if dim == self.axis else 0) for dim, low in enumerate(self.low)]
            for number in range(self.count)
        ]
        extents = [
            (self.count - 1) * pitch * (dim == self.axis) + size * step
            for dim, (size, step) in enumerate(zip(self.piece, self.steps, strict=True))
        ]
        shape = [
            low + extent + high
            for low, extent, high in zip(self.low, extents, self.high, strict=True)
        ]

        def build(values: Sequence[SSAValue]) -> list[Operation]:
            steps = [self.steps] * self.count
            return [
                tile.AssembleOp(values, offsets, steps, literal(7, kind), TensorType(kind, shape))
            ]

        return graph_of([(self.piece, kind)] * self.count, build)


@dataclass(frozen=True)
class ScatterSpec:
    """`y[n, indices[m], q] += x[n, m, q]`, or another combination, onto zero or a tensor."""

    kind: str
    sizes: tuple[int, int, int]
    rows: int
    parallel: int
    combine: str = "sum"
    starts: bool = False

    def module(self) -> ModuleOp:
        kind = KINDS[self.kind]
        body = Body(kind, [kind, i32])
        value, number = body.block.args
        index = body.add(arith.IndexCastOp(number, IndexType()))
        limit = body.add(arith.ConstantOp(IntegerAttr(self.rows, IndexType())))
        index = body.add(arith.RemSIOp(index, limit))
        outer, inner = body.add(tile.IndexOp(0)), body.add(tile.IndexOp(2))
        region = body.end(outer, index, inner, value)
        maps = [Operand(((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0))), Operand(((0, 1, 0, 0),))]

        shape = (self.sizes[0], self.rows, self.sizes[2])

        def build(values: Sequence[SSAValue]) -> list[Operation]:
            result = TensorType(kind, shape)
            indexed = [operand.map(3) for operand in maps]
            initial = values[2] if self.starts else None
            scatter = tile.ScatterOp(
                values[:2], indexed, self.sizes, self.parallel, region, result, initial, combine
            )
            return [scatter]

        combine = self._combine(kind)
        inputs = [(self.sizes, kind), (self.sizes[1:2], i32), (shape, kind)]
        return graph_of(inputs[: 2 + self.starts], build)

    def _combine(self, kind: Attribute) -> Region | None:
        if self.combine == "sum":
            return None
        body = Body(kind, [kind, kind])
        old, value = body.block.args
        return body.end(value if self.combine == "last" else body.largest(old, value))


@dataclass(frozen=True)
class TopKSpec:
    """
    The largest (or smallest) elements of each row by integer part, so that there are many ties.
    """

    kind: str
    rows: int
    size: int
    count: int
    largest: bool

    def module(self) -> ModuleOp:
        kind = KINDS[self.kind]
        body = Body(kind, [kind])
        whole = body.whole(body.block.args[0])
        assert isinstance(whole.type, IntegerType)
        most = (1 << (whole.type.bitwidth - 1)) - 1
        flipped = IntegerAttr(~most if self.largest else most, whole.type)
        region = body.end(body.add(arith.XOrIOp(whole, body.add(arith.ConstantOp(flipped)))))

        def build(values: Sequence[SSAValue]) -> list[Operation]:
            return [tile.TopKOp(values[0], self.count, region)]

        return graph_of([((self.rows, self.size), kind)], build)


@dataclass(frozen=True)
class PackSpec:
    """Packs a tensor into a blocked layout with a halo, unpacks it, and maps over both."""

    kind: str
    sizes: tuple[int, int, int]
    block: int
    halo: int

    def module(self) -> ModuleOp:
        kind, (first, second, third) = KINDS[self.kind], self.sizes
        a, b, c = (AffineExpr.dimension(dim) for dim in range(3))
        layout = tile.LayoutAttr.of(
            AffineMap(3, 0, (b // self.block, a, c + self.halo, b % self.block)),
            [-(-second // self.block), first, third + 2 * self.halo, self.block],
        )
        packed = TensorType(kind, self.sizes, layout)
        identity = AffineMap.identity(3)

        def build(values: Sequence[SSAValue]) -> list[Operation]:
            pack = tile.PackOp(values[0], packed)
            unpack = tile.PackOp(pack, TensorType(kind, self.sizes))
            body = Body(kind, [kind, kind])
            region = body.end(expression(body, list(body.block.args), "sum"))
            factors = [pack.output, unpack.output]
            both = tile.MapOp(factors, [identity] * 2, self.sizes, region, [kind])
            return [pack, unpack, both]

        return graph_of([(self.sizes, kind)], build)


Spec = MapSpec | ReduceSpec | ContractSpec | AssembleSpec | ScatterSpec | TopKSpec | PackSpec

kinds = st.sampled_from(sorted(KINDS))
size = st.sampled_from(SIZES)


@st.composite
def operands(draw: st.DrawFn, rank: int) -> Operand:
    """Identities, permutations, broadcasts, windows."""
    style = draw(st.sampled_from(["identity", "permutation", "projection", "window"]))
    order = list(range(rank))
    if style in ("permutation", "projection"):
        order = list(draw(st.permutations(order)))
    if style == "projection":
        order = order[: draw(st.integers(0, rank))]
    rows = []
    for dim in order:
        row = [0] * (rank + 1)
        row[dim] = 1
        if style == "window":
            row[dim] = draw(st.sampled_from([1, 1, 2]))
            row[draw(st.integers(0, rank - 1))] += draw(st.integers(0, 1))
            row[-1] = draw(st.integers(0, 2))
        rows.append(tuple(row))
    return Operand(tuple(rows), draw(st.integers(0, 1)) if style == "window" else 0)


@st.composite
def maps(draw: st.DrawFn) -> MapSpec:
    sizes = draw(st.lists(size, min_size=1, max_size=4))
    inputs = draw(st.lists(operands(len(sizes)), max_size=3))
    styles = draw(st.lists(st.sampled_from(STYLES), min_size=1, max_size=2))
    return MapSpec(draw(kinds), tuple(sizes), tuple(inputs), tuple(styles))


@st.composite
def reduces(draw: st.DrawFn) -> ReduceSpec:
    sizes = draw(st.lists(size, min_size=1, max_size=4))
    parallel = draw(st.integers(0, len(sizes)))
    return ReduceSpec(
        draw(kinds),
        tuple(sizes),
        parallel,
        tuple(draw(st.lists(operands(len(sizes)), min_size=1, max_size=2))),
        tuple(draw(st.lists(operands(parallel), max_size=2))) if parallel else (),
        draw(st.sampled_from(STYLES)),
        tuple(
            draw(
                st.lists(
                    st.sampled_from(["sum", "sum", "largest", "smallest", "last"]),
                    min_size=1,
                    max_size=2,
                )
            )
        ),
    )


@st.composite
def contracts(draw: st.DrawFn, kinds: st.SearchStrategy[str] = kinds) -> ContractSpec:
    """
    Contractions: half with arbitrary index maps, otherwise matmuls and convolutions.

    Some read an f32 operand from a narrower type.
    """
    some = products(kinds), products(kinds), channelwise(kinds)
    found = draw(mapped(kinds) if draw(st.booleans()) else st.one_of(*some))
    stored = st.none() | st.sampled_from(NARROW)
    return replace(found, stored=draw(stored)) if found.kind == "f32" else found


@st.composite
def mapped(draw: st.DrawFn, kinds: st.SearchStrategy[str] = kinds) -> ContractSpec:
    """Contractions with arbitrary index maps."""
    sizes = draw(st.lists(size, min_size=1, max_size=4))
    parallel = draw(st.integers(0, len(sizes)))
    lhs, rhs = draw(operands(len(sizes))), draw(operands(len(sizes)))
    epilogue_inputs = draw(st.lists(operands(parallel), max_size=2)) if parallel else []
    return ContractSpec(draw(kinds), tuple(sizes), parallel, lhs, rhs, tuple(epilogue_inputs))


@st.composite
def products(draw: st.DrawFn, kinds: st.SearchStrategy[str] = kinds) -> ContractSpec:
    """`y[b, m, n] = sum x[b, m + window, k] * w[k, window, n]`, each operand in some order."""
    batch, rows, columns, terms, window = (draw(size) for _ in range(5))
    step = draw(st.integers(1, 2))
    lhs = [(1, 0, 0, 0, 0, 0), (0, step, 0, 0, 1, 0), (0, 0, 0, 1, 0, 0)]
    rhs = [(0, 0, 1, 0, 0, 0), (0, 0, 0, 1, 0, 0), (0, 0, 0, 0, 1, 0)]
    if draw(st.booleans()):
        rhs.append((1, 0, 0, 0, 0, 0))
    epilogue_inputs = draw(st.lists(operands(3), max_size=2))
    return ContractSpec(
        draw(kinds),
        (batch, rows, columns, terms, min(window, 3)),
        3,
        Operand(tuple(draw(st.permutations(lhs)))),
        Operand(tuple(draw(st.permutations(rhs)))),
        tuple(epilogue_inputs),
    )


@st.composite
def channelwise(draw: st.DrawFn, kinds: st.SearchStrategy[str] = kinds) -> ContractSpec:
    """
    Depthwise convolutions, with channels last or first.

    `y[m, n, c] = sum x[m + i, n + j, c] * w[i, j, c]` or `y[c, m, n] = sum x[c, m + i, n + j] *
    w[c, i, j]`, where columns have no stride.
    """
    lines, rows, channels, height, width = (draw(size) for _ in range(5))
    step, dilation = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    image = [(step, 0, 0, 1, 0, 0), (0, step, 0, 0, dilation, 0), (0, 0, 1, 0, 0, 0)]
    weights = [(0, 0, 0, 1, 0, 0), (0, 0, 0, 0, 1, 0), (0, 0, 1, 0, 0, 0)]
    outer = lines, rows, channels
    if draw(st.booleans()):
        image = [(1, 0, 0, 0, 0, 0), (0, step, 0, dilation, 0, 0), (0, 0, 1, 0, 1, 0)]
        weights = [(1, 0, 0, 0, 0, 0), (0, 0, 0, 1, 0, 0), (0, 0, 0, 0, 1, 0)]
        outer = channels, lines, rows
    return ContractSpec(
        draw(kinds),
        (*outer, min(height, 3), min(width, 5)),
        3,
        Operand(tuple(image)),
        Operand(tuple(weights)),
        tuple(draw(st.lists(operands(3), max_size=1))),
    )


@st.composite
def assembles(draw: st.DrawFn) -> AssembleSpec:
    rank = draw(st.integers(1, 3))

    def row(values: st.SearchStrategy[int]) -> Shape:
        return draw(st.tuples(*[values] * rank))

    return AssembleSpec(
        draw(kinds),
        row(size),
        draw(st.integers(0, rank - 1)),
        draw(st.integers(1, 3)),
        row(st.integers(0, 2)),
        row(st.integers(0, 2)),
        row(st.integers(1, 2)),
        draw(st.integers(0, 1)),
    )


sizes3 = st.tuples(size, size, size)
scatters = st.builds(
    ScatterSpec,
    kinds,
    sizes3,
    st.integers(1, 5),
    st.integers(0, 1),
    st.sampled_from(["sum", "last", "largest"]),
    st.booleans(),
)
choices = (
    st.tuples(size, size, size, size)
    .map(sorted)
    .flatmap(
        lambda sizes: st.builds(
            TopKSpec, kinds, st.just(sizes[0]), st.just(sizes[3]), st.just(sizes[2]), st.booleans()
        )
    )
)
packs = st.builds(PackSpec, kinds, sizes3, st.sampled_from([4, 16]), st.integers(0, 1))


def structured() -> st.SearchStrategy[Spec]:
    """Any structured operation."""
    return st.one_of(maps(), reduces(), contracts(), assembles(), scatters, choices, packs)
