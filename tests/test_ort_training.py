"""Tests of `popgraph.compat.ort_training`: onnxruntime-training's on-device API."""

from __future__ import annotations

import base64
import importlib
import re
import runpy
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from popgraph import ort
from popgraph.compat.ort_training import artifacts, onnxblock
from popgraph.compat.ort_training.api import (
    CheckpointState,
    LinearLRScheduler,
    Module,
    Optimizer,
)
from popgraph.support.errors import PopgraphError

Array = np.ndarray[Any, Any]
ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "coming-from-onnxruntime-training.md"
ONE_THREAD = ort.SessionOptions()
ONE_THREAD.intra_op_num_threads = 1
RNG = np.random.default_rng(5)
WEIGHTS = {
    "w1": RNG.normal(size=(4, 5)).astype(np.float32),
    "b1": RNG.normal(size=5).astype(np.float32),
    "w2": RNG.normal(size=(5, 3)).astype(np.float32),
}
X = RNG.normal(size=(6, 4)).astype(np.float32)
LABELS = np.array([0, 1, 2, 2, 1, 0])
AdamW, SGD = artifacts.OptimType.AdamW, artifacts.OptimType.SGD


def model(text: str, weights: Mapping[str, Array]) -> onnx.ModelProto:
    made = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 14]> {text}')
    made.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in weights.items()
    )
    return made


def network(rows: str = "N", dropout: str = "hidden = Relu(a)") -> onnx.ModelProto:
    """Two layers with a bias and weights of another, constant, layer in front."""
    text = f"""g(float[{rows}, 4] x) => (float[{rows}, 3] y) {{
        a = Gemm(x, w1, b1)
        {dropout}
        y = MatMul(hidden, w2)
    }}"""
    return model(text, WEIGHTS)


class Session:
    """Artifacts in a folder, and the objects that train from them."""

    def __init__(self, folder: Path, checkpoint: str = "checkpoint") -> None:
        self.folder = folder
        self.state = CheckpointState.load_checkpoint(folder / checkpoint)
        files = folder / "training_model.onnx", folder / "eval_model.onnx"
        self.module = Module(files[0], self.state, files[1], session_options=ONE_THREAD)
        self.optimizer = Optimizer(folder / "optimizer_model.onnx", self.module)

    def grad(self, name: str) -> Array:
        found = self.state.parameters[name].grad
        assert found is not None
        return found

    def values(self) -> dict[str, Array]:
        return {name: one.data for name, one in self.state.parameters}

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.module(X, LABELS)
            self.optimizer.step()
            self.module.lazy_reset_grad()


def generate(folder: Path, source: Any = None, **given: Any) -> Path:
    folder.mkdir(exist_ok=True)
    arguments: dict[str, Any] = {
        "requires_grad": ["w1", "b1"],
        "frozen_params": ["w2"],
        "loss": artifacts.LossType.CrossEntropyLoss,
        "optimizer": AdamW,
        "artifact_directory": folder,
    }
    artifacts.generate_artifacts(source or network(), **{**arguments, **given})
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generate(tmp_path_factory.mktemp("artifacts"), nominal_checkpoint=True)


@pytest.fixture
def session(folder: Path) -> Session:
    return Session(folder)


