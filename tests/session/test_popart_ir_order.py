"""Tests the order of operators in PopART's IR: priorities, memory, names, and what bounds it."""

from __future__ import annotations

from itertools import permutations
from random import Random

import pytest

import popgraph.session as popart
from popgraph.session.popart_ir.lifetimes import Problem, first_order, shortened
from tests.session.popart_graphs import (
    Graphs,
    inferred,
    layers,
    minimal,
    options,
    trained,
    types,
    weight,
)


def cost_of(problem: Problem, order: list[int]) -> int:
    place = {node: at for at, node in enumerate(order)}
    lives = sum(
        cost * (max(place[one] for one in nodes) - min(place[one] for one in nodes))
        for cost, nodes in problem.lives
    )
    return lives + sum(pull * place[node] for node, pull in enumerate(problem.pulls))


def is_possible(problem: Problem, order: list[int]) -> bool:
    place = {node: at for at, node in enumerate(order)}
    return all(
        place[one] < place[node] for node, needed in enumerate(problem.waits) for one in needed
    )


def drawn(chance: Random, size: int) -> Problem:
    waits = [
        set(chance.sample(range(node), min(node, chance.randrange(3)))) for node in range(size)
    ]
    lives = [
        (chance.randrange(1, 9), sorted({node, *chance.sample(range(size), 2)}))
        for node in range(size)
    ]
    return Problem(waits, lives, [chance.randrange(4) for _ in range(size)])


@pytest.mark.parametrize("breaker", ["greedy", "fifo", "random"])
def test_moves_lower_the_cost_to_where_no_move_pays(breaker: str) -> None:
    chance, best = Random(3), 0
    for _ in range(30):
        problem = drawn(chance, 6)
        first = first_order(problem, breaker)
        order = shortened(problem, breaker, 1000)
        assert sorted(order) == list(range(6))
        assert is_possible(problem, order)
        assert cost_of(problem, order) <= cost_of(problem, first)
        for start in range(6):
            for end in range(start + 1, 7):
                rest, block = order[:start] + order[end:], order[start:end]
                for at in range(len(rest) + 1):
                    moved = rest[:at] + block + rest[at:]
                    if is_possible(problem, moved):
                        assert cost_of(problem, moved) >= cost_of(problem, order)
        every = (list(one) for one in permutations(range(6)))
        least = min(cost_of(problem, one) for one in every if is_possible(problem, one))
        best += cost_of(problem, order) == least
    assert best > 20  # most are the best of all orders, too


def test_no_move_is_made_where_none_is_allowed() -> None:
    problem = drawn(Random(1), 9)
    assert shortened(problem, "fifo", 0) == first_order(problem, "fifo")


def branches(**given: object) -> Graphs:
    """Two ways from a tensor to two small ones, and what reads these in the end."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [64], "x")
    wide = [builder.aiOnnx.exp([x]), builder.aiOnnx.sin([x])]
    small = [builder.aiOnnx.reducesum([one], [0], 0) for one in wide]
    y = builder.aiOnnx.add(small)
    return inferred(builder, y, patterns=minimal(), given=options(**given))


def test_what_becomes_small_does_so_at_once() -> None:
    assert types(branches()) == ["Sin", "ReduceSum", "Exp", "ReduceSum", "Add"]


@pytest.mark.parametrize(
    ("given", "first"),
    [
        ({}, "Exp"),
        ({"kahnTieBreaker": "FIFO"}, "Exp"),
        ({"kahnTieBreaker": "FIFO", "swapLimitScheduler": 0}, "Abs"),
        ({"kahnTieBreaker": "FIFO", "timeLimitScheduler": 0.0}, "Abs"),
    ],
)
def test_options_of_the_scheduler_say_where_it_begins_and_whether_it_moves(
    given: dict[str, object], first: str
) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [4], "x")
    y = builder.aiOnnx.add([builder.aiOnnx.exp([x]), builder.aiOnnx.abs([x])])
    assert types(inferred(builder, y, patterns=minimal(), given=options(**given)))[0] == first


def test_a_user_s_priority_comes_first() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [4], "x")
    late = builder.aiOnnx.tanh([x])
    with builder.schedulePriority(2.0):
        early = builder.aiOnnx.abs([x])
    y = builder.aiOnnx.add([late, early])
    assert types(inferred(builder, y, patterns=minimal())) == ["Abs", "Tanh", "Add"]


def test_of_operators_that_are_alike_the_last_of_the_alphabet_runs_first() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [4], "x")
    y = builder.aiOnnx.sum([getattr(builder.aiOnnx, name)([x]) for name in ("cos", "abs", "sin")])
    assert types(inferred(builder, y, patterns=minimal())) == ["Sin", "Cos", "Abs", "Sum"]


def test_updates_wait_until_nothing_else_can_run() -> None:
    for given, priority in ((options(), "-inf"), (options(delayVarUpdates=False), "0.000000")):
        builder = popart.Builder()
        graph = trained(builder, layers(builder, 3), given=given)["maingraph"]
        updates = [op for op in graph if op["type"] == "SGD0VarUpdate"]
        assert {op["attributes"]["schedulePriority"] for op in updates} == {priority}
        assert {op["name"] for op in updates} == {"_var_update"}
        assert (graph[-3:] == updates) == (priority == "-inf")


def test_sums_of_micro_batches_may_be_made_early() -> None:
    for early, priority in ((False, "-inf"), (True, "inf")):
        builder = popart.Builder()
        given = options(scheduleNonWeightUpdateGradientConsumersEarly=early)
        given.enableGradientAccumulation, given.accumulationFactor = True, 2
        graph = trained(builder, layers(builder, 2), given=given)["maingraph"]
        told = {op["attributes"]["schedulePriority"] for op in graph if op["type"] == "Accumulate"}
        assert told == {priority}


def test_a_product_stays_with_the_reshapes_around_it() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [64, 64], "x")
    y = builder.aiOnnx.matmul([x, weight(builder, 64, 1)])
    z = builder.aiOnnx.matmul([x, weight(builder, 64, 2, name="v")])
    found = types(inferred(builder, y, z, patterns=minimal("MatMulOp")))
    assert found == ["Reshape", "Reshape", "MatMul", "Reshape"] * 2
