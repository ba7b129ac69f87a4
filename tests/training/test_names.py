"""Tests that names of losses, optimizers, schedules and metrics mean the same everywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import popgraph
from popgraph.builder.pgraph import parse, parse_schedule
from popgraph.builder.pgraph.check.loss_table import LOSS_NAMES, LOSSES, ONE_HOT
from popgraph.cli import app
from popgraph.support.arrays import Array
from popgraph.support.errors import PopgraphError
from popgraph.training.metrics import METRIC_NAMES, metrics_of
from popgraph.training.trainer import Trainer
from popgraph.training.update_rule import OPTIMIZER_NAMES

NET = """
graph net(x: f32[N, 4]) -> (y: f32[N, 3]) {
    weight w: f32[4, 3] = glorot_uniform(seed=1)
    y = END
}
"""
TRAIN = """
train (target: TYPE) {
    loss = LOSS
    optimizer = SGD(0.5)
}
"""
RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 4)).astype(np.float32)
CLASSES = RNG.integers(0, 3, 12)
ONE_HOTS = np.eye(3, dtype=np.float32)[CLASSES]
ANSWERS = RNG.random((12, 3)).astype(np.float32)

ENDS = {"nll": "Softmax(x @ w)", "nll_loss": "LogSoftmax(x @ w)", "bce": "Sigmoid(x @ w)"}
ENDS["categorical_crossentropy"] = ENDS["nll"]
COMPARING = {name: loss for name, loss in LOSSES.items() if loss.takes_target}
SPELLINGS = [(name, one) for name in COMPARING for one in (name, *LOSSES[name].aliases.split())]


def log_softmax(z: Array) -> Array:
    return np.asarray(z - np.log(np.exp(z).sum(1, keepdims=True)))


def sigmoid(z: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-z)))


def step(z: Array) -> Array:
    """Huber's loss of a difference, per element."""
    return np.asarray(np.where(np.abs(z) <= 1, z * z / 2, np.abs(z) - 0.5))


NUMPY: Mapping[str, Callable[[Array], Any]] = {
    **dict.fromkeys(
        ("cross_entropy", "nll", "nll_loss", "categorical_crossentropy"),
        lambda z: -log_softmax(z)[np.arange(12), CLASSES].mean(),
    ),
    **dict.fromkeys(
        ("bce", "bce_with_logits"),
        lambda z: -np.mean(ANSWERS * np.log(sigmoid(z)) + (1 - ANSWERS) * np.log(sigmoid(-z))),
    ),
    "mse": lambda z: np.square(z - ANSWERS).mean(),
    "l1": lambda z: np.abs(z - ANSWERS).mean(),
    "huber": lambda z: step(z - ANSWERS).mean(),
}
"""NumPy's value of each loss of `z = x @ w`."""


def net(name: str) -> str:
    return NET.replace("END", ENDS.get(name, "x @ w"))


def target_of(name: str) -> Array:
    if LOSSES[name].takes_classes:
        return ONE_HOTS if LOSSES[name].target == ONE_HOT else CLASSES
    return ANSWERS


def trained(trainer: Trainer, data: Mapping[str, Array]) -> tuple[float, Array]:
    """The loss of one step, and the weight after it."""
    (loss,) = trainer.fit(data, batch=12)["loss"]
    return loss, trainer.weights()["w"]


def by_python(name: str, loss: str) -> tuple[float, Array]:
    trainer = Trainer(net(name), loss, "SGD(0.5)", backend="reference")
    return trained(trainer, {"x": X, "target": target_of(name)})


def by_text(name: str, loss: str) -> tuple[float, Array]:
    target = target_of(name)
    written = "i64[N]" if target.dtype == np.int64 else "f32[N, 3]"
    section = TRAIN.replace("TYPE", written).replace("LOSS", f"{loss}(y, target)")
    trainer = Trainer(net(name) + section, backend="reference")
    return trained(trainer, {"x": X, "target": target})


def by_command(name: str, loss: str, folder: Path) -> tuple[float, Array]:
    (folder / "net.pgraph").write_text(net(name))
    np.save(folder / "x.npy", X)
    np.save(folder / "target.npy", target_of(name))
    arguments = ["train", folder / "net.pgraph", f"x={folder}/x.npy", f"target={folder}/target.npy"]
    arguments += ["--loss", loss, "--optimizer", "SGD(0.5)", "--backend", "reference"]
    arguments += ["--log", folder / "log.csv", "-o", folder / "out.onnx"]
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    heading, row = ((folder / "log.csv").read_text().splitlines())[:2]
    found = float(dict(zip(heading.split(","), row.split(","), strict=True))["loss"])
    saved = popgraph.compile(folder / "out.onnx", backend="reference")
    logits = saved({"x": np.eye(4, dtype=np.float32)})["y"]
    return found, logits


