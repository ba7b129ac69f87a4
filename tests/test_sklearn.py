"""Tests `popgraph.sklearn`: scikit-learn's own checks, searches, pickles, models and mistakes."""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable
from pathlib import Path

import joblib
import numpy as np
import onnx
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import (
    check_sample_weight_equivalence_on_dense_data,
    parametrize_with_checks,
)

import popgraph
from popgraph.sklearn import Classifier, Regressor
from popgraph.support.errors import PopgraphError

FLOAT32 = {
    "check_sample_weight_equivalence_on_dense_data": "weights and repeated samples agree to the "
    "7 digits of float32, and the check wants 9; dtype='float64' passes it, below"
}
RNG = np.random.default_rng(0)
CENTRES = RNG.normal(size=(3, 6)) * 2
NUMBERS = RNG.integers(0, 3, 90)
X = CENTRES[NUMBERS] + RNG.normal(size=(90, 6)) * 0.5
WORDS = np.array(["low", "middle", "tall"])[NUMBERS]
Y = X @ RNG.normal(size=(6, 2)) * 0.3
SMALL = {"hidden": (8,), "learning_rate": 0.05, "max_iter": 30, "n_iter_no_change": None}


@pytest.fixture(autouse=True, scope="module")
def programs_are_stored() -> object:
    """Fits with the same sizes take their program from the cache, as those of users do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POPGRAPH_PROGRAM_CACHE", "1")
        yield


def classifier(**changed: object) -> Classifier:
    return Classifier(**{**SMALL, "random_state": 0, **changed})


def regressor(**changed: object) -> Regressor:
    return Regressor(**{**SMALL, "random_state": 0, **changed})


@pytest.mark.budget(2)
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [Classifier(), Regressor()], expected_failed_checks=lambda _: FLOAT32, xfail_strict=True
)
def test_check_estimator(estimator: object, check: Callable[[object], None]) -> None:
    check(estimator)


def test_weights_count_like_repeated_samples_in_float64() -> None:
    estimator = regressor(hidden=(4,), dtype="float64")
    check_sample_weight_equivalence_on_dense_data("Regressor", estimator)


def test_digits_in_a_pipeline_with_a_grid_search() -> None:
    images, labels = load_digits(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), classifier(max_iter=15, learning_rate=0.02))
    grid = {"classifier__learning_rate": [1e-5, 0.02], "classifier__weight_decay": [0.0]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(images[:600], labels[:600])
    assert search.best_params_["classifier__learning_rate"] == 0.02
    assert search.score(images[600:], labels[600:]) > 0.75
    assert cross_val_score(search.best_estimator_, images[:300], labels[:300], cv=2).min() > 0.5


def test_classes_are_words_and_probabilities_follow_their_order() -> None:
    fitted = classifier().fit(X, WORDS)
    assert list(fitted.classes_) == ["low", "middle", "tall"] and fitted.n_features_in_ == 6
    assert fitted.score(X, WORDS) > 0.95
    likely = fitted.predict_proba(X)
    np.testing.assert_array_equal(fitted.classes_[likely.argmax(1)], fitted.predict(X))
    np.testing.assert_allclose(likely.sum(1), 1)
    np.testing.assert_allclose(np.exp(fitted.predict_log_proba(X)), likely)
    assert fitted.decision_function(X).shape == (90, 3)
    assert fitted.n_iter_ == len(fitted.loss_curve_) == 30
    assert fitted.loss_ == fitted.loss_curve_[-1] < fitted.loss_curve_[0]


def test_two_classes_have_one_score() -> None:
    rows = NUMBERS < 2
    fitted = classifier().fit(X[rows], WORDS[rows])
    scores = fitted.decision_function(X[rows])
    assert scores.shape == (rows.sum(),)
    np.testing.assert_allclose(fitted.predict_proba(X[rows])[:, 1], 1 / (1 + np.exp(-scores)))
    np.testing.assert_array_equal(fitted.predict(X[rows]) == "middle", scores > 0)


def test_random_state_repeats_a_fit_bit_for_bit() -> None:
    first, again, other = (classifier(random_state=seed).fit(X, WORDS) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.decision_function(X), again.decision_function(X))
    assert not np.array_equal(first.decision_function(X), other.decision_function(X))


def test_a_clone_has_parameters_and_no_weights() -> None:
    copy = clone(classifier(hidden=(8,)).fit(X, WORDS))
    assert copy.get_params()["hidden"] == (8,)
    with pytest.raises(NotFittedError):
        copy.predict(X)


@pytest.mark.parametrize("way", ["pickle", "joblib"])
def test_a_pickled_estimator_predicts_and_trains_on(way: str) -> None:
    fitted = classifier().fit(X, WORDS)
    if way == "pickle":
        copy = pickle.loads(pickle.dumps(fitted))
    else:
        file = io.BytesIO()
        joblib.dump(fitted, file)
        copy = joblib.load(file)
    np.testing.assert_array_equal(copy.predict_proba(X), fitted.predict_proba(X))
    copy.partial_fit(X, WORDS)
    assert copy.n_iter_ == 31 and copy.loss_ < fitted.loss_curve_[1]


def test_a_regressor_keeps_the_axes_of_its_targets() -> None:
    for targets in (Y[:, 0], Y[:, :1], Y):
        fitted = regressor().fit(X, targets)
        assert fitted.predict(X).shape == targets.shape
        assert fitted.score(X, targets) > 0.8


def test_held_out_samples_stop_training_at_the_best_epoch() -> None:
    stopped = regressor(early_stopping=True, n_iter_no_change=2, max_iter=200).fit(X, Y)
    assert 3 <= stopped.n_iter_ < 200
    scores = stopped.validation_scores_
    assert len(scores) == stopped.n_iter_ and max(scores) == max(scores[:-2])
    assert not regressor().fit(X, Y).validation_scores_


def test_training_that_has_not_converged_warns() -> None:
    with pytest.warns(ConvergenceWarning, match="max_iter=3"):
        classifier(max_iter=3, n_iter_no_change=10).fit(X, WORDS)


def test_class_weights_multiply_sample_weights() -> None:
    weights = RNG.uniform(0.5, 2, len(X))
    of_classes = {"low": 3.0, "middle": 1.0, "tall": 0.5}
    one = classifier(class_weight=of_classes).fit(X, WORDS, weights)
    other = classifier().fit(X, WORDS, weights * [of_classes[word] for word in WORDS])
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), rtol=1e-4, atol=1e-6)
    heavy = classifier(class_weight={"low": 1e4, "middle": 1e-4, "tall": 1e-4}).fit(X, WORDS)
    assert (heavy.predict(X) == "low").mean() > (WORDS == "low").mean() + 0.2


def test_partial_fit_continues_and_knows_all_classes() -> None:
    fitted = classifier()
    for start in range(0, 90, 30):
        rows = slice(start, start + 30)
        fitted.partial_fit(X[rows], WORDS[rows], classes=["low", "middle", "tall", "unseen"])
    assert fitted.n_iter_ == 3 and len(fitted.classes_) == 4
    with pytest.raises(PopgraphError, match="y has the class 'new'"):
        fitted.partial_fit(X[:2], ["new", "low"])


def test_warm_start_continues_where_fit_ended() -> None:
    once = classifier(max_iter=8).fit(X, WORDS)
    twice = classifier(max_iter=4, warm_start=True).fit(X, WORDS).fit(X, WORDS)
    np.testing.assert_array_equal(once.decision_function(X), twice.decision_function(X))
    cold = classifier(max_iter=4).fit(X, WORDS).fit(X, WORDS)
    assert (twice.n_iter_, cold.n_iter_) == (8, 4)


SOFTMAX = """
graph net(x: f32[N, 6]) -> (y: f32[N, 3]) {
    weight w: f32[6, 3] = glorot_uniform
    y = Softmax(x @ w)
}
"""
IMAGES = """
graph net(x: f32[N, 1, 2, 3]) -> (y: f32[N, 3]) {
    weight k: f32[3, 1, 2, 3] = he_normal
    y = Flatten(Conv(x, k))
}
"""
ONE = """
graph net(x: f32[N, 6]) -> (y: f32[N, 1]) {
    weight w: f32[6, 1] = glorot_uniform
    y = END(x @ w)
}
"""


def linear(features: int, outputs: int) -> str:
    return f"""
