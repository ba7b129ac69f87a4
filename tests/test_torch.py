"""Tests of `popgraph.torch`: outputs, gradients and training steps equal those of eager PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import popgraph
from popgraph.support.errors import RunError, UnsupportedError

torch: Any = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import popgraph.torch  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


class Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 4, 3, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.out = nn.Linear(4 * 9, 3)

    def forward(self, x: Any) -> Any:
        y = functional.max_pool2d(torch.relu(self.norm(self.convolution(x))), 2)
        return self.out(y.flatten(1))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.GRU(4, 6, batch_first=True)
        self.out = nn.Linear(6, 3)

    def forward(self, x: Any) -> Any:
        return self.out(self.layer(x)[0][:, -1])


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.out = nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.out(self.layer(x).mean(1))


def mlp() -> Any:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def assert_near(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def step(module: Any, optimizer: Any, x: Any, labels: Any) -> Any:
    optimizer.zero_grad()
    loss = functional.cross_entropy(module(x), labels)
    loss.backward()
    optimizer.step()
    return loss.detach()


def assert_trains_alike(module: Any, shape: tuple[int, ...], rule: Callable[..., Any]) -> Any:
    """Trains a module and its compiled copy for three steps; returns both."""
    eager = copy.deepcopy(module)
    compiled = popgraph.torch.compile(module)
    optimizers = [rule(one.parameters(), lr=0.01) for one in (eager, compiled)]
    for _ in range(3):
        x, labels = torch.randn(shape), torch.randint(0, 3, shape[:1])
        xs = [x.clone().requires_grad_() for _ in range(2)]
        losses = [
            step(one, rule_, x_, labels)
            for one, rule_, x_ in zip((eager, compiled), optimizers, xs, strict=True)
        ]
        assert_near(losses[1], losses[0])
        assert_near(xs[1].grad, xs[0].grad)
        for (name, wanted), found in zip(
            eager.state_dict().items(), compiled.state_dict().values(), strict=True
        ):
            assert name in module.state_dict()
            assert_near(found, wanted)
    return eager, compiled


@pytest.mark.parametrize(
    ("make", "shape", "rule"),
    [
        (mlp, (5, 4), torch.optim.Adam),
        (Convolutional, (3, 1, 8, 8), torch.optim.SGD),
        (Recurrent, (2, 4, 4), torch.optim.SGD),
        (Encoder, (2, 4, 8), torch.optim.SGD),
    ],
)
def test_networks_train_as_in_pytorch(
    make: Callable[[], Any], shape: tuple[int, ...], rule: Callable[..., Any]
) -> None:
    eager, compiled = assert_trains_alike(make(), shape, rule)
    if make is not Convolutional:
        return
    x = torch.randn(shape)
    with torch.no_grad():  # with running statistics
        assert_near(compiled.eval()(x), eager.eval()(x))


class Outputs(nn.Module):
    """Several outputs, a detached one, a tied weight, a constant, padding and in-place changes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.unused = nn.Linear(2, 2)
        self.table = nn.Embedding(3, 4, padding_idx=0)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Any, scale: float = 1.0, *, offset: Any = None) -> Any:
        self.calls += 1
        with torch.no_grad():
            fixed = self.first(x)
        y = self.second(self.first(x)) * fixed.clone()
        y[:, 0] = 0
        y = y + self.table(torch.tensor([0, 1, 2]))
        return {"y": y * scale, "best": y.argmax(1), "x": x, "offset": offset, "fixed": fixed}


def test_outputs_have_their_structure_types_and_gradients() -> None:
    module = Outputs()
    eager, compiled = copy.deepcopy(module), popgraph.torch.compile(module)
    x = torch.randn(3, 4)
    for _ in range(2):
        wanted, found = eager(x, 2.0), compiled(x, 2.0)
        assert list(found) == list(wanted) and found["offset"] is None and found["x"] is x
        for name in ("y", "best", "fixed"):
            assert_near(found[name], wanted[name])
            assert found[name].requires_grad == wanted[name].requires_grad
        (wanted["y"].sum() + wanted["y"][0, 1]).backward()
        (found["y"].sum() + found["y"][0, 1]).backward()
    assert_near(module.first.weight.grad, eager.first.weight.grad)
    assert_near(module.table.weight.grad, eager.table.weight.grad)
    assert module.unused.weight.grad is None
    assert compiled.calls == eager.calls == 2
    assert compiled.state_dict().keys() == module.state_dict().keys()


def test_several_calls_are_differentiated_later() -> None:
    """A call keeps outputs and residuals of its own: weights shared over time, accumulation."""
    module = mlp()
    eager, compiled = copy.deepcopy(module), popgraph.torch.compile(module)
    inputs = [torch.randn(5, 4) for _ in range(3)]
    for network in (eager, compiled):
        found = [network(x) for x in inputs]
        sum((y * (at + 1)).square().sum() for at, y in enumerate(found)).backward()
        found = [network(x) for x in inputs]
        for y in reversed(found):
            y.sum().backward()
    for one, other in zip(module.parameters(), eager.parameters(), strict=True):
        assert_near(one.grad, other.grad)


def test_a_weight_that_changes_before_the_backward_pass_is_an_error() -> None:
    compiled = popgraph.torch.compile(mlp())
    loss = compiled(torch.randn(5, 4)).sum()
    with torch.no_grad():
        for parameter in compiled.parameters():
            parameter.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_parameters_are_not_copied() -> None:
    module = nn.Linear(3, 2)
    compiled = popgraph.torch.compile(module)
    x = torch.randn(5, 3)
    with torch.no_grad():
        assert_near(compiled(x), module(x))
        module.weight.mul_(2)
        assert_near(compiled(x), module(x))
        module.weight = nn.Parameter(torch.randn(3, 2).T)  # not contiguous
        assert_near(compiled(x), module(x))
        module.weight.mul_(2)
        assert_near(compiled(x), module(x))
        twin = copy.deepcopy(compiled)
        module.weight.zero_()
        assert not torch.equal(twin(x), compiled(x))
    assert compiled.weight is module.weight and compiled.in_features == 3
    assert compiled.eval() is compiled and not module.training


