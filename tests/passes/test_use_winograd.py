"""Tests Winograd's transforms: values, accuracy, and which convolutions use them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.dialects.builtin import (
    ArrayAttr,
    ModuleOp,
    NameLoc,
    NoneAttr,
    StringAttr,
    TensorType,
    f64,
)
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import VerifyException

import popgraph
from popgraph.backends.reference import evaluate
from popgraph.compiler import load, lower
from popgraph.dialects import tile
from popgraph.dialects.program import WeightStore
from popgraph.dialects.program.attributes import IntsAttr
from popgraph.dialects.tile.attributes import LayoutAttr, ScheduleAttr
from popgraph.dialects.tile.structured.winograd import MatrixAttr, transforms
from popgraph.passes.base import Compilation
from popgraph.passes.loops.prefetch_panels import PrefetchPanels
from popgraph.passes.options import Options
from popgraph.passes.structured.fusion.join import join
from popgraph.passes.structured.parallel.parallelize_loops import ParallelizeLoops
from popgraph.passes.structured.schedule.overrides import contraction_text
from popgraph.passes.structured.to_loops import StructuredToLoops
from popgraph.passes.structured.winograd.use_winograd import UseWinograd
from popgraph.popart.api.builder import Builder
from popgraph.support.arrays import Array
from popgraph.support.machine import PRESETS
from popgraph.support.tuning import Target
from popgraph.testing.structured import graph_of, sum_epilogue
from tests.checking import check_ir
from tests.passes.sharing import THREADS, sharing_all

VECTORS, WIDTH = 2, 4
TARGET = Target.of(8 * WIDTH, 16)


@dataclass(frozen=True)
class Spec:
    """A convolution of padded images with a bias and a residual."""

    image: tuple[int, int, int]
    """Number, height and width of images."""
    channels: tuple[int, int]
    """Input and output channels."""
    size: int
    tiles: int
    at_once: bool
    block: int
    chunk: int
    window: int = 3

    def module(self) -> ModuleOp:
        (count, height, width), (before, behind) = self.image, self.channels
        more = self.window - 1
        side = self.size + more
        sizes = (*self.image, behind)
        image = (count, height + more, width + more, before)
        shapes = [image, (side**2, before, behind), (behind,)]
        lanes = VECTORS * WIDTH
        tap, c, k, last = (AffineExpr.dimension(dim) for dim in range(4))
        panels = AffineMap(3, 0, (k // lanes, tap, c, k % lanes))
        layout = LayoutAttr.of(panels, (-(-behind // lanes), side**2, before, lanes))
        schedule = ScheduleAttr.of(
            n_dim=2, n_vectors=VECTORS, m_dim=1, mr=self.block, kc=self.chunk, lanes=WIDTH
        )
        maps = [AffineMap(4, 0, (last,)), AffineMap.identity(4)]

        matrices = transforms(self.size, self.window)
        total = count * -(-height // self.size) * -(-width // self.size)
        row = AffineExpr.dimension(1)
        factors = [AffineMap(4, 0, (tap, row, last)), AffineMap(4, 0, (tap, last, k))]

        def build(values: Sequence[SSAValue]) -> list[Operation]:
            pack = tile.PackOp(values[1], TensorType(f64, shapes[1], layout))
            type_ = TensorType(f64, (side**2, total, before))
            if self.at_once:
                rows = -(-total // self.tiles) * self.tiles
                room = LayoutAttr.moved((0, 0, 0), (side**2, rows, before))
                type_ = TensorType(f64, type_.get_shape(), room)
            tiles = tile.TransformTilesOp(
                values[0], self.image, (0, 0), self.size, matrices.input, type_
            )
            domain = (side**2, total, behind, before)
            product = tile.contraction(
                tiles.output, pack.output, factors, domain, 3, sum_epilogue(f64, 1, 0), [f64]
            )
            product.properties["schedule"] = schedule
            into = tile.TransformTilesOp(
                product.outputs[0],
                self.image,
                None,
                self.size,
                matrices.output,
                TensorType(f64, sizes),
                sum_epilogue(f64, 1, 2),
                values[2:],
                maps,
            )
            return [pack, tiles, product, into]

        module = graph_of([(shape, f64) for shape in (*shapes, sizes)], build)
        tiles, product, into = (
            op for op in module.walk() if isinstance(op, tile.TransformTilesOp | tile.ReduceOp)
        )
        if self.at_once:
            join([product, into], (behind, total), (lanes, self.tiles), [(2, 1), (1, 0)])
        else:
            loops = [(0,), (1, 2), (0, 1)]
            join([tiles, product, into], (total, behind), (self.tiles, lanes), loops)
        return module


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    size = draw(st.sampled_from([2, 4]))
    extents = st.integers(size, 9)
    return Spec(
        (draw(st.integers(1, 2)), draw(extents), draw(extents)),
        (draw(st.integers(1, 9)), draw(st.integers(1, 20))),
        size,
        draw(st.integers(1, 7)),
        draw(st.booleans()),
        draw(st.integers(1, 4)),
        draw(st.sampled_from([0, 2])),
        draw(st.sampled_from([3, 2])),
    )


def convolution(x: Array, w: Array) -> Builder:
    """A network of one convolution that keeps the size of its images."""
    builder = Builder()
    images = builder.addInputTensor("FLOAT", list(x.shape), "x")
    weights = builder.addInitializedInputTensor(w, "w")
    builder.addOutputTensor(builder.aiOnnx.conv([images, weights], pads=[1, 1, 1, 1]))
    return builder


def by_sums(x: Array, w: Array) -> Array:
    """A convolution of padded images, channels last, with weights [k, c, r, s]."""
    window = w.shape[2]
    height, width = (size - window + 1 for size in x.shape[1:3])
    windows = [
        np.einsum("nyxc,kc->nyxk", x[:, r : r + height, s : s + width], w[:, :, r, s])
        for r, s in np.ndindex(window, window)
    ]
    return np.asarray(sum(windows))


def gradient_by_sums(x: Array, dy: Array) -> Array:
    """The weight gradient of a convolution of padded images, as [k, r, s, c]."""
    height, width = dy.shape[1:3]
    gradient = np.empty((dy.shape[-1], 3, 3, x.shape[-1]))
    for r, s in np.ndindex(3, 3):
        window = x[:, r : r + height, s : s + width]
        gradient[:, r, s] = np.einsum("nyxk,nyxc->kc", dy, window)
    return gradient


@given(specs(), st.sampled_from([64, 16384]))
def test_winograd_tiles_compute_the_convolution(spec: Spec, grain: int) -> None:
    """The operation and its loops; with border tiles, partial panels and partial blocks."""
    module = spec.module()
    check_ir(module)
    loops = module.clone()
    target = sharing_all(grain, 8 * WIDTH)
    ParallelizeLoops(THREADS, target).run(Compilation(), loops)
    StructuredToLoops(target).run(Compilation(), loops)
    check_ir(loops)
    rng = np.random.default_rng(0)
    count, height, width = spec.image
    before, behind = spec.channels
    more = spec.window - 1
    x = rng.standard_normal((count, height + more, width + more, before))
    w = rng.standard_normal((behind, before, spec.window, spec.window))
    bias, residual = rng.standard_normal(behind), rng.standard_normal((*spec.image, behind))
    matrix = np.array(transforms(spec.size, spec.window).weights)
    u = np.einsum("ir,js,kcrs->ijck", matrix, matrix, w).reshape(-1, before, behind)
    expected = by_sums(x, w) + bias + residual
    for written in (module, loops):
        inputs = {"x0": x, "x1": u, "x2": bias, "x3": residual}
        (found,) = evaluate(written, inputs, WeightStore(), None)[0].values()
        np.testing.assert_allclose(found, expected, atol=1e-12 * np.abs(expected).max())


def other_panel(fused: tile.FusedOp) -> None:
    fused.properties["steps"] = IntsAttr.of((3, WIDTH))


def other_loops(fused: tile.FusedOp) -> None:
    loops = [(0,), (1, 2), (1, 0)]
    fused.properties["loops"] = ArrayAttr(map(IntsAttr.of, loops))


def unscheduled(fused: tile.FusedOp) -> None:
    del fused.members[1].properties["schedule"]


def into_nothing(fused: tile.FusedOp) -> None:
    fused.members[-1].properties["offset"] = IntsAttr.of((0, 0))


def other_matrix(fused: tile.FusedOp) -> None:
    fused.members[-1].properties["matrix"] = MatrixAttr.of(transforms(2, 3).input)


def dense_weights(fused: tile.FusedOp) -> None:
    weights = fused.body.block.args[1]
    assert isinstance(weights.type, TensorType)
    dense = TensorType(f64, weights.type.get_shape())
    for value in (weights, fused.operands[1]):
        Rewriter.replace_value_with_new_type(value, dense)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (other_panel, "must compute one panel of channels at a time"),
        (other_loops, "must have the loops of tile.fused"),
        (unscheduled, "must be around a scheduled contraction"),
        (into_nothing, "an offset is for tiles of images"),
        (other_matrix, "must have a row for each row of a tile"),
        (dense_weights, r"must be stored as \[panel, tap, channel, lane\]"),
    ],
)
def test_illegal_winograd_convolutions_do_not_verify(
    change: Callable[[tile.FusedOp], None], message: str
) -> None:
    spec = Spec((1, 6, 7), (5, 11), 2, 3, at_once=False, block=2, chunk=0)
    (fused,) = (op for op in spec.module().walk() if isinstance(op, tile.FusedOp))
    fused.verify()
    change(fused)
    with pytest.raises(VerifyException, match=message):
        fused.verify()


@given(specs(), st.sampled_from([64, 16384]))
def test_winograd_tiles_compute_the_weight_gradient(spec: Spec, grain: int) -> None:
    """The operations and their loops; gradient elements shared by two tiles count once."""
    count, height, width = spec.image
    before, behind = spec.channels
    shapes = [(count, height + 2, width + 2, before), (*spec.image, behind)]
    k, r, s, c, n, y, x = (AffineExpr.dimension(dim) for dim in range(7))
    maps = [AffineMap(7, 0, (n, y + r, x + s, c)), AffineMap(7, 0, (n, y, x, k))]
    sizes = (behind, 3, 3, before, *spec.image)
    weights = AffineMap.identity(4)

    def build(values: Sequence[SSAValue]) -> list[Operation]:
        lhs, rhs, *epilogue_inputs = values
        end = sum_epilogue(f64, 1, 1)
        return [tile.contraction(lhs, rhs, maps, sizes, 4, end, [f64], epilogue_inputs, [weights])]

    module = graph_of([(shape, f64) for shape in (*shapes, sizes[:4])], build)
    compilation = Compilation()
    found = next(op for op in module.walk() if tile.is_contraction(op))
    text = contraction_text(found, (False, False))
    UseWinograd(TARGET, (f"{text} -> winograd {spec.size}",)).run(compilation, module)
    assert sum(isinstance(op, tile.TransformTilesOp) for op in module.walk()) == 2
    check_ir(module)
    loops = module.clone()
    target = sharing_all(grain, 8 * WIDTH)
    ParallelizeLoops(THREADS, target).run(compilation, loops)
    StructuredToLoops(target).run(compilation, loops)
    check_ir(loops)
    rng = np.random.default_rng(0)
    image, slope = (rng.standard_normal(shape) for shape in shapes)
    old = rng.standard_normal(sizes[:4])
    expected = old + gradient_by_sums(image, slope)
    for written in (module, loops):
        inputs = {"x0": image, "x1": slope, "x2": old}
        (result,) = evaluate(written, inputs, compilation.weights, None)[0].values()
        np.testing.assert_allclose(result, expected, atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize(("side", "asks"), [(8, False), (64, True)])
def test_large_winograd_tiles_are_prefetched(side: int, asks: bool) -> None:
    """Lines of every tap are prefetched some channels ahead; small tiles need no prefetch."""
    type_ = TensorType(f64, (36, (side // 4) ** 2, 32))

    def build(values: Sequence[SSAValue]) -> list[Operation]:
        matrix = transforms(4, 3).input
        return [tile.TransformTilesOp(values[0], (1, side, side), (0, 0), 4, matrix, type_)]

    module = graph_of([((1, side + 2, side + 2, 32), f64)], build)
    for step in (StructuredToLoops(TARGET), PrefetchPanels(TARGET)):
        step.run(Compilation(), module)
    asked = [op for op in module.walk() if isinstance(op, tile.PrefetchOp)]
    assert len(asked) == (36 if asks else 0) and all(op.written for op in asked)


def test_winograd_kernels_have_the_location_of_the_convolution() -> None:
    """Profiles and errors name the user's operator, also for the transforms of its tiles."""
    builder = convolution(np.ones((1, 128, 14, 14), "f"), np.ones((128, 128, 3, 3), "f"))
    module, compilation = load(builder)
    here = NameLoc(StringAttr("here"), NoneAttr())
    for op in module.walk():
        op.location = here
    lower(module, compilation, Options(), until="use-winograd")
    found = [op for op in module.walk() if isinstance(op, tile.FusedOp | tile.TransformTilesOp)]
    assert len(found) == 3 and {op.location for op in found} == {here}


