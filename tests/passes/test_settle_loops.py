"""Tests `settle-loops`: large matrix-vector products are split into parallel streams."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from xdsl.dialects.builtin import ModuleOp

import popgraph
from popgraph.compiler import load, lower
from popgraph.dialects.tile import PrefetchOp, ReduceOp, is_contraction
from popgraph.passes.base import Compilation
from popgraph.passes.options import Options
from popgraph.passes.structured.schedule.settle_loops import SettleLoops
from popgraph.support.machine import TARGETS
from popgraph.support.tuning import Tuning
from popgraph.testing import Constant, Network, Node, build_network

TERMS, RESULTS = 600, 1000
STREAMS = Tuning().gemv_strips


def dense(
    rows: int = 1, terms: int = TERMS, results: int = RESULTS, *, constant: bool = True
) -> onnx.ModelProto:
    """y = Relu(x w + b)."""
    generator = np.random.default_rng(0)
    arrays = {
        "w": generator.standard_normal((terms, results)).astype(np.float32),
        "b": generator.standard_normal(results).astype(np.float32),
    }
    shapes = {"x": (rows, terms)} | ({} if constant else {"w": (terms, results)})
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["z"], alpha=0.5)]
    nodes.append(helper.make_node("Relu", ["z"], ["y"]))
    graph = helper.make_graph(
        nodes,
        "dense",
        [helper.make_tensor_value_info(name, 1, shape) for name, shape in shapes.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (rows, results))],
        [numpy_helper.from_array(arrays[name], name) for name in arrays if name not in shapes],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def lowered(model: onnx.ModelProto, last: str) -> ModuleOp:
    module, compilation = load(model)
    lower(module, compilation, Options(machine=TARGETS["avx2"]), until=last)
    return module


def product(model: onnx.ModelProto) -> ReduceOp:
    """The scheduled contraction."""
    found = lowered(model, "schedule-contractions").walk()
    (op,) = (op for op in found if is_contraction(op))
    return op


def test_streams_are_rows_of_the_schedule() -> None:
    op = product(dense())
    assert op.sizes == (1, STREAMS, RESULTS // STREAMS, TERMS)
    assert op.schedule is not None
    numbers = op.schedule.numbers
    assert (numbers["n_dim"], numbers["m_dim"], numbers["mr"]) == (2, 1, STREAMS)


def test_a_second_run_does_not_join_strips() -> None:
    """The loops over strips are adjacent, like loops that the pass joins."""
    module = lowered(dense(), SettleLoops.name)
    once = str(module)
    assert f"{STREAMS}x{RESULTS // STREAMS}xf32" in once
    SettleLoops(Options(machine=TARGETS["avx2"]).target).run(Compilation(), module)
    assert str(module) == once


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"rows": 2}, id="weights that are read by two rows"),
        pytest.param({"results": 1002}, id="parts of different sizes"),
        pytest.param({"terms": 500}, id="weights that a cache may keep"),
        pytest.param({"terms": 10_000, "results": 100}, id="few results"),
        pytest.param({"constant": False}, id="weights that are not packed"),
    ],
)
def test_other_contractions_are_not_split_into_streams(other: dict[str, Any]) -> None:
    assert STREAMS not in product(dense(**other)).sizes


def test_each_stream_is_prefetched() -> None:
    """
    A micro-kernel prefetches every cache line of a step in every stream.

    It is the only one: 288 results per stream are whole panels of one to four vectors.
    """
    model = dense(results=STREAMS * 288)
    schedule = product(model).schedule
    assert schedule is not None and schedule.nr in (8, 16, 24, 32)
    asked = [op for op in lowered(model, "prefetch-panels").walk() if isinstance(op, PrefetchOp)]
    assert len(asked) == STREAMS * -(-schedule.nr // 16)


@pytest.mark.parametrize("results", [1000, 1024])
def test_streams_compute_the_same(results: int) -> None:
    """Also if the last panel of every stream is partial."""
    model = dense(results=results)
    w, b = (numpy_helper.to_array(array) for array in model.graph.initializer)
    x = np.random.default_rng(1).standard_normal((1, TERMS)).astype(np.float32)
    wanted = np.maximum(0.5 * (x.astype(np.float64) @ w) + b, 0)
    found = [popgraph.compile(model, threads=threads)({"x": x})["y"] for threads in (1, 2, 3)]
    np.testing.assert_allclose(found[0], wanted, rtol=1e-5, atol=1e-5)
    assert all(np.array_equal(found[0], other) for other in found[1:])


@pytest.mark.parametrize("channels", [8, 62, 64])
def test_a_second_run_keeps_the_loops_of_a_portable_convolution(channels: int) -> None:
    """Also if the window encloses blocks of channels, as with 64."""
    weight = Constant((4, channels, 3, 3), "f32", seed=1)
    network = Network(((1, channels, 5, 5),), (Node("Conv", (0, weight)),))
    compilation = Compilation()
    module = build_network(network, compilation.weights)
    options = Options(machine=TARGETS["avx2"], winograd=False, determinism="portable")
    lower(module, compilation, options, until="settle-loops")
    (op,) = (op for op in module.walk() if is_contraction(op))
    assert (4 if channels == 64 else 1) in op.sizes[op.parallel_rank :]
    once = str(module)
    SettleLoops.of(options).run(compilation, module)
    assert str(module) == once
