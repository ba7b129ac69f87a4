"""What PopART's transformations make of a model, one after the other, until it is outlined."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from popgraph.builder.opset.enums import (
    AnchorReturnTypeId,
    BatchSerializationBatchSchedule,
    BatchSerializationMethod,
    BatchSerializationTransformContext,
    ExchangeStrategy,
    RecomputationType,
    TileSet,
    VirtualGraphMode,
)
from popgraph.passes.optimizer_spec import OptimizerSpec, loss_scale_variable
from popgraph.session.grouped_weights import Grouped
from popgraph.session.model import SessionModel
from popgraph.session.options import SessionOptions
from popgraph.session.patterns import Patterns
from popgraph.session.popart_ir.automatic_places import Shares, place_automatically
from popgraph.session.popart_ir.batch_parts import BatchParts
from popgraph.session.popart_ir.clipping import clip_gradients
from popgraph.session.popart_ir.collectives import merge_collectives
from popgraph.session.popart_ir.dot_files import DotFiles
from popgraph.session.popart_ir.duplicates import merge_copies
from popgraph.session.popart_ir.dynamic_gradients import write_dynamic_gradients
from popgraph.session.popart_ir.exchanges import merge_exchanges
from popgraph.session.popart_ir.execution_phases import (
    complete_phases,
    set_phases,
    turn_phases_back,
)
from popgraph.session.popart_ir.explicit_recomputation import recompute_explicitly
from popgraph.session.popart_ir.explicit_stashes import stash_in_loop
from popgraph.session.popart_ir.forward import ForwardReader, Places
from popgraph.session.popart_ir.fp32_loss_scale import widen_loss_scale
from popgraph.session.popart_ir.gradient_sums import decompose_gradient_sums
from popgraph.session.popart_ir.gradients import Gradients
from popgraph.session.popart_ir.graph import OpGraph, Settings
from popgraph.session.popart_ir.looped_parts import LoopedParts
from popgraph.session.popart_ir.loss_scaling import follow_gradients
from popgraph.session.popart_ir.main_loops import TURNS, Loop, MainLoops
from popgraph.session.popart_ir.merged_updates import merge_updates
from popgraph.session.popart_ir.overlap import Overlap, forget_stages, overlap_turns
from popgraph.session.popart_ir.patterns import Stage, apply_patterns
from popgraph.session.popart_ir.pipeline import (
    Stashing,
    copy_by_stages,
    merge_stages,
    set_stages,
    set_stages_of_updates,
    turn_back,
)
from popgraph.session.popart_ir.placement import (
    add_copies,
    add_loads,
    add_store,
    delay_copies,
)
from popgraph.session.popart_ir.random_seeds import add_seeds
from popgraph.session.popart_ir.recomputation import annotate_recomputation, mark_behind_loss
from popgraph.session.popart_ir.schedule import Scheduler
from popgraph.session.popart_ir.serialized_matmuls import serialize_matmuls
from popgraph.session.popart_ir.sharing import stream_memory
from popgraph.session.popart_ir.streaming_phases import Phases
from popgraph.session.popart_ir.tied_gathers import accumulate_sparsely
from popgraph.session.popart_ir.tiles import copy_to_tiles
from popgraph.session.popart_ir.update_rules import decompose_updates
from popgraph.session.popart_ir.updates import Turn, add_updates
from popgraph.session.step_shape import StepShape
from popgraph.session.tensor_locations import Locations
from popgraph.support.logs import log_of

_OVERLAPPED = (
    BatchSerializationBatchSchedule.OverlapOnIo,
    BatchSerializationBatchSchedule.OverlapOnCompute,
)
FEWEST_PHASES = 2
"""A program of fewer phases has none."""


def tell(name: str) -> None:
    """Says which transformation begins, where somebody listens."""
    log_of("transform").info("Applying Graph transform %s", name)


@dataclass(frozen=True)
class Asked:
    """What a session was made of."""

    model: SessionModel
    options: SessionOptions
    patterns: Patterns
    anchors: tuple[str, ...]
    rule: OptimizerSpec | None
    frozen: Collection[str]
    constant_weights: bool
    step: StepShape
    ipus: int = 1
    """Of each replica."""
    tracked: tuple[str, ...] = ()
    """The gradients that an automatic loss scale looks at."""
    returned: Mapping[str, AnchorReturnTypeId] = field(default_factory=dict)
    """Which values of an anchor come back."""
    grouped: Grouped = field(default_factory=dict)
    anchor_tiles: Mapping[str, TileSet] = field(default_factory=dict)
    """From which tiles anchors are stored."""
    strategies: Mapping[str, ExchangeStrategy] = field(default_factory=dict)
    """Of inputs and anchors whose exchange overlaps with computation."""

    @property
    def loss(self) -> str | None:
        """What training makes small, if the session trains."""
        return None if self.rule is None else self.model.final_loss


class Transforms:
    """Makes the graphs after all that depends on what operators mean."""

    def __init__(self, asked: Asked, dots: DotFiles) -> None:
        self._asked = asked
        self._enabled = asked.patterns.enabled()
        self._dots = dots
        self.stages = 0
        """How many graphs the stages of explicit pipelines are."""

    def run(self) -> list[OpGraph]:
        """The main graph first, then what operators call."""
        asked, options = self._asked, self._asked.options
        trains, phases = asked.rule is not None, Phases.of(options)
        places = Places(
            ipus=options.virtualGraphMode not in (VirtualGraphMode.Off, VirtualGraphMode.Auto),
            stages=options.enablePipelining,
            phases=bool(phases),
        )
        reader = ForwardReader(
            asked.model, constant=asked.constant_weights, anchors=asked.anchors, places=places
        )
        main, called = reader.main, list(reader.called.values())
        if trains and asked.model.final_loss is not None:
            main.kept = {*asked.anchors, asked.model.final_loss}
        self._dots.draw("FWD0", [main, *called])
        for graph in (main, *called):
            accumulates = options.enableGradientAccumulation
            apply_patterns(graph, self._enabled, Stage(trains, accumulates=accumulates))
        self._dots.draw("FWD1", [main, *called])
        if options.virtualGraphMode is VirtualGraphMode.Auto:
            tell("AutoVirtualGraph")
            place_automatically(main, Shares.of(options, asked.ipus, trains=trains))
        if options.enablePipelining:
            tell("InferPipelineStages")
            set_stages(main)
        rounds = options.enableStochasticRounding
        tell("RandomSetup")
        add_seeds(main, reader.called, self._first, rounds=rounds)
        tell("StreamingMemory 1")
        if phases:
            again = options.autoRecomputation is not RecomputationType.NoRecompute
            set_phases(main, phases, recomputes=again)
        called += self._cut_batches(main, BatchSerializationTransformContext.Fwd)
        if asked.rule is not None:
            self._train(main, asked.rule)
            self._dots.draw("BWD0", [main, *called])
        main.kept = set(asked.anchors)
        if options.useHostCopyOps:
            tell("HostIOSetup 1")
            late = not options.enableExplicitMainLoops
            add_loads(main, self._priority(late=late), asked.model.input_tiles)
        tell("Prune")
        main.prune()
        self._finish(main, [*called])
        self._dots.draw("PREALIAS", [main, *called])
        for graph in (main, *called):
            tell("IoComputeTileCopy")
            copy_to_tiles(graph, Phases.of(options))
        called += self._cut_batches(main, BatchSerializationTransformContext.Bwd)
        self._overlap_parts(main, called)
        merge_collectives(main, options.replicatedCollectivesSettings)
        loops = self._looped(main)
        bodies = [loop.body for loop in loops]
        for graph in (main, *bodies, *called):
            copy_to_tiles(graph, Phases.of(options))
        stages = self._overlapped(loops)
        if options.enableMergeExchange:
            for graph in (main, *bodies, *stages, *called):
                merge_exchanges(graph, options)
        self._recompute(main, explicit=False)
        graphs = [main, *bodies, *stages, *called]
        self.stages = len(stages)
        self._dots.draw("MAINLOOPS", graphs)
        return graphs

    def _train(self, main: OpGraph, rule: OptimizerSpec) -> None:
        loss = self._asked.model.final_loss
        assert loss is not None, "a session that trains has a loss"
        tell("Autodiff")
        Gradients(main, loss, self._scaling(main, rule)).grow()
        apart = self._asked.options.createImplicitPipeliningFwdOnlyProgram
        turn_back(main, loss, apart=apart)
        turn_phases_back(main, Phases.of(self._asked.options))
        add_updates(main, self._asked.frozen)
        set_stages_of_updates(main)

    def _cut_batches(
        self, main: OpGraph, context: BatchSerializationTransformContext
    ) -> list[OpGraph]:
        """Has batches computed in parts, if that is asked for here; the graphs that loops call."""
        settings = self._asked.options.batchSerializationSettings
        if settings.factor <= 1 or settings.transformContext != context:
            return []
        tell("BatchSerialize 1")
        if settings.method is BatchSerializationMethod.Loop:
            tell("MergeLoops")
            looped = LoopedParts(main, settings, self._asked.loss)
            looped.run()
            main.prune()
            called = {name for op in main.ops for name in op.called}
            return [body for body in looped.bodies if body.name in called]
        BatchParts(main, settings, self._asked.loss).run()
        main.prune()
        return []

    def _overlap_parts(self, main: OpGraph, called: list[OpGraph]) -> None:
        """Decomposes the loops that compute parts of batches, if their turns are to overlap."""
        settings = self._asked.options.batchSerializationSettings
        if settings.factor <= 1 or settings.batchSchedule not in _OVERLAPPED:
            return
        bodies = {graph.name: graph for graph in called}
        for op in [op for op in main.ops if op.type == "Loop" and TURNS in op.attributes]:
            tell("DecomposeLoops")
            body = bodies[op.called[0]]
            overlap_turns(Loop(op, main, body, {}, len(body.results)))

    @property
    def _first(self) -> Settings:
        """Where a step begins."""
        options = self._asked.options
        return Settings(
            ipu=None if options.virtualGraphMode is VirtualGraphMode.Off else 0,
            stage=0 if options.enablePipelining else None,
            phase=0 if Phases.of(options) else None,
        )

    def _scaling(self, main: OpGraph, rule: OptimizerSpec) -> str | None:
        """The tensor of the host that holds the loss scale, unless that is constant."""
        if rule.loss_scaling.constant:
            return None
        return loss_scale_variable(main.infos[str(self._asked.model.final_loss)].row)

    def _finish(self, main: OpGraph, called: list[OpGraph]) -> None:
        asked, options = self._asked, self._asked.options
        stage = Stage(asked.rule is not None, has_gradients=True)
        locations = Locations(options, asked.grouped)
        for graph in (main, *called):
            apply_patterns(graph, self._enabled, stage)
        self._recompute(main, explicit=True)
        widens = options.ensureFp32LossScaleTensor or options.automaticLossScalingSettings.enabled
        if asked.rule is not None and widens:
            tell("EnsureFp32LossScale")
            widen_loss_scale(main, self._scaling(main, asked.rule))
        tell("DynamicOpTransform")
        write_dynamic_gradients(main)
        if options.decomposeGradSum:
            tell("DecomposeGradSum")
            decompose_gradient_sums(main)
        if asked.rule is not None:
            merge_updates(main, options, asked.rule)
        main.prune()
        tell("SerializeMatMuls")
        serialize_matmuls(main)
        if asked.rule is not None:
            if (scaling := self._scaling(main, asked.rule)) is not None:
                follow_gradients(main, scaling, asked.tracked)
            turn, shared_by = Turn.of(options), locations.shared_by
            decompose_updates(main, asked.rule, asked.step, scaling, shared_by, turn)
            main.prune()
            if "TiedGatherAccumulate" in self._enabled and options.enableGradientAccumulation:
                accumulate_sparsely(main)
        if options.enablePipelining:
            if not options.createImplicitPipeliningFwdOnlyProgram:
                merge_stages(main)
            tell("InterIpuCopy")
            copy_by_stages(main)
        elif options.virtualGraphMode is not VirtualGraphMode.Off:
            tell("InterIpuCopy")
            add_copies(main)
            tell("MergeCopies")
            merge_copies(main)
        if self._is_plain:
            delay_copies(main)
        if asked.rule is not None:
            if asked.rule.clip:
                tell("ClipWeightGradientsByNorm")
            clip_gradients(main, asked.rule.clip, accumulates=asked.step.accumulation > 1)
        phases = Phases.of(options)
        if phases:
            complete_phases(main, phases)
        tell("StreamingMemory 2")
        stream_memory(main, locations, phases, self._asked.loss)
        main.prune()
        for graph in (main, *called):
            apply_patterns(graph, self._enabled, stage)
        if options.enablePipelining and not options.enableExplicitMainLoops:
            trains = asked.rule is not None
            everything = not trains and options.stashAllTensorsInferencePipeline
            tell("Pipeline")
            Stashing(options.autoRecomputation, trains, everything).add(main)

    @property
    def _is_plain(self) -> bool:
        """Whether operators may wait as long as they like."""
        options = self._asked.options
        in_parts = options.batchSerializationSettings.factor > 1
        in_phases = options.executionPhaseSettings.phases > 1
        return not (options.explicitRecomputation or in_parts or in_phases)

    def _priority(self, *, late: bool) -> float:
        """Of operators that talk to the host."""
        return float("-inf") if late and self._is_plain else 0.0

    def _looped(self, main: OpGraph) -> list[Loop]:
        """The main loops, after which anchors are stored from where they are."""
        asked, options = self._asked, self._asked.options
        found: list[Loop] = []
        homes = {id: (main, id) for id in asked.anchors}
        if options.enableExplicitMainLoops:
            tell("MainLoops")
            loops = MainLoops(main, asked.step.batches, asked.step.accumulation)
            loops.run({id: asked.returned[id] for id in asked.anchors})
            homes, found = loops.homes, loops.loops
        priority = self._priority(late=True)
        for anchor, (graph, id) in homes.items() if options.useHostCopyOps else ():
            tiles = asked.anchor_tiles.get(anchor, TileSet.Compute)
            add_store(graph, id, anchor, priority, tiles)
        return found

    def _overlapped(self, loops: list[Loop]) -> list[OpGraph]:
        """Decomposes the loops whose turns overlap; the graphs of stages that they call."""
        options = self._asked.options
        stages = None
        if options.enablePipelining and loops:
            tell("Pipeline")
            stash_in_loop(loops[-1])
            stages = 1 + max(op.settings.stage or 0 for op in loops[-1].body.ops)
        tell("OverlapIO")
        called = Overlap(self._asked.strategies, stages).apply(loops)
        if stages is not None:
            forget_stages([*(loop.body for loop in loops), loops[0].outer, *called])
        return called

    def _recompute(self, main: OpGraph, *, explicit: bool) -> None:
        """Chooses what is computed again: before there are copies for it, or else at last."""
        options, loss = self._asked.options, self._asked.loss
        if loss is None or options.explicitRecomputation is not explicit:
            return
        asked = options.autoRecomputation is not RecomputationType.NoRecompute
        in_stages = options.enablePipelining and not explicit
        if asked and not in_stages and options.executionPhaseSettings.phases < FEWEST_PHASES:
            kind = options.autoRecomputation
            order = Scheduler.of(options, None if explicit else loss, phases=False).order(main)
            annotate_recomputation(main, order, kind, loss, explicit=explicit)
        mark_behind_loss(main, loss)
        if explicit:
            tell("ExplicitRecompute")
            recompute_explicitly(main, Phases.of(options))
