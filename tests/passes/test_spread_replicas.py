"""Tests `spread-replicas`: the program of all replicas computes what each would alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from xdsl.builder import ImplicitBuilder
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, TensorType, f64
from xdsl.utils.exceptions import VerifyException

from popgraph.backends.reference import evaluate, first_state, signature
from popgraph.compiler import lower
from popgraph.dialects import graphcore as gc
from popgraph.dialects.program import GraphOp, ReturnOp
from popgraph.passes.analysis.graph import only_graph
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore.spread_replicas import GROUPS, SpreadReplicas
from popgraph.passes.graphcore.training.autodiff import Autodiff
from popgraph.passes.optimizer_spec import SGD
from popgraph.passes.options import GRADIENT, Options, Training
from popgraph.passes.replication import Replication
from popgraph.support.arrays import Array
from popgraph.support.errors import PassError, PopgraphError
from popgraph.support.replicas import grouped
from popgraph.testing import Network, assert_close, build_network, random_inputs, training_networks
from tests.checking import check_ir

LOSS = "loss"
TOLERANCE = 1e-8


@dataclass(frozen=True)
class Drawn:
    """Replicas, and the inputs and variables of a drawn network that they share."""

    count: int
    shares: tuple[bool, ...]
    groupings: tuple[tuple[int, int], ...]

    def replication(self, inputs: list[str], variables: list[str]) -> Replication:
        shared = tuple(name for name, one in zip(inputs, self.shares * 9, strict=False) if one)
        pairs = zip(variables, self.groupings * 9, strict=False)
        return Replication(self.count, shared, tuple((name, *one) for name, one in pairs))


@st.composite
def replicas(draw: st.DrawFn) -> Drawn:
    count = draw(st.sampled_from([2, 3, 4]))
    ways = [
        (stride, size)
        for size in range(1, count + 1)
        for stride in range(1, count + 1)
        if count % (stride * size) == 0
    ]
    groupings = draw(st.lists(st.sampled_from(ways), min_size=1, max_size=3))
    return Drawn(
        count, tuple(draw(st.lists(st.booleans(), min_size=2, max_size=3))), tuple(groupings)
    )


def check(network: Network, drawn: Drawn) -> None:
    """Every replica computes the same as alone; gradients of shared variables are summed."""
    compilation = Compilation()
    module = build_network(network, compilation.weights, last=LOSS)
    options = Options(training=Training(LOSS, SGD()))
    lower(module, compilation, options, until="onnx-to-graphcore")
    Autodiff.towards(LOSS, SGD()).run(compilation, module)
    alone, graph = module.clone(), only_graph(module)
    replication = drawn.replication(
        list(graph.inputs), [v.variable.text for v in graph.variables()]
    )
    generator = np.random.default_rng(0)
    firsts = give_groups(module, compilation, replication, generator)
    SpreadReplicas(str(replication)).run(compilation, module)
    check_ir(module)
    inputs = random_inputs(signature(module))
    found, following = evaluate(module, inputs, compilation.weights)
    moved = replication.with_own(
        {op.variable.text for op in only_graph(alone).updates()} - {gc.SEED}
    )
    totals: dict[str, Array] = {}
    for replica in range(replication.count):
        own = {name: inputs[replication.inputs(name)[replica]] for name in signature(alone)}
        state = {
            name: firsts.get(moved.variables(name)[replica], value)
            for name, value in first_state(alone, compilation.weights).items()
        }
        outputs, after = evaluate(alone, own, compilation.weights, state)
        for name, value in outputs.items():
            copy = replication.copies(name)[replica]
            assert_close(found[copy], value, TOLERANCE, copy)
            if (variable := name.removeprefix(GRADIENT)) in state and name != variable:
                total = moved.variables(variable)[replica]
                totals[total] = totals.get(total, 0) + value
        for name, value in after.items():
            copy = moved.variables(name)[replica]
            assert_close(following[copy], value, TOLERANCE, copy)
    for name, value in totals.items():
        assert_close(found[GRADIENT + name], value, TOLERANCE, f"the gradient of {name}")


def give_groups(
    module: ModuleOp,
    compilation: Compilation,
    replication: Replication,
    generator: np.random.Generator,
) -> dict[str, Array]:
    """Gives the variables of groups different initial values, and returns these."""
    firsts = {}
    for op in only_graph(module).variables():
        names = list(dict.fromkeys(replication.variables(op.variable.text)))
        if len(names) > 1:
            like = compilation.weights.array(op.literal)
            arrays = [like + generator.normal(size=like.shape) for _ in names]
            op.attributes[GROUPS] = ArrayAttr(map(compilation.weights.attribute, arrays))
            firsts |= dict(zip(names, arrays, strict=True))
    return firsts


@pytest.mark.budget(60)
@given(training_networks(dtype="f64", nll=False), replicas())
def test_fuzz(network: Network, drawn: Drawn) -> None:
    check(network, drawn)


# Collectives

NUMPY: Mapping[str, Callable[[list[Array]], Array]] = {
    "Add": lambda rows: np.sum(rows, axis=0),
    "Mean": lambda rows: np.mean(rows, axis=0),
    "Mul": lambda rows: np.prod(rows, axis=0),
    "Min": lambda rows: np.min(rows, axis=0),
    "Max": lambda rows: np.max(rows, axis=0),
    "LogicalAnd": lambda rows: np.all(np.array(rows) != 0, axis=0).astype(float),
    "LogicalOr": lambda rows: np.any(np.array(rows) != 0, axis=0).astype(float),
    "SquareAdd": lambda rows: np.sum(np.square(rows), axis=0),
}


def collected(kind: str, combine: str, rows: list[Array]) -> list[Array]:
    """The NumPy results of a collective for the replicas of a group."""
    if kind == "gather":
        return [np.concatenate([row.reshape(-1) for row in rows])] * len(rows)
    got = list(rows) if combine == "Local" else [NUMPY[combine](rows)] * len(rows)
    if kind == "reduce":
        return got
    share = -(-rows[0].size // len(rows))
    filled = [np.concatenate([row.reshape(-1), np.zeros(share * len(rows))]) for row in got]
    return [row[at * share : (at + 1) * share] for at, row in enumerate(filled)]


def program(kind: str, combine: str, shape: tuple[int, ...], stride: int, size: int) -> ModuleOp:
    """A collective of x, and the sum of its gradient times x."""
    graph = GraphOp("main", ["x"], [TensorType(f64, shape)])
    (x,) = graph.block.args
    groups: dict[str, Any] = {"stride": stride, "size": size}
    with ImplicitBuilder(graph.block):
        made = {
            "reduce": lambda: gc.AllReduceOp(x, combine=combine, **groups),
            "scatter": lambda: gc.ReduceScatterOp(x, combine=combine, **groups),
            "gather": lambda: gc.AllGatherOp(x, **groups),
        }[kind]()
        square = gc.MulOp(made.result, made.result)
        axes = range(len(made.result.type.get_shape()))
        loss = gc.ReduceSumOp(square, axes=list(axes), keepdims=False)
        ReturnOp([made.result, loss.result], ["y", LOSS])
    return ModuleOp([graph])


Exchange: TypeAlias = tuple[str, str, tuple[int, ...], int, int, int]
"""Kind, combination, shape, number of replicas, and stride and size of groups."""


@st.composite
def exchanges(draw: st.DrawFn, combined: Sequence[str] = (*NUMPY, "Local")) -> Exchange:
    count = draw(st.sampled_from([4, 1, 2, 6]))
    size = draw(st.sampled_from([n for n in range(1, count + 1) if count % n == 0]))
    stride = draw(st.sampled_from([n for n in range(1, count + 1) if count % (n * size) == 0]))
    kind = draw(st.sampled_from(["reduce", "scatter", "gather"]))
    combine = draw(st.sampled_from(combined))
    shape = tuple(draw(st.lists(st.integers(1, 3), min_size=0, max_size=2)))
    return kind, combine, shape, count, stride, size


def check_exchange(drawn: Exchange) -> None:
    kind, combine, shape, count, stride, size = drawn
    compilation, module = Compilation(), program(kind, combine, shape, stride, size)
    differentiable = kind == "gather" or combine in ("Add", "Mean")
    if differentiable:
        Autodiff(LOSS, wrt=("x",)).run(compilation, module)
    SpreadReplicas(str(Replication(count))).run(compilation, module)
    check_ir(module)
    rows = [np.random.default_rng(at).integers(-2, 3, shape) / 2.0 for at in range(count)]
    copies = Replication(count).copies("x")
    found = evaluate(module, dict(zip(copies, rows, strict=True)), compilation.weights)[0]

    def of(name: str, replica: int) -> Array:
        return found[Replication(count).copies(name)[replica]]

    def value(given: list[Array]) -> list[Array]:
        result: dict[int, Array] = {}
        for group in grouped(count, stride, size):
            told = collected(kind, combine, [given[replica] for replica in group])
            result |= dict(zip(group, told, strict=True))
        return [result[replica] for replica in range(count)]

    for replica, wanted in enumerate(value(rows)):
        assert_close(of("y", replica), np.asarray(wanted), TOLERANCE, f"replica {replica}")
    if not differentiable:
        return
    for replica in range(count):  # the slope of all losses together, by differences
        for place in np.ndindex(shape):
            step = np.zeros(shape)
            step[place] = 1e-5
            losses = []
            for sign in (1, -1):
                moved = [row + sign * step * (at == replica) for at, row in enumerate(rows)]
                losses.append(reduce(lambda total, one: total + np.sum(one**2), value(moved), 0.0))
            slope = (losses[0] - losses[1]) / 2e-5
            assert abs(of(GRADIENT + "x", replica)[place] - slope) < 1e-6 * max(1, abs(slope))


@given(exchanges())
def test_fuzz_collectives(drawn: Exchange) -> None:
    check_exchange(drawn)


# Planted bugs


def first_of_all(self: Any, op: Any) -> list[str]:
    return [self.replicas.variables(op.variable.text)[0]] * self.replicas.count


def neighbours(self: Replication, stride: int, size: int) -> list[list[int]]:
    return grouped(self.count, 1, size)


def of_the_last(self: Any, name: str, gradient: Any) -> Any:
    copies = zip(self.replicas.variables(name), self._of(gradient), strict=True)
    return ((GRADIENT + copy, value) for copy, value in copies)


def not_filled_up(self: Any, value: Any) -> Any:
    return gc.ReshapeOp(value, shape=[1])


PASS = "popgraph.passes.graphcore.spread_replicas._Spread"
DIALECT = "popgraph.dialects.graphcore.collectives"
STOP = settings(max_examples=500, phases=[Phase.generate], report_multiple_bugs=False)


@pytest.mark.parametrize(
    ("place", "bug"),
    [(f"{PASS}._added_up", of_the_last), (f"{PASS}._variables", first_of_all)],
    ids=["gradients are not added", "one variable for all"],
)
def test_fuzz_kills(place: str, bug: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, bug)

    @STOP
    @given(training_networks(dtype="f64", nll=False), replicas())
    def keeps_meaning(network: Network, drawn: Drawn) -> None:
        check(network, drawn)

    with pytest.raises((AssertionError, KeyError, VerifyException)):
        keeps_meaning()


@pytest.mark.parametrize(
    ("place", "bug"),
    [
        (f"{DIALECT}._Combining._passed", lambda self: "Add"),
        (f"{DIALECT}.ReduceScatterOp.padded", not_filled_up),
        (f"{DIALECT}.AllGatherOp.together", lambda self, values: list(values)),
        ("popgraph.passes.replication.Replication.groups_of", neighbours),
    ],
    ids=[
        "the gradient of a mean is that of a sum",
        "no zeros behind",
        "nothing is gathered",
        "groups of neighbours only",
    ],
)
def test_fuzz_of_collectives_kills(
    place: str, bug: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, bug)

    @STOP
    @given(exchanges(combined=("Mean", "Add")))
    def keeps_meaning(drawn: Exchange) -> None:
        check_exchange(drawn)

    with pytest.raises((AssertionError, PopgraphError, VerifyException)):
        keeps_meaning()


# Errors


def test_groups_that_do_not_divide_the_replicas_are_refused() -> None:
    module = program("reduce", "Add", (2,), 1, 3)
    with pytest.raises(PassError, match="4 replicas cannot be taken in groups of 3"):
        SpreadReplicas("4").run(Compilation(), module)


@pytest.mark.parametrize(
    "text", ["", "two", "0", "2 groups=w:1", "2 shares=x", "2 groups=w:a:b", "2 groups=w:0:1"]
)
def test_malformed_replica_texts_are_refused(text: str) -> None:
    with pytest.raises(PassError, match="is not a valid description of replicas"):
        Replication.parse(text)


def test_the_text_of_replicas_is_read_back() -> None:
    given = Replication(4, ("x", "a b"), (("w:1", 1, 2), ("v,", 2, 2)))
    assert Replication.parse(str(given)) == given
    assert str(Replication(2)) == "2"


def test_collectives_of_replicas_cannot_run_on_one() -> None:
    module = program("reduce", "Add", (2,), 1, 2)
    with pytest.raises(Exception, match="over 2 replicas cannot run on one"):
        evaluate(module, {"x": np.zeros(2)}, Compilation().weights)
