"""
The claims about passes that change outputs on purpose: typing, autodiff, optimizers, prefetches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from xdsl.dialects.builtin import AnyFloat, ArrayAttr, ModuleOp, TensorType

from popgraph.backends.reference import evaluate, first_state, signature
from popgraph.compiler import lower
from popgraph.dialects.graphcore import CheckIndicesOp, DetachOp, SqrtOp
from popgraph.dialects.onnx.attributes import ValueInfoAttr
from popgraph.dialects.onnx.containers import model_of
from popgraph.dialects.onnx.custom import Custom
from popgraph.dialects.onnx.inference import taken_branch
from popgraph.dialects.onnx.initializer import Initializer
from popgraph.dialects.onnx.op import Graph
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.onnx.types import UNKNOWN, static_shape
from popgraph.dialects.program import WeightStore
from popgraph.dialects.value_types import set_type
from popgraph.passes.analysis.graph import only_graph, set_outputs
from popgraph.passes.base import Compilation
from popgraph.passes.onnx.infer_shapes import infer_shapes
from popgraph.passes.optimizer_spec import SGD, Scalar
from popgraph.passes.options import GRADIENT, Options, Training
from popgraph.support.arrays import Array
from popgraph.testing import DISTURBANCE, Network, assert_close, build_network, random_inputs

State = dict[str, Array]

LOSS = "loss"
STEP = 1e-6
"""Step of central differences in f64; at 1e-6 about nine digits are left."""
SLOPE_TOLERANCE = 1e-4


# Types


def forget_types(module: ModuleOp) -> None:
    """Removes the types of all node results, as in a file that declares inputs only."""
    graph = model_of(module).graph
    infos = [ValueInfoAttr.of(info.text, UNKNOWN) for info in graph.outputs]
    graph.properties["outputs"] = ArrayAttr(infos)
    for op in graph.walk():
        if not isinstance(op, Initializer | Custom):
            for result in op.results:
                set_type(result, UNKNOWN)


def assert_all_typed(module: ModuleOp, weights: WeightStore) -> None:
    """
    Every value and every declared output has a static shape.

    Branches that are never taken are exempt, because nothing checks them.
    """
    graph = model_of(module).graph
    for info in graph.outputs:
        assert static_shape(info.type) is not None, f"output {info.text} is {info.type}"
    results = [result for op in graph.walk() for result in op.results]
    untyped = {result: result.type for result in results if static_shape(result.type) is None}
    # A second inference would add missing types, so the untyped values are collected before.
    inference = infer_shapes(module, weights)
    waiting: list[Graph] = [graph]
    while waiting:
        for op in waiting.pop().block.ops:
            for result in op.results:
                assert result not in untyped, f"{op.name} gives {untyped[result]}"
            if isinstance(op, SchemaOp):
                taken = taken_branch(inference, op) if op.op_type == "If" else None
                inside = [graph for graphs in op.graphs().values() for graph in graphs]
                waiting += inside if taken is None else [taken]


# Indices


def assert_indices_checked(before: ModuleOp, after: ModuleOp, weights: WeightStore) -> None:
    """The checks report an out-of-range index if there is one, and nothing else."""
    original = before.clone()
    graph = only_graph(original)
    checked = [op for op in graph.block.ops if isinstance(op, CheckIndicesOp)]
    set_outputs(graph, {str(number): op.indices for number, op in enumerate(checked)})
    inputs = random_inputs(signature(before))
    found, _ = evaluate(original, inputs, weights)
    told, _ = evaluate(after, inputs, weights)
    checks = only_graph(after).return_op.index_checks
    assert len(checks) == len(checked)
    for number, check in enumerate(checks):
        indices = np.atleast_1d(found[str(number)])
        outside = indices[(indices < check.low) | (indices > check.last)]
        error = check.error(told[check.output])
        assert (error is None) == (outside.size == 0), f"{outside.tolist()}: {error}"
        if error is not None:
            assert error.what.split()[1] in map(str, outside.tolist()), error.what


# Gradients


def assert_gradients(
    before: ModuleOp, after: ModuleOp, weights: WeightStore, loss: str, scale: float
) -> None:
    """
    Gradients are `scale` times the slopes of the loss; variables without one do not move it.

    Slopes are measured at a random point, where no two numbers are equal by chance.
    """
    generator = np.random.default_rng(0)
    inputs = {
        name: shaken(array, generator) for name, array in random_inputs(signature(before)).items()
    }
    state = {name: shaken(array, generator) for name, array in first_state(before, weights).items()}
    given, _ = evaluate(after, inputs, weights, state)
    numbers = holds_numbers(before, inputs, weights, state)

    def loss_at(name: str) -> Callable[[Array], float]:
        return lambda value: _loss(evaluate(before, inputs, weights, state | {name: value}), loss)

    for name in sorted(set(state) - detached(before)):
        value = state[name]
        gradient = given.get(GRADIENT + name, np.zeros_like(value))
        for direction in directions(value, generator):
            if not numbers:
                direction = where_finite(gradient, direction)
            assert_slope(loss_at(name), value, direction, gradient, scale, name)


def _loss(results: tuple[State, State], name: str) -> float:
    return float(results[0][name].reshape(()))


def assert_slope(
    loss_at: Callable[[Array], float],
    value: Array,
    direction: Array,
    gradient: Array,
    scale: float,
    name: str,
) -> bool:
    """Checks `gradient` against `scale` times the slope; returns False at a kink."""
    ends = [loss_at(value + side * STEP * direction) for side in (1, -1)]
    slope = slope_of(ends, loss_at(value))
    if slope is None:
        return False
    found = float(np.sum(gradient * direction, where=direction != 0))
    assert abs(found - scale * slope) <= margin_of(scale * slope, 0, ends[0]), (
        f"the gradient of {name} is {found}, not {scale * slope}"
    )
    return True


def holds_numbers(
    module: ModuleOp, inputs: State, weights: WeightStore, state: State | None = None
) -> bool:
    """
    Whether every value of a module is finite, and so is its slope where that is known.

    If an unused value is not finite (`where(x ** x > 1/4, x ** x, 0)` at x < 0), the loss has a
    slope, but the chain rule gives NaN: zero times a derivative that is NaN. A root at zero does
    the same.
    """
    original = module.clone()
    graph = only_graph(original)
    values = [
        result
        for op in graph.block.ops
        for result in op.results
        if isinstance(result.type, TensorType) and isinstance(result.type.element_type, AnyFloat)
    ]
    set_outputs(graph, {str(number): value for number, value in enumerate(values)})
    found, _ = evaluate(original, inputs, weights, state)
    roots = [str(number) for number, value in enumerate(values) if isinstance(value.owner, SqrtOp)]
    finite = all(np.isfinite(array).all() for array in found.values())
    return finite and all(found[root].all() for root in roots)


def where_finite(gradient: Array, direction: Array) -> Array:
    """The direction, with zeros where the gradient is not finite."""
    return np.where(np.isfinite(gradient), direction, 0)


def assert_gradients_everywhere(network: Network) -> None:
    """
    The gradient at every value is the slope of the loss when that value alone is moved.

    Two names of one value are two values: each has its own readers. Where the loss has no slope at
    a value (at the exponent 0 of a negative number), an earlier value may have one (if the exponent
    is x - x), but no gradient by the chain rule.
    """
    asked = tuple(map(partial(network.name, last=LOSS), network.read_by_last()))
    optimizer = SGD(learning_rate=Scalar(0.0))
    trained, weights = _lowered(network, Options(Training(LOSS, optimizer, asked), True, asked))
    # In training mode, too, because BatchNormalization then uses the statistics of the batch.
    plain, _ = _lowered(network, Options(Training(LOSS, optimizer), True), disturbed=True)
    generator = np.random.default_rng(0)
    types = signature(plain)
    inputs = {
        name: array * 0 if name.startswith(DISTURBANCE) else shaken(array, generator)
        for name, array in random_inputs(types).items()
    }
    state = {name: shaken(array, generator) for name, array in first_state(plain, weights).items()}
    known = {name: inputs[name] for name in signature(trained)}
    given, _ = evaluate(trained, known, weights, first_state(trained, weights) | state)
    smooth = holds_numbers(plain, inputs, weights, state)

    def loss_at(name: str) -> Callable[[Array], float]:
        return lambda value: _loss(evaluate(plain, inputs | {name: value}, weights, state), LOSS)

    for name in reversed(asked):
        moved = name if name in known else DISTURBANCE + name
        value = inputs[moved]
        gradient, direction = given[GRADIENT + name], generator.uniform(-1, 1, value.shape)
        if not smooth:
            direction = where_finite(gradient, direction)
        smooth &= assert_slope(loss_at(moved), value, direction, gradient, 1.0, name)


def _lowered(
    network: Network, options: Options, disturbed: bool = False
) -> tuple[ModuleOp, WeightStore]:
    compilation = Compilation()
    module = build_network(network, compilation.weights, LOSS, disturbed=disturbed)
    return lower(module, compilation, options, level="graphcore"), compilation.weights


def detached(module: ModuleOp) -> set[str]:
    """Variables without a gradient by design, such as running averages."""
    return {
        op.variable.text
        for op in only_graph(module).variables()
        if any(isinstance(use.operation, DetachOp) for use in op.result.uses)
    }


def shaken(array: Array, generator: np.random.Generator) -> Array:
    """Moves an array off round numbers, where kinks are."""
    if array.dtype.kind != "f":
        return array
    return np.asarray(array + generator.uniform(0.01, 0.05, array.shape)).astype(array.dtype)


def directions(value: Array, generator: np.random.Generator) -> Iterator[Array]:
    """Two single elements, and a random direction."""
    for _ in range(2):
        one = np.zeros(value.shape)
        one.reshape(-1)[generator.integers(value.size)] = 1
        yield one
    yield generator.uniform(-1, 1, value.shape)


def slope_of(ends: list[float], middle: float) -> float | None:
    """The central difference of the loss, or None at a kink or where it is not finite."""
    high, low = ends
    right, left = (high - middle) / STEP, (middle - low) / STEP
    if not np.isfinite(right + left) or abs(right - left) > margin_of(right, left, middle):
        return None
    return (right + left) / 2


def margin_of(slope: float, other: float, value: float) -> float:
    """The tolerance for comparing two slopes, given the value of the loss."""
    return SLOPE_TOLERANCE * max(abs(slope), abs(other), 1e-2, abs(value) * 1e-3)


# Updates


def assert_trains(
    before: ModuleOp, after: ModuleOp, weights: WeightStore, rule: SGD, tolerance: float
) -> None:
    """
    Variables follow PopART's SGD1, by the gradients that the module computed before the pass.

    Other outputs, and other updates of variables, are unchanged.
    """
    inputs = random_inputs(signature(before))
    state, own = first_state(after, weights), set(first_state(before, weights))
    velocities: State = {}
    for step in range(3):
        old = {name: value for name, value in state.items() if name in own}
        outputs, following = evaluate(before, inputs, weights, old)
        found, state = evaluate(after, inputs, weights, state)
        gradients = {
            name: outputs.pop(GRADIENT + name) for name in own if GRADIENT + name in outputs
        }
        assert set(found) == set(outputs), f"gives {sorted(found)}, not {sorted(outputs)}"
        for name, gradient in gradients.items():
            following[name], velocities[name] = sgd1(
                rule, old[name], velocities.get(name), gradient
            )
        for actual, wanted in ((found, outputs), (state, following)):
            for name, value in wanted.items():
                assert_close(actual[name], value, tolerance, f"step {step}, {name}")


def sgd1(rule: SGD, weight: Array, velocity: Array | None, gradient: Array) -> tuple[Array, Array]:
    """
    The next weight and velocity, for one replica without accumulation.

    v += dpsf1 * g;  w -= slr1 * v;  v = smm1 * v + swd1 * w, beginning with v = swd1 * w.
    """
    rest = 1 - rule.dampening.value
    decay = rest * rule.weight_decay.value * rule.velocity_scaling.value
    factor = rest * rule.velocity_scaling.value / rule.loss_scaling.value
    rate = rule.learning_rate.value / rule.velocity_scaling.value
    begun = decay * weight if velocity is None else velocity
    with np.errstate(all="ignore"):
        moved = begun + factor * gradient
        weight = np.asarray(weight - rate * moved)
        return weight, np.asarray(rule.momentum.value * moved + decay * weight)