def by_numpy(x: Array, labels: Array, values: Mapping[str, Array]) -> tuple[float, Array, Array]:
    """The loss, and its gradients with respect to `w1` and `b1`."""
    w1, b1, w2 = (values[name].astype(np.float64) for name in ("w1", "b1", "w2"))
    a = x @ w1 + b1
    y = np.maximum(a, 0) @ w2
    p = np.exp(y - y.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    rows = np.arange(len(x))
    loss = -np.log(p[rows, labels]).mean()
    p[rows, labels] -= 1
    da = (p / len(x)) @ w2.T * (a > 0)
    return float(loss), x.T @ da, da.sum(0)


def close(found: Any, expected: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)


# gradients


def test_loss_and_gradients_equal_numpy(session: Session) -> None:
    before = session.values()
    assert session.state.parameters["w2"].grad is None
    assert not session.grad("w1").any()
    loss, w1, b1 = by_numpy(X, LABELS, before)
    found = session.module(X, LABELS)
    assert found.shape == () and found.dtype == np.float32
    close(found, loss)
    close(session.grad("w1"), w1)
    close(session.grad("b1"), b1)
    assert session.state.parameters["w2"].grad is None
    assert all(np.array_equal(one, session.values()[name]) for name, one in before.items())


def test_gradients_accumulate_until_they_are_reset(session: Session) -> None:
    """Two micro-batches of other sizes; the reset takes place at the next call."""
    session.module(X, LABELS)
    session.module(X[:2], LABELS[:2])
    parts = [by_numpy(X[:n], LABELS[:n], WEIGHTS) for n in (6, 2)]
    close(session.grad("w1"), parts[0][1] + parts[1][1])
    close(session.grad("b1"), parts[0][2] + parts[1][2])
    held = session.grad("b1")
    session.module.lazy_reset_grad()
    assert np.array_equal(session.grad("b1"), held)
    session.module(X[:2], LABELS[:2])
    close(session.grad("b1"), parts[1][2])


def test_weights_that_are_no_parameters_stay(tmp_path: Path) -> None:
    """`w2` is neither trained nor frozen: a constant of the models."""
    session = Session(generate(tmp_path, frozen_params=None, optimizer=SGD))
    session.optimizer.set_learning_rate(0.5)
    session.train(2)
    assert set(session.values()) == {"w1", "b1"}
    close(session.module(X, LABELS), by_numpy(X, LABELS, {**WEIGHTS, **session.values()})[0])
    assert len(onnx.load(tmp_path / "training_model.onnx").graph.initializer) == 1


def test_a_static_training_model_runs_in_onnxruntime(tmp_path: Path) -> None:
    """Its operators are standard ones, in one domain, and its results are the module's."""
    generate(tmp_path, sizes={"N": 6}, optimizer=onnxblock.optim.AdamW(weight_decay=0.1))
    training = onnx.load(tmp_path / "training_model.onnx")
    onnx.checker.check_model(training, full_check=True)
    assert {node.domain for node in training.graph.node} == {""}
    session = Session(tmp_path)
    onnxruntime.set_default_logger_severity(3)
    run = onnxruntime.InferenceSession(tmp_path / "training_model.onnx").run
    values = session.values()
    names = ["w1", "b1"]
    zeros = {name: np.zeros_like(values[name]) for name in names}
    buffers = {f"{name}_grad.accumulation.buffer": zeros[name] + 1 for name in names}
    outputs = [f"{name}_grad.accumulation.out" for name in names]
    feed = {"x": X, "labels": LABELS, **values, **buffers}
    loss = session.module(X, LABELS)
    for is_reset, more in ((True, 0), (False, 1)):
        found = run(None, {**feed, "lazy_reset_grad": np.array([is_reset])})
        close(found[0], loss)
        for name, one in zip(names, found[1:], strict=True):
            close(one, session.grad(name) + more)
    assert [one.name for one in training.graph.output][1:] == outputs
    step: dict[str, Any] = {"learning_rate": np.array([0.001], np.float32), "step": np.array([1])}
    for name in names:
        step |= {name: values[name], f"{name}_grad": session.grad(name)}
        step |= {f"{name}.{one}_order_moment": zeros[name] for one in ("first", "second")}
    session.optimizer.step()
    run = onnxruntime.InferenceSession(tmp_path / "optimizer_model.onnx").run
    for name, one in zip(names, run([f"{name}.updated" for name in names], step), strict=True):
        close(one, session.values()[name], 1e-6, 1e-7)


# optimizers


def train_by_numpy(steps: int, update: Callable[[dict[str, Array], list[Array], int], None]) -> Any:
    values = {name: one.astype(np.float64) for name, one in WEIGHTS.items()}
    for step in range(1, steps + 1):
        _, *gradients = by_numpy(X, LABELS, values)
        update(values, gradients, step)
    return values


@pytest.mark.parametrize("bias_correction", [True, False])
def test_adamw_equals_its_formula(tmp_path: Path, bias_correction: bool) -> None:
    b1, b2, eps, decay, rate = 0.8, 0.95, 1e-3, 0.1, 0.05
    rule = onnxblock.optim.AdamW(bias_correction, (b1, b2), eps, decay)
    session = Session(generate(tmp_path, optimizer=rule))
    session.optimizer.set_learning_rate(rate)
    moments = {name: [np.zeros(WEIGHTS[name].shape)] * 2 for name in ("w1", "b1")}

    def update(values: dict[str, Array], gradients: list[Array], step: int) -> None:
        lr = rate * np.sqrt(1 - b2**step) / (1 - b1**step) if bias_correction else rate
        for name, g in zip(moments, gradients, strict=True):
            m, v = moments[name]
            m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
            moments[name] = [m, v]
            values[name] = values[name] - lr * m / (np.sqrt(v) + eps)
            values[name] = values[name] - rate * decay * values[name]

    session.train(4)
    for name, expected in train_by_numpy(4, update).items():
        close(session.values()[name], expected, 2e-5, 2e-6)


def test_the_defaults_are_those_of_onnxruntime_training(session: Session) -> None:
    """betas 0.9 and 0.999, eps 1e-6, no decay, learning rate 0.001: numbers of 1.19.2."""
    assert session.optimizer.get_learning_rate() == pytest.approx(0.001)
    before = session.values()["b1"]
    session.module(X, LABELS)
    g = session.grad("b1")
    session.optimizer.step()
    rate = 0.001 * np.sqrt(1 - 0.999) / (1 - 0.9)
    close(
        session.values()["b1"], before - rate * 0.1 * g / (np.sqrt(0.001 * g * g) + 1e-6), 1e-6, 0
    )


def test_sgd_with_clipped_gradients(tmp_path: Path) -> None:
    """The common norm counts, and the state holds the clipped gradients after the step."""
    clip = onnxblock.optim.ClipGradNorm(0.1)
    session = Session(generate(tmp_path, optimizer=onnxblock.optim.SGD(clip_grad=clip)))
    session.optimizer.set_learning_rate(0.5)

    def update(values: dict[str, Array], gradients: list[Array], step: int) -> None:
        norm = np.sqrt(sum((g * g).sum() for g in gradients))
        assert norm > 0.1
        for name, g in zip(("w1", "b1"), gradients, strict=True):
            values[name] = values[name] - 0.5 * g * 0.1 / (norm + 1e-6)

    session.train(3)
    for name, expected in train_by_numpy(3, update).items():
        close(session.values()[name], expected)
    norm = np.sqrt(sum((session.grad(name) ** 2).sum() for name in ("w1", "b1")))
    assert norm == pytest.approx(0.1, rel=1e-5)


def test_the_schedule_warms_up_and_decays(session: Session) -> None:
    scheduler = LinearLRScheduler(session.optimizer, 2, 6, 0.2)
    rates = [session.optimizer.get_learning_rate()]
    for _ in range(7):
        session.train(1)
        scheduler.step()
        rates.append(session.optimizer.get_learning_rate())
    assert rates == pytest.approx([0, 0.1, 0.2, 0.15, 0.1, 0.05, 0, 0])
    LinearLRScheduler(session.optimizer, 0, 14, 0.2)
    assert session.optimizer.get_learning_rate() == pytest.approx(0.1)


# checkpoints


def with_dropout() -> onnx.ModelProto:
    source = network(dropout="hidden = Dropout<seed = 3>(a, ratio, is_training)")
    more = {"ratio": np.float32(0.5), "is_training": np.array(True)}
    source.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in more.items())
    return source


