"""Tests `fuse-attention`: which products join the softmax, and the values."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp, TensorType

from popgraph import compile as compile_module
from popgraph.backends.c.run.executable import CExecutable
from popgraph.dialects import tile
from popgraph.dialects.tile.attributes import layout_of
from popgraph.passes.base import Compilation
from popgraph.passes.options import Options
from popgraph.passes.pipeline import planned
from popgraph.support.machine import Machine
from popgraph.support.tuning import Tuning
from popgraph.testing import Network, Node, assert_same_meaning, build_network

L2 = Machine().l2_bytes

ROWS, WIDTH, KEYS, VALUES = 37, 16, 64, 32


def attention(
    batch: tuple[int, ...],
    *more: Node,
    outputs: tuple[int, ...],
    sizes: tuple[int, int, int] = (ROWS, KEYS, VALUES),
) -> Network:
    rows, keys, values = sizes
    inputs = ((*batch, rows, WIDTH), (*batch, WIDTH, keys), (*batch, keys, values))
    nodes = (
        Node("MatMul", (0, 1)),
        Node("Softmax", (3,), (("axis", -1),)),
        Node("MatMul", (4, 2)),
        *more,
    )
    return Network(inputs, nodes, "f32", outputs)


def lowered(network: Network, last: str, tuning: Tuning | None = None) -> ModuleOp:
    compilation = Compilation()
    module = build_network(network, compilation.weights)
    before = module.clone()
    for _, made in planned(Options(tuning=tuning or Tuning())):
        made.run(compilation, module)
        if made.name == last:
            break
    assert_same_meaning(before, module, compilation.weights, tolerance=1e-5)
    return module


def joined(module: ModuleOp) -> list[tile.FusedOp]:
    found = [op for op in module.walk() if isinstance(op, tile.FusedOp)]
    return [op for op in found if tile.is_contraction(op.members[0])]


HEADS_TOGETHER = Node("Transpose", (5,), (("perm", (0, 2, 1, 3)),))


@pytest.mark.parametrize(("local_bytes", "step"), [(4096, 8), (10**6, 28)])
@pytest.mark.parametrize(
    "network",
    [
        attention((2,), outputs=(5,)),
        attention((1, 3), outputs=(5,)),
        attention((1, 3), HEADS_TOGETHER, outputs=(6,)),
    ],
)
def test_matmuls_join_the_softmax(network: Network, local_bytes: int, step: int) -> None:
    """With a few rows per iteration (and a remainder), and with all rows at once."""
    tuning = Tuning(attention_scores_l2=0, attention_rows_l2=local_bytes / L2)
    (fused,) = joined(lowered(network, "fuse-attention", tuning))
    assert fused.steps.data[-1] == step
    assert tile.is_contraction(fused.members[-1])
    assert not joined(lowered(network, "structured-to-loops", tuning))


def test_last_panels_are_not_read_past_the_last_head() -> None:
    """Few rows read keys in place; vectors of a last panel that is not full end with the head."""
    network = attention((3,), outputs=(5,), sizes=(8, 61, 30))
    tuning = Tuning(attention_scores_l2=0)
    (fused,) = joined(lowered(network, "fuse-attention", tuning))
    scores = fused.members[0]
    assert tile.is_contraction(scores)
    keys = scores.rhs.type
    assert isinstance(keys, TensorType) and not layout_of(keys)
    lowered(network, "structured-to-loops", tuning)


@pytest.mark.parametrize(
    ("network", "far"),
    [
        (attention((2,), outputs=(5,)), 2 * ROWS * KEYS * 4),
        (attention((2,), outputs=(3, 5)), 0),
        (attention((2,), outputs=(4, 5)), 0),
    ],
)
def test_matmuls_are_not_fused(network: Network, far: int) -> None:
    """Few scores stay in cache; scores and probabilities that are outputs are stored in full."""
    tuning = Tuning(attention_scores_l2=far / L2)
    assert not joined(lowered(network, "fuse-attention", tuning))


@pytest.mark.parametrize(("rows", "keys"), [(1101, 1001), (512, 4096)])
def test_fused_attention_is_that_of_numpy(rows: int, keys: int) -> None:
    """With default tuning, on scores large enough to be fused."""
    shapes = ((1, rows, 8), (1, 8, keys), (1, keys, 16))
    draw = np.random.default_rng(0)
    q, k, v = (draw.standard_normal(shape).astype(np.float32) for shape in shapes)
    scores = q @ k
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = (exponentials / exponentials.sum(-1, keepdims=True)) @ v
    nodes = (Node("MatMul", (0, 1)), Node("Softmax", (3,), (("axis", -1),)), Node("MatMul", (4, 2)))
    compilation = Compilation()
    module = build_network(Network(shapes, nodes, "f32", (5,)), compilation.weights)
    run = compile_module(module)
    scores_bytes = rows * keys * 4
    assert isinstance(run.static, CExecutable) and run.static.table.arena < scores_bytes
    (found,) = run(x0=q, x1=k, x2=v).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_heads_that_share_keys_are_fused() -> None:
    """The offset of keys and values is not proportional to the head's number."""
    text = """
        opset 23
        graph grouped(q: f32[1, 4, 37, 16], k: f32[1, 2, 61, 16], v: f32[1, 2, 61, 16]) -> y {
            y = Attention(q, k, v)
        }
    """
    draw = np.random.default_rng(0)
    q, k, v = (
        draw.standard_normal((1, heads, rows, 16)).astype(np.float32)
        for heads, rows in ((4, 37), (2, 61), (2, 61))
    )
    run = compile_module(text, options=Options(tuning=Tuning(attention_scores_l2=0)))
    assert isinstance(run.static, CExecutable) and run.static.table.arena < 4 * 37 * 61 * 4
    exponentials = np.exp(q @ np.repeat(k, 2, axis=1).swapaxes(2, 3) / 4)
    weights = exponentials / exponentials.sum(-1, keepdims=True)
    (found,) = run(q=q, k=k, v=v).values()
    np.testing.assert_allclose(found, weights @ np.repeat(v, 2, axis=1), rtol=1e-4, atol=1e-5)