@pytest.mark.parametrize(("size", "channels"), [(13, 64), (14, 128), (28, 16), (8, 48)])
def test_winograd_accuracy(size: int, channels: int) -> None:
    """At most 1.3e-6 of the largest result; the same bits for every number of threads."""
    rng = np.random.default_rng(channels)
    x = np.maximum(rng.standard_normal((1, channels, size, size)), 0).astype(np.float32)
    spread = np.sqrt(2 / (9 * channels))
    w = (spread * rng.standard_normal((80, channels, 3, 3))).astype(np.float32)
    builder = convolution(x, w)
    padded = np.pad(x.astype(np.float64).transpose(0, 2, 3, 1), ((0, 0), (1, 1), (1, 1), (0, 0)))
    expected = by_sums(padded, w.astype(np.float64)).transpose(0, 3, 1, 2)
    found = [
        next(iter(popgraph.compile(builder, threads=threads, options=options)({"x": x}).values()))
        for options in (Options(), Options(winograd=False))
        for threads in (1, 3)
    ]
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[2], found[3])
    assert np.any(found[0] != found[2]), "this convolution was to go by Winograd's transforms"
    assert np.abs(found[0] - expected).max() <= 1.3e-6 * np.abs(expected).max()


def test_phases_of_a_transposed_convolution_use_winograd() -> None:
    """Each phase of 4x4 windows with stride 2 is a convolution with a 2x2 window."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 64, 8, 8)).astype(np.float32)
    w = (rng.standard_normal((64, 16, 4, 4)) / 16).astype(np.float32)
    builder = Builder()
    images = builder.addInputTensor("FLOAT", list(x.shape), "x")
    weights = builder.addInitializedInputTensor(w, "w")
    attributes = {"strides": [2, 2], "pads": [1, 1, 1, 1]}
    builder.addOutputTensor(builder.aiOnnx.convtranspose([images, weights], **attributes))
    module, compilation = load(builder)
    lower(module, compilation, Options(machine=PRESETS["zen4"]), until="use-winograd")
    assert sum(isinstance(op, tile.TransformTilesOp) for op in module.walk()) == 8
    expected = np.zeros((1, 16, 18, 18))
    for r, s in np.ndindex(4, 4):
        spread = np.einsum("ncyx,ck->nkyx", x.astype(np.float64), w[:, :, r, s].astype(np.float64))
        expected[:, :, r : r + 16 : 2, s : s + 16 : 2] += spread
    expected = expected[:, :, 1:-1, 1:-1]
    (found,) = popgraph.compile(builder)({"x": x}).values()
    assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max()


def test_winograd_of_a_channel_slice() -> None:
    """A convolution of the first channels of a larger tensor must not transform the others."""
    builder = Builder()
    generator = np.random.default_rng(0)
    before = generator.standard_normal((64, 64, 1, 1)).astype(np.float32)
    weight = generator.standard_normal((64, 32, 3, 3)).astype(np.float32) / 17
    x = builder.addInputTensor(popgraph.TensorInfo("FLOAT", [1, 64, 28, 28]), "x")
    both = builder.aiOnnx.conv([x, builder.addInitializedInputTensor(before)])
    starts, ends, axes = (builder.aiOnnx.constant(np.array([at])) for at in (0, 32, 1))
    half = builder.aiOnnx.slice([both, starts, ends, axes])
    y = builder.aiOnnx.conv([half, builder.addInitializedInputTensor(weight)])
    builder.addOutputTensor(y)
    builder.addOutputTensor(builder.aiOnnx.tanh([both]))
    image = {"x": generator.standard_normal((1, 64, 28, 28)).astype(np.float32)}
    module, compilation = load(builder)
    lower(module, compilation, until="use-winograd")
    check_ir(module, text=False)
    expected = popgraph.compile(builder, options=Options(winograd=False))(image)[y]
    found = popgraph.compile(builder)(image)[y]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
