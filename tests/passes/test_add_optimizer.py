"""Tests optimizers against their definitions and against PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from xdsl.builder import ImplicitBuilder
from xdsl.dialects.builtin import ModuleOp, TensorType

from popgraph.backends.reference import evaluate
from popgraph.dialects import element_types
from popgraph.dialects import graphcore as gc
from popgraph.dialects.program import GraphOp, ReturnOp, VariableOp
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore.training.add_optimizer import AddOptimizer
from popgraph.passes.graphcore.training.autodiff import Autodiff
from popgraph.passes.optimizer_spec import (
    SGD,
    Adam,
    Adaptive,
    ClipNorm,
    OptimizerSpec,
    Scalar,
    Specific,
    streamed_scalars,
)
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.errors import PassError
from tests.checking import check_ir

STEPS = 10
GENERATOR = np.random.default_rng(7)
X = GENERATOR.normal(size=(STEPS, 5, 4))
Y = GENERATOR.normal(size=(STEPS, 5, 2))
WEIGHTS = {
    "w1": GENERATOR.normal(size=(4, 3)),
    "b1": GENERATOR.normal(size=(3,)),
    "w2": GENERATOR.normal(size=(3, 2)),
}


def network(compilation: Compilation, dtype: type[np.floating]) -> ModuleOp:
    """sum((tanh(x w1 + b1) w2 - y)^2)."""
    element = element_types.to_ir(dtypes.from_numpy(dtype))
    types = [TensorType(element, shape) for shape in ((5, 4), (5, 2))]
    graph = GraphOp("main", ["x", "y"], types)
    x, y = graph.block.args
    with ImplicitBuilder(graph.block):
        w1, b1, w2 = (
            VariableOp(name, compilation.weights.attribute(array.astype(dtype)))
            for name, array in WEIGHTS.items()
        )
        hidden = gc.TanhOp(gc.AddOp(gc.MatMulOp(x, w1), b1))
        error = gc.SubOp(gc.MatMulOp(hidden, w2), y)
        loss = gc.ReduceSumOp(gc.MulOp(error, error), axes=(0, 1), keepdims=False)
        ReturnOp([loss.result], ["loss"])
    return ModuleOp([graph])


@dataclass
class Trained:
    """A trained program, its state and its last outputs."""

    module: ModuleOp
    compilation: Compilation
    state: dict[str, Array]
    outputs: dict[str, Array]


def train(
    spec: OptimizerSpec,
    dtype: type[np.floating] = np.float64,
    steps: int = STEPS,
    writes: Mapping[int, Mapping[str, Array]] | None = None,
    extra_outputs: tuple[str, ...] = (),
) -> Trained:
    compilation = Compilation()
    module = network(compilation, dtype)
    Autodiff.towards("loss", spec).run(compilation, module)
    AddOptimizer.by(spec, extra_outputs=extra_outputs).run(compilation, module)
    check_ir(module)
    state = None
    for step in range(steps):
        if state is not None:
            for name, value in (writes or {}).get(step, {}).items():
                assert name in state
                state[name] = value
        inputs = {"x": X[step].astype(dtype), "y": Y[step].astype(dtype)}
        outputs, state = evaluate(module, inputs, compilation.weights, state)
    assert state is not None
    return Trained(module, compilation, state, outputs)


Parameters = dict[str, torch.Tensor]


def torch_train(
    make: Callable[[list[torch.Tensor]], torch.optim.Optimizer],
    steps: int = STEPS,
    clip: float | None = None,
) -> dict[str, Array]:
    weights = {name: torch.tensor(value, requires_grad=True) for name, value in WEIGHTS.items()}
    optimizer = make(list(weights.values()))
    for step in range(steps):
        optimizer.zero_grad()
        torch_loss(weights, step).backward()  # type: ignore[no-untyped-call]
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(list(weights.values()), clip)
        optimizer.step()
    return {name: weight.detach().numpy() for name, weight in weights.items()}


def torch_loss(weights: Parameters, step: int) -> torch.Tensor:
    hidden = torch.tanh(torch.tensor(X[step]) @ weights["w1"] + weights["b1"])
    return ((hidden @ weights["w2"] - torch.tensor(Y[step])) ** 2).sum()


def assert_weights(state: Mapping[str, Array], expected: Mapping[str, Array], tol: float) -> None:
    for name, weight in expected.items():
        assert not np.allclose(weight, WEIGHTS[name], atol=1e-4), "the weights must have moved"
        np.testing.assert_allclose(state[name], weight, rtol=tol, atol=tol, err_msg=name)


def seeded(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """A zero velocity makes PyTorch dampen the first step, as PopART does."""
    for group in optimizer.param_groups:
        for weight in group["params"]:
            optimizer.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
    return optimizer


LR = 0.01
SCALE = Scalar(8.0)
CASES: dict[str, tuple[OptimizerSpec, Callable[[list[torch.Tensor]], torch.optim.Optimizer]]] = {
    "sgd0": (
        SGD(learning_rate=Scalar(LR), weight_decay=Scalar(0.2), loss_scaling=SCALE),
        lambda w: torch.optim.SGD(w, LR, weight_decay=0.2),
    ),
    "sgd1": (
        SGD(
            learning_rate=Scalar(LR),
            weight_decay=Scalar(0.2),
            momentum=Scalar(0.9),
            dampening=Scalar(0.3),
            velocity_scaling=Scalar(4.0),
            loss_scaling=SCALE,
        ),
        lambda w: seeded(torch.optim.SGD(w, LR, 0.9, 0.3, weight_decay=0.2)),
    ),
    "sgd2": (
        SGD(
            learning_rate=Scalar(LR),
            weight_decay=Scalar(0.2),
            momentum=Scalar(0.9),
            dampening=Scalar(0.3),
            velocity_scaling=Scalar(4.0),
            loss_scaling=SCALE,
            combined=False,
        ),
        lambda w: seeded(torch.optim.SGD(w, LR, 0.9, 0.3, weight_decay=0.2)),
    ),
    "sgd2 nesterov": (
        SGD(
            learning_rate=Scalar(LR),
            weight_decay=Scalar(0.2),
            momentum=Scalar(0.9),
            nesterov=True,
            combined=False,
            loss_scaling=SCALE,
        ),
        lambda w: torch.optim.SGD(w, LR, 0.9, weight_decay=0.2, nesterov=True),
    ),
    "sgd1 nesterov": (
        SGD(
            learning_rate=Scalar(LR),
            weight_decay=Scalar(0.2),
            momentum=Scalar(0.9),
            nesterov=True,
            velocity_scaling=Scalar(2.0),
        ),
        lambda w: torch.optim.SGD(w, LR, 0.9, weight_decay=0.2, nesterov=True),
    ),
    "adam": (
        Adam(
            learning_rate=Scalar(LR),
            weight_decay=Scalar(0.2),
            epsilon=Scalar(1e-8),
            decay=False,
            loss_scaling=SCALE,
        ),
        lambda w: torch.optim.Adam(w, LR, eps=1e-8, weight_decay=0.2),
    ),
    "adam, state scaled": (
        Adam(
            learning_rate=Scalar(LR),
            weight_decay=Scalar(0.2),
            epsilon=Scalar(1e-3),
            decay=False,
            scaled_state=True,
            loss_scaling=SCALE,
        ),
        lambda w: torch.optim.Adam(w, LR, eps=1e-3, weight_decay=0.2),
    ),
    "adamw": (
        Adam(learning_rate=Scalar(LR), weight_decay=Scalar(0.2), epsilon=Scalar(1e-8)),
        lambda w: torch.optim.AdamW(w, LR, eps=1e-8, weight_decay=0.2),
    ),
    "ada_max": (
        Adam(
            mode="ada_max",
            learning_rate=Scalar(LR),
            weight_decay=Scalar(0.2),
            epsilon=Scalar(1e-12),
            decay=False,
        ),
        lambda w: torch.optim.Adamax(w, LR, eps=1e-12, weight_decay=0.2),
    ),
    "ada_grad": (
        Adaptive(
            mode="ada_grad",
            learning_rate=Scalar(LR),
            weight_decay=Scalar(0.2),
            epsilon=Scalar(1e-9),
            decay=False,
            loss_scaling=SCALE,
        ),
        lambda w: torch.optim.Adagrad(w, LR, eps=1e-9, weight_decay=0.2),
    ),
    "rms_prop": (
        Adaptive(
            learning_rate=Scalar(LR),
            weight_decay=Scalar(0.2),
            alpha=Scalar(0.9),
            momentum=Scalar(0.5),
            epsilon=Scalar(1e-7),
            decay=False,
            loss_scaling=SCALE,
        ),
        lambda w: torch.optim.RMSprop(w, LR, alpha=0.9, eps=1e-7, weight_decay=0.2, momentum=0.5),
    ),
    "centered_rms_prop": (
        Adaptive(
            mode="centered_rms_prop",
            learning_rate=Scalar(LR),
            alpha=Scalar(0.9),
            epsilon=Scalar(1e-4),
            loss_scaling=SCALE,
        ),
        lambda w: torch.optim.RMSprop(w, LR, alpha=0.9, eps=1e-4, centered=True),
    ),
    "ada_delta": (
        Adaptive(
            mode="ada_delta",
            learning_rate=Scalar(0.5),
            alpha=Scalar(0.9),
            epsilon=Scalar(1e-3),
            loss_scaling=SCALE,
        ),
        lambda w: torch.optim.Adadelta(w, 0.5, rho=0.9, eps=1e-3),
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_ten_optimizer_steps_as_pytorch(name: str, dtype: type[np.floating]) -> None:
    spec, make = CASES[name]
    state = train(spec, dtype).state
    assert_weights(state, torch_train(make), 1e-9 if dtype is np.float64 else 1e-5)


@pytest.mark.parametrize("name", CASES)
def test_streamed_hyper_parameters_give_the_same(name: str) -> None:
    """Hyper-parameters as variables that the host writes give the same weights and names."""
    spec, make = CASES[name]
    changed = {
        key: replace(value, constant=False)
        for key, value in vars(spec).items()
        if isinstance(value, Scalar) and key != "velocity_scaling"
    }
    streamed = replace(spec, **changed)  # type: ignore[arg-type]
    if isinstance(spec, SGD) and spec.momentum.value == 0:
        pytest.skip("a streamed momentum has a velocity: another rule")
    trained = train(streamed)
    assert_weights(trained.state, torch_train(make), 1e-9)
    double = dtypes.BY_NAME["f64"]
    expected = streamed_scalars(streamed, dict.fromkeys(WEIGHTS, double), double)
    assert expected
    held = {name for name in trained.state if "___default___" in name or "lossSc" in name}
    assert held == set(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(trained.state[name], value)


def test_state_names_are_those_of_popart() -> None:
    spec = SGD(
        learning_rate=Scalar(0.1, False),
        momentum=Scalar(0.5),
        loss_scaling=Scalar(1, False),
        specific=(Specific("w2", "learning_rate", Scalar(0.2, False)),),
    )
    state = train(spec, np.float32, 1).state
    assert set(state) == {
        *WEIGHTS,
        "Accl___w1",
        "Accl___b1",
        "Accl___w2",
        "dampeningScaleFactor1___default___FLOAT",
        "dampeningScaleFactor1___specific___w2",
        "scaledLearningRate1___default___FLOAT",
        "scaledLearningRate1___specific___w2",
        "lossScaling_FLOAT",
    }


def test_the_host_changes_the_learning_rate_between_steps() -> None:
    compiled = SGD(learning_rate=Scalar(0.1, False), loss_scaling=Scalar(2.0, False))
    changed = compiled.with_values_of(SGD(learning_rate=Scalar(0.01), loss_scaling=Scalar(4.0)))
    double = dtypes.BY_NAME["f64"]
    writes = streamed_scalars(changed, dict.fromkeys(WEIGHTS, double), double)
    assert set(writes) == {"scaledLearningRate0___default___DOUBLE", "lossScaling_DOUBLE"}
    state = train(compiled, steps=4, writes={2: writes}).state

    weights = {name: torch.tensor(value, requires_grad=True) for name, value in WEIGHTS.items()}
    optimizer = torch.optim.SGD(list(weights.values()), 0.1)
    for step in range(4):
        optimizer.param_groups[0]["lr"] = 0.1 if step < 2 else 0.01
        optimizer.zero_grad()
        torch_loss(weights, step).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert_weights(state, {name: w.detach().numpy() for name, w in weights.items()}, 1e-9)


def test_a_weight_with_its_own_learning_rate() -> None:
    spec = SGD(
        learning_rate=Scalar(0.01), specific=(Specific("b1", "learning_rate", Scalar(0.02)),)
    )

    def make(weights: list[torch.Tensor]) -> torch.optim.Optimizer:
        w1, b1, w2 = weights
        return torch.optim.SGD([{"params": [w1, w2]}, {"params": [b1], "lr": 0.02}], 0.01)

    assert_weights(train(spec).state, torch_train(make), 1e-9)


def gradients(weights: Mapping[str, Array], step: int) -> dict[str, Array]:
    live = {name: torch.tensor(value, requires_grad=True) for name, value in weights.items()}
    torch_loss(live, step).backward()  # type: ignore[no-untyped-call]
    found = {}
    for name, weight in live.items():
        assert weight.grad is not None
        found[name] = weight.grad.numpy()
    return found


def by_hand(
    rule: Callable[[str, Array, Array, int], Array], steps: int = STEPS
) -> dict[str, Array]:
    """Weights after steps of `rule(name, weight, gradient, step)`."""
    weights = dict(WEIGHTS)
    for step in range(steps):
        slopes = gradients(weights, step)
        weights = {name: rule(name, w, slopes[name], step) for name, w in weights.items()}
    return weights


def test_combined_sgd_applies_weight_decay_by_its_definition() -> None:
    """Accl starts at swd1 * w, and holds the decay of the weight after the update."""
    lr, wd, mm, dm, vs = 0.01, 0.2, 0.9, 0.3, 4.0
    spec = SGD(
        learning_rate=Scalar(lr),
        weight_decay=Scalar(wd),
        momentum=Scalar(mm),
        dampening=Scalar(dm),
        velocity_scaling=Scalar(vs),
    )
    swd = (1 - dm) * wd * vs
    velocity = {name: swd * weight for name, weight in WEIGHTS.items()}

    def rule(name: str, w: Array, g: Array, step: int) -> Array:
        v = velocity[name] + (1 - dm) * vs * g
        w = w - lr / vs * v
        velocity[name] = mm * v + swd * w
        return w

    expected = by_hand(rule)
    state = train(spec).state
    assert_weights(state, expected, 1e-9)
    for name in WEIGHTS:
        np.testing.assert_allclose(state[f"Accl___{name}"], velocity[name], rtol=1e-9)


@pytest.mark.parametrize("maximum", [0.0, 0.5, 10.0])
@pytest.mark.parametrize("mode", ["lamb", "lamb_no_bias"])
def test_lamb(maximum: float, mode: str) -> None:
    spec = Adam(
        mode=mode,
        learning_rate=Scalar(LR),
        weight_decay=Scalar(0.2),
        max_weight_norm=Scalar(maximum),
    )
    m = dict.fromkeys(WEIGHTS, 0.0)
    v = dict.fromkeys(WEIGHTS, 0.0)

    def rule(name: str, w: Array, g: Array, step: int) -> Array:
        m[name] = 0.9 * m[name] + 0.1 * g
        v[name] = 0.999 * v[name] + 0.001 * g**2
        mc, vc = m[name], v[name]
        if mode == "lamb":
            mc, vc = mc / (1 - 0.9 ** (step + 1)), vc / (1 - 0.999 ** (step + 1))
        x = mc / (np.sqrt(vc) + 1e-6) + 0.2 * w
        ratio = min(float(np.linalg.norm(w)), maximum) / np.linalg.norm(x) if maximum else 1.0
        return w - LR * ratio * x

    expected = by_hand(rule)
    assert_weights(train(spec).state, expected, 1e-9)
    streamed = replace(spec, max_weight_norm=Scalar(maximum, False))
    assert_weights(train(streamed).state, expected, 1e-9)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_rms_prop_as_tensorflow(momentum: float) -> None:
    spec = Adaptive(
        learning_rate=Scalar(LR),
        alpha=Scalar(0.9),
        momentum=Scalar(momentum),
        epsilon=Scalar(1e-3),
        tf_variant=True,
    )
    square = dict.fromkeys(WEIGHTS, 1.0)
    velocity = dict.fromkeys(WEIGHTS, 0.0)

    def rule(name: str, w: Array, g: Array, step: int) -> Array:
        square[name] = 0.9 * square[name] + 0.1 * g**2
        velocity[name] = momentum * velocity[name] + LR * g / np.sqrt(square[name] + 1e-3)
        return w - velocity[name]

    assert_weights(train(spec).state, by_hand(rule), 1e-9)


def test_adam_without_bias_correction_has_no_step_state() -> None:
    state = train(Adam(mode="adam_no_bias"), steps=1).state
    assert not [name for name in state if name.startswith("Step___")]
    assert train(Adam(), steps=3).state["Step___w1"] == 3


@pytest.mark.parametrize("name", CASES)
def test_clipping_scales_all_gradients_alike(name: str) -> None:
    """Gradients are clipped before momentum and weight decay, by a norm without the loss scale."""
    spec, make = CASES[name]
    found = train(replace(spec, clip=(ClipNorm(0.5),)), steps=3).state
    expected = torch_train(make, steps=3, clip=0.5)
    assert_weights(found, expected, 1e-5)  # torch adds 1e-6 to the norm


def test_loose_clipping_changes_nothing() -> None:
    loose = SGD(learning_rate=Scalar(LR), clip=(ClipNorm(1e9),))
    assert_weights(train(loose).state, torch_train(lambda w: torch.optim.SGD(w, LR)), 1e-9)


def test_clipping_of_a_group_leaves_others_alone() -> None:
    spec = SGD(learning_rate=Scalar(LR), clip=(ClipNorm(0.5, ("w1", "b1")),))

    weights = dict(WEIGHTS)
    for step in range(STEPS):
        slopes = gradients(weights, step)
        length = np.sqrt(sum((slopes[name] ** 2).sum() for name in ("w1", "b1")))
        for name in ("w1", "b1"):
            slopes[name] = slopes[name] * 0.5 / max(0.5, length)
        weights = {name: w - LR * slopes[name] for name, w in weights.items()}
    assert_weights(train(spec).state, weights, 1e-9)


@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("combined", [False, True])
def test_gradients_accumulate_over_micro_batches(
    mean: bool, momentum: float, combined: bool
) -> None:
    """Weights move in every second step only, by both gradients."""
    spec = SGD(
        learning_rate=Scalar(LR),
        momentum=Scalar(momentum),
        accumulation=2,
        mean=mean,
        combined=combined,
    )
    trained = train(spec, steps=5)
    weights = {name: torch.tensor(value, requires_grad=True) for name, value in WEIGHTS.items()}
    optimizer = torch.optim.SGD(list(weights.values()), LR, momentum)
    for step in (0, 2):
        optimizer.zero_grad()
        loss = torch_loss(weights, step) + torch_loss(weights, step + 1)
        (loss / 2 if mean else loss).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert_weights(trained.state, {n: w.detach().numpy() for n, w in weights.items()}, 1e-9)
    assert trained.state["Counter___accumulation"] == 1


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("name", ["sgd0", "sgd1", "sgd2", "adam", "rms_prop"])
def test_the_mean_of_micro_batches_is_clipped(name: str, running: bool) -> None:
    spec, make = CASES[name]
    clip = (ClipNorm(0.5),)
    spec = replace(spec, accumulation=2, mean=True, running=running, clip=clip)
    found = train(spec, steps=4).state
    weights = {name: torch.tensor(value, requires_grad=True) for name, value in WEIGHTS.items()}
    optimizer = make(list(weights.values()))
    for step in (0, 2):
        optimizer.zero_grad()
        loss = (torch_loss(weights, step) + torch_loss(weights, step + 1)) / 2
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(list(weights.values()), 0.5)
        optimizer.step()
    assert_weights(found, {name: one.detach().numpy() for name, one in weights.items()}, 1e-5)


def test_clipping_does_not_depend_on_the_loss_scale() -> None:
    plain = SGD(clip=(ClipNorm(0.05),))
    scaled = replace(plain, loss_scaling=Scalar(8.0, constant=False))
    wanted, found = (train(spec, steps=3).state for spec in (plain, scaled))
    free = train(SGD(), steps=3).state
    for name in WEIGHTS:
        np.testing.assert_allclose(found[name], wanted[name], 1e-6)
        assert not np.allclose(free[name], wanted[name], 1e-4)


@pytest.mark.parametrize("name", ["sgd1", "adam", "rms_prop"])
def test_half_precision_weights_have_states_in_single_precision(name: str) -> None:
    spec, make = CASES[name]
    state = train(spec, np.float16, steps=3).state
    kinds = {name: array.dtype for name, array in state.items()}
    assert {kinds.pop(name) for name in WEIGHTS} == {np.dtype(np.float16)}
    assert set(kinds.values()) == {np.dtype(np.float32)}
    assert_weights(state, torch_train(make, steps=3), 2e-2)


def test_extra_outputs_are_values_after_the_step() -> None:
    names = ("UpdatedVar___w1", "w1", "Accl___w1", "scaledMomentum1___default___DOUBLE")
    spec = SGD(momentum=Scalar(0.9, False))
    trained = train(spec, steps=3, extra_outputs=names)
    assert set(trained.outputs) == {"loss", *names}
    for name in names:
        variable = name.removeprefix("UpdatedVar___")
        np.testing.assert_array_equal(trained.outputs[name], trained.state[variable])


def test_unknown_optimizer_names_are_refused() -> None:
    with pytest.raises(PassError, match="no variable 'Accl___nobody'"):
        train(SGD(), steps=1, extra_outputs=("Accl___nobody",))
    with pytest.raises(PassError, match="unknown optimizer 'sgdx'"):
        OptimizerSpec.parse("sgdx learning_rate=0.1")
    with pytest.raises(PassError, match="sgd has no parameter 'beta=1'"):
        OptimizerSpec.parse("sgd beta=1")
    with pytest.raises(PassError, match="unknown optimizer mode 'adamx'"):
        Adam(mode="adamx")
    with pytest.raises(PassError, match="cannot take the values of adam"):
        SGD().with_values_of(Adam())


def test_optimizer_specs_are_read_back() -> None:
    specs = [spec for spec, _ in CASES.values()]
    specs.append(
        SGD(
            learning_rate=Scalar(1 / 3, False),
            specific=(Specific("a b:c=d,é", "momentum", Scalar(0.1, False)),),
            clip=(ClipNorm(0.1, ("a,b", "c d")), ClipNorm(3.0), ClipNorm(2.0, ("e",), True)),
            accumulation=4,
            mean=True,
        )
    )
    for spec in specs:
        assert OptimizerSpec.parse(str(spec)) == spec


def test_a_wrong_update_rule_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that the comparison can fail: an Adam without bias correction."""
    monkeypatch.setattr(Adam, "corrects_bias", property(lambda self: False))
    spec, make = CASES["adam"]
    with pytest.raises(AssertionError):
        assert_weights(train(spec).state, torch_train(make), 1e-5)