def expected(name: str) -> tuple[float, Array]:
    """The loss and the weight after a step, by NumPy in f64 with finite differences."""
    options = popgraph.Options(extra_outputs=("w",))
    w = popgraph.compile(net(name), options=options, backend="reference")({"x": X})["w"]
    wide, x = w.astype(np.float64), X.astype(np.float64)
    loss, gradient = NUMPY[name], np.zeros((4, 3))
    for place in np.ndindex(4, 3):
        moved = np.zeros((4, 3))
        moved[place] = 1e-5
        gradient[place] = (loss(x @ (wide + moved)) - loss(x @ (wide - moved))) / 2e-5
    return float(loss(x @ wide)), wide - 0.5 * gradient


@pytest.mark.parametrize("name", sorted(COMPARING))
def test_a_loss_and_its_step_are_those_of_numpy(name: str) -> None:
    for found in (by_python(name, name), by_text(name, name)):
        assert found[0] == pytest.approx(expected(name)[0], rel=1e-5)
        np.testing.assert_allclose(found[1], expected(name)[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "spelled"), SPELLINGS)
def test_another_spelling_is_the_same_loss(name: str, spelled: str) -> None:
    """Python and texts give the same bits; in a text, an ONNX operator's name is that operator."""
    wanted = by_python(name, name)
    doors = [by_python(name, spelled), by_python(name, spelled.upper()), by_text(name, spelled)]
    for found in doors:
        assert found[0] == wanted[0]
        np.testing.assert_array_equal(found[1], wanted[1])


@pytest.mark.parametrize("name", ["cross_entropy", "mse", "bce_with_logits", "nll_loss"])
def test_the_command_knows_the_same_names(name: str, tmp_path: Path) -> None:
    loss, outputs = by_command(name, LOSSES[name].aliases.split()[-1], tmp_path)
    wanted, weight = by_python(name, name)
    assert loss == pytest.approx(wanted, rel=1e-6)
    if name != "nll_loss":
        np.testing.assert_allclose(outputs, weight, rtol=1e-6)


TOKENS = """
graph net(x: f32[N, T, 4]) -> (y: f32[N, T, 5]) {
    weight w: f32[4, 5] = glorot_uniform(seed=1)
    y = END
}
"""
SECOND = TOKENS.replace("y: f32[N, T, 5]", "y: f32[N, 5, T]")
PLANES = {
    "cross_entropy": "x @ w",
    "nll": "Softmax(x @ w)",
    "nll_loss": "LogSoftmax(x @ w)",
}


@pytest.mark.parametrize("name", sorted(PLANES))
@pytest.mark.parametrize("weights", [None, {2: 3.0}])
def test_a_loss_per_token_finds_the_axis_of_the_classes(
    name: str, weights: dict[int, float] | None
) -> None:
    x = RNG.normal(size=(6, 3, 4)).astype(np.float32)
    labels = RNG.integers(0, 5, (6, 3))
    swapped = f"Transpose({PLANES[name]}, perm=[0, 2, 1])"
    options: dict[str, Any] = {"class_weights": weights, "backend": "reference"}
    found = []
    for text in (TOKENS.replace("END", PLANES[name]), SECOND.replace("END", swapped)):
        trainer = Trainer(text, name, "SGD(0.5)", **options)
        found.append(trained(trainer, {"x": x, "labels": labels}))
    flat = NET.replace("3]", "5]").replace("END", PLANES[name])
    rows = Trainer(flat, name, "SGD(0.5)", **options)
    rows.fit((x.reshape(18, 4), labels.reshape(18)), batch=18)
    for loss, weight in found:
        assert loss == pytest.approx(rows.history["loss"][0], rel=1e-6)
        np.testing.assert_allclose(weight, rows.weights()["w"], rtol=1e-5)


