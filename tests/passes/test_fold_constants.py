"""Tests `fold-constants`: folding and its limits on sizes."""

from __future__ import annotations

from collections.abc import Callable
from mmap import mmap
from pathlib import Path

import numpy as np
import pytest
from xdsl.builder import ImplicitBuilder
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import SSAValue

from popgraph.backends.reference import evaluate
from popgraph.dialects import element_types
from popgraph.dialects import graphcore as gc
from popgraph.dialects.check import check_ir
from popgraph.dialects.graphcore.base import Operand
from popgraph.dialects.program import ConstantOp, GraphOp, ReturnOp, UpdateOp, VariableOp
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore.cse import EliminateCommonSubexpressions
from popgraph.passes.graphcore.dce import EliminateDeadCode
from popgraph.passes.graphcore.fold_constants import FoldConstants, computed_array, is_literal
from popgraph.support.arrays import Array
from popgraph.support.tuning import Tuning

F32 = element_types.BY_NAME["f32"]
Literal = Callable[[Array], SSAValue]


def program(
    build: Callable[[SSAValue, Literal], Operand],
) -> tuple[ModuleOp, GraphOp, Compilation]:
    compilation = Compilation()
    graph = GraphOp("main", ["x"], [TensorType(F32, (3,))])

    def literal(array: Array) -> SSAValue:
        return ConstantOp(compilation.weights.attribute(array)).result

    with ImplicitBuilder(graph.block):
        ReturnOp([SSAValue.get(build(graph.block.args[0], literal))], ["y"])
    return ModuleOp([graph]), graph, compilation


def left(graph: GraphOp) -> list[str]:
    return [op.name for op in graph.block.ops][:-1]


X = {"x": np.array([1, 2, 3], np.float32)}
ONES = np.ones(3, np.float32)


def test_chains_of_literals_are_folded() -> None:
    def build(x: SSAValue, c: Literal) -> Operand:
        number = gc.SqrtOp(gc.MulOp(c(ONES * 8), c(ONES * 2)))
        return gc.AddOp(x, gc.ReshapeOp(gc.ReshapeOp(number, shape=(3, 1)), shape=(3,)))

    module, graph, compilation = program(build)
    FoldConstants().run(compilation, module)
    check_ir(module)
    assert left(graph) == ["pg.constant", "graphcore.add"]
    outputs, _ = evaluate(module, X, compilation.weights)
    np.testing.assert_array_equal(outputs["y"], X["x"] + 4)


def test_large_results_of_small_operands_are_not_folded() -> None:
    def build(x: SSAValue, c: Literal) -> Operand:
        return gc.BroadcastOp(c(np.ones(1, np.float32)), shape=(100_000,))

    module, graph, compilation = program(build)
    FoldConstants().run(compilation, module)
    assert left(graph) == ["pg.constant", "graphcore.broadcast"]


def test_movements_of_large_weights_are_folded() -> None:
    weights = np.arange(40_000, dtype=np.float32).reshape(200, 200)

    def build(x: SSAValue, c: Literal) -> Operand:
        return gc.TransposeOp(c(weights), perm=(1, 0))

    module, graph, compilation = program(build)
    FoldConstants().run(compilation, module)
    assert left(graph) == ["pg.constant"]
    outputs, _ = evaluate(module, X, compilation.weights)
    np.testing.assert_array_equal(outputs["y"], weights.T)


def test_a_thread_folds_large_literals() -> None:
    """Equal operations get equal literals, although nobody has compared their elements."""
    weights = np.arange(90_000, dtype=np.float32).reshape(30_000, 3)

    def build(x: SSAValue, c: Literal) -> Operand:
        scaled = [gc.MulOp(c(weights), c(ONES * factor)) for factor in (2, 2, 3)]
        first, second, third = (gc.AddOp(one, x) for one in scaled)
        return gc.AddOp(gc.AddOp(first, second), third)

    module, graph, compilation = program(build)
    FoldConstants().run(compilation, module)
    check_ir(module)
    assert left(graph) == ["pg.constant"] * 3 + ["graphcore.add"] * 5
    first, second, third = [op.literal for op in graph.block.ops if isinstance(op, ConstantOp)]
    assert first == second != third
    outputs, _ = evaluate(module, X, compilation.weights)
    np.testing.assert_array_equal(outputs["y"], 2 * (weights * 2 + X["x"]) + weights * 3 + X["x"])


@pytest.mark.parametrize("is_reshaped", [True, False])
def test_folded_views_of_a_file_are_copies(tmp_path: Path, is_reshaped: bool) -> None:
    path, numbers = tmp_path / "weights", np.arange(90_000, dtype=np.float32)
    path.write_bytes(numbers.tobytes())
    with path.open("r+b") as file:
        mapped = np.frombuffer(mmap(file.fileno(), 0), np.float32)

    def build(x: SSAValue, c: Literal) -> Operand:
        return gc.ReshapeOp(c(mapped), shape=(300, 300)) if is_reshaped else gc.NegOp(c(mapped))

    module, graph, compilation = program(build)
    FoldConstants().run(compilation, module)
    folded = graph.block.last_op.operands[0]
    compilation.weights.array(folded.owner.literal)
    path.write_bytes(bytes(numbers.nbytes))
    found = computed_array(folded, compilation.weights)
    assert found is not None
    np.testing.assert_array_equal(found.reshape(-1), numbers if is_reshaped else -numbers)


