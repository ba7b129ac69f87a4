"""The setup of a session: the arguments of its constructor, and the values derived from them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.registry import backend_named
from popgraph.builder.onnx.external import FileRange
from popgraph.builder.opset.enums import DeviceType, ExchangeStrategy, SyntheticDataMode
from popgraph.dialects.program import WeightStore
from popgraph.engine.delayed_weights import weight_delays
from popgraph.engine.grouped_weights import replication_of
from popgraph.engine.plan import StepPlan
from popgraph.engine.program import Request
from popgraph.engine.program_stages import ParallelPipeline
from popgraph.engine.shares import StepShard, steps_are_split
from popgraph.ipu.machine import MK2, Ipu
from popgraph.passes.optimizer_spec import OptimizerSpec
from popgraph.passes.options import GRADIENT
from popgraph.passes.options import Options as CodeOptions
from popgraph.passes.replication import Replication
from popgraph.popart.api.dataflow import DataFlow, InputShapeInfo
from popgraph.popart.api.devices import DeviceInfo, DeviceManager
from popgraph.popart.api.losses import Loss
from popgraph.popart.api.options import SessionOptions
from popgraph.popart.api.patterns import Patterns
from popgraph.popart.api.step_plan import plan_of
from popgraph.popart.exceptions import (
    as_popart_errors,
    popart_exception,
    popart_unsupported_exception,
)
from popgraph.popart.ir import RESTORED, Placement
from popgraph.popart.model.grouped_weights import Grouped
from popgraph.popart.model.model import SessionModel
from popgraph.popart.programs.program import Program
from popgraph.popart.sessions.pipelining import check_placement
from popgraph.support.index_checks import NEAREST
from popgraph.support.memo import cached_property


@dataclass(frozen=True)
class EraBehaviour:
    """Behaviour that differs between eras of PopART."""

    gradient_prefixes: tuple[str, ...] = (GRADIENT,)
    """The accepted prefixes of gradient names."""
    group_variances: bool = False
    """Whether group normalization returns variances, not inverse standard deviations."""
    insists_on_anchors: bool = True
    """Whether an inference session requires an anchor."""
    insists_on_weights: bool = True
    """Whether training requires a preceding `weightsFromHost`."""


@dataclass
class Setup:
    """The arguments of a session, and the values derived from them."""

    name: str
    model: SessionModel
    dataflow: DataFlow
    rule: OptimizerSpec | None
    device: DeviceInfo
    options: SessionOptions
    patterns: Patterns
    external: dict[str, FileRange]
    """The external weights and their locations."""
    grouped: Grouped
    """The weights with one value per group of replicas."""
    behaviour: EraBehaviour
    share: StepShard = field(init=False)
    placement: Placement = field(init=False)

    @classmethod
    def of(
        cls,
        opened: tuple[ModuleOp, WeightStore],
        losses: Sequence[str | Loss],
        rule: OptimizerSpec | None,
        flow: DataFlow,
        device: DeviceInfo | None,
        shapes: InputShapeInfo | None,
        patterns: Patterns | None,
        options: SessionOptions | None,
        name: str,
        external: Mapping[str, FileRange],
        grouped: Grouped,
        behaviour: EraBehaviour,
    ) -> Setup:
        """Applies defaults to omitted arguments."""
        if rule is None and not flow.nAnchors() and behaviour.insists_on_anchors:
            raise popart_exception("User must specify an anchor tensor when doing inference.")
        with as_popart_errors():
            model = SessionModel(*opened, shapes or InputShapeInfo(), losses)
        device = device or DeviceManager().createCpuDevice()
        options = SessionOptions() if options is None else options
        patterns = patterns or Patterns()
        external = dict(external)
        return cls(name, model, flow, rule, device, options, patterns, external, grouped, behaviour)

    @property
    def trains(self) -> bool:
        return self.rule is not None

    @cached_property
    def plan(self) -> StepPlan:
        return plan_of(self.dataflow.batchesPerStep(), self.options)

    def share_out(self) -> None:
        """Assigns replicas to ranks; refuses a count that the ranks do not divide."""
        with as_popart_errors():
            self.share = StepShard.of(self.plan)

    def place(self) -> None:
        """Assigns nodes to IPUs and stages; refuses partial placements."""
        self.placement = check_placement(
            self.model, self.options, self.plan, self.ipus, self.trains
        )

    @property
    def constant_weights(self) -> bool:
        return not self.trains and self.options.constantWeights

    @property
    def draws_data(self) -> bool:
        """Whether inputs are synthetic."""
        return self.options.syntheticDataMode is not SyntheticDataMode.Off

    @property
    def ipus(self) -> int | None:
        """IPUs per replica; None on a CPU, which acts as any number."""
        if self.device.type is DeviceType.Cpu:
            return None
        return self.device.numIpus // self.plan.replicas

    def modelled(self, replicas: int) -> Ipu:
        """The IPUs that `replicas` replicas occupy; a CPU counts as one tile."""
        ipu = self.device.ipu
        if ipu is None:
            return MK2.of(tiles=1)
        return ipu.of(ipu.count if replicas > 1 else self.ipus or 1)

    @property
    def strategies(self) -> dict[str, ExchangeStrategy]:
        """The exchange strategies of inputs and anchors that are not just-in-time inputs."""
        flow = self.dataflow
        given = {id: flow.art(id).exchangeStrategy() for id in flow.anchors()}
        return {**self.model.exchange_strategies, **given}

    @property
    def differentiated(self) -> Collection[str]:
        """The tensors whose gradients a training session computes."""
        if not self.trains:
            return ()
        anchored = {
            id.removeprefix(prefix)
            for id in self.dataflow.anchors()
            for prefix in self.behaviour.gradient_prefixes
            if id.startswith(prefix)
        }
        return self.model.weight_names | anchored

    @property
    def delays(self) -> Mapping[str, int]:
        """{weight: staleness in batches} of an asynchronous pipeline."""
        stages = self.placement.stages
        if stages is None or not self.trains or self.options.enableGradientAccumulation:
            return {}
        communicates = bool(self.grouped) or self.model.has_collectives
        return weight_delays(stages, sorted(self.model.weight_names), communicates=communicates)

    def request(self) -> Request:
        """The program request, before additions of training sessions."""
        stages, anchors = self.placement.stages, self.dataflow.anchors()
        restored = {id: id.removeprefix(RESTORED) for id in anchors if id.startswith(RESTORED)}
        return Request(
            outputs=tuple(anchors),
            optimizer=self.rule,
            variables=not self.constant_weights or bool(self.grouped),
            disabled=self.patterns.disabled_passes(),
            gradient_prefixes=self.behaviour.gradient_prefixes,
            replicas=self._written_out(),
            aliases={} if stages is None else restored,
            delayed=tuple(self.delays),
            stages={} if stages is None else stages.stage_of_tensor,
            grouped=self.grouped,
            code=self._code(),
        )

    def _written_out(self) -> Replication:
        """
        All replicas, if they differ or communicate; otherwise one, which runs for each in sequence.
        """
        model = self.model
        if not self.grouped and not model.has_collectives:
            return Replication()
        shared, weights = model.broadcast_inputs, model.weight_names
        return replication_of(self.grouped, self.share.own, shared, weights, self.rule)

    def _code(self) -> CodeOptions:
        code = self.options.compilation()
        named = self.model.recomputed
        if named and not code.recompute:
            code = replace(code, recompute="nodes", recomputed=named)
        if self.draws_data:  # Numbers drawn for labels may be too large.
            return replace(code, indices=code.indices or NEAREST)
        return code

    def overlap(self, program: Program) -> ParallelPipeline | None:
        """The plan to run pipeline stages concurrently, if possible."""
        options, stages = self.options, self.placement.stages
        if stages is None or self.plan.all_replicas > 1:
            return None
        if not backend_named(self.device.backend).is_native:
            return None
        watched = program.printed or any(program.aborts) or program.tracked
        looks_on = watched or options.enableFloatingPointChecks
        forward = options.createImplicitPipeliningFwdOnlyProgram
        if looks_on or not program.replicas.is_one or forward:
            return None
        if options.enableQuickStart and (options.overlapStages or steps_are_split()):
            raise popart_unsupported_exception(
                "stages that run side by side have no quick programs",
                "SessionOptions.enableQuickStart",
                "leave it out",
            )
        return ParallelPipeline.of(stages.pipeline, threads=options.overlapStages)