def check_resumes(folder: Path, sizes: Any) -> None:
    """Two halves of a training with Dropout equal a whole one."""
    generate(folder, with_dropout(), sizes=sizes)
    whole, first = Session(folder), Session(folder)
    whole.train(4)
    first.train(2)
    CheckpointState.save_checkpoint(first.state, folder / "half", True)
    second = Session(folder, "half")
    second.train(2)
    for name, value in whole.values().items():
        assert np.array_equal(second.values()[name], value)
    losses = {float(second.module(X, LABELS)) for _ in range(3)}
    assert len(losses) == 3, "Dropout draws other numbers in each step"


def test_training_resumes_bit_for_bit(tmp_path: Path) -> None:
    check_resumes(tmp_path, None)
    module = Session(tmp_path).module.eval()
    assert module(X, LABELS) == module(X, LABELS)


def test_training_of_a_static_model_resumes_bit_for_bit(tmp_path: Path) -> None:
    """The random numbers take 500 nodes in standard operators."""
    check_resumes(tmp_path, {"N": 6})


def test_dropout_of_a_static_model_in_onnxruntime(tmp_path: Path) -> None:
    """Draws the numbers of the module, which compiles the symbolic form."""
    loss = Session(generate(tmp_path, with_dropout())).module(X, LABELS)
    generate(tmp_path, with_dropout(), sizes={"N": 6})
    run = onnxruntime.InferenceSession(tmp_path / "training_model.onnx")
    feed = {"x": X, "labels": LABELS, **WEIGHTS, "lazy_reset_grad": np.array([True])}
    for name in ("w1", "b1"):
        feed[f"{name}_grad.accumulation.buffer"] = np.zeros_like(WEIGHTS[name])
    close(run.run(None, feed)[0], loss)


def test_checkpoints_keep_parameters_and_properties(session: Session, tmp_path: Path) -> None:
    session.train(2)
    properties: dict[str, int | float | str] = {"epoch": 3, "best": 0.1, "text": "ü", "big": 2**40}
    for name, value in properties.items():
        session.state.properties[name] = value
    CheckpointState.save_checkpoint(session.state, tmp_path / "c")
    found = CheckpointState.load_checkpoint(str(tmp_path / "c"))
    assert dict(found.properties) == properties and len(found.properties) == 4
    assert "epoch" in found.properties and "x" not in found.properties
    assert [name for name, _ in found.parameters] == ["b1", "w1", "w2"]
    assert len(found.parameters) == 3 and "w1" in found.parameters
    for name, one in found.parameters:
        assert one.name == name and one.requires_grad == (name != "w2")
        assert np.array_equal(one.data, session.values()[name]) and one.grad is None
    assert repr(found.parameters["w1"]) == "Parameter(name=w1, requires_grad=True)"
    again = Session(session.folder)
    assert len(again.state.properties) == 0


def test_parameters_can_be_set(session: Session) -> None:
    ones = np.ones_like(WEIGHTS["w2"])
    held = session.state.parameters["w2"].data
    held[:] = 7
    assert session.state.parameters["w2"].data[0, 0] != 7, "data is a copy"
    session.state.parameters["w2"].data = ones
    close(session.module(X, LABELS), np.log(3))
    session.state.parameters["w2"] = WEIGHTS["w2"]
    assert np.array_equal(session.values()["w2"], WEIGHTS["w2"])


@pytest.mark.parametrize("trainable_only", [True, False])
def test_parameters_as_one_vector(session: Session, trainable_only: bool) -> None:
    module = session.module
    names = ["w1", "b1"] if trainable_only else ["w1", "b1", "w2"]
    expected = np.concatenate([WEIGHTS[name].ravel() for name in names])
    buffer = module.get_contiguous_parameters(trainable_only)
    assert np.array_equal(buffer.numpy(), expected)
    assert module.get_parameters_size(trainable_only) == expected.size
    session.train(1)
    assert not np.array_equal(module.get_contiguous_parameters(trainable_only).numpy(), expected)
    module.copy_buffer_to_parameters(buffer, trainable_only)
    assert np.array_equal(module.get_contiguous_parameters(trainable_only).numpy(), expected)
    assert module.get_parameters_size() == 25 and module.get_contiguous_parameters().shape() == [40]


def test_a_nominal_checkpoint_needs_parameters(folder: Path) -> None:
    full, nominal = Session(folder), Session(folder, "nominal_checkpoint")
    assert "w1" in nominal.state.parameters and nominal.module.get_parameters_size() == 25
    attempts: list[Callable[[], object]] = [
        lambda: nominal.module(X, LABELS),
        lambda: nominal.module.eval()(X, LABELS),
        lambda: nominal.optimizer.step(),
        lambda: nominal.module.get_contiguous_parameters(),
        lambda: CheckpointState.save_checkpoint(nominal.state, folder / "no"),
    ]
    for attempt in attempts:
        with pytest.raises(RuntimeError, match="Please load the model parameters first"):
            attempt()
    with pytest.raises(RuntimeError, match="Please load the parameter states first"):
        nominal.state.parameters["w1"]
    with pytest.raises(RuntimeError, match="Please load all the parameter states first"):
        nominal.state.parameters["w1"] = WEIGHTS["w1"]
    nominal.module.copy_buffer_to_parameters(full.module.get_contiguous_parameters(), False)
    nominal.module.train()
    assert nominal.module(X, LABELS) == full.module(X, LABELS)
    sizes = [(folder / name).stat().st_size for name in ("nominal_checkpoint", "checkpoint")]
    assert sizes[0] < sizes[1]


# inference


