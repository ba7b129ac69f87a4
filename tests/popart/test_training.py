"""Tests training of networks built by calls, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import popgraph.popart as popart
from popgraph.support.arrays import Array

STEPS, BATCH = 10, 4
TOLERANCES = {"float32": 1e-5, "float64": 1e-9}

Weights = Mapping[str, Array]


def initial_weights(dtype: str) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    shapes = {
        "conv1.weight": (4, 1, 3, 3),
        "conv1.bias": (4,),
        "conv2.weight": (6, 4, 3, 3),
        "conv2.bias": (6,),
        "full1.weight": (16, 24),
        "full1.bias": (16,),
        "full2.weight": (5, 16),
        "full2.bias": (5,),
    }
    return {name: rng.normal(0, 0.3, shape).astype(dtype) for name, shape in shapes.items()}


def data(dtype: str) -> tuple[Array, Array]:
    rng = np.random.default_rng(1)
    images = rng.normal(size=(STEPS, BATCH, 1, 14, 14)).astype(dtype)
    return images, rng.integers(0, 5, (STEPS, BATCH)).astype(np.int32)


def lenet(dtype: str) -> tuple[popart.Builder, dict[str, str], str]:
    """A LeNet: the builder, the ids of the weights, and the loss."""
    builder = popart.Builder()
    image = builder.addInputTensor(popart.TensorInfo(np.dtype(dtype), [BATCH, 1, 14, 14]), "image")
    labels = builder.addInputTensor("INT32", [BATCH], "labels")
    ids = {n: builder.addInitializedInputTensor(w, n) for n, w in initial_weights(dtype).items()}
    ops = builder.aiOnnx

    def conv(x: str, name: str) -> str:
        made = ops.conv([x, ids[f"{name}.weight"], ids[f"{name}.bias"]], [1, 1], pads=[0, 0, 0, 0])
        return str(ops.maxpool([ops.relu([made])], 1, [2, 2], strides=[2, 2])[0])

    def full(x: str, name: str) -> str:
        return str(ops.gemm([x, ids[f"{name}.weight"], ids[f"{name}.bias"]], transB=1))

    x = conv(conv(image, "conv1"), "conv2")
    x = ops.reshape([x, ops.constant(np.array([BATCH, -1]))])
    x = full(ops.relu([full(x, "full1")]), "full2")
    loss = builder.aiGraphcore.nllloss([ops.softmax([x]), labels])
    return builder, ids, loss


class LeNet(nn.Module):
    """The same network in PyTorch."""

    def __init__(self, dtype: str) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 6, 3)
        self.full1, self.full2 = nn.Linear(24, 16), nn.Linear(16, 5)
        self.to(getattr(torch, dtype))
        state = {name: torch.tensor(array) for name, array in initial_weights(dtype).items()}
        self.load_state_dict(state)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        x = functional.relu(self.full1(x.flatten(1)))
        return functional.log_softmax(self.full2(x), 1)


TorchOptimizer = Callable[[nn.Module], torch.optim.Optimizer]


def train_torch(dtype: str, make: TorchOptimizer) -> tuple[Weights, Array]:
    model = LeNet(dtype)
    optimizer = make(model)
    losses = []
    for image, labels in zip(*data(dtype), strict=True):
        optimizer.zero_grad()
        loss = functional.nll_loss(model(torch.tensor(image)), torch.tensor(labels).long())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {n: p.detach().numpy() for n, p in model.named_parameters()}, np.array(losses)


def with_zero_momentum(model: nn.Module, **options: float) -> torch.optim.Optimizer:
    """An SGD with zero momentum buffers: without them, PyTorch's first step ignores dampening."""
    optimizer = torch.optim.SGD(model.parameters(), **options)  # type: ignore[arg-type]
    for parameter in model.parameters():
        optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


