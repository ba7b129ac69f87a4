"""The estimators: a classifier and a regressor that PopGraph compiles and trains."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.utils import check_array, check_random_state
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from popgraph.builder.pgraph import parse_optimizer
from popgraph.builder.pgraph.check.loss_table import ALIKE, LOSSES, loss_named
from popgraph.passes.optimizer_spec import OptimizerSpec, Scalar
from popgraph.sklearn.network import Given, Network, ParameterError, network_of
from popgraph.support.argument_types import admits
from popgraph.support.arrays import Array
from popgraph.training.callbacks import Callback
from popgraph.training.keras_callbacks import EarlyStopping
from popgraph.training.metrics import AnyMetric, BinaryAccuracy
from popgraph.training.trainer import Trainer
from popgraph.training.update_rule import optimizer_of

Rows: TypeAlias = Any
"""Anything that scikit-learn takes as X: an array, a list of lists, a data frame."""

MOST = 200
"""Samples of a batch if `batch_size` is "auto", as in scikit-learn."""
FEWEST = 32
"""Samples that a program takes at least, so that predictions with small batches are fast, too."""


class _Estimator(BaseEstimator):
    """The common part of the estimators: parameters, training, weights, files."""

    network_: Network
    """The network with its sizes."""
    weights_: dict[str, Array]
    """The trained weights by name."""
    loss_curve_: list[float]
    """The loss of each epoch."""
    validation_scores_: list[float]
    """The score of the held-out samples after each epoch, with `early_stopping`."""
    n_iter_: int
    """The number of epochs."""

    def __init__(
        self,
        model: Given = None,
        *,
        hidden: Any = (100,),
        activation: str = "relu",
        optimizer: str = "adam",
        learning_rate: float | None = None,
        weight_decay: float = 0.0,
        schedule: Any = None,
        batch_size: Any = "auto",
        max_iter: int = 200,
        tol: float = 1e-4,
        n_iter_no_change: int | None = 10,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        shuffle: bool = True,
        warm_start: bool = False,
        random_state: Any = None,
        dtype: Any = "float32",
        threads: int = 1,
        verbose: int = 0,
    ) -> None:
        self.model = model
        self.hidden = hidden
        self.activation = activation
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.schedule = schedule
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.shuffle = shuffle
        self.warm_start = warm_start
        self.random_state = random_state
        self.dtype = dtype
        self.threads = threads
        self.verbose = verbose

    def save(self, path: str | Path) -> None:
        """Writes the fitted model for inference, as .onnx or .pgraph."""
        check_is_fitted(self, "weights_")
        self._ready().save(path)

    @property
    def loss_(self) -> float:
        """The loss of the last epoch."""
        check_is_fitted(self, "weights_")
        return float(self.loss_curve_[-1])

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the compiled programs, which the unpickled estimator builds again."""
        state = dict(super().__getstate__())
        state.pop("_trainer", None)
        return state

    def _loss(self) -> str:
        """The loss by name; it fits the output of the network."""
        raise NotImplementedError

    def _metric(self) -> AnyMetric:
        """The score of held-out samples, for early stopping."""
        raise NotImplementedError

    def _targets(self, y: Array) -> Array:
        """Targets in the form that the loss takes."""
        raise NotImplementedError

    def _fit(
        self,
        x: Array,
        y: Array,
        weights: Array | None,
        *,
        outputs: int,
        epochs: int | None = None,
        strata: Array | None = None,
    ) -> Self:
        """
        Trains on checked arrays, with a new network if there are `outputs`.

        `epochs` are those of `partial_fit`, which nothing stops early. Held-out samples have the
        proportions of the classes `strata`.
        """
        if weights is not None:
            # Samples of weight 0 must not count in the size of a batch.
            used = weights > 0
            x, y, weights = x[used], y[used], weights[used] / weights[used].mean(dtype=np.float64)
            strata = None if strata is None else strata[used]
        if outputs:
            self._begin(x.shape[1], outputs, self._batch(len(x)))
        trainer = self._ready()
        data = [self._samples(x), self._targets(y)]
        if weights is not None:
            data.append(weights.astype(np.float32))
        held_out: tuple[Array, ...] | None = None
        if self.early_stopping and epochs is None:
            parts = train_test_split(
                *data, test_size=self.validation_fraction, random_state=self._seed, stratify=strata
            )
            data, held_out = parts[::2], tuple(parts[1::2])
        batch = None if isinstance(self.network_.batch, int) else self._batch(len(data[0]))
        trainer.prepare(tuple(data), batch=batch)
        if outputs:
            trainer.set_weights(self.network_.weights(self._seed))
        if self.schedule is None:
            trainer.learning_rate = self._rule().learning_rate.value
        done = len(trainer.history.epochs)
        trainer.fit(
            tuple(data),
            epochs=epochs or self.max_iter,
            batch=batch,
            shuffle=bool(self.shuffle),
            seed=self._seed,
            validation=held_out,
            callbacks=[] if epochs else self._stopping(),
            verbose=2 if self.verbose else 0,
        )
        rows = trainer.history.epochs[done:]
        self.loss_curve_ = [*self.loss_curve_, *(row["loss"] for row in rows)]
        score = f"val_{trainer.metrics[0].name}"
        self.validation_scores_ += [row[score] for row in rows if score in row]
        self.n_iter_ = len(self.loss_curve_)
        self.weights_ = dict(trainer.weights())
        if epochs is None and self.n_iter_no_change is not None and not trainer.stopped:
            warnings.warn(
                f"training has not converged after max_iter={self.max_iter} epochs\n"
                "  try: a larger max_iter or learning_rate; n_iter_no_change=None trains for "
                "max_iter epochs without this warning",
                ConvergenceWarning,
                stacklevel=3,
            )
        return self

    def _begin(self, features: int, outputs: int, batch: int) -> None:
        """Starts with a new network."""
        for name in ("_trainer", "weights_"):
            self.__dict__.pop(name, None)
        self.network_ = network_of(
            self.model, features, outputs, self.hidden, self.activation, self.dtype
        )
        self._check_outputs(outputs)
        self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self._rows = 1 << (max(batch, FEWEST) - 1).bit_length()
        self.loss_curve_, self.validation_scores_ = [], []

    def _ready(self) -> Trainer:
        """The trainer of the network; built again after unpickling."""
        found: Trainer | None = self.__dict__.get("_trainer")
        if found is not None:
            return found
        network, rule = self.network_, self._rule()
        if self.schedule is None:
            # The rate is written before the first step, so that all rates share a program.
            rule = replace(rule, learning_rate=Scalar(1.0, constant=False))
        made = Trainer(
            network.source,
            self._loss(),
            rule,
            schedule=self.schedule,
            metrics=self._metric(),
            threads=self.threads,
            quick=False,
            bounds={network.batch: self._rows} if isinstance(network.batch, str) else None,
        )
        if hasattr(self, "weights_"):
            made.set_weights(self.weights_)
        self._trainer = made
        return made

    def _output(self, x: Rows) -> Array:
        """The output of the network for each row, as a matrix of float64."""
        check_is_fitted(self, "weights_")
        x = validate_data(self, x, dtype=None, reset=False)
        trainer = self._ready()
        batch = None if isinstance(self.network_.batch, int) else self._rows
        found = trainer.predict(self._samples(x), batch=batch)
        assert isinstance(found, np.ndarray), "the network has one output"
        return found.reshape(len(x), -1).astype(np.float64)

    def _samples(self, x: Rows) -> Array:
        """Rows of X as finite numbers in the type of the input."""
        dtype = self.network_.dtype if self.network_.dtype.kind == "f" else "numeric"
        return self.network_.samples(check_array(x, dtype=dtype))

    def _stopping(self) -> list[Callback]:
        """The callback that ends training without improvement."""
        if self.n_iter_no_change is None:
            return []
        if not self.early_stopping:
            return [EarlyStopping("loss", self.tol, self.n_iter_no_change)]
        monitor = f"val_{self._ready().metrics[0].name}"
        return [EarlyStopping(monitor, self.tol, self.n_iter_no_change, restore_best_weights=True)]

    def _batch(self, samples: int) -> int:
        """The samples of a batch."""
        given = MOST if isinstance(self.batch_size, str) else self.batch_size
        return min(int(given), samples)

    def _rule(self) -> OptimizerSpec:
        """The optimizer with the learning rate and weight decay of the parameters."""
        rule = optimizer_of(parse_optimizer(self.optimizer))
        if self.learning_rate is not None:
            rule = replace(rule, learning_rate=Scalar(float(self.learning_rate)))
        if self.weight_decay:
            rule = replace(rule, weight_decay=Scalar(float(self.weight_decay)))
        return rule

    def _check_outputs(self, outputs: int) -> None:
        """ModelError unless the network has this number of outputs."""
        raise NotImplementedError

    def _check_parameters(self) -> None:
        """ParameterError for the first parameter without a valid value."""
        numbers = {"max_iter": self.max_iter, "threads": self.threads}
        if self.batch_size != "auto":
            numbers["batch_size"] = self.batch_size
        if self.n_iter_no_change is not None:
            numbers["n_iter_no_change"] = self.n_iter_no_change
        for name, value in numbers.items():
            if not _is_integer(value) or value < 1:
                also = {"batch_size": ' or "auto"', "n_iter_no_change": " or None"}.get(name, "")
                raise ParameterError(
                    f"{name} must be a positive integer{also}, not {value!r}", name
                )
        for name, low, high in (
            ("tol", 0.0, np.inf),
            ("weight_decay", 0.0, np.inf),
            ("learning_rate", 0.0, np.inf),
            ("validation_fraction", 0.0, 1.0),
        ):
            value = getattr(self, name)
            if value is None and name == "learning_rate":
                continue
            if not _is_number(value) or not low <= value < high:
                raise ParameterError(
                    f"{name} must be a number from {low:g}"
                    + (f" to {high:g}" if high < np.inf else "")
                    + f", not {value!r}",
                    name,
                )
        for name in ("early_stopping", "shuffle", "warm_start"):
            if not admits(bool)(value := getattr(self, name)):
                raise ParameterError(f"{name} must be True or False, not {value!r}", name)
        if not isinstance(self.optimizer, str):
            raise ParameterError(
                f"an optimizer is a text, not {self.optimizer!r}",
                "optimizer",
                '"adam", or "SGD(0.1, momentum=0.9)"',
            )


