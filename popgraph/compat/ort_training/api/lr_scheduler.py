"""`LinearLRScheduler`: a warmup from 0, then a linear decay to 0."""

from __future__ import annotations

from popgraph.compat.ort_training.api.optimizer import Optimizer
from popgraph.compat.ort_training.errors import WrongCall, WrongType


class LinearLRScheduler:
    """
    Sets the learning rate by the number of steps that the optimizer has made.

    It rises from 0 to `initial_lr` in `warmup_step_count` steps, and is 0 again after
    `total_step_count` steps. `step()` is called after each step of the optimizer.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        warmup_step_count: int,
        total_step_count: int,
        initial_lr: float,
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise WrongType(
                f"the scheduler's optimizer is a {type(optimizer).__name__}, not an Optimizer",
                "LinearLRScheduler",
                "LinearLRScheduler(optimizer, warmup_step_count, total_step_count, initial_lr)",
            )
        if not 0 <= warmup_step_count <= total_step_count:
            raise WrongCall(
                f"a warmup of {warmup_step_count} steps does not fit into {total_step_count} steps",
                "LinearLRScheduler",
                "pass the warmup first; onnxruntime-training 1.19 exchanges the two counts",
            )
        self._optimizer = optimizer
        self._warmup, self._total = warmup_step_count, total_step_count
        optimizer._contents.initial_rate = float(initial_lr)
        self.step()

    def step(self) -> None:
        """Sets the learning rate of the next step."""
        contents = self._optimizer._contents
        self._optimizer.set_learning_rate(contents.initial_rate * self._factor(contents.updates))

    def _factor(self, steps: int) -> float:
        if steps < self._warmup:
            return steps / self._warmup
        return max(0, self._total - steps) / max(1, self._total - self._warmup)
