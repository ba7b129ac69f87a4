"""Tests exchanges between ranks at every level: their meaning, their buckets, when they begin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from xdsl.builder import ImplicitBuilder
from xdsl.dialects.builtin import ModuleOp, TensorType, f32, i1
from xdsl.utils.exceptions import VerifyException

import popgraph.popart as popart
from popgraph.backends.c.run.executable import CExecutable
from popgraph.backends.reference import evaluate, first_state
from popgraph.compiler import BuildRequest, lower
from popgraph.dialects import graphcore as gc
from popgraph.dialects.check import check_ir
from popgraph.dialects.levels import LEVELS
from popgraph.dialects.program import GraphOp, ReturnOp, VariableOp
from popgraph.engine.program import Request
from popgraph.passes.analysis.graph import only_graph
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore import bucket_exchanges
from popgraph.passes.graphcore.bucket_exchanges import BucketExchanges
from popgraph.passes.graphcore.training.add_optimizer import AddOptimizer
from popgraph.passes.graphcore.training.ranks import RANK
from popgraph.passes.optimizer_spec import SGD, Adam, ClipNorm
from popgraph.passes.options import Options
from popgraph.popart.model.model import SessionModel, open_model
from popgraph.popart.programs.program import Program
from popgraph.support.arrays import Array
from popgraph.support.dtypes import BY_NAME
from popgraph.support.errors import PopgraphError, TypeMismatchError
from popgraph.support.ranks.communicator import (
    COMBINED_BY,
    KINDS,
    Exchange,
    RankError,
    exchange_code,
    exchange_of,
)
from popgraph.support.shapes import prod
from tests.ranks.threads import Thread, combined, on_ranks

RANKS = 2


def exchange(kind: str, combine: str = "Add", *, when: bool = False, count: int = 6) -> ModuleOp:
    """A graph with y = 2 * exchange(x)."""
    types = [TensorType(f32, [count]), *([TensorType(i1, [])] if when else [])]
    graph = GraphOp("main", ["x", "when"][: len(types)], types)
    x, *sent = graph.block.args
    with ImplicitBuilder(graph.block):
        got = gc.ExchangeOp(x, *sent, kind=kind, size=RANKS, combine=combine)
        y = gc.AddOp(got, got)
        ReturnOp([y.result], ["y"])
    return ModuleOp([graph])


def lowered(module: ModuleOp, level: str) -> tuple[ModuleOp, Compilation]:
    module, compilation = module.clone(), Compilation()
    lower(module, compilation, Options(), level=level)
    check_ir(module)
    return module, compilation


def rows(rank: int, count: int = 6) -> Array:
    return np.arange(count, dtype=np.float32) * (rank + 1)


@pytest.mark.parametrize("level", LEVELS[1:])
@pytest.mark.parametrize(
    ("kind", "combine"), [(KINDS[0], "Max"), (KINDS[1], "Add"), (KINDS[2], "Add")]
)
def test_exchanges_mean_the_same_at_every_level(level: str, kind: str, combine: str) -> None:
    module, compilation = lowered(exchange(kind, combine), level)
    found = on_ranks(
        RANKS, lambda one: evaluate(module, {"x": rows(one.rank)}, compilation.weights)[0]["y"]
    )
    given = [rows(rank) for rank in range(RANKS)]
    for rank, y in enumerate(found):
        np.testing.assert_array_equal(
            y, 2 * combined(Exchange(kind, 1, RANKS, combine), given, rank)
        )


@pytest.mark.parametrize("kind", KINDS)
def test_exchanges_in_c(kind: str) -> None:
    """Nothing is exchanged where `when` is false."""
    module = exchange(kind, when=True)
    request = BuildRequest(module, Compilation(), Options(), "c", 1)
    programs = [request.executable() for _ in range(RANKS)]
    assert isinstance(programs[0], CExecutable)
    given = [rows(rank) for rank in range(RANKS)]

    def work(one: Any) -> list[Array]:
        inputs = [{"x": given[one.rank], "when": np.array(when)} for when in (True, False)]
        return [programs[one.rank].run(each)["y"] for each in inputs]

    for rank, (sent, skipped) in enumerate(on_ranks(RANKS, work)):
        wanted = combined(Exchange(kind, 1, RANKS), given, rank)
        np.testing.assert_array_equal(sent, 2 * wanted)
        kept = 2 * given[rank] if kind == "all_reduce" else np.zeros_like(wanted)
        np.testing.assert_array_equal(skipped, kept)


def test_errors_of_exchanges_in_c_are_raised_after_the_run() -> None:
    program = BuildRequest(exchange("all_reduce"), Compilation(), Options(), "c", 1).executable()
    with pytest.raises(RankError, match="1 ranks cannot form groups of 2"):
        program.run({"x": rows(0)})


def test_exchanges_overlap_with_computation() -> None:
    """Every message starts as soon as its value is complete; waits come last."""
    graph = GraphOp("main", ["x"], [TensorType(f32, [4, 4])])
    (x,) = graph.block.args
    with ImplicitBuilder(graph.block):
        first = gc.MatMulOp(x, x)
        second = gc.MatMulOp(first, x)
        sent = [
            gc.ExchangeOp(gc.ReshapeOp(one, shape=[16]), kind="all_reduce", size=RANKS)
            for one in (first, second)
        ]
        ReturnOp([one.result for one in sent], ["a", "b"])
    module, compilation = ModuleOp([graph]), Compilation()
    BucketExchanges(1).run(compilation, module)
    names = [op.name.removeprefix("graphcore.") for op in only_graph(module).block.ops]
    assert names[:6] == ["mat_mul", "reshape", "exchange", "mat_mul", "reshape", "exchange"]
    program = BuildRequest(module, compilation, Options(), "c", 1).executable()

    def work(one: Any) -> list[str]:
        program_of[one.rank].run({"x": np.eye(4, dtype=np.float32)})
        return one.log

    program_of = [program, BuildRequest(module, compilation, Options(), "c", 1).executable()]
    for log in on_ranks(RANKS, work):
        assert log == ["start 16", "start 16", "finish 16", "finish 16"]


# Buckets


@dataclass(frozen=True)
class Drawn:
    """Rows, each the sum of two earlier ones, perhaps all-reduced; and the bytes of a bucket."""

    steps: tuple[tuple[int, int, int, bool], ...]
    """Numbers of two earlier rows, repetitions of the sum, and whether it is all-reduced."""
    bucket: int


@st.composite
def graphs(draw: st.DrawFn) -> Drawn:
    steps = []
    for made in range(draw(st.integers(1, 8))):
        of = st.integers(0, made)
        steps.append((draw(of), draw(of), draw(st.integers(1, 2)), draw(st.booleans())))
    return Drawn(tuple(steps), draw(st.sampled_from([1, 20, 10**6])))


def built(drawn: Drawn) -> ModuleOp:
    graph = GraphOp("main", ["x"], [TensorType(f32, [2])])
    made = [graph.block.args[0]]
    with ImplicitBuilder(graph.block):
        for one, other, repeated, sent in drawn.steps:
            total = gc.ReduceSumOp(made[other], axes=[0], keepdims=True)
            value: Any = gc.AddOp(made[one], total)
            if repeated > 1:
                value = gc.ConcatOp([value] * repeated, axis=0)
            if sent:
                value = gc.ExchangeOp(value, kind="all_reduce", size=RANKS)
            made.append(value.result)
        ReturnOp(made[1:], [f"y{at}" for at in range(len(made) - 1)])
    return ModuleOp([graph])


def check_buckets(drawn: Drawn) -> None:
    before, compilation = built(drawn), Compilation()
    after = before.clone()
    BucketExchanges(drawn.bucket).run(compilation, after)
    check_ir(after)
    again = after.clone()
    BucketExchanges(drawn.bucket).run(compilation, again)
    assert str(again) == str(after)

    def work(one: Any) -> Any:
        x = {"x": np.array([1, 2], np.float32) / (one.rank + 1)}
        return [evaluate(module, x, compilation.weights)[0] for module in (before, after)]

    for plain, bucketed in on_ranks(RANKS, work):
        for name, value in plain.items():
            np.testing.assert_allclose(bucketed[name], value, rtol=1e-6, err_msg=name)


@given(graphs())
def test_fuzz_of_buckets(drawn: Drawn) -> None:
    check_buckets(drawn)


def test_buckets_are_joined() -> None:
    module = built(Drawn(tuple((0, 0, 1, True) for _ in range(5)), 10**6))
    BucketExchanges(16).run(Compilation(), module)
    found = [op for op in module.walk() if isinstance(op, gc.ExchangeOp)]
    assert [gc.shape_of(op.x) for op in found] == [(4,), (4,), (2,)]


def _starts_at_zero(x: Any, *, starts: Any, **more: Any) -> gc.SliceOp:
    return gc.SliceOp(x, starts=[0], **more)


@pytest.mark.parametrize(
    ("name", "bug"),
    [
        ("SliceOp", _starts_at_zero),
        ("_readers", lambda op, block: iter(())),
    ],
    ids=["all slices begin at 0", "results are read before the exchange"],
)
def test_fuzz_of_buckets_kills(
    name: str, bug: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_exchanges, name, bug)

    @settings(
        max_examples=500,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(graphs())
    def keeps_meaning(drawn: Drawn) -> None:
        check_buckets(drawn)

    with pytest.raises((AssertionError, KeyError, PopgraphError, VerifyException)):
        keeps_meaning()


# Shares


@pytest.mark.parametrize("clip", [(), (ClipNorm(0.5),)])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_sharded_optimizer_states_update_the_weight(
    accumulation: int, clip: tuple[ClipNorm, ...]
) -> None:
    """Adam with three of five elements of each state on a rank updates as with whole states."""
    compilation, programs = Compilation(), []
    # States sharded; too few elements for that; gradients sharded, too; weights sharded, too.
    for shard_from, gradients_from, weights_from in ((5, 0, 0), (6, 0, 0), (5, 5, 0), (0, 5, 5)):
        graph = GraphOp("main", ["x"], [TensorType(f32, [5])])
        with ImplicitBuilder(graph.block):
            literal = compilation.weights.attribute(np.ones(5, np.float32))
            weight = VariableOp("w", literal)
            gradient = gc.MulOp(graph.block.args[0], weight.result)
            ReturnOp([gradient.result], ["Gradient___w"])
        module = ModuleOp([graph])
        shards = {
            "shard_from": shard_from,
            "shard_gradients_from": gradients_from,
            "shard_weights_from": weights_from,
        }
        rule = Adam(accumulation=RANKS * accumulation, ranks=RANKS, mean=True, clip=clip, **shards)
        AddOptimizer.by(rule).run(compilation, module)
        BucketExchanges().run(compilation, module)
        check_ir(module)
        programs.append(module)
    states = [first_state(one, compilation.weights) for one in programs]
    shapes = {"Accl1___w": [(3,), (5,), (3,), (3,)], "w": [(5,), (5,), (5,), (3,)]}
    if accumulation > 1:
        shapes["Accum___w"] = [(5,), (5,), (3,), (3,)]
    for name, wanted in shapes.items():
        assert [state[name].shape for state in states] == wanted

    def work(one: Thread) -> list[Array]:
        found = []
        for module, state in zip(programs, states, strict=True):
            now = {name: value.copy() for name, value in state.items()}
            if RANK in now:
                now[RANK] = np.array([one.rank])
            if now["w"].size < 5:
                now["w"] = np.ones(3, np.float32)
            for step in range(2 * accumulation):
                x = {"x": rows(one.rank + step, 5)}
                now |= evaluate(module, x, compilation.weights, now)[1]
            found.append(now["w"])
        return found

    found = on_ranks(RANKS, work)
    for of_shares, of_whole, of_gradients, _ in found:
        np.testing.assert_allclose(of_shares, of_whole, rtol=1e-6)
        np.testing.assert_allclose(of_gradients, of_whole, rtol=1e-6)
        assert not np.allclose(of_whole, 1)
    parts = np.concatenate([own for *_, own in found])
    np.testing.assert_allclose(parts[:5], found[0][1], rtol=1e-6)


def test_sharding_reduces_the_memory_of_a_rank() -> None:
    """Each ZeRO stage lowers what a rank holds of the weight, its accumulator and two states."""
    held = []
    stages = ("shard_from", "shard_gradients_from", "shard_weights_from")
    for stage in range(len(stages) + 1):
        compilation, size = Compilation(), 100  # too large for an inline literal
        graph = GraphOp("main", ["x"], [TensorType(f32, [size, size])])
        with ImplicitBuilder(graph.block):
            first = compilation.weights.attribute(np.ones((size, size), np.float32))
            gradient = gc.MulOp(graph.block.args[0], VariableOp("w", first).result)
            ReturnOp([gradient.result], ["Gradient___w"])
        module = ModuleOp([graph])
        rule = Adam(accumulation=8, ranks=4, **dict.fromkeys(stages[:stage], 1))
        AddOptimizer.by(rule).run(compilation, module)
        variables = {op.variable.text: op for op in graph.variables()}
        for op in variables.values():
            assert compilation.weights.array(op.literal).shape == op.result.type.get_shape()
        named = ("w", "Accum___w", "Accl1___w", "Accl2___w")
        held.append(sum(prod(variables[name].result.type.get_shape()) for name in named))
    assert [one / size**2 for one in held] == [4, 2.5, 1.75, 1]


def test_anchored_states_are_not_sharded() -> None:
    """An anchor shows the whole state, so its state is not sharded."""
    graph = GraphOp("main", ["x"], [TensorType(f32, [4])])
    compilation = Compilation()
    with ImplicitBuilder(graph.block):
        weight = VariableOp("w", compilation.weights.attribute(np.ones(4, np.float32)))
        ReturnOp([gc.MulOp(graph.block.args[0], weight.result).result], ["Gradient___w"])
    module = ModuleOp([graph])
    rule = Adam(accumulation=2 * RANKS, ranks=RANKS, shard_from=1, shard_gradients_from=1)
    AddOptimizer.by(rule, extra_outputs=("Accum___w",)).run(compilation, module)
    check_ir(module)
    assert first_state(module, compilation.weights)["Accum___w"].shape == (4,)


# Errors


def test_exchange_codes_are_read_back() -> None:
    for kind in KINDS:
        for combine in COMBINED_BY:
            given = Exchange(kind, 3, 1024, combine)
            for dtype in BY_NAME.values():
                assert exchange_of(exchange_code(given, dtype)) == (given, dtype)


@pytest.mark.parametrize(
    ("shape", "how", "text"),
    [
        ([2, 3], {"kind": "all_reduce"}, "takes one row of elements"),
        ([5], {"kind": "reduce_scatter"}, "cannot split 5 elements equally over 2 ranks"),
        ([4], {"kind": "all_reduce", "combine": "Mean"}, "all_reduce by Mean is not an exchange"),
        ([4], {"kind": "tell"}, "tell by Add is not an exchange"),
    ],
)
def test_illegal_exchanges_are_refused(shape: list[int], how: dict[str, str], text: str) -> None:
    graph = GraphOp("main", ["x"], [TensorType(f32, shape)])
    with ImplicitBuilder(graph.block), pytest.raises(TypeMismatchError, match=text):
        gc.ExchangeOp(graph.block.args[0], size=RANKS, **how)


def test_a_session_exchanges_gradients_in_one_message() -> None:
    """Two weights share one all-reduce of their gradients."""
    builder = popart.Builder()
    y = builder.addInputTensor("FLOAT", [4, 4], "x")
    for _ in range(2):
        w = builder.addInitializedInputTensor(np.ones((4, 4), np.float32))
        y = builder.aiOnnx.matmul([y, w])
    loss = builder.aiGraphcore.l1loss([y], 0.1)
    module, weights = open_model(builder.getModelProto(), {})
    model = SessionModel(module, weights, popart.InputShapeInfo(), [loss])
    program = Program(model, Request((loss,), SGD(ranks=2)))
    assert len(program.code.exchanges.splitlines()) == 1
