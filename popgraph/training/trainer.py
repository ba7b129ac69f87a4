"""The trainer, used by the Python API and by the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Unpack

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.registry import DEFAULT, backend_named
from popgraph.background import backlog_for
from popgraph.builder.pgraph import Schedule
from popgraph.compiler import BuildRequest, Model
from popgraph.compiler.saving import check_kind, save_model
from popgraph.dialects.onnx import model_of
from popgraph.dialects.onnx.containers import input_types
from popgraph.engine.plan import StepPlan
from popgraph.open_model import ProgramRange
from popgraph.passes.base import Compilation
from popgraph.quantization.training import quantized_model
from popgraph.support.argument_types import check_types
from popgraph.support.arrays import Array
from popgraph.support.boxes import written
from popgraph.support.errors import ModelError, RunError
from popgraph.support.memo import cached_property
from popgraph.support.progress import offering
from popgraph.support.reading import Unreadable
from popgraph.support.safetensors import read_all
from popgraph.support.spelling import setting
from popgraph.support.step_options import PRECISIONS, RECOMPUTED
from popgraph.training.best import BestEpoch, best_epoch_of
from popgraph.training.callbacks import Callback, EpochLines
from popgraph.training.checkpoints import CheckpointWriter, Facts, TrainingState, load
from popgraph.training.checks import Check, Checker, Layer
from popgraph.training.diagnosis import StepSnapshot
from popgraph.training.history import RATE, VALIDATION, History, Row
from popgraph.training.inference_form import to_inference
from popgraph.training.inference_model import without_loss
from popgraph.training.keras_names import (
    EvaluateNames,
    FitNames,
    PredictNames,
    Renamed,
    class_weighting,
    with_ones,
)
from popgraph.training.loop import FitPlan, Loop
from popgraph.training.loss_expressions import ClassWeights
from popgraph.training.measures import Measures
from popgraph.training.metrics import AnyMetric, Metric, metrics_of
from popgraph.training.open_batch import fixed_batch, open_batch
from popgraph.training.problem import Optimizer, TrainingArguments, TrainingProblem, check_values
from popgraph.training.programs import BuildSettings, Inference, TrainingSteps, summed_outputs
from popgraph.training.progress import Progress
from popgraph.training.ranks import Ranks
from popgraph.training.samples import (
    SAMPLE_WEIGHT,
    Batch,
    Data,
    Order,
    Portions,
    Samples,
    Source,
    combine_data,
    count_rows,
    first_rows,
    source_of,
)
from popgraph.training.selection import Selection, WeightPatterns, dropout_rows, summary_of
from popgraph.training.sized_outputs import without_sized_outputs
from popgraph.training.task import Task
from popgraph.training.trained_weights import put_weights
from popgraph.training.update_rule import described

_OF_TASK = ("_checker", "_is_fixed", "_measures", "_evaluation", "_prediction_name", "_target_name")
"""Cached properties that depend on the task."""
_OF_MODEL = ("_model", "_inference")
"""Cached properties that depend on the weights of the model before the first step."""

BATCH = 32
"""Samples per batch, if neither the model nor the user sets it."""


class Trainer:
    """
    Trains a model: `Trainer("net.pgraph").fit((x, labels), epochs=5)`.

    `model` is a path (.onnx, .pgraph), a `.pgraph` text, ONNX bytes, a ModelProto or a Builder.
    `loss` is the name of a loss ("cross_entropy", "nll", "mse" ...; Keras and PyTorch names are
    accepted), an expression ("nll(y, labels)") or a value of the model. `optimizer` is a text
    ("adam", "Adam(0.001)") or an object. `schedule` is a text ("cosine(steps=1000)") or a function
    of the step. A text's `train` section provides the defaults of all three. `freeze` and
    `train_only` are patterns of weight names. A pattern of `train_only` may end with a slice, as
    `conv1.weight[:8]`: only these values are trained, and only they have gradients and optimizer
    state. Of a model with adapters (`popgraph.lora`), only these are trained unless `train_only`
    says otherwise.

    `metrics` are names, objects (see `Metric`) or functions of predictions and targets. They
    compare the output `prediction` with the input `target`; a named loss uses the same output. Both
    may be left out if the model has only one candidate.

    With `dropout=False`, Dropout keeps all elements unless its node sets `training_mode`, as in
    ONNX. A node whose `training_mode` is true drops elements in any case.

    With `accumulate`, a batch is split into this number of micro-batches. Their gradients are
    accumulated for one update, and memory is needed for one micro-batch only. The result equals
    that of the whole batch, up to rounding.

    `clip` is the largest global norm of the gradients. `loss_scale` multiplies the loss, for the
    gradients of f16 models; "auto" halves it and skips the update if gradients overflow, and
    doubles it after 2000 updates. `recompute="checkpoints"` recomputes most activations in the
    backward pass to save memory; "norms" recomputes normalizations only.

    `precision="bf16"` rounds the factors of matmuls and convolutions to bf16, with f32 sums, on
    machines with dot products of bf16; weights and states stay f32. `quantize="int8"` trains with
    the rounding of int8 in place: `save` then writes a quantized model.

    `replicas` copies of the program run micro-batches on threads, `accumulate` each; they divide
    `threads` among them. `stages` splits the program into a pipeline, one thread per stage, for the
    micro-batches of `accumulate`.

    With `quick`, the first steps start sooner if nothing is cached: unoptimized programs run while
    tuned ones are built in the background. The tuned programs take over between two steps with all
    weights and states unchanged. `tuned` says whether they have; `wait()` waits for them. By
    default (None), training starts so only with `determinism="portable"`, where no bit changes.

    `bounds={"N": 256}` builds one program for all sizes of a dimension up to its bound, from the
    first step on.
    """

    @check_types("loss")
    def __init__(
        self,
        model: Model,
        loss: str | None = None,
        optimizer: Optimizer = None,
        *,
        schedule: str | Schedule | Callable[[int], float] | None = None,
        class_weights: ClassWeights | None = None,
        freeze: Sequence[str] | str = (),
        train_only: Sequence[str] | str = (),
        metrics: Iterable[AnyMetric] | AnyMetric = (),
        prediction: str | None = None,
        target: str | None = None,
        values: Mapping[str, Array] | None = None,
        indices: str | None = None,
        straight_through: bool = False,
        dropout: bool = True,
        accumulate: int | None = None,
        clip: float | None = None,
        loss_scale: float | str | None = None,
        recompute: str | None = None,
        precision: str | None = None,
        determinism: str | None = None,
        quantize: str | None = None,
        replicas: int | None = None,
        stages: int | None = None,
        backend: str = DEFAULT,
        threads: int = 1,
        quick: bool | None = None,
        bounds: Mapping[str, int] | None = None,
    ) -> None:
        patterns = WeightPatterns.of(freeze, train_only)
        arguments = TrainingArguments(
            loss, optimizer, schedule, class_weights, patterns, prediction
        )
        self._problem = TrainingProblem(model, arguments)
        self._ranks = Ranks.current()
        if quick and self._ranks.are_several:
            raise RunError(
                "ranks switch to tuned programs at different steps, whose sums round differently: "
                "the weights of the ranks would diverge",
                "quick",
                "train on several ranks without it",
            )
        step_options = {
            "accumulate": accumulate,
            "clip": clip,
            "loss_scale": loss_scale,
            "recompute": recompute,
            "precision": precision,
            "determinism": determinism,
            "quantize": quantize,
            "replicas": replicas,
            "stages": stages,
        }
        plan = StepPlan.of(self._problem.step_options, step_options)
        self._plan = plan = self._ranks.planned(plan)
        plan.check_combination(quick=bool(quick))
        is_native = backend_named(backend).is_native
        is_alone = not self._ranks.are_several and plan.replicas == plan.stages == 1
        self._backlog = backlog_for(
            quick if is_alone else False,
            is_native=is_native,
            determinism=plan.determinism,
            trains=True,
        )
        can_offer = quick is None and is_alone and is_native and self._backlog is None
        self._offer = setting("quick") if can_offer else ""
        """A setting that would start sooner, named while the step is compiled."""
        if plan.quantizes:
            self._problem.quantize()
        inputs = dict(values or {})
        self._build = BuildSettings(
            backend,
            threads,
            indices,
            straight_through or plan.quantizes,
            dropout,
            inputs,
            RECOMPUTED[plan.recompute],
            PRECISIONS[plan.precision],
            plan.determinism,
            self._backlog,
            dict(bounds or {}),
        )
        self._build.check_precision()
        self.metrics: tuple[Metric, ...] = metrics_of(metrics)
        self._prediction, self._target = prediction, target
        self.progress = Progress()
        self.stopped = ""
        """Why training ended before its last epoch."""
        self._is_fitting = False
        """Whether the loop runs, so that the compiled step cannot be replaced."""
        self.planned: int | None = None
        """Number of steps of this `fit` unless it is stopped; None if unknown in advance."""
        self._task: Task | None = None
        self._steps: TrainingSteps | None = None
        self._weight_shape: tuple[int, ...] = ()
        """The sizes of the weights of one sample; () is one number."""
        self._reached_state: TrainingState | None = None
        """The state of the last `fit`."""

    @property
    def history(self) -> History:
        """The measurements so far."""
        return self.progress.history

    @property
    def tuned(self) -> bool:
        """Whether the next step runs a tuned program; always true without `quick=True`."""
        return self._backlog is None or self._backlog.tuned

    def wait(self, timeout: float | None = None) -> bool:
        """Waits at most `timeout` seconds for tuned programs; returns whether they are ready."""
        return self._backlog is None or self._backlog.wait(timeout)

    @property
    def task(self) -> Task:
        """The training task; known once there are data."""
        if self._task is None:
            raise _no_data_error()
        return self._task

    @property
    def module(self) -> ModuleOp:
        """The model before the data are known."""
        return self._problem.model_with_loss

    @property
    def values(self) -> dict[str, Array]:
        """The inputs that decide the structure of the model, the same in all steps."""
        return self._build.values

    @property
    def selection(self) -> Selection:
        """The weights that are trained or updated by batch statistics, and why the rest is not."""
        task = self.task
        rows = dropout_rows(task.module, task.weights, dropout=self._build.dropout)
        return replace(task.selection, dropouts=rows)

    @property
    def converted(self) -> dict[str, str]:
        """The inputs whose data have another element type than the model's, with the conversion."""
        found = self._prepared.inputs.converted
        return {name: f"{old} is converted to {new.numpy}" for name, (old, new) in found.items()}

    @property
    def optimizer(self) -> str:
        """The optimizer with its learning rate and all settings that differ from the defaults."""
        return described(self._plan.for_loss(self._problem.rule))

    @property
    def learning_rate(self) -> float:
        """
        The learning rate of the last step, or of the first one before it runs.

        Without a schedule, it can be set. A callback that sets it has `sets_learning_rate = True`.
        """
        if self._steps is not None:
            return self._steps.driver.rate
        return self._problem.rule.learning_rate.value

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        if self._problem.has_schedule:
            raise RunError(
                "the schedule decides the learning rate",
                "learning_rate",
                "leave out the schedule, or whatever sets the learning rate",
            )
        steps = self._steps
        if steps is not None and not steps.driver.is_adjustable and self._is_fitting:
            raise RunError(
                "the compiled step has a constant learning rate",
                "learning_rate",
                "a callback that sets it has the class attribute sets_learning_rate = True",
            )
        if not isfinite(rate) or rate < 0:
            raise RunError(
                f"a learning rate is a number of at least 0, not {rate}", "learning_rate"
            )
        self._problem.set_rate(float(rate))
        if steps is not None and steps.driver.is_adjustable:
            steps.driver.set_rate(steps.executable, float(rate))

    @property
    def stop_training(self) -> bool:
        """Whether training ends after the current step or epoch; Keras' way to call `stop`."""
        return bool(self.stopped)

    @stop_training.setter
    def stop_training(self, stops: bool) -> None:
        self.stopped = (self.stopped or "a callback set stop_training") if stops else ""

    @check_types()
    def prepare(self, data: Data, *more: Data, batch: int | None = None) -> None:
        """Compiles the step for data like these; `fit` does so, too."""
        self._prepare(self._source(data, more), batch)

    @check_types("keras")
    def fit(
        self,
        data: Data = None,
        *more: Data,
        epochs: int | None = None,
        steps: int | None = None,
        batch: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        validation: float | Data | None = None,
        monitor: str | None = None,
        patience: int | None = None,
        checkpoint: str | Path | None = None,
        every: int | str | None = None,
        resume: bool | str | Path = False,
        callbacks: Sequence[Callback] = (),
        **keras: Unpack[FitNames],
    ) -> History:
        """
        Trains for `epochs` or `steps` more; returns the complete history.

        `data` are arrays (a dict by input name, or a tuple in input order, which may also be
        separate arguments: `fit(x, y)`; names of .npy files are memory-mapped), a dataset with
        `column_names` or of rows, or batches: an iterable such as PyTorch's DataLoader, or a
        function that returns one per epoch.

        Arrays are divided into batches of `batch` samples, shuffled by `seed`. The last batch of an
        epoch may be smaller; `drop_last` drops it (other samples in each epoch). `validation` is a
        random fraction of the samples, or separate data; their loss and metrics appear in the
        history with the prefix `val_`. With `patience`, training stops when `monitor` ("val_loss"
        or "loss") has not improved for this number of epochs. With either, the final weights are
        the best epoch's.

        `checkpoint` is a file with everything that training needs to resume. It is written after
        `every` number of steps or time ("10min"), or after each epoch; also at the end, and on
        Ctrl-C and SIGTERM, after the current step. With `resume`, this `fit` continues from that
        file, if it exists, with the same bits as without the interruption; `resume` may also name
        another file.

        On several MPI ranks, each takes its rows of every batch, and all make the same step. All
        ranks take equally many rows, so at the end of an epoch fewer samples than ranks may be
        dropped. Callbacks run, and files are written, on the first rank.

        Keras' names work, too: `x`, `y`, `batch_size`, `validation_data`, `validation_split` (the
        last samples), `class_weight`, `sample_weight`, `initial_epoch`, `steps_per_epoch` and
        `verbose`. Weights of samples and classes multiply the loss of each sample before the mean
        over all samples.
        """
        renamed = Renamed("fit", keras)
        data, more = renamed.data(data, more)
        batch = renamed.one("batch", batch, "batch_size")
        validation = renamed.one("validation", validation, "validation_data")
        callbacks = [*callbacks, *([EpochLines()] if renamed.is_verbose else ())]
        source = self._source(data, more, keras.get("sample_weight"))
        last = keras.get("validation_split")
        source, held_out = self._split_validation(source, validation, seed, last)
        if (of_classes := keras.get("class_weight")) is not None:
            inputs = frozenset(input_types(self._problem.module))
            source = source.mapped(class_weighting(self._problem.named_loss, inputs, of_classes))
        self._check_callbacks(callbacks)
        if (portion := renamed.positive("steps_per_epoch")) is not None:
            source = Portions(source, portion)
        source = self._ranks.shared(source)
        size = self._prepare(source, batch)
        source = self._weighed(source)
        held_out = None if held_out is None else self._weighed(held_out)
        if epochs is None and steps is None:
            epochs = 1 + (renamed.first_epoch or 0)
        epochs = renamed.epochs(epochs)
        for name, number in (("epochs", epochs), ("steps", steps)):
            _check_positive(name, number)
        if source.is_single_pass and steps is None and epochs != 1:
            raise RunError(
                "an iterator yields its batches once, which is too few for several epochs",
                "the data",
                "give a list, or the function that makes the iterator; or epochs=1, or steps=...",
            )
        self._prepared.rows = self._rows_of(source, batch)
        order = Order(size, shuffle, seed, drop_last or self._is_fixed)
        per_epoch = source.steps(order)
        if per_epoch == 0:
            raise RunError(
                f"the data do not fill one batch of {order.size} samples",
                "batch",
                "a smaller batch, or without drop_last",
            )
        progress, driver = self.progress, self._prepared.driver
        if (first_epoch := renamed.first_epoch) is not None:
            progress.epoch = first_epoch
        progress.first_epoch, progress.first_step = progress.epoch, driver.steps
        best = best_epoch_of(monitor, patience, self.metrics, held_out is not None, self.task.loss)
        self._reached_state = state = self._state(source, order, best)
        if resume is not False and (found := _resumed(resume, checkpoint)) is not None:
            load(found, state)
            if not self._ranks.is_first:
                state.totals.clear()
            self._ranks.derive_own_seed(state.steps)
            adjustable = state.steps.driver.is_adjustable and not self._problem.has_schedule
            if adjustable and progress.history.steps:
                self.learning_rate = progress.history.steps[-1][RATE]
        tested = renamed.positive("validation_batch_size") or order.size
        whole = None if epochs is None or per_epoch is None else epochs * per_epoch
        planned = min((one for one in (steps, whole) if one is not None), default=None)
        done = driver.steps - progress.first_step
        self.planned = None if planned is None else planned - done
        plan = FitPlan(
            source,
            order,
            None if epochs is None else progress.first_epoch + epochs,
            None if steps is None else progress.first_step + steps,
            lambda: {} if held_out is None else self._evaluate(held_out, tested, VALIDATION),
            list(callbacks),
            None if checkpoint is None else CheckpointWriter.of(checkpoint, every),
            StepSnapshot(self.task, self._build),
            self._ranks,
        )
        self.stopped = ""
        self._is_fitting = True
        try:
            Loop(self, state, self._measures, plan).run()
        finally:
            self._is_fitting = False
        return self.history

    def _check_callbacks(self, callbacks: Sequence[Callback]) -> None:
        """Prepares the step for callbacks that set the learning rate; refuses some on ranks."""
        setting_rate = any(one.sets_learning_rate for one in callbacks)
        setting = setting_rate or any(one.sets_weights for one in callbacks)
        if self._ranks.are_several and setting:
            raise RunError(
                "callbacks run on the first rank only, and the others would continue with "
                + ("another learning rate" if setting_rate else "other weights"),
                "callbacks",
                "schedule='cosine(steps=1000)'" if setting_rate else "patience=, which agrees",
            )
        if setting_rate and not self._problem.is_adjustable:
            self._problem.set_rate(self._problem.rule.learning_rate.value)

    @property
    def arena(self) -> int:
        """Bytes of working memory of a step, besides weights, states and samples."""
        return self._prepared.executable.arena

    def stop(self, why: str) -> None:
        """Ends training after the current step or epoch."""
        self.stopped = why

    @check_types()
    def check(self, data: Data, *more: Data, batch: int | None = None) -> Check:
        """
        Checks on one batch whether the model can learn: are its gradients finite and nonzero?

        The weights do not change. The result prints as a table; its `problems` are sentences.
        """
        source = self._source(data, more)
        size = self._prepare(source, batch)
        source = self._weighed(source)
        return self._check(first_rows(source.first(size), self._rows_of(source, batch)))

    @property
    def facts(self) -> Facts:
        """Descriptions of the optimizer and the data."""
        return self._fitted.facts

    def layers(self) -> tuple[Layer, ...]:
        """Size of each weight now, and of its gradient on the batch of the last step."""
        return self._check(self._micro_batch).layers

    @property
    def programs(self) -> list[ProgramRange]:
        """The programs of steps, and the batch sizes that each runs for."""
        return [] if self._steps is None else self._steps.programs

    def weights(self) -> Mapping[str, Array]:
        """The current weights of the model."""
        return self._fitted.weights()

    def set_weights(self, weights: Mapping[str, Array]) -> None:
        """
        Replaces weights of the model by name; the state of the optimizer stays.

        Before the first step, these are the weights to start from, frozen ones included.
        """
        steps = self._steps
        now = self._problem.initial_weights if steps is None else steps.weights(self.task.module)
        for name, value in weights.items():
            if name not in now:
                raise ModelError(
                    f"the model has no trained weight {name!r}",
                    "set_weights",
                    f"its weights are {', '.join(map(repr, now))}",
                )
            if np.shape(value) != now[name].shape:
                raise ModelError(
                    f"weight {name!r} has the shape {list(now[name].shape)}, "
                    f"not {list(np.shape(value))}",
                    "set_weights",
                )
        found = {name: np.asarray(one, now[name].dtype) for name, one in weights.items()}
        if steps is not None:
            steps.write(found)
            return
        self._problem.set_weights(found)
        for name in _OF_MODEL:
            self.__dict__.pop(name, None)

    def load_weights(self, path: str | Path) -> None:
        """Replaces weights by those of a .safetensors file, as `ModelCheckpoint` writes them."""
        try:
            found, _ = read_all(Path(path))
        except Unreadable as error:
            raise RunError(f"the weights cannot be read: {error}", str(path)) from error
        self.set_weights({name: np.array(array) for name, array in found.items()})

    def summary(self, print_fn: Callable[[str], object] = print) -> None:
        """Prints the weights, their shapes and numbers, and which of them are trained."""
        module = self.module if self._task is None else self._task.module
        selection = None if self._task is None else self._task.selection
        print_fn(summary_of(module, selection))

    def request(self) -> BuildRequest:
        """The build request of the last step's program."""
        inputs = self._prepared.inputs.convert(self._micro_batch)
        return self._build.request(self.task, {name: one.shape for name, one in inputs.items()})

    @property
    def _fitted(self) -> TrainingState:
        if self._reached_state is None or not self._reached_state.batch:
            raise RunError("no step has run yet", "Trainer", "fit runs steps")
        return self._reached_state

    @property
    def _micro_batch(self) -> Batch:
        """The first rows of the last batch, as many as a program takes at once."""
        return first_rows(self._fitted.batch, self._prepared.rows)

    def _check(self, batch: Batch) -> Check:
        steps = self._prepared
        return self._checker.check(steps.read(), steps.inputs.convert(batch))

    @cached_property
    def _checker(self) -> Checker:
        return Checker(self.task, self._build)

    @check_types("keras")
    def evaluate(
        self,
        data: Data = None,
        *more: Data,
        batch: int | None = None,
        **keras: Unpack[EvaluateNames],
    ) -> Row:
        """
        The loss and the metrics on these data, with the model in inference form.

        Keras' names `x`, `y`, `batch_size` and `sample_weight` work, too.
        """
        renamed = Renamed("evaluate", keras)
        data, more = renamed.data(data, more)
        source = self._source(data, more, keras.get("sample_weight"))
        size = self._prepare(source, renamed.one("batch", batch, "batch_size"))
        return self._evaluate(self._weighed(source), size)

    @check_types("keras")
    def predict(
        self, data: Data = None, batch: int | None = None, **keras: Unpack[PredictNames]
    ) -> Array | dict[str, Array]:
        """
        The output for all samples; a dict by name if there are several outputs.

        Keras' names `x` and `batch_size` work, too.
        """
        renamed = Renamed("predict", keras)
        data, _ = renamed.data(data, ())
        batch = renamed.one("batch", batch, "batch_size")
        inference = self._inference
        names = list(inference.inputs.dtypes)
        source = source_of(data, names)
        inference.set_weights({} if self._steps is None else self._steps.weights(self._model))
        fixed = self._fixed_batch(self._model)
        made: dict[str, list[Array]] = {}
        for part in source.epoch(Order(fixed or batch or BATCH, False), 0, 0):
            samples = count_rows(part)
            for name, array in inference.run(_padded(part, fixed or samples)).items():
                made.setdefault(name, []).append(array[:samples])
        outputs = {name: np.concatenate(arrays) for name, arrays in made.items()}
        return next(iter(outputs.values())) if len(outputs) == 1 else outputs

    @check_types()
    def save(self, path: str | Path) -> None:
        """
        Writes the model with its trained weights for inference, as .onnx or .pgraph.

        The loss and its labels are removed, BatchNormalization uses its running statistics, and
        Dropout keeps everything. With `quantize`, weights are int8 and BatchNormalization is folded
        into convolutions.
        """
        check_kind(Path(path))
        module = self.inference_module()
        if self._ranks.is_first:
            save_model(Path(path), module, Compilation(self._problem.weights))

    def inference_module(self) -> ModuleOp:
        """The model with its trained weights, for inference, at the onnx level."""
        problem = self._problem
        module = self._opened(problem.without_loss())
        if self._steps is not None:
            put_weights(module, self._steps.weights(module), problem.weights)
        to_inference(module)
        if not problem.quantizes:
            return module
        if self._steps is None:
            raise _no_data_error()
        return quantized_model(module, problem.weights, self._steps.weights(self._model))

    @property
    def _names(self) -> tuple[str, ...]:
        """The inputs of a step in the order of unnamed data; the last one may be optional."""
        names = tuple(name for name in self._problem.inputs if name not in self._build.values)
        return (*names, SAMPLE_WEIGHT) if self._problem.can_weigh_samples else names

    def _source(self, data: Data, more: Sequence[Data] = (), weights: Data = None) -> Source:
        """The batches of a user's data, with the weights of samples if there are any."""
        source = source_of(combine_data(data, more, self._names), self._names)
        if weights is None:
            return source
        if not self._problem.can_weigh_samples:
            raise ModelError(
                "sample_weight requires a named loss",
                SAMPLE_WEIGHT,
                "an expression with an input of your own: 'nll(y, labels, sample_weights=w)'",
            )
        if not isinstance(source, Samples):
            raise RunError(
                "weights of samples are part of the batches of a stream",
                SAMPLE_WEIGHT,
                f"batches of (x, y, weights), or dicts with the key {SAMPLE_WEIGHT!r}",
            )
        return source.weighed(weights)

    def _weighed(self, source: Source) -> Source:
        """The source, with weights of 1 where the step requires weights and the data have none."""
        if not self._problem.weighs_samples:
            return source
        return source.mapped(with_ones(self._weight_shape))

    @property
    def _prepared(self) -> TrainingSteps:
        if self._steps is None:
            raise _no_data_error()
        return self._steps

    def _prepare(self, source: Source, batch: int | None) -> int:
        """Creates the task and compiles its step for these data; returns the batch size."""
        _check_positive("batch", batch)
        ranks, parts = self._ranks, self._plan.micro_batches_per_update
        held = self._fixed_batch(self._problem.module)
        rows = self._rows(source, self._whole_batch(held, batch))
        first = first_rows(source.first(rows), rows)
        before = self._steps if self._is_changed(first) else None
        if before is not None:
            self._task = self._steps = None
            for name in _OF_TASK:
                self.__dict__.pop(name, None)
        if self._task is None:
            if SAMPLE_WEIGHT in first:
                self._weight_shape = first[SAMPLE_WEIGHT].shape[1:]
            task = self._problem.task(first, self._plan)
            task = without_sized_outputs(task, first, self._build.values)
            task.selection.check()
            check_values(task, self._build.values, first)
            self._task = task
        held = self._fixed_batch(self._task.module)
        fixed = None if held is None else held * parts
        if fixed is not None and batch not in (None, fixed):
            each = f" in each of {self._plan.runs} micro-batches" * self._plan.is_split
            each += f" on each of {ranks.size} ranks" * ranks.are_several
            raise RunError(
                f"the model has a fixed batch size of {held}{each}, not {batch}",
                "batch",
                "leave it out, or give the first dimension of its inputs a name",
            )
        if self._steps is None:
            task = ranks.task(self._task, self._plan, even=fixed is not None)
            with offering(self._offer):
                self._steps = TrainingSteps(task, self._build, first, self._plan)
            if before is None:
                ranks.derive_own_seed(self._steps)
            else:
                self._steps.continue_from(before)
                if self._reached_state is not None:
                    self._reached_state.steps = self._steps
        size = self._whole_batch(held, batch)
        return size if fixed or source.count is None else min(size, source.count)

    def _is_changed(self, first: Batch) -> bool:
        """Whether the step compiled so far lacks weights of samples or a variable rate."""
        problem, steps = self._problem, self._steps
        if steps is None:
            return False
        weighs = SAMPLE_WEIGHT in first and problem.can_weigh_samples and not problem.weighs_samples
        return weighs or (problem.is_adjustable and not steps.driver.is_adjustable)

    def _whole_batch(self, held: int | None, batch: int | None) -> int:
        """The samples of a batch; `held` is the fixed batch size of the model, if any."""
        plan, ranks = self._plan, self._plan.ranks
        if held is not None:
            return held * plan.micro_batches_per_update
        return batch or plan.multiple(-(-BATCH // ranks)) * ranks

    def _rows(self, source: Source, batch: int) -> int:
        """The rows that a program takes at once; a stream decides its own batch size."""
        if source.count is None:
            samples = count_rows(source.first(batch)) // self._ranks.size
            return max(1, -(-samples // self._plan.runs))
        return self._plan.rows(self._ranks.rows(batch))

    def _rows_of(self, source: Source, batch: int | None) -> int:
        """The rows that a program takes at once, for batches of this size."""
        held = self._fixed_batch(self.task.module)
        return self._rows(source, self._whole_batch(held, batch))

    @cached_property
    def _is_fixed(self) -> bool:
        return self._fixed_batch(self.task.module) is not None

    def _fixed_batch(self, module: ModuleOp) -> int | None:
        """The fixed batch size of a model, if any."""
        return fixed_batch(module, self._build.values)

    def _split_validation(
        self,
        source: Source,
        validation: float | Data | None,
        seed: int,
        last: float | None = None,
    ) -> tuple[Source, Source | None]:
        """The training data, and the held-out data; `last` is a share at the end of the data."""
        if validation is None and not last:
            return source, None
        if validation is None and last is not None and isinstance(source, Samples):
            return source.split_last(last)
        if validation is None:
            validation = last
        if isinstance(validation, float | int):
            if not isinstance(source, Samples):
                raise RunError(
                    "no fraction of a stream can be held out for validation",
                    "validation",
                    "other data",
                )
            return source.split(validation, seed)
        return source, self._source(validation)

    def _state(self, source: Source, order: Order, best: BestEpoch | None) -> TrainingState:
        """The current state of training."""
        split = f" in {self._plan.runs} micro-batches" * self._plan.is_split
        split += f" of {self._plan.replicas} replicas" * (self._plan.replicas > 1)
        facts = {
            "optimizer": str(self.task.rule),
            "data": "batches" if source.count is None else f"{source.count} samples",
            "batches": f"{order.size} samples{split}, in the order of seed {order.seed}"
            if order.shuffled
            else f"{order.size} samples{split} in order",
            "last batches": "left out" if order.drop_last else "kept",
        }
        if boxes := self.task.selection.boxes:
            facts["trained slices"] = ", ".join(written(boxes))
        totals = self._measures.totals()
        return TrainingState(
            self._prepared, self.progress, totals, best, facts, self._current_weights
        )

    def _current_weights(self) -> dict[str, Array]:
        """The weights of the program that runs now."""
        return self._prepared.weights(self.task.module)

    def _evaluate(self, source: Source, size: int, start: str = "") -> Row:
        """Evaluates all samples with the current weights; drops the rest of a fixed batch size."""
        self._evaluation.set_weights(self._prepared.weights(self.task.module))
        held = self._fixed_batch(self.task.module)
        size, self._evaluation.rows = held or size, held or -(-size // self._plan.runs)
        order = Order(size, shuffled=False, drop_last=self._is_fixed)
        return self._measures.tested(self._evaluation, source, order, start)

    @cached_property
    def _measures(self) -> Measures:
        numbers = (self.task.loss, *self.task.terms)
        prediction = self._prediction_name if self.metrics else ""
        return Measures(numbers, self.metrics, prediction, self._target_name)

    @cached_property
    def _evaluation(self) -> Inference:
        """The model with its loss, in inference form, for evaluation."""
        task = self.task
        return Inference(task.module, task.weights, self._build, self._plan, summed_outputs(task))

    @cached_property
    def _inference(self) -> Inference:
        return Inference(self._model, self._problem.weights, self._build)

    @cached_property
    def _model(self) -> ModuleOp:
        """The model without its loss, with an open batch dimension if possible."""
        return self._opened(self._problem.rounded(self._problem.without_loss()))

    def _opened(self, module: ModuleOp) -> ModuleOp:
        """The module with an open batch dimension if possible, else a copy."""
        opened = open_batch(module, self._problem.weights, self._build.values)
        return module.clone() if opened is None else opened

    @cached_property
    def _prediction_name(self) -> str:
        names = model_of(self.task.module).graph.output_names
        known = model_of(without_loss(self.task.module, self.task.loss, self.task.terms)).graph
        wanted = self._prediction or known.output_names[0]
        if wanted not in names:
            raise ModelError(
                f"the model has no output {wanted!r}",
                "prediction",
                f"its outputs are {', '.join(map(repr, names))}",
            )
        return wanted

    @cached_property
    def _target_name(self) -> str | None:
        """The input that only the loss needs; the only input, if the loss needs no other."""
        names = [name for name in input_types(self.task.module) if name not in self._build.values]
        if self._target is not None:
            return self._target
        used = input_types(without_loss(self.task.module, self.task.loss, self.task.terms))
        found = [name for name in names if name not in used] or names
        if self._problem.weighs_samples:
            found = [name for name in found if name != SAMPLE_WEIGHT]
        return found[0] if len(found) == 1 else None


def _resumed(resume: bool | str | Path, checkpoint: str | Path | None) -> Path | None:
    """The checkpoint to resume from; None if it does not exist yet."""
    if resume is not True:
        return Path(resume)  # type: ignore[arg-type]
    if checkpoint is None:
        raise RunError(
            f"{setting('resume')} requires a checkpoint",
            "resume",
            setting("checkpoint", "run.ckpt"),
        )
    return Path(checkpoint) if Path(checkpoint).exists() else None


def _check_positive(name: str, number: int | None) -> None:
    if number is not None and number < 1:
        raise RunError(f"{name} must be a positive integer, not {number}", name)


def _padded(batch: Batch, size: int) -> Batch:
    """Pads a batch to `size` samples by repeating the last one."""
    numbers = np.minimum(np.arange(size), count_rows(batch) - 1)
    if count_rows(batch) == size:
        return batch
    return {name: one[numbers] for name, one in batch.items()}


def _no_data_error() -> ModelError:
    return ModelError(
        "the trained weights are unknown before data are given",
        "Trainer",
        "fit(data) or prepare(data)",
    )