def test_the_exported_model_runs_in_onnxruntime(session: Session, tmp_path: Path) -> None:
    session.train(3)
    path = tmp_path / "inference.onnx"
    session.module.export_model_for_inferencing(path, ["y"])
    exported = onnx.load(path)
    onnx.checker.check_model(exported, full_check=True)
    assert [one.name for one in exported.graph.input] == ["x"]
    assert {
        one.name: numpy_helper.to_array(one).tolist() for one in exported.graph.initializer
    } == {name: value.tolist() for name, value in session.values().items()}
    (y,) = onnxruntime.InferenceSession(path).run(["y"], {"x": X})
    values = session.values()
    close(y, np.maximum(X @ values["w1"] + values["b1"], 0) @ values["w2"])


def test_the_module_names_inputs_and_outputs(tmp_path: Path) -> None:
    session = Session(generate(tmp_path, additional_output_names=["y"]))
    assert session.module.input_names() == ["x", "labels"]
    names = session.module.output_names()
    assert len(names) == 2 and names[1] == "y"
    assert session.module.eval().output_names() == names
    loss, y = session.module(X, LABELS)
    close(loss, by_numpy(X, LABELS, WEIGHTS)[0])
    assert y.shape == (6, 3) and not session.module.training


def test_unused_inputs_are_passed(tmp_path: Path) -> None:
    source = network()
    unused = onnx.helper.make_tensor_value_info("mask", TensorProto.BOOL, ["N"])
    source.graph.input.append(unused)
    session = Session(generate(tmp_path, source))
    assert session.module.input_names() == ["x", "mask", "labels"]
    loss = session.module(X, X[:, 0] > 0, LABELS)
    assert session.module.eval()(X, X[:, 0] > 0, LABELS) == pytest.approx(loss)


def test_values_of_onnxruntime_are_accepted(session: Session) -> None:
    for kind in (ort.OrtValue, onnxruntime.OrtValue):
        values = [kind.ortvalue_from_numpy(one) for one in (X, LABELS)]
        found = session.module(*values)
        assert isinstance(found, ort.OrtValue)
        assert found.numpy() == session.module(X, LABELS.tolist())


def test_convolutions_with_batch_norm(tmp_path: Path) -> None:
    """Fine-tuning the last layer, as with MobileNetV2; statistics stay, as in the original."""
    text = """g(float[N, 2, 6, 6] x) => (float[N, 3] y) {
        c = Conv<group = 2, pads = [1, 1, 1, 1]>(x, k)
        n, unused_mean, unused_var = BatchNormalization<training_mode = 1>(c, s, b, mean, var)
        r = Clip(n, low, high)
        p = GlobalAveragePool(r)
        f = Flatten(p)
        y = Gemm<transB = 1>(f, w)
    }"""
    shapes = {"k": (2, 1, 3, 3), "s": (2,), "b": (2,), "mean": (2,), "w": (3, 2)}
    weights = {name: RNG.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    weights["var"] = np.ones(2, np.float32)
    weights |= {"low": np.array(0, np.float32), "high": np.array(6, np.float32)}
    frozen = ["s", "b", "mean", "var", "k"]
    generate(tmp_path, model(text, weights), requires_grad=["w"], frozen_params=frozen)
    session = Session(tmp_path)
    x = RNG.normal(size=(4, 2, 6, 6)).astype(np.float32)
    losses = [float(session.module(x, LABELS[:4]))]
    session.optimizer.set_learning_rate(0.1)
    for _ in range(8):
        session.optimizer.step()
        session.module.lazy_reset_grad()
        losses.append(float(session.module(x, LABELS[:4])))
    assert losses[-1] < losses[0] - 0.05
    for name in frozen:
        assert np.array_equal(session.values()[name], weights[name])
    evaluation = onnx.load(tmp_path / "eval_model.onnx")
    feed = {**session.values(), "x": x, "labels": LABELS[:4]}
    (expected,) = ReferenceEvaluator(evaluation).run(None, feed)
    close(session.module.eval()(x, LABELS[:4]), expected)


# blocks


class Forward(onnxblock.ForwardBlock):
    def __init__(self, build: Callable[..., Any]) -> None:
        super().__init__()
        self._build = build

    def build(self, *names: Any) -> Any:
        return self._build(*names)


def run_block(build: Callable[..., Any], feed: Mapping[str, Array]) -> Any:
    """The first output of blocks on top of `y = x`."""
    block = Forward(build)
    identity = model("g(float[N, 3] x) => (float[N, 3] y) { y = Identity(x) }", {})
    with onnxblock.base(identity) as accessor:
        block("y")
        assert accessor.model == block.to_model_proto() and not accessor.has_path
    return ReferenceEvaluator(block.to_model_proto()).run(None, dict(feed))[0]


Y = RNG.normal(size=(6, 3)).astype(np.float32)
T = RNG.uniform(size=(6, 3)).astype(np.float32)
LOSSES = onnxblock.loss
SOFTPLUS = np.log1p(np.exp(-Y.astype(np.float64)))
LOG_P = Y - np.log(np.exp(Y).sum(1, keepdims=True))
C = np.array([1, 2, 0.5], np.float32)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (LOSSES.MSELoss(), ((Y - T) ** 2).mean()),
        (LOSSES.MSELoss(reduction="sum"), ((Y - T) ** 2).sum()),
        (LOSSES.MSELoss(reduction="none"), (Y - T) ** 2),
        (LOSSES.L1Loss(), abs(Y - T).mean()),
        (LOSSES.BCEWithLogitsLoss(), ((1 - T) * Y + SOFTPLUS).mean()),
        (
            LOSSES.BCEWithLogitsLoss(weight=C, pos_weight=np.array([2.0]), reduction="sum"),
            (C * ((1 - T) * Y + (1 + T) * SOFTPLUS)).sum(),
        ),
        (LOSSES.CrossEntropyLoss(), -LOG_P[np.arange(6), LABELS].mean()),
        (
            LOSSES.CrossEntropyLoss(weight=C, ignore_index=2),
            -(C[LABELS] * LOG_P[np.arange(6), LABELS] * (LABELS != 2)).sum()
            / (C[LABELS] * (LABELS != 2)).sum(),
        ),
    ],
)
def test_losses(loss: onnxblock.Block, expected: Any) -> None:
    is_class = isinstance(loss, LOSSES.CrossEntropyLoss)
    target = {"labels": LABELS} if is_class else {"target": T}
    close(run_block(loss, {"x": Y, **target}), expected)