OPTIMIZERS: dict[str, tuple[Callable[[], popart.Optimizer], TorchOptimizer]] = {
    "const-sgd": (
        lambda: popart.ConstSGD(0.1),
        lambda m: torch.optim.SGD(m.parameters(), lr=0.1),
    ),
    "decay-and-loss-scaling": (
        lambda: popart.ConstSGD(0.1, weight_decay=0.01, loss_scaling=8.0),
        lambda m: torch.optim.SGD(m.parameters(), lr=0.1, weight_decay=0.01),
    ),
    "momentum": (
        lambda: popart.SGD(
            {
                "defaultLearningRate": (0.05, False),
                "defaultMomentum": (0.9, True),
                "defaultDampening": (0.2, False),
                "defaultWeightDecay": (0.02, True),
                "lossScaling": (16.0, False),
            }
        ),
        lambda m: with_zero_momentum(m, lr=0.05, momentum=0.9, dampening=0.2, weight_decay=0.02),
    ),
    "separate-momentum": (
        lambda: popart.SGD(
            {"defaultLearningRate": (0.05, False), "defaultMomentum": (0.9, False)},
            accumulatorAndMomentum=popart.SGDAccumulatorAndMomentum.Separate,
        ),
        lambda m: with_zero_momentum(m, lr=0.05, momentum=0.9),
    ),
    "adam": (
        lambda: popart.Adam(
            {
                "defaultLearningRate": (0.01, False),
                "defaultEps": (1e-7, True),
                "lossScaling": (4.0, True),
            }
        ),
        lambda m: torch.optim.Adam(m.parameters(), lr=0.01, eps=1e-7),
    ),
    "adam-w": (
        lambda: popart.Adam(
            {"defaultLearningRate": (0.01, True), "defaultWeightDecay": (0.1, False)}
        ),
        lambda m: torch.optim.AdamW(m.parameters(), lr=0.01, eps=1e-6, weight_decay=0.1),
    ),
    "adam-l2": (
        lambda: popart.Adam(
            {"defaultLearningRate": (0.01, True), "defaultWeightDecay": (0.1, False)},
            weight_decay_mode=popart.WeightDecayMode.L2Regularization,
        ),
        lambda m: torch.optim.Adam(m.parameters(), lr=0.01, eps=1e-6, weight_decay=0.1),
    ),
}