graph net(x: f32[N, {features}]) -> (y: f32[N, {outputs}]) {{
    weight w: f32[{features}, {outputs}] = glorot_uniform
    y = x @ w
}}
"""


@pytest.mark.parametrize("model", [SOFTMAX, IMAGES, linear], ids=["softmax", "images", "function"])
def test_models_of_the_user(model: object) -> None:
    fitted = classifier(model=model).fit(X, WORDS)
    assert fitted.score(X, WORDS) > 0.9
    np.testing.assert_allclose(fitted.predict_proba(X).sum(1), 1)


@pytest.mark.parametrize("end", ["Sigmoid", "Identity"])
def test_one_output_suffices_for_two_classes(end: str) -> None:
    rows = NUMBERS < 2
    fitted = classifier(model=ONE.replace("END", end), early_stopping=True).fit(
        X[rows], WORDS[rows]
    )
    assert fitted.score(X[rows], WORDS[rows]) > 0.9
    assert max(fitted.validation_scores_) == 1.0


def test_a_file_may_disappear_after_fit(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    popgraph.Trainer(linear(6, 2), "mse", "SGD").save(path)
    for model in (path, onnx.load(path)):
        fitted = regressor(model=model).fit(X, Y)
        assert fitted.score(X, Y) > 0.8
    path.unlink()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict(X), fitted.predict(X))


def test_a_saved_model_computes_the_same(tmp_path: Path) -> None:
    fitted = regressor().fit(X, Y)
    for name in ("net.onnx", "net.pgraph"):
        fitted.save(tmp_path / name)
        found = popgraph.compile(tmp_path / name)(x=X.astype(np.float32))["y"]
        np.testing.assert_allclose(found, fitted.predict(X), rtol=1e-4, atol=1e-5)


def test_losses_of_a_regressor() -> None:
    noisy = Y[:, 0].copy()
    noisy[:9] += 30
    errors = {
        loss: np.median(np.abs(regressor(loss=loss).fit(X, noisy).predict(X) - noisy))
        for loss in ("mse", "l1")
    }
    assert errors["l1"] < errors["mse"]


@pytest.mark.parametrize(
    "changed, message, hint",
    [
        ({"activation": "rleu"}, "no activation 'rleu'", "did you mean 'relu'"),
        ({"hidden": (8, 0)}, "positive sizes, not (8, 0)", "hidden=(100,)"),
        ({"hidden": "8"}, "positive sizes, not '8'", "hidden=(100,)"),
        ({"max_iter": 0}, "max_iter must be a positive integer, not 0", ""),
        ({"batch_size": "all"}, "positive integer or \"auto\", not 'all'", ""),
        ({"early_stopping": "no"}, "early_stopping must be True or False, not 'no'", ""),
        ({"tol": -1}, "tol must be a number from 0, not -1", ""),
        ({"validation_fraction": 1.5}, "from 0 to 1, not 1.5", ""),
        ({"optimizer": "adm"}, "no optimizer 'adm'", "did you mean 'Adam'"),
        ({"optimizer": 3}, "an optimizer is a text, not 3", "adam"),
        ({"dtype": "float16"}, "float32 or float64, not 'float16'", ""),
        ({"model": 3}, "3 is not a model", "None for a perceptron"),
        ({"model": "missing.onnx"}, "missing.onnx", ""),
        ({"model": lambda features, outputs: None}, "returned no model", ""),
        ({"model": linear(5, 3)}, "the model takes 5 features, and X has 6", "lambda features"),
        ({"model": linear(6, 4)}, "the model has 4 outputs, and there are 3 classes", "lambda"),
        ({"model": "graph g(x: f32[N, 6], z: f32[N, 6]) -> y { y = x + z }"}, "2 inputs", "one"),
        ({"model": "graph g(x: f32[...]) -> y { y = x }"}, "shape of input 'x'", "f32[N, 4]"),
    ],
)
def test_mistakes_name_the_parameter(changed: dict[str, object], message: str, hint: str) -> None:
    with pytest.raises(PopgraphError) as caught:
        classifier(**changed).fit(X, WORDS)
    assert message in str(caught.value) and hint in caught.value.hint


def test_a_parameter_error_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="'msee' is not a loss of numbers"):
        regressor(loss="msee").fit(X, Y)
    with pytest.raises(ValueError, match="3 columns, and training began with 2"):
        regressor().fit(X, Y).partial_fit(X, X[:, :3])


def test_weights_are_not_negative() -> None:
    with pytest.raises(PopgraphError, match="the weight -1 is negative"):
        classifier().fit(X, WORDS, np.full(90, -1))


def test_without_scikit_learn_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("Classifier", "Regressor"):
        monkeypatch.delitem(popgraph.sklearn.__dict__, name, raising=False)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(PopgraphError, match="needs the package scikit-learn") as caught:
        popgraph.sklearn.Classifier  # noqa: B018
    assert caught.value.hint == 'pip install "popgraph[sklearn]"'


def test_r2_is_that_of_scikit_learn() -> None:
    metric = popgraph.Trainer(linear(6, 2), "mse", "SGD", metrics="r2_score").metrics[0]
    for wanted in (Y, np.concatenate([Y[:, :1], np.ones((90, 1))], 1)):
        guess = (wanted + 0.3 * RNG.normal(size=wanted.shape)).astype(np.float32)
        counts = sum(metric.counts(guess[at : at + 30], wanted[at : at + 30]) for at in (0, 30, 60))
        assert metric.value(counts) == pytest.approx(r2_score(wanted, guess), abs=1e-9)