@pytest.mark.parametrize("axis", [-1, 1, 2])
def test_a_loss_takes_an_axis_where_shapes_are_ambiguous(axis: int) -> None:
    x = RNG.normal(size=(6, 5, 4)).astype(np.float32)
    labels = RNG.integers(0, 5, (6, 5))
    text = TOKENS.replace("END", "x @ w")
    trainer = Trainer(text, f"cross_entropy(y, labels, axis={axis})", "SGD(0)", backend="reference")
    (found,) = trainer.fit({"x": x, "labels": labels}, batch=6)["loss"]
    scores = np.moveaxis(np.array(trainer.predict(x), np.float64), axis, -1).reshape(-1, 5)
    wanted = -log_softmax(scores)[np.arange(30), labels.reshape(-1)].mean()
    assert found == pytest.approx(wanted, rel=1e-5)


def test_options_of_losses() -> None:
    labels = np.where(CLASSES == 2, -1, CLASSES)
    for name in ("cross_entropy", "nll", "nll_loss"):
        loss = f"{name}(y, labels, ignore_index=-1)"
        trainer = Trainer(net(name), loss, "SGD(0)", backend="reference")
        (found,) = trainer.fit({"x": X, "labels": labels}, batch=12)["loss"]
        kept = Trainer(net(name), name, "SGD(0)", backend="reference")
        some = CLASSES != 2
        assert found == pytest.approx(kept.fit((X[some], CLASSES[some]))["loss"][0], rel=1e-5)
    wide = Trainer(net("mse"), "huber(y, target, delta=1e3)", "SGD(0)", backend="reference")
    (found,) = wide.fit({"x": X, "target": ANSWERS}, batch=12)["loss"]
    assert found == pytest.approx(by_python("mse", "mse")[0] / 2, rel=1e-5)


def test_labels_of_other_types_are_converted() -> None:
    wanted = by_python("cross_entropy", "cross_entropy")
    narrow = Trainer(net("mse"), "cross_entropy", "SGD(0.5)", backend="reference")
    found = trained(narrow, {"x": X, "target": CLASSES.astype(np.uint8)})
    assert found[0] == wanted[0]
    whole = Trainer(net("mse"), "mse(y, target)", "SGD(0.5)", backend="reference")
    found = trained(whole, {"x": X, "target": np.ones((12, 3), np.int64)})
    other = Trainer(net("mse"), "mse(y, 1)", "SGD(0.5)", backend="reference")
    assert found[0] == trained(other, {"x": X})[0]


LISTED = LOSS_NAMES.listed
WRONG: list[tuple[str, Array, str, str]] = [
    (
        "crossentrpy",
        CLASSES,
        "there is no loss 'crossentrpy'",
        f"did you mean 'cross_entropy'? {LISTED}",
    ),
    ("warp", CLASSES, "there is no loss 'warp'", LISTED),
    (
        "cross_entropy",
        ONE_HOTS,
        "cross_entropy takes class numbers, not one-hot labels f32[N, 3]",
        "`labels.argmax(-1)` in Python, `ArgMax(labels, axis=-1, keepdims=0)` in a text; "
        "categorical_crossentropy takes probabilities and one-hot labels",
    ),
    (
        "CrossEntropyLoss",
        CLASSES[:, None],
        "cross_entropy takes class numbers, one for each row of f32[N, 3], not i64[N, 1]",
        "`labels[..., 0]`, without the last dimension",
    ),
    (
        "nll",
        CLASSES.astype(np.float32),
        "nll takes class numbers, which are integers, not f32[N]",
        "`labels.astype('int64')` in Python, `Cast(labels, to=i64)` in a text",
    ),
    (
        "categorical_crossentropy",
        CLASSES.astype(np.float32),
        "categorical_crossentropy takes one-hot labels, and f32[N] are class numbers",
        "nll (sparse_categorical_crossentropy) takes probabilities and class numbers, "
        "cross_entropy logits and class numbers",
    ),
    (
        "mse",
        ANSWERS[:, 0],
        "a target of type f32[N] does not fit f32[N, 3]",
        "mse compares elements one by one",
    ),
]


@pytest.mark.parametrize(("loss", "target", "what", "hint"), WRONG)
def test_errors_of_losses_are_the_same_everywhere(
    loss: str, target: Array, what: str, hint: str
) -> None:
    with pytest.raises(PopgraphError) as python:
        Trainer(net(""), loss, "SGD(0.5)").prepare({"x": X, "target": target})
    own = ", and the model has no value of that name" if "no loss" in what else ""
    assert (python.value.what, python.value.hint) == (what + own, hint)
    shape = "".join(f", {size}" for size in target.shape[1:])
    dtype = "i64" if target.dtype == np.int64 else "f32"
    section = TRAIN.replace("TYPE", f"{dtype}[N{shape}]").replace("LOSS", f"{loss}(y, target)")
    with pytest.raises(PopgraphError) as text:
        parse(net("") + section)
    assert (text.value.what, text.value.hint) == (what, hint)