def trained(
    dtype: str, optimizer: popart.Optimizer, device: popart.DeviceInfo, batches: int
) -> tuple[popart.TrainingSession, Weights, Array]:
    """A session after ten updates, `batches` of them per step; its weights and losses."""
    builder, ids, loss = lenet(dtype)
    session = popart.TrainingSession(
        builder.getModelProto(), popart.DataFlow(batches, [loss]), loss, optimizer, device
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    images, labels = data(dtype)
    stepio = popart.PyStepIO({"image": images, "labels": labels}, anchors)
    stepio.enableRuntimeAsserts(False)
    losses = []
    for _ in range(STEPS // batches):
        session.run(stepio)
        losses.append(np.atleast_1d(anchors[loss]).copy())
    session.weightsToHost()
    weights = {name: np.empty_like(array) for name, array in initial_weights(dtype).items()}
    session.readWeights(popart.PyWeightsIO({ids[n]: array for n, array in weights.items()}))
    return session, weights, np.concatenate(losses)


def assert_close(found: Weights, expected: Weights, tolerance: float) -> None:
    for name, array in expected.items():
        error = np.abs(found[name] - array).max() / np.abs(array).max()
        assert error < tolerance, f"{name}: {error:.1e}"


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_ten_updates_of_a_network(name: str, dtype: str, device: popart.DeviceInfo) -> None:
    ours, theirs = OPTIMIZERS[name]
    expected, losses = train_torch(dtype, theirs)
    _, weights, found = trained(dtype, ours(), device, batches=5)
    assert_close(weights, expected, TOLERANCES[dtype])
    np.testing.assert_allclose(found, losses, rtol=TOLERANCES[dtype])
    start = initial_weights(dtype)
    assert all(np.abs(weights[one] - start[one]).max() > 1e-4 for one in start)


def test_a_learning_rate_can_change_between_steps(device: popart.DeviceInfo) -> None:
    rates = [0.1, 0.05]

    def scheduled(model: nn.Module) -> torch.optim.Optimizer:
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        count = iter(range(STEPS))
        optimizer.register_step_pre_hook(
            lambda o, *_: o.param_groups[0].update(lr=rates[next(count) // 5])
        )
        return optimizer

    expected, _ = train_torch("float64", scheduled)
    builder, ids, loss = lenet("float64")
    session = popart.TrainingSession(
        builder.getModelProto(), popart.DataFlow(5, []), loss, popart.SGD(3.0), device
    )
    session.prepareDevice()
    session.weightsFromHost()
    images, labels = data("float64")
    stepio = popart.PyStepIO({"image": images, "labels": labels}, {})
    stepio.enableRuntimeAsserts(False)
    for rate in rates:
        session.updateOptimizerFromHost(popart.SGD(rate))
        session.run(stepio)
    weights = {id: np.empty_like(initial_weights("float64")[id]) for id in ids}
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO(weights))
    assert_close(weights, expected, 1e-9)


def test_one_weight_can_have_its_own_learning_rate(device: popart.DeviceInfo) -> None:
    optimizer = popart.SGD({"defaultLearningRate": (0.1, False)})
    optimizer.insertSpecific("full2.bias", {"learningRate": (0.3, False)})

    def grouped(model: nn.Module) -> torch.optim.Optimizer:
        named = dict(model.named_parameters())
        own = {"params": [named.pop("full2.bias")], "lr": 0.3}
        return torch.optim.SGD([{"params": named.values()}, own], lr=0.1)

    expected, _ = train_torch("float64", grouped)
    _, weights, _ = trained("float64", optimizer, device, batches=10)
    assert_close(weights, expected, 1e-9)


def test_gradients_weights_and_states_can_be_anchored(device: popart.DeviceInfo) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("DOUBLE", [2, 3])
    w = builder.addInitializedInputTensor(np.ones((3, 2)), "w")
    inner = builder.aiOnnx.matmul([x, w])
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.mul([inner, inner])])
    scalar = "scaledLearningRate1___default___DOUBLE"
    anchors = [
        f"Gradient___{w}",
        f"Gradient___{inner}",
        f"Gradient___{x}",
        w,
        f"Accl___{w}",
        f"AcclIntoUpdate___{w}",
        f"AcclOutOfAcclUpdate___{w}",
        scalar,
    ]
    optimizer = popart.SGD(
        {
            "defaultLearningRate": (0.1, False),
            "defaultMomentum": (0.5, True),
            "lossScaling": (2.0, True),
        }
    )
    session = popart.TrainingSession(
        builder.getModelProto(), popart.DataFlow(2, anchors), loss, optimizer, device
    )
    session.prepareDevice()
    session.weightsFromHost()
    found = session.initAnchorArrays()
    data = np.arange(12, dtype=np.float64).reshape(2, 2, 3) / 10
    session.run(popart.PyStepIO({x: data}, found))
    weight, velocity = np.ones((3, 2)), np.zeros((3, 2))
    for batch in range(2):
        product = data[batch] @ weight
        by_inner = 2.0 * 2 * product / 4
        by_weight = data[batch].T @ by_inner
        np.testing.assert_allclose(found[f"Gradient___{inner}"][batch], by_inner)
        np.testing.assert_allclose(found[f"Gradient___{x}"][batch], by_inner @ weight.T)
        np.testing.assert_allclose(found[f"Gradient___{w}"][batch], by_weight)
        velocity = 0.5 * velocity + by_weight / 2.0
        weight = weight - 0.1 * velocity
        np.testing.assert_allclose(found[w][batch], weight)
        np.testing.assert_allclose(found[f"Accl___{w}"][batch], 0.5 * velocity)
        np.testing.assert_allclose(found[f"AcclIntoUpdate___{w}"][batch], velocity)
        np.testing.assert_allclose(found[f"AcclOutOfAcclUpdate___{w}"][batch], 0.5 * velocity)
        np.testing.assert_allclose(found[scalar][batch], 0.1)


@pytest.mark.parametrize(
    ("optimizer", "prefix", "expected"),
    [
        (popart.Adam({"defaultWeightDecay": (0.5, True)}), "AdamUpdater___", 1.5),
        (popart.Adaptive({"defaultAlpha": (0.75, True)}), "AdaptiveUpdater___", 2.0),
    ],
)
def test_weight_updates_can_be_anchored(
    optimizer: popart.Optimizer, prefix: str, expected: float, device: popart.DeviceInfo
) -> None:
    builder = popart.Builder()
    w = builder.addInitializedInputTensor(np.ones(2), "w")
    loss = builder.aiGraphcore.l1loss([w], 3.0, popart.ReductionType.Sum)
    session = popart.TrainingSession(
        builder.getModelProto(), popart.DataFlow(1, [prefix + w]), loss, optimizer, device
    )
    session.prepareDevice()
    session.weightsFromHost()
    found = session.initAnchorArrays()
    session.run(popart.PyStepIO({}, found))
    np.testing.assert_allclose(found[prefix + w], [expected] * 2, rtol=1e-5)


def test_a_loss_of_halves_over_sequences_has_finite_gradients() -> None:
    """The gradient of an unlikely label, 4 / 6.1e-5, exceeds the largest f16."""
    builder = popart.Builder()
    first = builder.addInputTensor("FLOAT16", [1, 2, 3])
    labels = builder.addInputTensor("UINT32", [1, 2])
    w = builder.addInitializedInputTensor(np.ones(3, np.float16))
    scores = builder.aiOnnx.mul([first, w])
    likely = builder.aiOnnx.softmax([scores], axis=2)
    loss = builder.aiGraphcore.nllloss([likely, labels], popart.ReductionType.Sum)
    gradient = f"Gradient___{scores}"
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, [gradient]),
        loss,
        popart.SGD({"lossScaling": (4, True)}),
        popart.DeviceManager().createCpuDevice(backend="reference"),
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    given = {first: np.array([[[9, -9, 0]] * 2], "e"), labels: np.array([[1, 0]], np.uint32)}
    session.run(popart.PyStepIO(given, anchors))
    assert np.allclose(anchors[gradient][0, 0], [4, -4, 0], atol=0.01)