def test_operations_with_several_results_or_no_operands_are_folded() -> None:
    def build(x: SSAValue, c: Literal) -> Operand:
        made = gc.BatchNormTrainOp(
            c(np.arange(6, dtype=np.float32).reshape(2, 3)), c(ONES), c(ONES), epsilon=0.5
        )
        places = gc.IotaOp(shape=(3,), axis=0, dtype=F32)
        return gc.AddOp(gc.AddOp(made.results[1], made.results[2]), gc.AddOp(places, x))

    module, graph, compilation = program(build)
    before, _ = evaluate(module, X, compilation.weights)
    FoldConstants().run(compilation, module)
    assert left(graph) == ["pg.constant", "pg.constant", "graphcore.add", "graphcore.add"]
    after, _ = evaluate(module, X, compilation.weights)
    np.testing.assert_allclose(after["y"], before["y"], rtol=1e-6)


def test_variables_are_no_literals() -> None:
    compilation = Compilation()
    graph = GraphOp("main", [], [])
    with ImplicitBuilder(graph.block):
        v = VariableOp("v", compilation.weights.attribute(ONES))
        UpdateOp("v", gc.NegOp(v))
        ReturnOp([v.result], ["y"])
    module = ModuleOp([graph])
    before = str(module)
    FoldConstants().run(compilation, module)
    assert str(module) == before


def test_without_the_limit_large_results_are_folded() -> None:
    """Checks that the test can fail: without the limit the broadcast becomes a literal."""
    module, graph, compilation = program(
        lambda x, c: gc.BroadcastOp(c(np.ones(1, np.float32)), shape=(100_000,))
    )
    FoldConstants(Tuning(small_literal_bytes=10**9)).run(compilation, module)
    assert left(graph) == ["pg.constant"]


def test_cse_merges_equal_operations_only() -> None:
    def build(x: SSAValue, c: Literal) -> Operand:
        first, second = gc.ExpOp(x), gc.ExpOp(x)
        rows = [gc.ReduceSumOp(x, axes=(0,), keepdims=keep) for keep in (True, False)]
        return gc.AddOp(gc.AddOp(first, second), gc.AddOp(*rows))

    module, graph, compilation = program(build)
    before, _ = evaluate(module, X, compilation.weights)
    EliminateCommonSubexpressions().run(compilation, module)
    check_ir(module)
    assert left(graph).count("graphcore.exp") == 1
    assert left(graph).count("graphcore.reduce_sum") == 2
    after, _ = evaluate(module, X, compilation.weights)
    np.testing.assert_array_equal(after["y"], before["y"])


def test_dce_keeps_updates_and_outputs_only() -> None:
    compilation = Compilation()
    graph = GraphOp("main", ["x"], [TensorType(F32, (3,))])
    x = graph.block.args[0]
    with ImplicitBuilder(graph.block):
        v = VariableOp("v", compilation.weights.attribute(ONES))
        gc.ExpOp(gc.NegOp(v))
        UpdateOp("v", gc.AddOp(v, x))
        ReturnOp([gc.SqrtOp(x).result], ["y"])
    module = ModuleOp([graph])
    EliminateDeadCode().run(compilation, module)
    check_ir(module)
    assert left(graph) == ["pg.variable", "graphcore.add", "pg.update", "graphcore.sqrt"]


@pytest.mark.parametrize(("columns", "folded"), [(1 << 10, True), ((1 << 22) + 1, False)])
def test_transposes_of_very_large_literals_are_not_folded(columns: int, folded: bool) -> None:
    def build(x: SSAValue, c: Literal) -> Operand:
        return gc.TransposeOp(c(np.zeros((1, columns), np.float32)), perm=(1, 0))

    module, graph, compilation = program(build)
    FoldConstants().run(compilation, module)
    assert left(graph) == ["pg.constant", *([] if folded else ["graphcore.transpose"])]


def test_deep_chains_are_visited_once_per_value() -> None:
    """A chain like the gradient of x * sigmoid(x): each link reads the one before twice."""

    def chain(value: Operand) -> Operand:
        for _ in range(60):
            value = gc.MulOp(value, value)
        return value

    _, graph, compilation = program(lambda x, c: gc.AddOp(chain(x), chain(c(ONES))))
    end = list(graph.block.ops)[-2]
    of_input, of_literal = end.operands
    assert not is_literal(of_input)
    assert computed_array(of_input, compilation.weights) is None
    assert is_literal(of_literal)
    found = computed_array(of_literal, compilation.weights)
    assert found is not None
    assert found.tolist() == ONES.tolist()