B = onnxblock.blocks


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda y: B.Add()(y, B.Constant(2.0)()), Y + 2),
        (lambda y: B.Sub()(y, y), Y - Y),
        (lambda y: B.Mul()(y, B.Constant(2.0)()), 2 * Y),
        (lambda y: B.Div()(y, B.Constant(4.0)()), Y / 4),
        (lambda y: B.Pow(2.0)(y), Y**2),
        (lambda y: B.ReduceMean(keepdims=False)(y), Y.mean()),
        (lambda y: B.ReduceSum()(y), Y.sum(keepdims=True)),
        (lambda y: B.Sigmoid()(y), 1 / (1 + np.exp(-Y))),
        (lambda y: B.Log()(B.Abs()(y)), np.log(abs(Y))),
        (lambda y: B.Neg()(y), -Y),
        (lambda y: B.Clip(-0.5, 0.5)(y), Y.clip(-0.5, 0.5)),
        (lambda y: B.Clip(clip_max=0.5)(y), Y.clip(None, 0.5)),
        (lambda y: B.Cast(TensorProto.INT32)(y), Y.astype(np.int32)),
        (lambda y: B.ReduceAllL2()(y, y), np.sqrt(2 * (Y**2).sum())),
        (lambda y: B.PassThrough()(y), Y),
        (lambda y: (B.PassThrough()(y, "x"))[1], Y),
        (lambda y: B.Add()(y, B.InputLike("y")("more")), Y + T),
        (
            lambda y: B.LabelEncoder(keys_int64s=[0, 1], values_int64s=[5, 6], default_int64=9)(
                B.Cast(TensorProto.INT64)(B.Abs()(y))
            ),
            np.select([abs(Y) < 1, abs(Y) < 2], [5, 6], 9),
        ),
    ],
)
def test_blocks(build: Callable[..., Any], expected: Any) -> None:
    feed = {"x": Y, "more": T} if "InputLike" in build.__code__.co_names else {"x": Y}
    close(run_block(build, feed), expected)


def test_blocks_build_a_model_from_nothing() -> None:
    with onnxblock.empty_base(17) as accessor:
        info = onnx.helper.make_tensor_value_info("input", TensorProto.FLOAT, [2, 4])
        accessor.model.graph.input.append(info)
        block = Forward(onnxblock.blocks.Linear(4, 2))
        block("input")
    made = block.to_model_proto()
    onnx.checker.check_model(made, full_check=True)
    values = {one.name: numpy_helper.to_array(one) for one in made.graph.initializer}
    w, b = values.values()
    (found,) = ReferenceEvaluator(made).run(None, {"input": X[:2]})
    close(found, X[:2] @ w + b)