def test_dropout_draws_anew_and_follows_the_seed_of_pytorch() -> None:
    compiled = popgraph.torch.compile(nn.Dropout(0.5))
    x = torch.ones(1000, requires_grad=True)
    first = compiled(x)
    first.sum().backward()
    assert torch.equal(x.grad, first.detach())  # the backward pass drops the same elements
    assert 400 < first.count_nonzero() < 600 and set(first.tolist()) == {0.0, 2.0}
    assert not torch.equal(compiled(x), first)
    torch.manual_seed(0)
    assert torch.equal(compiled(x), first)


class Rounding(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.round()

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        return dy


class Rounded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        y = torch.tanh(self.layer(x)) * 3
        y = Rounding.apply(y)
        return torch.tanh(y * 0.1) * 2


def test_unsupported_operators_are_left_to_pytorch_and_named() -> None:
    module = Rounded()
    x = torch.randn(5, 4)
    wanted = module(x)
    wanted.sum().backward()
    gradient = module.layer.weight.grad.clone()
    module.zero_grad()
    with pytest.warns(popgraph.torch.EagerWarning, match=r"(?s)1 of 8 .*Function.*Rounding.apply"):
        found = torch.compile(module, backend="popgraph")(x)
    found.sum().backward()
    assert_near(found, wanted)
    assert_near(module.layer.weight.grad, gradient)


def test_options_of_the_backend_are_checked() -> None:
    with pytest.raises(Exception, match="did you mean 'threads'"):
        torch.compile(mlp(), backend="popgraph", options={"thread": 1})(torch.randn(1, 4))
    strict = torch.compile(Rounded(), backend="popgraph", options={"fallback": False})
    with pytest.raises(UnsupportedError, match="backward of its own"):
        strict(torch.randn(2, 4))


class Branching(nn.Module):
    def forward(self, x: Any) -> Any:
        return x if x.sum() > 0 else -x


@pytest.mark.parametrize(
    ("module", "x", "message"),
    [
        (Branching(), torch.ones(2), r"(?s)Python branches on the values.*test_torch\.py:\d+: r"),
        (nn.ReLU(), torch.ones(2, dtype=torch.complex64), "a tensor of torch.complex64"),
        (nn.ReLU(), torch.ones(2, device="meta"), "on the device 'meta'"),
        (nn.ReLU(), np.ones(2), "an argument is of type ndarray"),
        (nn.LSTM(2, 2, 2, dropout=0.5), torch.ones(1, 1, 2), "dropout between recurrent layers"),
    ],
)
def test_modules_without_a_graph_are_refused(module: Any, x: Any, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        popgraph.torch.compile(module)(x)


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(RunError, match="backend='popgraph'"):
        popgraph.torch.compile(torch.relu)
    with pytest.raises(RunError, match="Module, not function"):
        popgraph.from_torch(lambda x: x, torch.ones(1))
    with pytest.raises(UnsupportedError, match="autocast"), torch.autocast("cpu"):
        popgraph.torch.compile(nn.ReLU())(torch.ones(1))


def test_from_torch_names_inputs_outputs_and_weights() -> None:
    network = Convolutional()
    x = torch.randn(2, 1, 8, 8)
    model = popgraph.from_torch(network.eval(), x[:1], dynamic_shapes={"x": {0: "N"}})
    assert [one.name for one in model.graph.input] == ["x"]
    (dims,) = [one.type.tensor_type.shape.dim for one in model.graph.input]
    assert [one.dim_param or one.dim_value for one in dims] == ["N", 1, 8, 8]
    assert [one.name for one in model.graph.output] == ["y"]
    weights = {one.name for one in model.graph.initializer}
    assert {name for name, _ in network.named_parameters()} <= weights
    run = popgraph.compile(model)
    found = run(x=x.numpy())["y"]
    np.testing.assert_allclose(found, network(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_from_torch_gives_models_to_train() -> None:
    model = popgraph.from_torch(Convolutional(), torch.randn(4, 1, 8, 8), output_names=["scores"])
    trainer = popgraph.Trainer(model, "cross_entropy", "Adam(0.01)")
    x = np.random.default_rng(0).normal(size=(8, 1, 8, 8)).astype(np.float32)
    trainer.fit((x, np.arange(8) % 3), epochs=1, batch=4)
    weights = trainer.weights()
    assert weights["out.weight"].shape == (3, 36)
    assert weights["norm.running_mean"].any()  # 0 before the first batch


def test_from_torch_names_mistakes() -> None:
    for arguments, message in (
        ({"example_inputs": np.ones(1)}, "torch.from_numpy"),
        ({"output_names": ["a", "b"]}, "has 2 names, and the module 1 outputs"),
        ({"dynamic_shapes": {"y": {0: "N"}}}, "forward has no argument 'y'"),
        ({"dynamic_shapes": {"x": {0: 3}}}, "an open dimension has a name"),
    ):
        given: dict[str, Any] = {"example_inputs": torch.ones(1, 4), **arguments}
        with pytest.raises(RunError, match=message):
            popgraph.from_torch(Named(), **given)
    with pytest.raises(
        UnsupportedError, match=r"(?s)branches .* older exporter fails, too: Converting"
    ):
        popgraph.from_torch(Branching(), torch.ones(2))


class Named(nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2