def test_an_unknown_loss_name_is_an_error() -> None:
    with pytest.raises(PopgraphError) as caught:
        Trainer(NET.replace("END", "x @ w").replace("y", "logits"), "logit", "SGD(0.5)")
    assert caught.value.hint == f"did you mean the value 'logits'? {LISTED}"


def test_shapes_that_fit_two_axes_are_refused() -> None:
    x, labels = np.zeros((6, 5, 4), np.float32), np.zeros((6, 5), np.int64)
    with pytest.raises(PopgraphError) as caught:
        Trainer(TOKENS.replace("END", "x @ w"), "cross_entropy", "SGD(1)").prepare((x, labels))
    assert caught.value.what == (
        "the classes of f32[N, T, 5] may be along the last axis or along axis 1: "
        "labels i64[N, 5] fit both"
    )
    assert caught.value.hint == "`cross_entropy(y, labels, axis=-1)`, or `axis=1`"


@pytest.mark.parametrize(
    ("loss", "what", "hint"),
    [
        ("mse", "`mse` needs the value to compute the loss of", "`mse(y, target)`"),
        ("cross_entropy(y)", "`cross_entropy` takes two tensors, y and labels", ""),
        ("mse(y, target, axis=1)", "`mse` does not take this", "it takes sample_weights"),
        (
            "huber(y, target, beta=1)",
            "`huber` does not take this",
            "it takes sample_weights, delta",
        ),
        ("l1(y, target, lambda=2)", "`l1` does not take 'lambda' here", "`l1(y)` does"),
        ("ReduceMeen(y)", "no operator 'ReduceMeen'", "the closest name is ReduceMean"),
    ],
)
def test_wrong_calls_of_losses_in_a_text(loss: str, what: str, hint: str) -> None:
    section = TRAIN.replace("TYPE", "f32[N, 3]").replace("LOSS", loss)
    with pytest.raises(PopgraphError) as caught:
        parse(net("") + section)
    assert what in str(caught.value)
    assert hint in caught.value.hint


def test_a_def_of_a_text_shadows_a_loss() -> None:
    own = "def mse(a, b) -> c {\n    c = ReduceSum(a - b, keepdims=0)\n}\n"
    section = TRAIN.replace("TYPE", "f32[N, 3]").replace("LOSS", "mse(y, target)")
    trainer = Trainer(own + net("") + section, backend="reference")
    loss = trained(trainer, {"x": X, "target": ANSWERS})[0]
    assert loss == pytest.approx((X @ expected("mse")[1] - ANSWERS).sum(), abs=1e3)
    assert loss != by_python("mse", "mse")[0]


@pytest.mark.parametrize(
    ("loss", "hint"),
    [
        (print, "loss='mse'"),
        (CLASSES, "pass all data as one argument: train(model, (x, labels), ...)"),
        (type("CrossEntropyLoss", (), {})(), "loss='cross_entropy'"),
    ],
)
def test_a_loss_that_is_not_text(loss: Any, hint: str) -> None:
    with pytest.raises(PopgraphError, match="a loss is a name or an expression") as caught:
        popgraph.train(net(""), X, loss, "SGD(0.5)")
    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("sgd", "SGD(learning_rate=0.1)"),
        ("adam", "Adam(learning_rate=0.001)"),
        ("adam_w", "Adam(learning_rate=0.001)"),
        ("RMSprop", "RMSProp(learning_rate=0.01)"),
        ("adadelta", "AdaDelta(learning_rate=1)"),
        ("SGD(lr=0.3, momentum=0.9)", "SGD(learning_rate=0.3, momentum=0.9)"),
        ("adam(beta_1=0.8, eps=1e-3)", "Adam(learning_rate=0.001, beta1=0.8, epsilon=0.001)"),
        ("rmsprop(0.1, rho=0.9)", "RMSProp(learning_rate=0.1, alpha=0.9)"),
        ("Lamb(max_grad_norm=2)", "Lamb(learning_rate=0.001, clip_norm=2)"),
    ],
)
def test_optimizers_are_the_same_everywhere(written: str, meant: str, tmp_path: Path) -> None:
    assert Trainer(net(""), "mse", written).optimizer == meant
    section = TRAIN.replace("TYPE", "f32[N, 3]").replace("LOSS", "mse(y, target)")
    text = net("") + section.replace("SGD(0.5)", written)
    assert Trainer(text).optimizer == meant
    (tmp_path / "net.pgraph").write_text(net(""))
    for name, array in (("x", X), ("target", ANSWERS)):
        np.save(tmp_path / f"{name}.npy", array)
    arguments = ["train", tmp_path / "net.pgraph", "--loss", "mse", "--optimizer", written]
    arguments += [f"{name}={tmp_path}/{name}.npy" for name in ("x", "target")]
    shown = CliRunner().invoke(app, [*map(str, arguments), "--backend", "reference"]).output
    assert f"\noptimizer {meant}\n" in shown


