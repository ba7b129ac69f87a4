"""The training loop: epochs, steps, validation, callbacks, checkpoints, early stopping."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite

import numpy as np

from popgraph.support.arrays import Array
from popgraph.support.errors import RunError
from popgraph.support.warnings import DoubtfulTrainingWarning
from popgraph.training.callbacks import Callback, Trained
from popgraph.training.checkpoints import Keeper, Running
from popgraph.training.checks import likelihoods_of, no_probabilities
from popgraph.training.diagnosis import Trail, bad_data, first_of, not_finite
from popgraph.training.history import Row
from popgraph.training.interruption import noted
from popgraph.training.measures import Measures
from popgraph.training.ranks import ALONE, Ranks
from popgraph.training.samples import Batch, Order, Source


@dataclass(frozen=True)
class Plan:
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
    keeper: Keeper | None
    trail: Trail
    ranks: Ranks = ALONE


class Loop:
    """Runs a plan from the current state of training."""

    def __init__(self, trainer: Trained, running: Running, measures: Measures, plan: Plan) -> None:
        self._trainer, self._running, self._measures, self._plan = trainer, running, measures, plan
        self._progress = running.progress
        self._callbacks = plan.callbacks if plan.ranks.is_first else ()
        self._began_with: Mapping[str, Array] = {}
        """The weights before the first epoch, until that epoch has ended."""

    def run(self) -> None:
        for callback in self._callbacks:
            callback.on_start(self._trainer)
        if not self._progress.epoch and self._plan.trail.is_affordable(self._running.steps):
            self._began_with = self._running.weights()
        keeper = self._plan.keeper
        with noted(keeper is not None) as interruption:
            try:
                self._interruption = interruption
                while not self._has_ended():
                    self._run_epoch()
                self._keep()
            finally:
                for callback in self._callbacks:
                    callback.on_end(self._trainer)
        if keeper is not None:
            interruption.end(f"step {self._running.steps.driver.steps} is in {keeper.path}")
        best = self._running.best
        if best is not None and best.weights:
            self._running.steps.write(best.weights)

    def _has_ended(self) -> bool:
        epochs = self._plan.epochs
        by_epochs = epochs is not None and self._progress.epoch >= epochs
        return by_epochs or self._is_stopped()

    def _is_stopped(self) -> bool:
        """Whether training stops now, even in the middle of an epoch."""
        steps = self._plan.steps
        by_steps = steps is not None and self._running.steps.driver.steps >= steps
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
            is_due = self._agree()
            if self._is_stopped():
                break
            if is_due:
                self._keep()
        if not progress.batch:
            raise RunError("the data yield no batch for another epoch", "the data")
        if self._interruption.number is None:
            self._end_epoch(time.perf_counter() - began)

    def _agree(self) -> bool:
        """Agrees among all ranks on signals, stops, and whether a checkpoint is due."""
        ranks, keeper = self._plan.ranks, self._plan.keeper
        steps = self._running.steps.driver.steps
        signal, is_due = self._interruption.number or 0, keeper is not None and keeper.is_due(steps)
        stopped = bool(self._trainer.stopped)
        _, found = ranks.agreed({}, [signal, stopped, is_due and ranks.is_first])
        self._interruption.number = int(found[0]) or None
        if found[1]:
            self._trainer.stop(ranks.told(self._trainer.stopped))
        return bool(found[2])

    def _keep(self) -> None:
        """Writes a checkpoint, if configured; only the first rank does."""
        ranks, running, keeper = self._plan.ranks, self._running, self._plan.keeper
        if keeper is None:
            return
        ranks.statistics_agreed(running.steps, self._plan.trail.task)
        whole = replace(running, totals=ranks.total(running.totals))
        if ranks.is_first:
            keeper.keep(whole)
        ranks.communicator.barrier()

    def _step(self, batch: Batch) -> Row:
        running, progress = self._running, self._progress
        self._plan.trail.note(running.steps, progress.batch)
        ranks, task = self._plan.ranks, self._plan.trail.task
        outputs = ranks.of_whole_batches(running.steps.run(batch), task)
        running.batch = batch
        own = self._measures.add(running.totals, batch, outputs)
        numbers, _ = ranks.agreed(own, ())
        progress.batch += 1
        step = running.steps.driver.steps
        row = {"step": step, "epoch": progress.epoch + 1, **numbers}
        row["learning_rate"] = running.steps.driver.rate
        if (scale := running.steps.driver.loss_scale) is not None:
            row["loss_scale"] = scale
        progress.history.steps.append(row)
        loss = self._measures.numbers[0]
        if step == 1:
            self._doubt_likelihoods(outputs)
        if not isfinite(row[loss]) and not any(one.tolerates_nan for one in self._plan.callbacks):
            raise self._diverged(f"{loss!r} is {row[loss]} in step {step}")
        return row

    def _doubt_likelihoods(self, outputs: Mapping[str, Array]) -> None:
        """Warns if a loss gets inputs that are not probabilities, as far as the outputs show."""
        for name, is_log in likelihoods_of(self._plan.trail.task):
            for problem in no_probabilities(name, outputs[name], is_log) if name in outputs else ():
                warnings.warn(problem, DoubtfulTrainingWarning, stacklevel=5)

    def _doubt_weights(self) -> None:
        """Warns of weights that an epoch has not changed."""
        now, trained = self._running.weights(), self._plan.trail.task.selection.trained
        still = [
            name
            for name, before in self._began_with.items()
            if name in trained and np.array_equal(now[name], before)
        ]
        self._began_with = {}
        if still and self._plan.ranks.is_first:
            named = ", ".join(map(repr, still[:3])) + (", ..." if len(still) > 3 else "")
            warnings.warn(
                f"{len(still)} of {len(trained)} weights did not change in an epoch: {named}; "
                "`check` shows gradients",
                DoubtfulTrainingWarning,
                stacklevel=4,
            )

    def _diverged(self, what: str) -> RunError:
        """The error for a loss that is not finite; names the first value that was not."""
        plan, progress = self._plan, self._progress
        at = (plan.source, plan.order, progress.epoch, progress.batch)
        what = f"{what}, epoch {progress.epoch + 1}"
        if found := bad_data(*at, self._running.batch):
            hint = "remove or replace these samples: np.isfinite finds them"
            return RunError(f"{what}: {found}", "the data", hint)
        for name in not_finite(self._began_with):
            found = f"weight {first_of(name, self._began_with[name])} before the first step"
            return RunError(f"{what}: {found}", "the model", "initialize it with finite values")
        first = plan.trail.first_not_finite(self._running.steps, *at)
        named = f"; {first!r} was the first non-finite tensor" if first else ""
        return RunError(
            f"{what}{named}",
            "training",
            "reduce the learning rate, since the data are finite; a checkpoint, if there is one, "
            "is older",
        )

    def _end_epoch(self, seconds: float) -> None:
        running, progress, plan = self._running, self._progress, self._plan
        row: Row = {"epoch": progress.epoch + 1, "step": running.steps.driver.steps}
        row |= plan.ranks.total(running.totals).row()
        plan.ranks.statistics_agreed(running.steps, plan.trail.task)
        row |= plan.test()
        row["seconds"] = seconds
        running.totals.clear()
        self._doubt_weights()
        progress.epoch, progress.batch = progress.epoch + 1, 0
        progress.history.epochs.append(row)
        best = running.best
        if best is not None and best.see(row, running.weights):
            self._trainer.stop(f"{best.monitor} did not improve for {best.patience} epochs")
        for callback in self._callbacks:
            callback.on_epoch(self._trainer, row)
        if plan.keeper is not None and plan.keeper.is_by_epoch:
            self._keep()
