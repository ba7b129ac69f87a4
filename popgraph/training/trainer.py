"""The trainer, used by the Python API and by the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.registry import DEFAULT, backend_named
from popgraph.background import Backlog
from popgraph.builder.pgraph import Schedule
from popgraph.compiler import BuildRequest, Model
from popgraph.compiler.saving import check_kind, save_model
from popgraph.dialects.onnx import model_of
from popgraph.dialects.onnx.containers import input_types
from popgraph.engine.plan import StepPlan
from popgraph.open_model import ProgramRange
from popgraph.passes.base import Compilation
from popgraph.support.arrays import Array
from popgraph.support.errors import ModelError, RunError
from popgraph.support.spelling import setting
from popgraph.support.step_options import RECOMPUTED
from popgraph.training.arguments import check_types
from popgraph.training.best import BestEpoch, best_epoch_of
from popgraph.training.callbacks import Callback
from popgraph.training.checkpoints import CheckpointWriter, Facts, TrainingState, load
from popgraph.training.checks import Check, Checker, Layer
from popgraph.training.diagnosis import StepSnapshot
from popgraph.training.history import VALIDATION, History, Row
from popgraph.training.inference_form import to_inference
from popgraph.training.inference_model import without_loss
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
    Batch,
    Data,
    Order,
    Samples,
    Source,
    combine_data,
    count_rows,
    first_rows,
    source_of,
)
from popgraph.training.selection import Selection, WeightPatterns, dropout_rows
from popgraph.training.sized_outputs import without_sized_outputs
from popgraph.training.task import Task
from popgraph.training.trained_weights import put_weights
from popgraph.training.update_rule import described

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
    `train_only` are patterns of weight names.

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

    `replicas` copies of the program run micro-batches on threads, `accumulate` each; they divide
    `threads` among them. `stages` splits the program into a pipeline, one thread per stage, for the
    micro-batches of `accumulate`.

    With `quick`, the first steps start sooner if nothing is cached: unoptimized programs run while
    tuned ones are built in the background. The tuned programs take over between two steps with all
    weights and states unchanged. `tuned` says whether they have; `wait()` waits for them.
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
        replicas: int | None = None,
        stages: int | None = None,
        backend: str = DEFAULT,
        threads: int = 1,
        quick: bool = False,
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
        self._backlog = Backlog() if quick and backend_named(backend).is_native else None
        step_options = {
            "accumulate": accumulate,
            "clip": clip,
            "loss_scale": loss_scale,
            "recompute": recompute,
            "replicas": replicas,
            "stages": stages,
        }
        plan = StepPlan.of(self._problem.step_options, step_options)
        self._plan = plan = self._ranks.planned(plan)
        plan.check_combination(quick=quick)
        inputs = dict(values or {})
        self._build = BuildSettings(
            backend,
            threads,
            indices,
            straight_through,
            dropout,
            inputs,
            RECOMPUTED[plan.recompute],
            self._backlog,
        )
        self.metrics: tuple[Metric, ...] = metrics_of(metrics)
        self._prediction, self._target = prediction, target
        self.progress = Progress()
        self.stopped = ""
        """Why training ended before its last epoch."""
        self.planned: int | None = None
        """Number of steps of this `fit` unless it is stopped; None if unknown in advance."""
        self._task: Task | None = None
        self._steps: TrainingSteps | None = None
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

    @check_types()
    def prepare(self, data: Data, *more: Data, batch: int | None = None) -> None:
        """Compiles the step for data like these; `fit` does so, too."""
        self._prepare(source_of(combine_data(data, more), self._names), batch)

    @check_types()
    def fit(
        self,
        data: Data,
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
        """
        source = source_of(combine_data(data, more), self._names)
        source, held_out = self._split_validation(source, validation, seed)
        source = self._ranks.shared(source)
        size = self._prepare(source, batch)
        if epochs is None and steps is None:
            epochs = 1
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
        progress.first_epoch, progress.first_step = progress.epoch, driver.steps
        best = best_epoch_of(monitor, patience, self.metrics, held_out is not None, self.task.loss)
        self._reached_state = state = self._state(source, order, best)
        if resume is not False and (found := _resumed(resume, checkpoint)) is not None:
            load(found, state)
            if not self._ranks.is_first:
                state.totals.clear()
            self._ranks.derive_own_seed(state.steps)
        whole = None if epochs is None or per_epoch is None else epochs * per_epoch
        planned = min((one for one in (steps, whole) if one is not None), default=None)
        done = driver.steps - progress.first_step
        self.planned = None if planned is None else planned - done
        plan = FitPlan(
            source,
            order,
            None if epochs is None else progress.first_epoch + epochs,
            None if steps is None else progress.first_step + steps,
            lambda: {} if held_out is None else self._evaluate(held_out, order.size, VALIDATION),
            list(callbacks),
            None if checkpoint is None else CheckpointWriter.of(checkpoint, every),
            StepSnapshot(self.task, self._build),
            self._ranks,
        )
        self.stopped = ""
        Loop(self, state, self._measures, plan).run()
        return self.history

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
        source = source_of(combine_data(data, more), self._names)
        size = self._prepare(source, batch)
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

    @check_types()
    def evaluate(self, data: Data, *more: Data, batch: int | None = None) -> Row:
        """The loss and the metrics on these data, with the model in inference form."""
        source = source_of(combine_data(data, more), self._names)
        size = self._prepare(source, batch)
        return self._evaluate(source, size)

    @check_types()
    def predict(self, data: Data, batch: int | None = None) -> Array | dict[str, Array]:
        """The output for all samples; a dict by name if there are several outputs."""
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
        Dropout keeps everything.
        """
        check_kind(Path(path))
        module = self.inference_module()
        if self._ranks.is_first:
            save_model(Path(path), module, Compilation(self._problem.weights))

    def inference_module(self) -> ModuleOp:
        """The model with its trained weights, for inference, at the onnx level."""
        module = self._model.clone()
        if self._steps is not None:
            put_weights(module, self._steps.weights(module), self._problem.weights)
        to_inference(module)
        return module

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(name for name in self._problem.inputs if name not in self._build.values)

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
        if self._task is None:
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
            self._steps = TrainingSteps(task, self._build, first, self._plan)
            ranks.derive_own_seed(self._steps)
        size = self._whole_batch(held, batch)
        return size if fixed or source.count is None else min(size, source.count)

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
        self, source: Source, validation: float | Data | None, seed: int
    ) -> tuple[Source, Source | None]:
        """The training data, and the held-out data."""
        if validation is None:
            return source, None
        if isinstance(validation, float | int):
            if not isinstance(source, Samples):
                raise RunError(
                    "no fraction of a stream can be held out for validation",
                    "validation",
                    "other data",
                )
            return source.split(validation, seed)
        return source, source_of(validation, self._names)

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
        totals, module = self._measures.totals(), self.task.module
        steps = self._prepared
        return TrainingState(
            steps, self.progress, totals, best, facts, lambda: steps.weights(module)
        )

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
        module = self._problem.without_loss()
        return open_batch(module, self._problem.weights, self._build.values) or module

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
