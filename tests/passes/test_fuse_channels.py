"""Tests `fuse-channels`: which convolutions are fused with depthwise ones, and the values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, ModuleOp, i64
from xdsl.parser import Parser
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import ParseError, VerifyException

from popgraph.compiler import runner
from popgraph.dialects import tile
from popgraph.dialects.program.attributes import IntsAttr
from popgraph.dialects.tile.attributes import physical_shape
from popgraph.dialects.tile.structured.fused import region
from popgraph.passes.base import Compilation
from popgraph.passes.options import Options
from popgraph.passes.pipeline import planned
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.support.machine import Machine
from popgraph.support.tuning import Tuning
from popgraph.testing import Constant, Network, Node, assert_same_meaning, build_network

L2 = Machine().l2_bytes


def separable(
    channels: int, image: int = 14, *, batch: int = 1, stride: int = 1, between: bool = False
) -> Network:
    """A pointwise convolution, then a depthwise one with a window of 3x3."""
    nodes = (
        Node("Conv", (0, Constant((channels, 8, 1, 1), seed=1))),
        Node("Relu", (1,)),
        Node(
            "Conv",
            (2, Constant((channels, 1, 3, 3), seed=2)),
            (("pads", (1, 1, 1, 1)), ("group", channels), ("strides", (stride, stride))),
        ),
    )
    outputs = (2, 3) if between else (3,)
    return Network(((batch, 8, image, image),), nodes, "f32", outputs)


def depthwise(channels: int) -> Network:
    """A depthwise convolution without neighbours, two images of 9x24."""
    window = (("pads", (1, 2, 1, 2)), ("group", channels))
    nodes = (Node("Conv", (0, Constant((channels, 1, 3, 5), seed=1)), window), Node("Relu", (1,)))
    return Network(((2, channels, 9, 24),), nodes, "f32", (2,))


def lowered(
    network: Network, last: str = "fuse-channels", options: Options | None = None
) -> ModuleOp:
    compilation = Compilation()
    module = build_network(network, compilation.weights)
    before = module.clone()
    for _, made in planned(options or Options()):
        made.run(compilation, module)
        if made.name == last:
            break
    assert_same_meaning(before, module, compilation.weights, tolerance=1e-5)
    return module


def chains(module: ModuleOp) -> list[tile.FusedOp]:
    return [op for op in module.walk() if isinstance(op, tile.FusedOp)]


@pytest.mark.parametrize(
    "network",
    [
        separable(64),
        separable(64, stride=2),
        separable(64, batch=2),
        separable(96, image=7),
    ],
)
def test_depthwise_convolutions_are_fused(network: Network) -> None:
    (chain,) = chains(lowered(network))
    assert len(chain.members) == 2
    assert not chains(lowered(network, "structured-to-loops"))


@pytest.mark.parametrize(
    "network",
    [
        separable(64, between=True),
        separable(32),
    ],
)
def test_other_convolutions_are_not_fused(network: Network) -> None:
    """
    An image that is an output is stored in full; one panel of channels leaves nothing to split.
    """
    assert not chains(lowered(network))


def test_images_of_windows_along_pixels_are_local() -> None:
    """The image of a channel, with its halo, is copied to local memory before it is summed."""
    network = depthwise(5)
    (chain,) = chains(lowered(network))
    image = chain.members[0].results[0]
    assert chain.sizes == (2, 5)
    assert physical_shape(chain.region(image, 1)) == (1, 1, 11, 28)
    lowered(network, "structured-to-loops")


def test_few_channels_are_not_divided_among_threads() -> None:
    assert not chains(lowered(depthwise(3)))


def test_a_slice_of_channels_has_no_halo_along_them() -> None:
    """Pixels of 64 channels are spread over L1, those of 32 channels in a fused kernel are not."""
    options = Options(machine=replace(Machine(), l1_ways_free=0))
    (chain,) = chains(lowered(separable(64), options=options))
    type_ = tensor(chain.members[0].results[0])
    assert physical_shape(type_) == (1, 16, 16, 64 + 16)
    assert physical_shape(region(type_, {3: 32})) == (1, 16, 16, 32)


def test_large_images_use_line_buffers() -> None:
    """If a panel of channels exceeds the cache, line buffers of four or fewer rows are used."""
    small = Tuning(channel_image_l2=(18 * 18 * 32 * 4 - 1) / L2)
    (chain,) = chains(lowered(separable(64, image=16), options=Options(tuning=small)))
    assert chain.splits is not None and chain.steps.data[1] == 4
    row = 18 * chain.steps.data[0] * 4
    few = replace(small, line_buffer_l2=4 * row / L2)
    (chain,) = chains(lowered(separable(64, image=16), options=Options(tuning=few)))
    assert chain.splits is not None and chain.steps.data[1] == 2
    none = replace(small, line_buffer_l2=(3 * row - 1) / L2)
    assert not chains(lowered(separable(64, image=16), options=Options(tuning=none)))


def test_threads_split_line_buffers_or_prevent_fusion() -> None:
    """Three panels are imbalanced for two threads, but large images can be split by rows."""
    assert chains(lowered(separable(96)))
    assert not chains(lowered(separable(96), options=Options(threads=2)))
    (chain,) = chains(lowered(separable(96, image=112), options=Options(threads=2)))
    assert chain.splits is not None and chain.splits.value.data == 4


def test_line_buffers_of_one_thread_are_not_split() -> None:
    """Each split computes the rows at its border a second time."""
    (chain,) = chains(lowered(separable(96, image=112)))
    assert chain.splits is not None and chain.splits.value.data == 1


def test_images_that_exceed_the_cache_when_read_again_are_not_fused() -> None:
    small = Tuning(reread_l2=(8 * 14 * 14 * 4 - 1) / L2)
    assert not chains(lowered(separable(64), options=Options(tuning=small)))


def test_channels_per_iteration_fill_the_first_cache() -> None:
    """With 512 channels, 64 per iteration leave eight chunks and still fit in L1."""
    (chain,) = chains(lowered(separable(512, image=7)))
    assert chain.steps.data[0] == 64
    none = Options(tuning=Tuning(channel_image_l1=0))
    (chain,) = chains(lowered(separable(512, image=7), options=none))
    assert chain.steps.data[0] == 32


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("share", [Tuning().channel_image_l2, 0])
@pytest.mark.parametrize(
    "network",
    [
        separable(64),
        separable(96, stride=2, batch=2),
        separable(32, image=120),
        separable(64, image=112, stride=2),
        depthwise(20),
    ],
)
def test_fused_convolutions_give_the_same_bits(
    network: Network, share: float, threads: int
) -> None:
    """
    The bits of separate convolutions, for whole images and line buffers, and any thread count.
    """
    tuning = Tuning(channel_image_l2=share)

    def run(options: Options, threads: int) -> np.ndarray:
        compilation = Compilation()
        module = build_network(network, compilation.weights)
        draw = np.random.default_rng(0)
        image = draw.standard_normal(network.inputs[0]).astype(np.float32)
        made = runner(module, compilation, options, "c", threads)
        (found,) = made(x0=image).values()
        return np.asarray(found)

    alone = run(Options(tuning=tuning, disabled=frozenset({"fuse-channels"})), 1)
    np.testing.assert_array_equal(run(Options(tuning=tuning), threads), alone)


def looped(*loops: tuple[int, ...]) -> ArrayAttr[IntsAttr]:
    return ArrayAttr(map(IntsAttr.of, loops))


def other_loop(chain: tile.FusedOp) -> None:
    chain.properties["loops"] = looped((1,), (1,))
    chain.properties["domain"] = IntsAttr.of((14,))
    chain.properties["steps"] = IntsAttr.of((7,))


def loop_outside(chain: tile.FusedOp) -> None:
    chain.properties["loops"] = looped((3,), (9,))


def too_few_loops(chain: tile.FusedOp) -> None:
    chain.properties["loops"] = looped((3,))


def uneven(chain: tile.FusedOp) -> None:
    chain.properties["steps"] = IntsAttr.of((24,))


def too_few_steps(chain: tile.FusedOp) -> None:
    chain.properties["steps"] = IntsAttr.of(())


def line_buffer(loop: int, rows: int, splits: int = 1) -> Callable[[tile.FusedOp], None]:
    def change(chain: tile.FusedOp) -> None:
        chain.properties["loops"] = looped((3, loop), (3, loop))
        chain.properties["domain"] = IntsAttr.of((64, chain.members[1].sizes[loop]))
        chain.properties["steps"] = IntsAttr.of((32, rows))
        chain.properties["splits"] = IntegerAttr(splits, i64)

    return change


def yields_what_is_between(chain: tile.FusedOp) -> None:
    end = chain.body.block.last_op
    assert end is not None
    end.operands = chain.members[0].outputs


def buffers_a_result(chain: tile.FusedOp) -> None:
    line_buffer(1, 2)(chain)
    yields_what_is_between(chain)
    Rewriter.replace_value_with_new_type(chain.outputs[0], chain.yielded[0].type)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (other_loop, "reads elements of another iteration"),
        (loop_outside, "must have the loops of tile.fused"),
        (too_few_loops, "every operation must list 1 shared loops"),
        (too_few_steps, "steps must be at least 1, one for each shared loop"),
        (uneven, "steps must divide the sizes of the shared loops"),
        (line_buffer(1, 14), "the windows of a line buffer must advance by equal steps"),
        (line_buffer(2, 7), "the windows of a line buffer must advance by equal steps"),
        (line_buffer(3, 2), "must have the loops of tile.fused"),
        (line_buffer(1, 2, splits=2), "splits must divide the number of iterations"),
        (yields_what_is_between, "the body must yield the results"),
        (buffers_a_result, "the reader of a line buffer must yield the only results"),
    ],
)
def test_illegal_chains_do_not_verify(change: Callable[[tile.FusedOp], None], message: str) -> None:
    (chain,) = chains(lowered(separable(64)))
    change(chain)
    with pytest.raises(VerifyException, match=message):
        chain.verify()


@pytest.mark.parametrize(
    ("text", "others"),
    [
        ("#tile.prefetch_ahead<argument 2, by 640, more 3>", "none"),
        (
            "#tile.schedule<n_dim 1, n_vectors 2, m_dim 0, mr 4, kc 8, lanes 4, more 3>",
            "k_outer, m_outer_dim, n_inner, window_panels",
        ),
    ],
)
def test_unknown_fields_of_attributes_are_named(text: str, others: str) -> None:
    context = Context()
    context.load_dialect(tile.TILE)
    with pytest.raises(ParseError, match=f"optional fields: {others}"):
        Parser(context, text).parse_attribute()
