"""Tests training by `popgraph.train` and `Trainer`: data, losses, metrics, validation, saving."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import popgraph
from popgraph.cli import app
from popgraph.passes.optimizer_spec import Adam, Scalar
from popgraph.support.errors import PopgraphError
from popgraph.training.history import History
from popgraph.training.metrics import metrics_of
from popgraph.training.trainer import Trainer

MLP = Path(__file__).parents[2] / "examples/mlp.pgraph"
LINEAR = """
graph linear(x: f32[N, 4]) -> (y: f32[N, 3]) {
    weight w: f32[4, 3] = zeros
    y = x @ w
}
"""
RNG = np.random.default_rng(0)
CENTRES = RNG.normal(size=(10, 64))
LABELS = RNG.integers(0, 10, 300)
X = CENTRES[LABELS] + 0.3 * RNG.normal(size=(300, 64))
FEW = RNG.normal(size=(50, 4)).astype(np.float32)
CLASSES = (FEW @ RNG.normal(size=(4, 3))).argmax(1)


def builder() -> tuple[popgraph.Builder, str]:
    """A model for batches of 8 whose only output is its loss."""
    made = popgraph.Builder()
    x = made.addInputTensor(popgraph.TensorInfo("FLOAT", [8, 4]), "x")
    labels = made.addInputTensor(popgraph.TensorInfo("INT32", [8]), "labels")
    w = made.addInitializedInputTensor(np.zeros((4, 3), np.float32), "w")
    probabilities = made.aiOnnx.softmax([made.aiOnnx.matmul([x, w])])
    loss = made.aiGraphcore.nllloss([probabilities, labels])
    made.addOutputTensor(loss)
    return made, loss


def test_a_text_is_trained_validated_and_predicts() -> None:
    trained = popgraph.train(MLP, (X, LABELS), epochs=3, validation=0.2, metrics=["accuracy", "f1"])
    history = trained.history
    assert history["loss"][-1] < 0.1 < history["loss"][0]
    assert history["val_accuracy"][-1] > 0.95
    assert len(history.steps) == 3 * 8
    found = trained.predict(X)
    assert found.shape == (300, 10)
    assert trained.evaluate((X, LABELS))["accuracy"] == np.mean(found.argmax(1) == LABELS)


def test_the_last_batch_is_smaller_or_dropped() -> None:
    sizes: list[int] = []

    def size(prediction: Any, target: Any) -> float:
        sizes.append(len(target))
        return 0.0

    trainer = Trainer(LINEAR, "cross_entropy", "SGD(0.1)", metrics=size)
    trainer.fit((FEW, CLASSES), batch=20)
    trainer.fit((FEW, CLASSES), batch=20, drop_last=True)
    assert sizes == [20, 20, 10, 20, 20]


@pytest.mark.parametrize("name", ["nll", "cross_entropy"])
def test_class_weights_weigh_the_mean(name: str) -> None:
    text = LINEAR.replace("zeros", "glorot_uniform")
    if name == "nll":
        text = text.replace("x @ w", "Softmax(x @ w)")
    trainer = Trainer(text, name, "SGD(0.0)", class_weights={1: 3.0})
    (loss,) = trainer.fit((FEW, CLASSES), batch=50)["loss"]
    y = trainer.predict(FEW).astype(np.float64)
    logarithms = np.log(y) if name == "nll" else y - np.log(np.exp(y).sum(1, keepdims=True))
    weights = np.array([1.0, 3.0, 1.0])[CLASSES]
    own = -logarithms[np.arange(50), CLASSES]
    assert loss == pytest.approx((weights * own).sum() / weights.sum(), rel=1e-5)


class Columns:
    """A dataset as Hugging Face has it."""

    column_names = ("x", "labels")

    def __len__(self) -> int:
        return len(FEW)

    def __getitem__(self, numbers: list[int]) -> dict[str, Any]:
        return {"x": FEW[numbers].tolist(), "labels": CLASSES[numbers].tolist()}


class Rows:
    """A dataset as PyTorch has it."""

    def __len__(self) -> int:
        return len(FEW)

    def __getitem__(self, number: int) -> tuple[Any, Any]:
        return FEW[number], CLASSES[number]


def batches() -> Any:
    for start in range(0, 50, 20):
        yield {"x": FEW[start : start + 20], "labels": CLASSES[start : start + 20]}


def test_all_forms_of_data_train_alike(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", FEW)
    files = {"x": tmp_path / "x.npy", "labels": CLASSES}
    forms = [(FEW, CLASSES), files, Columns(), Rows(), batches, list(batches())]
    found = [
        Trainer(LINEAR, "cross_entropy", "Adam(0.1)").fit(data, epochs=2, batch=20, shuffle=False)[
            "loss"
        ]
        for data in forms
    ]
    assert all(one == pytest.approx(found[0], rel=1e-5) for one in found)


def test_the_order_of_samples_follows_the_seed() -> None:
    def losses(seed: int) -> list[float]:
        trainer = Trainer(LINEAR, "cross_entropy", "SGD(0.1)")
        trainer.fit((FEW, CLASSES), epochs=2, batch=10, seed=seed)
        return [row["loss"] for row in trainer.history.steps]

    assert losses(1) == losses(1) != losses(2)


def test_patience_stops_and_the_best_weights_stay() -> None:
    trainer = Trainer(LINEAR, "cross_entropy", "SGD(50.0)")
    data = (FEW, RNG.integers(0, 3, 50))
    history = trainer.fit(data, epochs=50, validation=data, patience=2)
    assert "did not improve" in trainer.stopped
    assert len(history.epochs) < 50
    assert trainer.evaluate(data)["loss"] == pytest.approx(min(history["val_loss"]), rel=1e-5)


def test_a_schedule_and_an_optimizer_object() -> None:
    rule = Adam(learning_rate=Scalar(0.1))
    trainer = Trainer(LINEAR, "cross_entropy", rule, schedule=lambda step: 0.5**step)
    trainer.fit((FEW, CLASSES), steps=3)
    rates = [row["learning_rate"] for row in trainer.history.steps]
    assert rates == pytest.approx([0.1, 0.05, 0.025])
    assert Trainer(LINEAR, "nll", rule, schedule="linear(steps=4)")


def test_a_model_of_fixed_batches_is_saved_for_any_size(tmp_path: Path) -> None:
    model, loss = builder()
    trainer = popgraph.train(model, (FEW, CLASSES), loss, "SGD(0.5)", epochs=3, metrics="accuracy")
    assert trainer.history["accuracy"][-1] > 0.7
    assert len(trainer.history.steps) == 3 * (50 // 8)
    trainer.save(tmp_path / "net.onnx")
    saved = onnx.load(tmp_path / "net.onnx")
    onnx.checker.check_model(saved)
    assert [one.name for one in saved.graph.input] == ["x"]
    assert {node.domain for node in saved.graph.node} == {""}
    runtime = pytest.importorskip("onnxruntime", reason="what else loads the file")
    session = runtime.InferenceSession(saved.SerializeToString())
    (found,) = session.run(None, {"x": FEW})
    assert np.allclose(found, trainer.predict(FEW), atol=1e-6)


def test_metrics_have_the_expected_values() -> None:
    scores = np.array([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2], [0.2, 0.2, 0.6], [0.1, 0.6, 0.3]])
    labels = np.array([1, 1, 2, 0])
    found = {
        metric.name: metric.value(metric.counts(scores, labels))
        for metric in metrics_of(["accuracy", "top2", "f1"])
    }
    assert found == pytest.approx({"accuracy": 0.5, "top2": 0.75, "f1": (0 + 0.5 + 1) / 3})
    mae, mse = metrics_of(["mae", "mse"])
    pair = np.array([[1.0], [4.0]]), np.array([2.0, 2.0])
    assert mae.value(mae.counts(*pair)) == 1.5
    assert mse.value(mse.counts(*pair)) == 2.5


def test_a_callback_sees_steps_and_epochs_and_may_stop() -> None:
    seen: list[str] = []

    class Watcher(popgraph.Callback):
        def on_start(self, trainer: Any) -> None:
            seen.append("start")

        def on_step(self, trainer: Any, row: Any) -> None:
            seen.append("step")

        def on_epoch(self, trainer: Any, row: Any) -> None:
            seen.append("epoch")
            trainer.stop("enough")

        def on_end(self, trainer: Any) -> None:
            seen.append("end")

    Trainer(LINEAR, "cross_entropy", "SGD(0.1)").fit(
        (FEW, CLASSES), epochs=9, batch=25, callbacks=[Watcher()]
    )
    assert seen == ["start", "step", "step", "epoch", "end"]


def test_a_notebook_shows_a_row_for_each_epoch() -> None:
    trained = popgraph.train(LINEAR, (FEW, CLASSES), "cross_entropy", "SGD(0.1)", epochs=2)
    shown = trained.history._repr_html_()
    assert shown.count("<tr>") == 3
    assert "<th>loss</th>" in shown and f"<td>{trained.history['loss'][1]:.5f}</td>" in shown


def test_the_predicted_output_of_a_loss_may_be_named() -> None:
    two = LINEAR.replace("-> (y: f32[N, 3])", "-> (z: f32[N, 4], y: f32[N, 3])")
    two = two.replace("y = x @ w", "z = Neg(x)\n    y = x @ w")
    with pytest.raises(PopgraphError, match="select it by prediction='y'"):
        popgraph.train(two, (FEW, CLASSES), "cross_entropy", "SGD(0.1)")
    named = popgraph.train(two, (FEW, CLASSES), "cross_entropy", "SGD(0.1)", prediction="y")
    alone = popgraph.train(LINEAR, (FEW, CLASSES), "cross_entropy", "SGD(0.1)")
    assert named.history["loss"] == alone.history["loss"]


def test_the_command_names_the_predicted_output(tmp_path: Path) -> None:
    two = LINEAR.replace("-> (y: f32[N, 3])", "-> (z: f32[N, 4], y: f32[N, 3])")
    (tmp_path / "two.pgraph").write_text(two.replace("y = x @ w", "z = Neg(x)\n    y = x @ w"))
    np.save(tmp_path / "x.npy", FEW)
    np.save(tmp_path / "labels.npy", CLASSES)
    arguments = ["train", tmp_path / "two.pgraph", f"x={tmp_path / 'x.npy'}"]
    arguments += [f"labels={tmp_path / 'labels.npy'}", "--loss", "cross_entropy"]
    arguments += ["--optimizer", "SGD(0.1)", "--prediction", "y", "--metric", "accuracy"]
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    assert "accuracy" in result.output


def events(folder: Path) -> list[tuple[str, int, float]]:
    """The scalars in the event file of a folder: records that follow their length."""
    proto = pytest.importorskip("tensorboardX.proto.event_pb2", reason="TensorBoard's files")
    (file,) = folder.iterdir()
    data, at, found = file.read_bytes(), 0, []
    while at < len(data):
        size = int.from_bytes(data[at : at + 8], "little")
        event = proto.Event.FromString(data[at + 12 : at + 12 + size])
        found += [(one.tag, event.step, one.simple_value) for one in event.summary.value]
        at += 16 + size
    return found


def test_tensorboard_gets_all_rows(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="it writes the files")
    trained = popgraph.train(
        LINEAR,
        (FEW, CLASSES),
        "cross_entropy",
        "SGD(0.1)",
        epochs=2,
        callbacks=[popgraph.TensorBoard(tmp_path / "run")],
    )
    found = events(tmp_path / "run")
    steps = [number for tag, _, number in found if tag == "step/loss"]
    np.testing.assert_allclose(steps, [row["loss"] for row in trained.history.steps], rtol=1e-6)
    epochs = [(step, number) for tag, step, number in found if tag == "epoch/loss"]
    assert [step for step, _ in epochs] == [row["step"] for row in trained.history.epochs]


def test_a_history_becomes_a_table(tmp_path: Path) -> None:
    history = History([{"epoch": 1, "loss": 0.5}], [{"step": 1, "loss": 0.5}])
    history.to_csv(tmp_path / "h.csv")
    assert (tmp_path / "h.csv").read_text() == "epoch,loss\n1,0.5\n"
    assert history.to_dict()["steps"] == [{"step": 1, "loss": 0.5}]
    assert repr(history).split() == ["epoch", "loss", "1", "0.50000"]
    assert str(History()) == "0 steps, no whole epoch"
    with pytest.raises(KeyError, match="no epoch has 'accuracy'"):
        history["accuracy"]


@pytest.mark.parametrize(
    ("arguments", "fitting", "message"),
    [
        ({"loss": None}, {}, "no loss is given"),
        ({"optimizer": None}, {}, "no optimizer is given"),
        ({"metrics": "acuracy"}, {}, "did you mean 'accuracy'"),
        ({"class_weights": [1.0]}, {}, "there are 1 weights"),
        ({"schedule": "cosin(steps=3)"}, {}, "did you mean 'cosine'?"),
        ({}, {"data": (FEW,)}, "the data are 1 arrays, and the model takes 2"),
        ({}, {"data": (FEW, CLASSES[:9])}, "different numbers of samples"),
        ({}, {"data": (FEW, CLASSES + 3)}, "out of range"),
        ({}, {"data": iter(batches()), "epochs": 2}, "an iterator yields its batches once"),
        ({}, {"validation": 0.0}, "is 0 for validation"),
        ({}, {"epochs": 0}, "a positive integer, not 0"),
        ({}, {"patience": 1, "monitor": "val_f1"}, "no epoch has 'val_f1'"),
    ],
)
def test_errors_of_training_calls(
    arguments: dict[str, Any], fitting: dict[str, Any], message: str
) -> None:
    usual = {"loss": "cross_entropy", "optimizer": "SGD(0.1)", **arguments}
    data = {"data": (FEW, CLASSES), **fitting}
    with pytest.raises(PopgraphError) as caught:
        Trainer(LINEAR, **usual).fit(**data)
    assert message in str(caught.value)


def test_lists_of_numbers_are_arrays_and_rows_must_fit() -> None:
    lists = FEW.tolist(), CLASSES.tolist()
    settings = {"loss": "cross_entropy", "optimizer": "SGD(0.1)"}
    found = popgraph.train(LINEAR, lists, **settings)
    assert (
        found.history["loss"] == popgraph.train(LINEAR, (FEW, CLASSES), **settings).history["loss"]
    )
    with pytest.raises(PopgraphError, match="the data are 4 arrays, and the model takes 2"):
        popgraph.train(LINEAR, tuple((one, 0, 0, 0) for one in FEW), **settings)
    with pytest.raises(PopgraphError, match="a list is not an array"):
        popgraph.train(LINEAR, ([[1.0], [1.0, 2.0]], [0, 1]), **settings)
    ragged = tuple((one[: 2 + number % 2], 0) for number, one in enumerate(FEW))
    with pytest.raises(PopgraphError, match=r"shapes: \(2,\) and \(3,\)\n  at: input 'x'"):
        popgraph.train(LINEAR, ragged, **settings)


def test_a_number_that_its_type_cannot_hold_is_refused() -> None:
    with pytest.raises(PopgraphError, match="which int32 cannot represent"):
        popgraph.train(MLP, (X, LABELS + (1 << 33)))


@pytest.mark.parametrize("model", [LINEAR, MLP], ids=["loss by name", "loss of the text"])
def test_training_starts_from_weights_that_are_set_before_the_data(model: Any) -> None:
    loss = "cross_entropy" if model == LINEAR else None
    trainer = Trainer(model, loss, "SGD(0)", backend="reference")
    name, x, labels = ("w", FEW, CLASSES) if model == LINEAR else ("w2", X[:20], LABELS[:20])
    value = RNG.normal(size=(4, 3) if name == "w" else (32, 10)).astype(np.float32)
    before = trainer.predict(x)
    trainer.set_weights({name: value})
    predicted = trainer.predict(x)
    assert not np.array_equal(predicted, before)
    trainer.fit(x, labels)
    np.testing.assert_array_equal(trainer.weights()[name], value)
    np.testing.assert_array_equal(trainer.predict(x), predicted)
    with pytest.raises(PopgraphError, match="no trained weight 'v'"):
        Trainer(model, loss, "SGD").set_weights({"v": value})


def test_a_frozen_weight_may_be_set_before_the_data() -> None:
    trainer = Trainer(MLP, None, "SGD(0.1)", freeze="w2", backend="reference")
    value = RNG.normal(size=(32, 10)).astype(np.float32)
    trainer.set_weights({"w2": value})
    trainer.fit(X[:20], LABELS[:20])
    h = np.maximum(X[:20].astype(np.float32) @ trainer.weights()["w1"] + trainer.weights()["b1"], 0)
    best = (h @ value + trainer.weights()["b2"]).argmax(1)
    np.testing.assert_array_equal(trainer.predict(X[:20]).argmax(1), best)


def test_bounds_build_one_program_for_all_batches() -> None:
    trainer = Trainer(LINEAR, "cross_entropy", "SGD(0.1)", bounds={"N": 64})
    for rows in (50, 7, 20):
        trainer.fit(FEW[:rows], CLASSES[:rows], batch=rows)
    assert [one.sizes[0].bound for one in trainer.programs] == [64]
    with pytest.raises(PopgraphError, match="bounds names 'M'"):
        Trainer(LINEAR, "cross_entropy", "SGD", bounds={"M": 64}).fit(FEW, CLASSES)