@pytest.mark.parametrize(
    ("optimizer", "what", "hint"),
    [
        ("adan", "there is no optimizer 'adan'", f"did you mean 'Adam'? {OPTIMIZER_NAMES.listed}"),
        (
            "SGD(momentun=1)",
            "SGD has no parameter 'momentun'",
            "did you mean 'momentum'? the parameters are learning_rate, weight_decay, "
            "loss_scaling, accum_type, momentum, dampening, velocity_scaling, nesterov, combined, "
            "accl1_type, clip_norm",
        ),
        ("SGD(0.1, lr=1)", "'learning_rate' of SGD is given twice", ""),
    ],
)
def test_errors_of_optimizers_are_the_same_everywhere(optimizer: str, what: str, hint: str) -> None:
    section = TRAIN.replace("TYPE", "f32[N, 3]").replace("LOSS", "mse(y, target)")
    doors = [(net(""), "mse", optimizer), (net("") + section.replace("SGD(0.5)", optimizer),)]
    for arguments in doors:
        with pytest.raises(PopgraphError) as caught:
            Trainer(*arguments)
        assert (caught.value.what, caught.value.hint) == (what, hint)


def test_schedules_are_the_same_everywhere() -> None:
    section = TRAIN.replace("TYPE", "f32[N, 3]").replace("LOSS", "mse(y, target)")
    written = "CosineDecay(decay_steps=9, alpha=0.5, warmup_steps=1)"
    schedule = parse_schedule("cosine(9, 0.5, warmup=1)")
    assert parse_schedule(written) == schedule
    document = parse(net("") + section.replace("optimizer", f"schedule = {written}\noptimizer"))
    assert document.training is not None and document.training.schedule == schedule
    decay = parse_schedule("ExponentialDecay(decay_steps=2, decay_rate=0.5)")
    assert decay == parse_schedule("exponential(0.5, 2)")
    with pytest.raises(PopgraphError) as caught:
        Trainer(net(""), "mse", "sgd", schedule="cosin(steps=1)")
    assert caught.value.what == "there is no schedule 'cosin'"
    assert caught.value.hint == (
        "did you mean 'cosine'? the schedules are constant, linear, cosine, step, exponential"
    )


@pytest.mark.parametrize("name", METRIC_NAMES.names)
def test_metrics_are_the_same_everywhere(name: str) -> None:
    for one in (name, name.upper(), *METRIC_NAMES.aliases(name)):
        assert metrics_of(one) == metrics_of(name)
    assert metrics_of("Top_7")[0].name == "top7"
    with pytest.raises(PopgraphError) as caught:
        metrics_of("acuracy")
    assert caught.value.hint == f"did you mean 'accuracy'? {METRIC_NAMES.listed}"


def test_accuracy_takes_one_hot_labels() -> None:
    for metric in metrics_of(["accuracy", "f1"]):
        counts = metric.counts(ANSWERS, ONE_HOTS)
        np.testing.assert_array_equal(counts, metric.counts(ANSWERS, CLASSES))


def test_fit_takes_arrays_as_arguments() -> None:
    apart, joined = (Trainer(net(""), "cross_entropy", "sgd", backend="reference") for _ in "ab")
    assert apart.fit(X, CLASSES, epochs=2)["loss"] == joined.fit((X, CLASSES), epochs=2)["loss"]
    assert apart.evaluate(X, CLASSES) == joined.evaluate((X, CLASSES))
    assert apart.check(X, CLASSES).loss == joined.check((X, CLASSES)).loss
    with pytest.raises(PopgraphError, match="options have names: batch=32"):
        apart.evaluate((X, CLASSES), 32)
    with pytest.raises(PopgraphError, match="the data are 4 arrays, and the model takes 2"):
        apart.fit(X, CLASSES, CLASSES, CLASSES)
