"""The training loop: epochs, steps, validation, callbacks, checkpoints, early stopping."""

from __future__ import annotations

import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import isfinite
from types import FrameType

import numpy as np

from popgraph.support.arrays import Array
from popgraph.support.errors import RunError
from popgraph.support.warnings import DoubtfulTrainingWarning
from popgraph.training.callbacks import Callback, Trained
from popgraph.training.checkpoints import CheckpointWriter, TrainingState
from popgraph.training.checks import likelihood_problems, likelihoods_of
from popgraph.training.diagnosis import StepSnapshot, describe_bad_data, describe_first, non_finite
from popgraph.training.history import Row
from popgraph.training.measures import Measures
from popgraph.training.ranks import ALONE, Ranks
from popgraph.training.roles import name_of_b
from popgraph.training.samples import Batch, Order, Source

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Terminated(SystemExit):
    """SIGTERM ended training; its state was saved."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code)
        self.message = message

    def __str__(self) -> str:
        return self.message


@dataclass
class Interruption:
    """The signal that arrived, if any."""

    number: int | None = None

    def end(self, message: str) -> None:
        """Raises what the signal would have raised."""
        if self.number == signal.SIGINT:
            raise KeyboardInterrupt(message)
        if self.number is not None:
            raise Terminated(128 + self.number, message)


@contextmanager
def record_signals(wanted: bool) -> Iterator[Interruption]:
    """
    Records the first signal and restores the previous handlers for the next one.

    Does nothing unless `wanted` and in the main thread; other threads cannot set handlers.
    """
    found = Interruption()
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield found
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number: int, frame: FrameType | None) -> None:
        found.number = number
        restore()

    for number in SIGNALS:
        signal.signal(number, note)
    try:
        yield found
    finally:
        restore()


@dataclass(frozen=True)
class FitPlan:
    """The arguments of one call of `fit`, resolved."""

    source: Source
    order: Order
    epochs: int | None
    """Number of the last epoch."""
    steps: int | None
    """Number of the last step."""
    test: Callable[[], Row]
    """Evaluates the held-out data with the current weights."""
    callbacks: Sequence[Callback]
    writer: CheckpointWriter | None
    snapshot: StepSnapshot
    ranks: Ranks = ALONE


class Loop:
    """Runs a plan from the current state of training."""

    def __init__(
        self, trainer: Trained, state: TrainingState, measures: Measures, plan: FitPlan
    ) -> None:
        self._trainer, self._state, self._measures, self._plan = trainer, state, measures, plan
        self._progress = state.progress
        self._callbacks = plan.callbacks if plan.ranks.is_first else ()
        self._initial_weights: Mapping[str, Array] = {}
        """The weights before the first epoch, until that epoch has ended."""
        self._is_kept = False
        """Whether the checkpoint is final; more steps continue in the epoch that it stopped in."""

    def run(self) -> None:
        for callback in self._callbacks:
            callback.on_start(self._trainer)
        is_first = not self._progress.epoch and not self._progress.batch
        if is_first and self._plan.snapshot.is_affordable(self._state.steps):
            self._initial_weights = self._state.weights()
        writer = self._plan.writer
        with record_signals(writer is not None) as interruption:
            try:
                self._interruption = interruption
                if self._has_ended() and self._progress.batch:
                    self._is_kept = True
                    self._end_epoch(0.0)  # as the run did whose steps the checkpoint has
                while not self._has_ended():
                    self._run_epoch()
                self._keep()
            finally:
                for callback in self._callbacks:
                    callback.on_end(self._trainer)
        if writer is not None:
            interruption.end(f"step {self._state.steps.driver.steps} is in {writer.path}")
        best = self._state.best
        if best is not None and best.weights:
            self._state.steps.write(best.weights)

    def _has_ended(self) -> bool:
        epochs = self._plan.epochs
        by_epochs = epochs is not None and self._progress.epoch >= epochs
        return by_epochs or self._is_stopped()

    def _is_stopped(self) -> bool:
        """Whether training stops now, even in the middle of an epoch."""
        steps = self._plan.steps
        by_steps = steps is not None and self._state.steps.driver.steps >= steps
        return bool(self._trainer.stopped) or by_steps or self._interruption.number is not None

    def _run_epoch(self) -> None:
        """Runs the rest of an epoch and records it, unless a signal interrupts it."""
        plan, progress = self._plan, self._progress
        began = time.perf_counter()
        for callback in self._callbacks:
            callback.on_epoch_start(self._trainer, progress.epoch, progress.batch)
        for batch in plan.source.epoch(plan.order, progress.epoch, progress.batch):
            for callback in self._callbacks:
                callback.on_step_start(self._trainer)
            row = self._step(batch)
            for callback in self._callbacks:
                callback.on_step(self._trainer, row)
            is_due = self._agree_on_end()
            if self._is_stopped():
                self._keep()
                self._is_kept = True
                break
            if is_due:
                self._keep()
        if not progress.batch:
            raise RunError("the data yield no batch for another epoch", "the data")
        if self._interruption.number is None:
            self._end_epoch(time.perf_counter() - began)

    def _agree_on_end(self) -> bool:
        """Agrees among all ranks on signals, stops, and whether a checkpoint is due."""
        ranks, writer = self._plan.ranks, self._plan.writer
        is_due = writer is not None and writer.is_due(self._state.steps.driver.steps)
        if not ranks.are_several:
            return is_due
        signal, stopped = self._interruption.number or 0, bool(self._trainer.stopped)
        _, found = ranks.agreed({}, [signal, stopped, is_due and ranks.is_first])
        self._interruption.number = int(found[0]) or None
        if found[1]:
            self._trainer.stop(ranks.first_text(self._trainer.stopped))
        return bool(found[2])

    def _keep(self) -> None:
        """Writes a checkpoint, if configured; only the first rank does."""
        ranks, state, writer = self._plan.ranks, self._state, self._plan.writer
        if writer is None or self._is_kept:
            return
        ranks.broadcast_statistics(state.steps, self._plan.snapshot.task)
        whole = replace(state, totals=ranks.total(state.totals))
        if ranks.is_first:
            writer.write(whole)
        ranks.communicator.barrier()

    def _step(self, batch: Batch) -> Row:
        state, progress = self._state, self._progress
        self._plan.snapshot.take(state.steps, progress.batch)
        ranks, task = self._plan.ranks, self._plan.snapshot.task
        outputs = ranks.of_whole_batches(state.steps.run(batch), task)
        state.batch = batch
        own = self._measures.add(state.totals, batch, outputs)
        numbers, _ = ranks.agreed(own, ())
        progress.batch += 1
        step = state.steps.driver.steps
        row = {"step": step, "epoch": progress.epoch + 1, **numbers}
        row["learning_rate"] = state.steps.driver.rate
        if (scale := state.steps.driver.loss_scale) is not None:
            row["loss_scale"] = scale
        progress.history.steps.append(row)
        loss = self._measures.numbers[0]
        if step == 1:
            self._warn_of_likelihoods(outputs)
        if not isfinite(row[loss]) and not any(one.tolerates_nan for one in self._plan.callbacks):
            raise self._divergence(f"{loss!r} is {row[loss]} in step {step}")
        return row

    def _warn_of_likelihoods(self, outputs: Mapping[str, Array]) -> None:
        """Warns if a loss gets inputs that are not probabilities, as far as the outputs show."""
        for name, is_log in likelihoods_of(self._plan.snapshot.task):
            if name not in outputs:
                continue
            for problem in likelihood_problems(name, outputs[name], is_log):
                warnings.warn(problem, DoubtfulTrainingWarning, stacklevel=5)

    def _warn_of_unchanged_weights(self) -> None:
        """Warns of weights that the first epoch has not changed."""
        if not self._initial_weights:
            return
        now, trained = self._state.weights(), self._plan.snapshot.task.selection.trained
        still = [
            name
            for name, before in self._initial_weights.items()
            if name in trained
            and np.array_equal(now[name], before)
            # The first step of a new adapter changes B alone, which is zero.
            and (name_of_b(name) not in trained or self._initial_weights[name_of_b(name)].any())
        ]
        self._initial_weights = {}
        if still and self._plan.ranks.is_first:
            named = ", ".join(map(repr, still[:3])) + (", ..." if len(still) > 3 else "")
            warnings.warn(
                f"{len(still)} of {len(trained)} weights did not change in an epoch: {named}; "
                "`check` shows gradients",
                DoubtfulTrainingWarning,
                stacklevel=4,
            )

    def _divergence(self, what: str) -> RunError:
        """The error for a loss that is not finite; names the first value that was not."""
        plan, progress = self._plan, self._progress
        at = (plan.source, plan.order, progress.epoch, progress.batch)
        what = f"{what}, epoch {progress.epoch + 1}"
        if found := describe_bad_data(*at, self._state.batch):
            hint = "remove or replace these samples: np.isfinite finds them"
            return RunError(f"{what}: {found}", "the data", hint)
        for name in non_finite(self._initial_weights):
            found = (
                f"weight {describe_first(name, self._initial_weights[name])} before the first step"
            )
            return RunError(f"{what}: {found}", "the model", "initialize it with finite values")
        first = plan.snapshot.first_not_finite(self._state.steps, *at)
        named = f"; {first!r} was the first non-finite tensor" if first else ""
        return RunError(
            f"{what}{named}",
            "training",
            "reduce the learning rate, since the data are finite; a checkpoint, if there is one, "
            "is older",
        )

    def _end_epoch(self, seconds: float) -> None:
        state, progress, plan = self._state, self._progress, self._plan
        row: Row = {"epoch": progress.epoch + 1, "step": state.steps.driver.steps}
        row |= plan.ranks.total(state.totals).row()
        plan.ranks.broadcast_statistics(state.steps, plan.snapshot.task)
        row |= plan.test()
        row["seconds"] = seconds
        state.totals.clear()
        self._warn_of_unchanged_weights()
        progress.epoch, progress.batch = progress.epoch + 1, 0
        progress.history.epochs.append(row)
        best = state.best
        if best is not None and best.record(row, state.weights):
            self._trainer.stop(f"{best.monitor} did not improve for {best.patience} epochs")
        for callback in self._callbacks:
            callback.on_epoch(self._trainer, row)
        if plan.writer is not None and plan.writer.is_by_epoch:
            self._keep()