class Weighted(onnxblock.TrainingBlock):
    """Two losses of one output, without the base class's constructor in the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = LOSSES.CrossEntropyLoss(), LOSSES.MSELoss()

    def build(self, name: str) -> tuple[str, str]:
        half = onnxblock.blocks.Constant(0.5)
        second = onnxblock.blocks.Mul()(half(), self.second(name))
        total = onnxblock.blocks.Add()(self.first(name), second)
        return onnxblock.blocks.ReduceSum(keepdims=False)(total), name


def test_a_training_block_of_ones_own(tmp_path: Path) -> None:
    """The way of the MNIST notebook: blocks, files by `onnx.save`, then training."""
    source, block, rule = network(), Weighted(), onnxblock.optim.SGD()
    with pytest.raises(RuntimeError, match="Please build the training model first"):
        block.parameters()
    for one in source.graph.initializer:
        block.requires_grad(one.name, True)
    block.requires_grad("w2", False)
    with onnxblock.base(source):
        block(*[one.name for one in source.graph.output])
        training, evaluation = block.to_model_proto()
    trained, frozen = block.parameters()
    assert [one.name for one in trained] == ["w1", "b1"] and frozen[0].name == "w2"
    with onnxblock.empty_base() as accessor:
        rule(block.parameters())
        assert accessor.model == rule.to_model_proto()
    for name, proto in (
        ("training_model", training),
        ("eval_model", evaluation),
        ("optimizer_model", rule.to_model_proto()),
    ):
        onnx.save(proto, tmp_path / f"{name}.onnx")
    onnxblock.save_checkpoint(block.parameters(), tmp_path / "checkpoint")
    session = Session(tmp_path)
    assert session.module.input_names() == ["x", "target", "labels"]
    loss, y = session.module(X, T, LABELS)
    close(loss, by_numpy(X, LABELS, WEIGHTS)[0] + 0.5 * ((y - T) ** 2).mean())
    session.optimizer.set_learning_rate(0.1)
    session.optimizer.step()
    assert session.module(X, T, LABELS)[0] < loss
    zeros = network()
    for tensor in zeros.graph.initializer:
        tensor.CopyFrom(
            numpy_helper.from_array(np.zeros_like(numpy_helper.to_array(tensor)), tensor.name)
        )
    onnxblock.load_checkpoint_to_model(tmp_path / "checkpoint", zeros)
    assert zeros.graph == source.graph


def test_names_of_another_process_stay() -> None:
    source = model("g(float[N, 3] x) => (float[N, 3] y) { y = Add(x, onnx__w) }", {"onnx__w": C})
    taken = f"onnx::abs_output::{10**6}"
    source.graph.node.add(op_type="Relu", input=["y"], output=[taken])
    block = Forward(lambda y: onnxblock.blocks.Abs()(onnxblock.blocks.Neg()(y)))
    with onnxblock.base(source):
        block("y")
    outputs = [name for node in block.to_model_proto().graph.node for name in node.output]
    numbers = [int(name.rpartition("::")[2]) for name in outputs[1:]]
    assert numbers[0] == 10**6 < numbers[1] < numbers[2]


def test_a_loss_of_a_new_value_finds_its_type() -> None:
    block = Forward(lambda y: LOSSES.CrossEntropyLoss()(onnxblock.blocks.Linear(3, 7)(y)))
    with onnxblock.base(network()):
        block("y")
    labels = block.to_model_proto().graph.input[-1]
    assert labels.name == "labels" and len(labels.type.tensor_type.shape.dim) == 1


def test_gradients_of_inputs() -> None:
    block = Weighted()
    block.requires_grad("x")
    with onnxblock.base(network()):
        block("y")
    training, _ = block.to_model_proto()
    assert "x_grad.accumulation.buffer" in {one.name for one in training.graph.input}
    assert "x_grad.accumulation.out" in {one.name for one in training.graph.output}


def test_a_loss_that_the_model_has(tmp_path: Path) -> None:
    """`loss=None` takes the first output, as for a masked language model with its loss."""
    text = """g(float[N, 4] x, int64[N] labels) => (float loss, float[N, 3] y) {
        h = Gemm(x, w1, b1)
        r = Relu(h)
        y = MatMul(r, w2)
        loss = SoftmaxCrossEntropyLoss(y, labels)
    }"""
    session = Session(generate(tmp_path, model(text, WEIGHTS), loss=None))
    loss, _ = session.module(X, LABELS)
    expected, w1, _ = by_numpy(X, LABELS, WEIGHTS)
    close(loss, expected)
    close(session.grad("w1"), w1)


# errors


def generating(**given: Any) -> Callable[[Session], object]:
    return lambda session: generate(session.folder / "more", **given)


MISUSES: list[tuple[Callable[[Session], object], type[Exception], str]] = [
    (lambda s: s.module(X), RuntimeError, "1 inputs for a model of 2|module(x, labels)"),
    (
        lambda s: s.module(X.astype(np.float64), LABELS),
        RuntimeError,
        "Actual: (tensor(double)) , expected: (tensor(float))|x.astype(np.float32)",
    ),
    (lambda s: s.module(X[:, :3], LABELS), RuntimeError, "Got: 3 Expected: 4|shape is ['N', 4]"),
    (lambda s: s.module(X, LABELS[:3]), RuntimeError, "'N' is 6 in another input, but 3 here"),
    (
        lambda s: Module(s.folder / "training_model.onnx", s.state).eval()(X, LABELS),
        RuntimeError,
        "the module has no eval model|eval_model_uri",
    ),
    (
        lambda s: s.module.export_model_for_inferencing(s.folder / "i.onnx", ["yy"]),
        LookupError,
        "the eval model has no value 'yy'|did you mean 'y'?",
    ),
    (lambda s: Module(s.folder / "none.onnx", s.state), FileNotFoundError, "there is no model"),
    (lambda s: Module(s.folder / "checkpoint", s.state), RuntimeError, "model cannot be read"),
    (
        lambda s: Module(s.folder / "training_model.onnx", s.state, device="cuda"),
        RuntimeError,
        "Unsupported device type: cuda|device='cpu'",
    ),
    (
        lambda s: Module(s.folder / "training_model.onnx", "checkpoint"),  # type: ignore[arg-type]
        TypeError,
        "the state is a str, not a CheckpointState|load_checkpoint(path)",
    ),
    (lambda s: CheckpointState({}), TypeError, "received <class 'dict'>"),  # type: ignore[arg-type]
    (lambda s: s.state.parameters["w11"], KeyError, "Parameter w11 not found.|did you mean 'w1'?"),
    (lambda s: s.state.properties["epoch"], KeyError, "Property epoch not found.|there are none"),
    (
        lambda s: s.state.parameters.__setitem__("w1", X),
        RuntimeError,
        "Parameter data shape mismatch. Expected: (4, 5), Actual: (6, 4)",
    ),
    (
        lambda s: s.state.parameters.__setitem__("b1", np.ones(5)),
        RuntimeError,
        "Parameter data type mismatch. Expected: float32, Actual: float64",
    ),
    (
        lambda s: s.state.properties.__setitem__("all", [1]),  # type: ignore[assignment]
        TypeError,
        "a property is an int, a float or a str, not list",
    ),
    (
        lambda s: s.module.copy_buffer_to_parameters(np.zeros(40, np.float32)),
        RuntimeError,
        "Parameters buffer size incorrect. Expected: [25], Actual: [40]|same trainable_only",
    ),
    (lambda s: Optimizer("x.onnx", 3), TypeError, "module is a int"),  # type: ignore[arg-type]
    (lambda s: s.optimizer.set_learning_rate(float("nan")), RuntimeError, "rate is nan"),
    (
        lambda s: LinearLRScheduler(s.optimizer, 6, 2, 0.1),
        RuntimeError,
        "a warmup of 6 steps does not fit into 2 steps|pass the warmup first",
    ),
    (lambda s: LinearLRScheduler(s, 1, 2, 0.1), TypeError, "is a Session"),  # type: ignore[arg-type]
    (
        lambda s: CheckpointState.load_checkpoint(s.folder / "checkpont"),
        FileNotFoundError,
        "there is no such file; did you mean|check the path",
    ),
    (
        lambda s: CheckpointState.load_checkpoint(s.folder / "eval_model.onnx"),
        RuntimeError,
        "it is not a .safetensors file|generate_artifacts or save_checkpoint",
    ),
    (
        lambda s: CheckpointState.save_checkpoint(s.state, s.folder / "no" / "c"),
        FileNotFoundError,
        "there is no folder|create it first",
    ),
    (
        generating(requires_grad=["w22"]),
        RuntimeError,
        "'w22' requires a gradient, but the model has no such parameter|did you mean 'w2'?",
    ),
    (generating(requires_grad=["w2"]), RuntimeError, "frozen and require gradient|['w2']"),
    (
        generating(requires_grad=["x"], frozen_params=None),
        RuntimeError,
        "there is no parameter to train|requires_grad",
    ),
    (generating(loss="mse"), RuntimeError, "Unknown loss provided <class 'str'>|LossType.MSELoss"),
    (generating(optimizer="SGD"), TypeError, "Unknown optimizer provided|OptimType.AdamW"),
    (generating(ort_format=True), RuntimeError, "not written in the ORT format"),
    (generating(custom_op_library="ops.so"), RuntimeError, "a shared library|docs/extend.md"),
    (generating(additional_output_names="y"), RuntimeError, "to be a list|['y']"),
    (generating(additional_output_names=["z"]), LookupError, "output with name z"),
    (generating(loss_input_names=["z"]), LookupError, "output with name z"),
    (generating(sizes={"M": 3}), RuntimeError, "no symbolic dimension 'M'|it has 'N'"),
    (generating(artifact_directory="no/where"), FileNotFoundError, "there is no folder"),
    (
        lambda s: artifacts.generate_artifacts(3),
        RuntimeError,
        "Please pass in either a string or an ONNX ModelProto|this is int",
    ),
    (lambda s: artifacts.generate_artifacts("no.onnx"), FileNotFoundError, "no model 'no.onnx'"),
    (lambda s: LOSSES.L1Loss("max"), RuntimeError, "Reduction max not supported.|'mean', 'sum'"),
    (lambda s: B.Add()("x", "y"), RuntimeError, "without a model to edit|onnxblock.base(model)"),
    (lambda s: onnxblock.ForwardBlock.to_model_proto(Forward(len)), RuntimeError, "Please build"),
    (lambda s: run_block(B.InputLike("q"), {}), LookupError, "name q|its outputs are 'y'"),
    (
        lambda s: run_block(lambda y: onnxblock.base(network()).__enter__(), {}),
        RuntimeError,
        "Base onnx model already exists",
    ),
    (
        lambda s: onnxblock.save_checkpoint(None, "c"),  # type: ignore[arg-type]
        RuntimeError,
        "No checkpoint parameters provided.",
    ),
]


@pytest.mark.parametrize(("misuse", "kind", "words"), MISUSES)
def test_misuses(
    session: Session, misuse: Callable[[Session], object], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind) as found:
        misuse(session)
    assert isinstance(found.value, PopgraphError)
    assert all(word in str(found.value) for word in words.split("|")), str(found.value)


def test_a_parameter_without_influence_is_refused(tmp_path: Path) -> None:
    source = network()
    source.graph.initializer.append(numpy_helper.from_array(np.ones(2, np.float32), "idle"))
    with pytest.raises(RuntimeError, match=r"the loss '.*' does not depend on it"):
        generate(tmp_path, source, requires_grad=["w1", "idle"])


def test_artifacts_of_other_models_are_refused(session: Session, tmp_path: Path) -> None:
    other = Session(generate(tmp_path, requires_grad=["b1"], frozen_params=["w1", "w2"]))
    with pytest.raises(RuntimeError, match="'w1' is trained by only one of them"):
        Module(session.folder / "training_model.onnx", other.state)
    with pytest.raises(RuntimeError, match="train different parameters: 'w1'"):
        Optimizer(session.folder / "optimizer_model.onnx", other.module)
    with pytest.raises(RuntimeError, match="train different parameters: 'w1'"):
        Optimizer(tmp_path / "optimizer_model.onnx", session.module)


def test_damaged_checkpoints_are_refused(folder: Path, tmp_path: Path) -> None:
    content = (folder / "checkpoint").read_bytes()
    path = tmp_path / "checkpoint"
    for damaged in (
        b"",
        content[:40],
        content[:-4],
        content.replace(b'format\\": 1', b'format\\": 9'),
    ):
        path.write_bytes(damaged)
        with pytest.raises(RuntimeError, match="the checkpoint cannot be read"):
            CheckpointState.load_checkpoint(path)


THEIRS = zlib.decompress(
    base64.b85decode(
        "c-n1Iu};G<6ugFjOl3s@MTh}5*gAw2RkbCuvvfm3kSc;Dq=FO}kUH=Q{6GgrzM*31%m;Mo%G8Ou;n{tLsH&y&"
        "J?owCo$Ls}dD1<Th!8?Tz^5HJA{ZVu0FRgm?=Y+Rr)#n%Bt)!n++}VNJ{DCaSi3>EPJ474D6{9%I0`%4hv2?j"
        "MzcxC`bF=S_=kLml+V31d$9K<_Q^q556Kxk_9%8=PbFtDIkyNm_r;(e14*^a6|(+{GaBs^A)tQ9=L15_+QZ3l"
        "XYb;z<Jhas^J@9G33-uccjX{Iq55*guf=}j=~U_O9qo9XU)?LVZ?^mcVe9|gjuXOHZC=DPg>@Tg;8Qnh{-#b5"
        "*q;D<2b^y;@BC$`9><kx&y;S@hHLY>H~a-ztVf#"
    )
)
"""A checkpoint of onnxruntime-training 1.19.2 after two steps, with the optimizer's state."""