class Classifier(ClassifierMixin, _Estimator):
    """
    A neural network that classifies: `Classifier(hidden=(64,)).fit(X, y).predict(X)`.

    `model` is None for a perceptron with these `hidden` layers and `activation`, or a model whose
    output has one number for each class: a `.pgraph` text, a path, ONNX, a Builder, or a function
    of the numbers of features and classes that returns one. A last Softmax, LogSoftmax or Sigmoid
    is recognized; any other output counts as logits.

    `optimizer` is a text ("adam", "SGD(0.1, momentum=0.9)"); `learning_rate` and `weight_decay`
    override its values. `schedule` is a text ("cosine(steps=1000)") or a function of the step.

    Training ends after `max_iter` epochs, or if the loss has not improved by `tol` for
    `n_iter_no_change` epochs. With `early_stopping`, a `validation_fraction` of the samples is held
    out, its accuracy decides, and the weights of the best epoch are kept.

    `class_weight` is a dict or "balanced". `random_state` decides the weights of the perceptron,
    the order of batches and the held-out samples. With `warm_start`, `fit` continues from the
    weights of the last one. A perceptron computes in `dtype`, "float32" or "float64", with
    `threads`.
    """

    def __init__(
        self,
        model: Given = None,
        *,
        hidden: Any = (100,),
        activation: str = "relu",
        optimizer: str = "adam",
        learning_rate: float | None = None,
        weight_decay: float = 0.0,
        schedule: Any = None,
        batch_size: Any = "auto",
        max_iter: int = 200,
        tol: float = 1e-4,
        n_iter_no_change: int | None = 10,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        class_weight: Any = None,
        shuffle: bool = True,
        warm_start: bool = False,
        random_state: Any = None,
        dtype: Any = "float32",
        threads: int = 1,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            model,
            hidden=hidden,
            activation=activation,
            optimizer=optimizer,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            schedule=schedule,
            batch_size=batch_size,
            max_iter=max_iter,
            tol=tol,
            n_iter_no_change=n_iter_no_change,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            shuffle=shuffle,
            warm_start=warm_start,
            random_state=random_state,
            dtype=dtype,
            threads=threads,
            verbose=verbose,
        )
        self.class_weight = class_weight

    def fit(self, X: Rows, y: Any, sample_weight: Any = None) -> Self:
        """Trains a new network; with `warm_start`, continues with the fitted one."""
        continues = bool(self.warm_start) and hasattr(self, "weights_")
        x, y = self._checked(X, y, reset=not continues)
        if not continues:
            self.classes_ = np.unique(y)
        return self._learn(x, y, sample_weight, fresh=not continues)

    def partial_fit(
        self,
        X: Rows,
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Trains for one epoch; the first call names all `classes` if `y` lacks some."""
        fresh = not hasattr(self, "weights_")
        x, y = self._checked(X, y, reset=fresh)
        if fresh:
            self.classes_ = np.unique(y if classes is None else classes)
        elif classes is not None and not np.array_equal(self.classes_, np.unique(classes)):
            raise ParameterError(
                f"classes={classes!r} differ from the classes of the first call", "classes"
            )
        return self._learn(x, y, sample_weight, fresh=fresh, epochs=1)

    def decision_function(self, X: Rows) -> Array:
        """Logits, or logarithms of probabilities; for two classes, those of the second one."""
        found = self._output(X)
        last = self.network_.last
        with np.errstate(divide="ignore"):
            if self.network_.is_binary:
                if last == "Sigmoid":
                    found = np.log(found) - np.log1p(-found)
                return found[:, 0] if len(self.classes_) == 2 else found
            if last == "Softmax":
                found = np.log(found)
        return found[:, 1] - found[:, 0] if len(self.classes_) == 2 else found

    def predict_proba(self, X: Rows) -> Array:
        """The probability of each class, in the order of `classes_`."""
        return np.asarray(np.exp(self.predict_log_proba(X)))

    def predict_log_proba(self, X: Rows) -> Array:
        """The logarithm of the probability of each class."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            scores = np.stack([np.zeros_like(scores), scores], 1)
        scores = scores - scores.max(1, keepdims=True)
        return np.asarray(scores - np.log(np.exp(scores).sum(1, keepdims=True)))

    def predict(self, X: Rows) -> Array:
        """The most probable class."""
        scores = self.decision_function(X)
        numbers = (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(1)
        return np.asarray(self.classes_[numbers])

    def _checked(self, x: Rows, y: Any, *, reset: bool) -> tuple[Array, Array]:
        self._check_parameters()
        x, y = validate_data(self, x, y, reset=reset)
        check_classification_targets(y)
        return x, y

    def _learn(
        self, x: Array, y: Array, weights: Any, *, fresh: bool, epochs: int | None = None
    ) -> Self:
        """Trains on the numbers of classes."""
        unknown = np.setdiff1d(y, self.classes_).tolist()
        if unknown:
            raise ParameterError(
                f"y has the class {unknown[0]!r}, and training began with {self.classes_.tolist()}",
                "y",
                "warm_start=False, or partial_fit(X, y, classes=...) with all classes",
            )
        weights = _weights(weights, x)
        if self.class_weight is not None:
            own = compute_sample_weight(self.class_weight, y)
            weights = own if weights is None else own * weights
        numbers = np.searchsorted(self.classes_, y).astype(np.int32)
        outputs = len(self.classes_) if fresh else 0
        return self._fit(x, numbers, weights, outputs=outputs, epochs=epochs, strata=numbers)

    def _loss(self) -> str:
        return self.network_.classification_loss

    def _metric(self) -> AnyMetric:
        if not self.network_.is_binary:
            return "accuracy"
        return BinaryAccuracy(0.5 if self.network_.last == "Sigmoid" else 0.0)

    def _targets(self, y: Array) -> Array:
        if not self.network_.is_binary:
            return y
        return y.reshape(-1, *self.network_.outputs).astype(np.float32)

    def _check_outputs(self, outputs: int) -> None:
        self.network_.check_outputs(outputs, "classes")


class Regressor(RegressorMixin, _Estimator):
    """
    A neural network that predicts numbers: `Regressor(hidden=(64,)).fit(X, y).predict(X)`.

    A `y` of several columns trains one network with several outputs. `loss` is a name: "mse", "l1",
    "huber", or another one that compares equal shapes. With `early_stopping`, the R² of the
    held-out samples decides. `Classifier` describes the other parameters.
    """

    def __init__(
        self,
        model: Given = None,
        *,
        hidden: Any = (100,),
        activation: str = "relu",
        loss: str = "mse",
        optimizer: str = "adam",
        learning_rate: float | None = None,
        weight_decay: float = 0.0,
        schedule: Any = None,
        batch_size: Any = "auto",
        max_iter: int = 200,
        tol: float = 1e-4,
        n_iter_no_change: int | None = 10,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        shuffle: bool = True,
        warm_start: bool = False,
        random_state: Any = None,
        dtype: Any = "float32",
        threads: int = 1,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            model,
            hidden=hidden,
            activation=activation,
            optimizer=optimizer,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            schedule=schedule,
            batch_size=batch_size,
            max_iter=max_iter,
            tol=tol,
            n_iter_no_change=n_iter_no_change,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            shuffle=shuffle,
            warm_start=warm_start,
            random_state=random_state,
            dtype=dtype,
            threads=threads,
            verbose=verbose,
        )
        self.loss = loss

    def fit(self, X: Rows, y: Any, sample_weight: Any = None) -> Self:
        """Trains a new network; with `warm_start`, continues with the fitted one."""
        continues = bool(self.warm_start) and hasattr(self, "weights_")
        return self._learn(X, y, sample_weight, fresh=not continues)

    def partial_fit(self, X: Rows, y: Any, sample_weight: Any = None) -> Self:
        """Trains for one epoch."""
        return self._learn(X, y, sample_weight, fresh=not hasattr(self, "weights_"), epochs=1)

    def predict(self, X: Rows) -> Array:
        """The predicted numbers: a row for each sample, or one number if `y` had one axis."""
        found = self._output(X)
        return found[:, 0] if self._is_flat else found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _learn(
        self, x: Rows, y: Any, weights: Any, *, fresh: bool, epochs: int | None = None
    ) -> Self:
        """Trains on targets as a matrix."""
        self._check_parameters()
        x, y = validate_data(self, x, y, reset=fresh, multi_output=True, y_numeric=True)
        outputs = y.reshape(len(y), -1).shape[1]
        if fresh:
            self._is_flat, self.n_outputs_ = y.ndim == 1, outputs
        elif outputs != self.n_outputs_:
            raise ParameterError(
                f"y has {outputs} columns, and training began with {self.n_outputs_}", "y"
            )
        weights = _weights(weights, x)
        return self._fit(x, y, weights, outputs=outputs if fresh else 0, epochs=epochs)

    def _loss(self) -> str:
        found = loss_named(self.loss) if isinstance(self.loss, str) else None
        if found is None or not found.takes_target or found.takes_classes:
            raise ParameterError(
                f"{self.loss!r} is not a loss of numbers",
                "loss",
                f"{', '.join(REGRESSION_LOSSES)}",
            )
        return found.name

    def _metric(self) -> AnyMetric:
        return "r2"

    def _targets(self, y: Array) -> Array:
        wanted = self.network_.dtype if self.network_.dtype.kind == "f" else np.float32
        y = check_array(y, dtype=wanted, ensure_2d=False, input_name="y")
        return y.reshape(len(y), *self.network_.outputs)

    def _check_outputs(self, outputs: int) -> None:
        self.network_.check_outputs(outputs, "targets")


REGRESSION_LOSSES = [
    loss.name for loss in LOSSES.values() if loss.target == ALIKE and loss.takes_target
]
"""The losses that compare numbers with numbers."""


def _weights(given: Any, x: Array) -> Array | None:
    """The weights of samples as checked by scikit-learn; None if there are none."""
    if given is None:
        return None
    weights = np.asarray(_check_sample_weight(given, x, dtype=np.float64))
    if (weights < 0).any():
        raise ParameterError(f"the weight {weights.min():g} is negative", "sample_weight")
    return weights


def _is_integer(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)
