"""
PopART's `TrainingSession`: a session with an optimizer whose hyperparameters the host may change.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from popgraph.builder.onnx.external_weights import data_folders
from popgraph.builder.opset.arguments import typed
from popgraph.builder.opset.enums import (
    AnchorReturnTypeId,
    MeanReductionStrategy,
    ReductionType,
)
from popgraph.builder.pgraph import load as load_text
from popgraph.engine.accumulators import is_accumulator
from popgraph.engine.program import Request
from popgraph.engine.shares import StepShard
from popgraph.passes.graphcore.training.variables import UPDATED
from popgraph.passes.optimizer_spec import FACTOR, OptimizerSpec
from popgraph.passes.replication import belongs
from popgraph.popart.api.dataflow import DataFlow, InputShapeInfo
from popgraph.popart.api.devices import DeviceInfo
from popgraph.popart.api.ipu_only import TrainingOnly
from popgraph.popart.api.losses import AnyLoss, as_losses
from popgraph.popart.api.optimizer_base import Optimizer
from popgraph.popart.api.optimizers import popart_optimizer
from popgraph.popart.api.options import SessionOptions
from popgraph.popart.api.patterns import Patterns
from popgraph.popart.api.step_plan import plan_of
from popgraph.popart.exceptions import as_popart_errors, popart_exception
from popgraph.popart.model.grouped_weights import take_groups
from popgraph.popart.model.model import Source, open_model
from popgraph.popart.programs.automatic_loss_scaling import ALIASES, following, tracked_tensors
from popgraph.popart.sessions.session import Session, flow_of
from popgraph.popart.sessions.setup import Setup
from popgraph.support.boxes import written
from popgraph.support.logs import log_of
from popgraph.training.driver import ScheduledDriver
from popgraph.training.roles import Origin
from popgraph.training.selection import Selection, WeightPatterns, select
from popgraph.training.task import Task, task_of


@typed
class TrainingSession(TrainingOnly, Session):
    """
    Trains a model: `TrainingSession(model, DataFlow(1, [loss]), loss, ConstSGD(0.1))`.

    `loss` is the id of a scalar tensor; older programs pass `losses`, a list. A `.pgraph` file
    defines loss and optimizer in its `train` section: `TrainingSession("net.pgraph", DataFlow(1,
    ["loss"]))`; its schedule, if any, sets the learning rate of every batch.

    `selection` lists the trained weights; `freeze` and `train_only`, patterns of weight names,
    change it. A BatchNormalization in inference mode uses the statistics of the batch and updates
    the running ones, unless these are frozen.
    """

    _advice = (
        "\n  try: this is PopART's session; to train a model on arrays: "
        'popgraph.train("net.onnx", {"x": x, "labels": labels}, "cross_entropy", "Adam(0.001)")'
    )

    def __init__(
        self,
        fnModel: Source,
        dataFlow: DataFlow | None = None,
        loss: AnyLoss | None = None,
        optimizer: Optimizer | None = None,
        deviceInfo: DeviceInfo | None = None,
        inputShapeInfo: InputShapeInfo | None = None,
        patterns: Patterns | None = None,
        userOptions: SessionOptions | None = None,
        name: str = "training",
        *,
        dataFeed: DataFlow | None = None,
        passes: Patterns | None = None,
        losses: AnyLoss | None = None,
        freeze: str | Sequence[object] = (),
        train_only: str | Sequence[object] = (),
    ) -> None:
        flow = flow_of(self, dataFlow, dataFeed)
        wanted = as_losses(loss if loss is not None else losses)
        task = None if wanted else _task_of_text(fnModel)
        schedule = None
        rule = None if optimizer is None else optimizer.spec()
        if task is not None:
            wanted = [task.loss]
            if rule is None and task.rule is not None:
                rule, schedule = task.rule, task.schedule
                with as_popart_errors():
                    optimizer = popart_optimizer(rule)
        if not wanted:
            raise TypeError("TrainingSession() needs a loss")
        if rule is None or optimizer is None:
            raise TypeError("TrainingSession() needs an optimizer")
        self._optimizer = self._next = optimizer
        with as_popart_errors():
            self._patterns = WeightPatterns.of(freeze, train_only)
        rule = _added_up(rule, userOptions)
        self._task = task
        folders = data_folders()
        model, grouped = take_groups(fnModel, userOptions)
        opened = (task.module, task.weights) if task else open_model(model, folders)
        self._origin = task.origin if task else Origin.of(opened[0])
        setup = Setup.of(
            opened,
            wanted,
            rule,
            flow,
            deviceInfo,
            inputShapeInfo,
            patterns or passes,
            userOptions,
            name,
            folders.found,
            grouped,
            self._behaviour,
        )
        super().__init__(setup)
        self._driver = ScheduledDriver(
            self._program.scalars, self._program.rule_of_groups(rule), schedule
        )
        self._runs.driver = self._driver
        self._transfers.place_states()

    def _request(self) -> Request:
        model, task = self._setup.model, self._task
        assert model.final_loss is not None, "a session that trains has a loss"
        slices = task.slices if task else {}
        found = select(model.module, model.final_loss, self._patterns, self._origin, slices)
        self._selection = found.with_constants(model.module, task.constants if task else ())
        if self._patterns:
            self._selection.check()
        settings = self._setup.options.automaticLossScalingSettings
        tracked = tracked_tensors(model, settings) if settings.enabled else ()
        request = super()._request()
        return replace(
            request,
            frozen=self._selection.frozen,
            parts=written(self._selection.boxes),
            tracked=tuple(tracked),
            aliases={**request.aliases, **self._final_states(), **ALIASES},
        )

    def _final_states(self) -> Mapping[str, str]:
        """
        {anchor: alias} of weights and states that are returned once per step: their values after
        it.

        Micro-batches that accumulate return the values before the update.
        """
        setup = self._setup
        flow, weights = setup.dataflow, setup.model.weight_names
        return {
            id: UPDATED + id
            for id in flow.anchors()
            if flow.art(id).id() is AnchorReturnTypeId.Final
            and (id == FACTOR or any(belongs(id, weight) for weight in weights))
            and not id.startswith((UPDATED, *setup.behaviour.gradient_prefixes))
            and not is_accumulator(id, setup.rule)
        }

    def _changed_weights(self) -> Collection[str]:
        """
        The variables that differ between replicas: those without a gradient, whose sum would
        synchronize them.
        """
        return set(super()._changed_weights()).difference(self._selection.trained)

    @property
    def selection(self) -> Selection:
        """
        The weights that are trained, updated by batch statistics, or frozen, with the reasons.
        """
        return self._selection

    def getTensorIds(self) -> list[str]:
        return self._tensor_ids()

    def updateOptimizerFromHost(self, optimizer: Optimizer) -> None:
        """Sends new values of the non-constant hyperparameters immediately."""
        log_of("session").debug("TrainingSession::updateOptimizerFromHost()")
        self.updateOptimizer(optimizer)
        executable = self._engine.prepared_for("optimizerFromHost()")
        with as_popart_errors():
            self._driver.write_scalars(executable, self._driver.rule)

    def updateOptimizer(self, optimizer: Optimizer) -> None:
        """Stores the hyperparameters that `optimizerFromHost` sends, for old programs."""
        self._optimizer.validate_replacement(optimizer)
        self._next = optimizer
        self._driver.rule = self._program.rule_of_groups(optimizer.spec())

    def optimizerFromHost(self) -> None:
        self.updateOptimizerFromHost(self._next)

    def broadcastWeights(self, rootRank: int = 0) -> None:
        """Copies the weights and states on the device of one rank to all ranks."""
        self._transfers.broadcast(rootRank)


def _added_up(rule: OptimizerSpec, options: object) -> OptimizerSpec:
    """The optimizer that averages or sums gradients over all micro-batches and replicas."""
    if not isinstance(options, SessionOptions):
        return rule
    rule = following(rule, options.automaticLossScalingSettings)
    with as_popart_errors():
        plan = StepShard.of(plan_of(1, options)).own
    if plan.micro_batches_per_update == 1:
        return rule
    mean = options.accumulationAndReplicationReductionType is ReductionType.Mean
    strategy = options.meanAccumulationAndReplicationReductionStrategy
    return replace(
        plan.rule(rule, mean=mean),
        in_turn=plan.replicas,
        message_type=options.exchangeType,
        shard_from=options.states_sharded_from,
        shard_gradients_from=options.gradients_sharded_from,
        shard_weights_from=options.weights_sharded_from,
        running=strategy is MeanReductionStrategy.Running,
    )


def _task_of_text(source: Source) -> Task | None:
    """The training task of a `.pgraph` file; None for other models."""
    if not (isinstance(source, str | Path) and Path(source).suffix == ".pgraph"):
        return None
    with as_popart_errors():
        task = task_of(load_text(source))
        if task is None:
            raise popart_exception(
                "this text does not say how it is trained",
                str(source),
                "`train (labels: i32[N]) { loss = nll(y, labels) }`, or give loss and optimizer",
            )
        if task.step_options:
            said = ", ".join(f"`{name}`" for name in task.step_options)
            raise popart_exception(
                f"a session does not take {said} from a train section",
                str(source),
                "SessionOptions.accumulationFactor, autoRecomputation ...; popgraph.train follows "
                "the section",
            )
        return task