def test_checkpoints_of_onnxruntime_training_resume(tmp_path: Path) -> None:
    """The losses and parameters of the next steps are those of 1.19.2."""
    text = "g(float[N, 2] x) => (float[N, 2] y) { y = Gemm(x, w, b) }"
    source = model(text, {"w": np.zeros((2, 2), np.float32), "b": np.zeros(2, np.float32)})
    loss = artifacts.LossType.MSELoss
    generate(tmp_path, source, requires_grad=["w"], frozen_params=["b"], loss=loss)
    (tmp_path / "theirs").write_bytes(THEIRS)
    session = Session(tmp_path, "theirs")
    assert dict(session.state.properties) == {"epoch": 3, "best": 0.5, "text": "abc"}
    assert session.values()["b"].tolist() == [5, 6]
    losses = []
    for _ in range(2):
        losses.append(session.module(np.ones((1, 2), np.float32), np.zeros((1, 2), np.float32)))
        session.optimizer.step()
        session.module.lazy_reset_grad()
    close(losses, [112.41602, 112.37403], 1e-6)
    found = session.values()["w"].ravel()
    close(found, [0.99600005, 1.99599993, 2.99600029, 3.99600029], 1e-7)
    CheckpointState.save_checkpoint(session.state, tmp_path / "ours", True)
    assert np.array_equal(Session(tmp_path, "ours").values()["w"].ravel(), found)


