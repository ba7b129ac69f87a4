"""The plan of a training step: its division into runs of a program, and one update."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from popgraph.engine.loss_scale import FIRST_SCALE
from popgraph.passes.optimizer_spec import ClipNorm, OptimizerSpec, Scalar
from popgraph.support.arrays import Array
from popgraph.support.errors import RunError
from popgraph.support.step_options import AUTO, STEP_OPTIONS


@dataclass(frozen=True)
class MicroBatch:
    """Rows of a batch for one run of a program."""

    inputs: Mapping[str, Array]
    rows: int
    share: float
    """The rows as a fraction of the whole batch."""


@dataclass(frozen=True)
class StepPlan:
    """
    The values of `STEP_OPTIONS`, which documents them, and the number of batches and ranks.

    A step is `batches` updates of the weights. Each accumulates the gradients of `accumulate`
    micro-batches on each of the `replicas` of each of the `ranks`; this one is number `rank`.
    """

    accumulate: int = 1
    clip: float | None = None
    """None: the optimizer's own setting."""
    loss_scale: float | str | None = None
    """None: the optimizer's own setting."""
    recompute: str = "none"
    precision: str = "f32"
    determinism: str = ""
    """"": as the environment says."""
    quantize: str = "none"
    replicas: int = 1
    stages: int = 1
    batches: int = 1
    ranks: int = 1
    rank: int = 0

    @staticmethod
    def of(text: Mapping[str, object], given: Mapping[str, object]) -> StepPlan:
        """Options of a `train` section, overridden by arguments that are not None."""
        said = {**text, **{name: value for name, value in given.items() if value is not None}}
        checked = {name: STEP_OPTIONS[name].checked(value) for name, value in said.items()}
        return StepPlan(**checked)  # type: ignore[arg-type]

    @property
    def follows_overflow(self) -> bool:
        """Whether the loss scale is dynamic."""
        return self.loss_scale == AUTO

    @property
    def quantizes(self) -> bool:
        """Whether weights and activations are rounded in place."""
        return self.quantize != "none"

    def on_rank(self, rank: int, ranks: int) -> StepPlan:
        """The same plan on each of several ranks with their own data."""
        return replace(self, ranks=ranks, rank=rank)

    @property
    def micro_batches(self) -> int:
        """Micro-batches per replica and step."""
        return self.batches * self.accumulate

    @property
    def runs(self) -> int:
        """Micro-batches per step on this rank."""
        return self.micro_batches * self.replicas

    @property
    def all_replicas(self) -> int:
        """Replicas on all ranks."""
        return self.replicas * self.ranks

    @property
    def micro_batches_per_update(self) -> int:
        """Micro-batches per update on all ranks."""
        return self.accumulate * self.all_replicas

    @property
    def is_split(self) -> bool:
        """Whether a step runs the program more than once."""
        return self.runs > 1

    def check_combination(self, *, quick: bool) -> None:
        """Rejects combinations of options that are not supported."""
        parts = {"replicas": self.replicas, "stages": self.stages}
        name = next((name for name, count in parts.items() if count > 1), "")
        if name and self.ranks > 1:
            raise RunError(
                f"{name} run on threads of one process, but there are {self.ranks} ranks",
                name,
                f"mpirun -n {self.ranks * parts[name]} without {name}",
            )
        if name and quick:
            raise RunError(
                f"{name} run a single program, which quick would replace",
                name,
                "leave out one of the two",
            )
        if self.stages > 1 and self.quantizes:
            raise RunError(
                "a pipeline cannot share the scales of quantized weights between stages",
                "stages",
                "quantize without stages; accumulate and replicas also split batches",
            )
        if min(parts.values()) > 1:
            raise RunError("replicas of a pipeline are not supported", "stages", "one of the two")
        if self.stages > 1 and self.accumulate < self.stages:
            raise RunError(
                f"{self.stages} stages need as many micro-batches to keep busy, not "
                f"{self.accumulate}",
                "stages",
                f"accumulate={4 * self.stages}",
            )

    def rows(self, batch: int) -> int:
        """The rows of a micro-batch of a complete batch."""
        if batch % self.runs:
            smaller = batch - batch % self.runs
            raise RunError(
                f"a batch of {batch} samples does not divide into {self.runs} micro-batches",
                "accumulate" if self.replicas == 1 else "replicas",
                f"batch={smaller or self.runs}, a multiple of {self.runs}",
            )
        return batch // self.runs

    def multiple(self, batch: int) -> int:
        """The smallest batch of at least this size that divides into micro-batches."""
        return -(-batch // self.runs) * self.runs

    def split(self, inputs: Mapping[str, Array], rows: int) -> Iterator[MicroBatch]:
        """
        Splits a batch into micro-batches of `rows` rows.

        The last batch of an epoch may have fewer micro-batches, and the last one fewer rows.
        """
        samples = len(next(iter(inputs.values())))
        rows = max(rows, -(-samples // self.runs))
        for start in range(0, samples, rows):
            taken = {name: array[start : start + rows] for name, array in inputs.items()}
            count = min(rows, samples - start)
            yield MicroBatch(taken, count, count / samples)

    def for_loss(self, rule: OptimizerSpec) -> OptimizerSpec:
        """The update rule with the clipping and the loss scale of this plan."""
        if self.clip is not None:
            rule = replace(rule, clip=(ClipNorm(float(self.clip)),))
        if self.follows_overflow:
            first = Scalar(FIRST_SCALE, constant=False)
            rule = replace(rule, loss_scaling=first, skip_overflow=True)
        elif self.loss_scale is not None:
            rule = replace(rule, loss_scaling=Scalar(float(self.loss_scale)))
        return rule

    def rule(self, rule: OptimizerSpec, *, mean: bool, even: bool = True) -> OptimizerSpec:
        """
        The update rule for which a program of this plan is compiled.

        `mean`: the loss is a mean over samples, so gradients are averaged. Unless micro-batches are
        `even`, each is weighted by its rows: the host writes the weight into the loss scale.
        """
        if self.micro_batches_per_update > 1:
            rule = replace(
                rule, accumulation=self.micro_batches_per_update, ranks=self.ranks, mean=mean
            )
        if self.is_split and mean and not even:
            scale = replace(rule.loss_scaling, constant=False)
            rule = replace(rule, loss_scaling=scale)
        return rule