def test_damage_in_their_checkpoints_is_found(tmp_path: Path) -> None:
    """Changes of one byte: the file is read, or refused by an error of ours."""
    path, refused = tmp_path / "theirs", 0
    for at in range(8, len(THEIRS), 3):
        path.write_bytes(THEIRS[:at] + b"\xff" + THEIRS[at + 1 :])
        try:
            CheckpointState.load_checkpoint(path)
        except PopgraphError:
            refused += 1
    assert refused > 30
    for size in range(8, len(THEIRS), 7):
        path.write_bytes(THEIRS[:size])
        with pytest.raises(RuntimeError, match="the checkpoint cannot be read"):
            CheckpointState.load_checkpoint(path)


@pytest.mark.parametrize("rows", ["1", "N"])
def test_strings_are_refused(tmp_path: Path, rows: str) -> None:
    text = (
        f"g(string[{rows}, 4] x) => (float[{rows}, 3] y) {{ f = Cast<to = 1>(x) y = MatMul(f, w) }}"
    )
    source = model(text, {"w": np.ones((4, 3), np.float32)})
    with pytest.raises(RuntimeError, match="Python"):
        generate(tmp_path, source, requires_grad=["w"], frozen_params=None)
        Session(tmp_path).module(np.array([["1", "2", "3", "4"]]), LABELS[:1])


def test_models_of_onnxruntime_training_are_refused(session: Session, tmp_path: Path) -> None:
    for name, op_type in (("training", "InPlaceAccumulatorV2"), ("optimizer", "AdamWOptimizer")):
        theirs = onnx.load(session.folder / f"{name}_model.onnx")
        theirs.graph.node.add(op_type=op_type, domain="com.microsoft")
        onnx.save(theirs, tmp_path / f"{name}.onnx")
    with pytest.raises(RuntimeError, match="has written this training model"):
        Module(tmp_path / "training.onnx", session.state)
    with pytest.raises(RuntimeError, match="has written this optimizer model"):
        Optimizer(tmp_path / "optimizer.onnx", session.module)


# the page and the example


def test_the_example_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "examples" / "on_device.py"), run_name="__main__")
    assert re.search(r"accuracy: (\d+)% before, (9\d|100)% after", capsys.readouterr().out)


NAMES = {
    "artifacts": "LossType OptimType generate_artifacts",
    "api": "CheckpointState LinearLRScheduler Module Optimizer",
    "onnxblock": "Block ForwardBlock TrainingBlock base blocks custom_op_library empty_base "
    "load_checkpoint_to_model loss optim save_checkpoint",
    "onnxblock.blocks": "Abs Add Block Cast Clip Constant Div InputLike LabelEncoder Linear Log "
    "Mul Neg PassThrough Pow ReduceAllL2 ReduceMean ReduceSum SequenceConstruct Sigmoid Sub",
    "onnxblock.loss": "BCEWithLogitsLoss CrossEntropyLoss L1Loss MSELoss",
    "onnxblock.optim": "AdamW ClipGradNorm SGD",
    "api.checkpoint_state": "CheckpointState Parameter Parameters Properties",
    "onnxblock.model_accessor": "ModelAccessor base custom_op_library empty_base",
}
"""The public names of onnxruntime-training 1.19.2's on-device API."""


def test_all_public_names_exist() -> None:
    for module, names in NAMES.items():
        found = importlib.import_module(f"popgraph.compat.ort_training.{module}")
        assert not [name for name in names.split() if not hasattr(found, name)]


def test_the_page_lists_all_names() -> None:
    text = PAGE.read_text()
    table = text.split("## Names")[1].split("\n\n")[2]
    listed = re.findall(r"`(\w+)`", "\n".join(row.split("|")[2] for row in table.splitlines()[2:]))
    modules = {"blocks", "loss", "optim"}
    assert sorted(listed) == sorted({*" ".join(NAMES.values()).split()} - modules)
    assert f"All {len(listed)} public names" in text


def test_absent_modules_say_where_to_go() -> None:
    room = importlib.import_module("popgraph.compat.ort_training")
    assert dir(room) == ["api", "artifacts", "onnxblock"] and room.api is not None
    with pytest.raises(AttributeError, match=r"popgraph\.Trainer"):
        room.ORTModule  # noqa: B018
    with pytest.raises(AttributeError, match="artifacts"):
        room.artifact  # noqa: B018
