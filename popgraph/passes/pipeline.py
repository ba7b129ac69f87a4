"""The pipeline: all passes in execution order, and the passes of a compilation."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import PassPipeline
from xdsl.utils.exceptions import ArgSpecParseError

from popgraph.dialects.levels import LEVELS, ONNX, PROGRAM, level_of
from popgraph.passes.base import Pass
from popgraph.passes.goals import aimed
from popgraph.passes.graphcore.bucket_exchanges import BucketExchanges
from popgraph.passes.graphcore.canonicalize import Canonicalize
from popgraph.passes.graphcore.check_indices import CheckIndices
from popgraph.passes.graphcore.contract_in_floats import ContractInFloats
from popgraph.passes.graphcore.contract_in_words import ContractInWords
from popgraph.passes.graphcore.contract_quantized import ContractQuantized
from popgraph.passes.graphcore.cse import EliminateCommonSubexpressions
from popgraph.passes.graphcore.dce import EliminateDeadCode
from popgraph.passes.graphcore.expand import Expand
from popgraph.passes.graphcore.fold_constants import FoldConstants
from popgraph.passes.graphcore.fold_depth import FoldDepth
from popgraph.passes.graphcore.fuse_softmax_loss import FuseSoftmaxLoss
from popgraph.passes.graphcore.lower_precision import LowerPrecision
from popgraph.passes.graphcore.recompute import Recompute
from popgraph.passes.graphcore.return_appended import ReturnAppended
from popgraph.passes.graphcore.round_activations import RoundActivations
from popgraph.passes.graphcore.round_cheaply import RoundCheaply
from popgraph.passes.graphcore.round_stochastically import RoundStochastically
from popgraph.passes.graphcore.scale_sums import ScaleSums
from popgraph.passes.graphcore.skip_padding import SkipPadding
from popgraph.passes.graphcore.spread_replicas import SpreadReplicas
from popgraph.passes.graphcore.to_structured import GraphcoreToStructured
from popgraph.passes.graphcore.training.add_optimizer import AddOptimizer
from popgraph.passes.graphcore.training.autodiff import Autodiff
from popgraph.passes.loops.interchange_loops import InterchangeLoops
from popgraph.passes.loops.prefetch_panels import PrefetchPanels
from popgraph.passes.loops.split_loops import SplitLoops
from popgraph.passes.loops.unroll_loops import UnrollLoops
from popgraph.passes.loops.vectorize_loops import VectorizeLoops
from popgraph.passes.onnx.evaluate_constants import EvaluateConstants
from popgraph.passes.onnx.fold_indices import FoldIndices
from popgraph.passes.onnx.infer_shapes import InferShapes
from popgraph.passes.onnx.normalize import Normalize
from popgraph.passes.onnx.select_known import SelectKnown
from popgraph.passes.onnx.share_nodes import ShareNodes
from popgraph.passes.onnx.to_graphcore import OnnxToGraphcore
from popgraph.passes.options import Options, Training
from popgraph.passes.order import Step, disorders, unmet
from popgraph.passes.outside import OUTSIDE, Place, outside_pass, placed
from popgraph.passes.program.hand_numbers import HandNumbers
from popgraph.passes.program.plan_memory import PlanMemory
from popgraph.passes.program.split_kernels import SplitKernels
from popgraph.passes.structured.bind_sizes import BindSizes
from popgraph.passes.structured.fuse_products import FuseProducts
from popgraph.passes.structured.fusion.fuse_attention import FuseAttention
from popgraph.passes.structured.fusion.fuse_channels import FuseChannels
from popgraph.passes.structured.fusion.fuse_elementwise import FuseElementwise
from popgraph.passes.structured.fusion.fuse_epilogue import FuseEpilogue
from popgraph.passes.structured.fusion.fuse_rows import FuseRows
from popgraph.passes.structured.fusion.merge_maps import MergeMaps
from popgraph.passes.structured.fusion.sum_in_blocks import SumInBlocks
from popgraph.passes.structured.hoist_constants import HoistConstants
from popgraph.passes.structured.hoist_invariants import HoistInvariants
from popgraph.passes.structured.layout.assign_halos import AssignHalos
from popgraph.passes.structured.layout.assign_layouts import AssignLayouts
from popgraph.passes.structured.move_updates import MoveUpdates
from popgraph.passes.structured.parallel.alternate_chunks import AlternateChunks
from popgraph.passes.structured.parallel.parallelize_loops import ParallelizeLoops
from popgraph.passes.structured.schedule.read_narrow import ReadNarrow
from popgraph.passes.structured.schedule.schedule_contractions import ScheduleContractions
from popgraph.passes.structured.schedule.settle_loops import SettleLoops
from popgraph.passes.structured.to_loops import StructuredToLoops
from popgraph.passes.structured.view_words import ViewWords
from popgraph.passes.structured.winograd.use_winograd import UseWinograd
from popgraph.support.errors import PassError
from popgraph.support.names import closest

__all__ = [
    "PASSES",
    "PIPELINE",
    "Options",
    "Step",
    "Training",
    "check_needs",
    "current",
    "earlier",
    "factories",
    "pass_named",
    "planned",
]


PIPELINE: tuple[Step, ...] = (
    Step(
        "onnx",
        EvaluateConstants,
        "first: nodes that only Python computes are computed once, not in every run",
        settles=True,
    ),
    Step("onnx", SelectKnown, "once conditions of constants are constants", settles=True),
    Step(
        "onnx",
        FoldIndices,
        "once a model, before all passes that visit every node",
        optional=True,
        settles=True,
    ),
    Step(
        "onnx",
        ShareNodes,
        "before shapes: it runs once a model, and programs of all shapes have fewer nodes",
        optional=True,
        settles=True,
    ),
    Step(
        "onnx",
        InferShapes,
        "before normalize replaces the user's nodes, so that their types can be shown",
    ),
    Step("onnx", Normalize, ""),
    Step("onnx", OnnxToGraphcore, "from here on, each operation has one meaning", to="graphcore"),
    Step("graphcore", Autodiff, "first: composites such as softmax have gradients of their own"),
    Step("graphcore", Recompute, "while forward and backward operations are distinguishable"),
    Step(
        "graphcore", SpreadReplicas, "before the optimizer, which needs gradients of all replicas"
    ),
    Step("graphcore", AddOptimizer, "once gradients are summed over replicas"),
    Step(
        "graphcore",
        BucketExchanges,
        "while each gradient is the direct operand of its exchange",
        optional=True,
    ),
    Step("graphcore", FuseSoftmaxLoss, "before expand splits the two gradients", optional=True),
    Step(
        "graphcore",
        ContractQuantized,
        "before folding makes quantized weights floats",
        optional=True,
    ),
    Step(
        "graphcore",
        RoundActivations,
        "while weights are quantized, and once activations that the model quantizes are integers",
    ),
    Step("graphcore", ScaleSums, "takes the quantized weights that are left", optional=True),
    Step(
        "graphcore",
        FoldConstants,
        "before canonicalize, which reads literals",
        optional=True,
        before=("canonicalize", "expand"),
    ),
    Step(
        "graphcore",
        Canonicalize,
        "before expand makes batch norms arithmetic",
        optional=True,
        before=("return-appended", "round-stochastically", "round-cheaply", "expand"),
    ),
    Step("graphcore", ReturnAppended, "once outputs are direct concatenations of caches"),
    Step(
        "graphcore",
        RoundStochastically,
        "after algebra and before expand: each of the user's operators rounds once",
    ),
    Step(
        "graphcore", RoundCheaply, "before expand, while quantize is one operation", optional=True
    ),
    Step("graphcore", Expand, ""),
    Step(
        "graphcore",
        FoldConstants,
        "expand creates operations on literals",
        optional=True,
        after=("expand",),
    ),
    Step(
        "graphcore",
        Canonicalize,
        "expand creates operations to simplify",
        optional=True,
        after=("expand", "fold-constants"),
        before=("cse",),
    ),
    Step(
        "graphcore",
        EliminateCommonSubexpressions,
        "expand creates equal operations: two softmaxes of one tensor share their maximum",
        optional=True,
    ),
    Step("graphcore", EliminateDeadCode, "unused operations need no kernel", optional=True),
    Step(
        "graphcore",
        SkipPadding,
        "after expand makes gradients convolutions, and folding makes weights literals",
        optional=True,
    ),
    Step(
        "graphcore",
        FoldDepth,
        "after skip-padding removes taps that it would have to copy",
        optional=True,
    ),
    Step(
        "graphcore",
        LowerPrecision,
        "after algebra, which reads sums and factors as they are, and once contractions are final",
    ),
    Step(
        "graphcore",
        ContractInWords,
        "after all passes that create literals or change operands",
        optional=True,
    ),
    Step(
        "graphcore",
        ContractInFloats,
        "takes the integer contractions for which the machine has no instruction",
        optional=True,
    ),
    Step("graphcore", CheckIndices, "after dead code is gone: unused lookups need no check"),
    Step(
        "graphcore",
        GraphcoreToStructured,
        "last: lowers kinds of operations to index maps",
        to="structured",
    ),
    Step(
        "structured", FuseElementwise, "fuse-epilogue expects one map, not a chain", optional=True
    ),
    Step("structured", FuseEpilogue, "a schedule depends on the epilogue", optional=True),
    Step("structured", MergeMaps, "fuse-epilogue takes maps with one result", optional=True),
    Step("structured", AssignLayouts, "a schedule depends on contiguous dimensions", optional=True),
    Step("structured", AssignHalos, "once layouts are decided, rows can be padded", optional=True),
    Step(
        "structured",
        SumInBlocks,
        "before fuse-rows takes reductions, and before schedules count their loops",
        optional=True,
    ),
    Step(
        "structured",
        UseWinograd,
        "while convolutions are recognizable, and once rows are padded",
        optional=True,
    ),
    Step("structured", FuseRows, "once layouts are known and maps are fused", optional=True),
    Step("structured", SettleLoops, "a schedule refers to loops by number", optional=True),
    Step("structured", ReadNarrow, "a schedule depends on operand types", optional=True),
    Step("structured", ScheduleContractions, "last decision about contractions", optional=True),
    Step("structured", FuseAttention, "rows that run together depend on schedules", optional=True),
    Step("structured", FuseChannels, "schedules decide the panels of channels", optional=True),
    Step("structured", HoistInvariants, "schedules decide what loops pack", optional=True),
    Step(
        "structured",
        HoistConstants,
        "once schedules pack weights, which is work for load time",
        optional=True,
    ),
    Step("structured", MoveUpdates, "once no operation is split or fused any more", optional=True),
    Step("structured", ViewWords, "once layouts are final", optional=True),
    Step("structured", FuseProducts, "once all contractions exist, in whatever kernel"),
    Step(
        "structured",
        BindSizes,
        "once loops are final, and before they are partitioned among threads",
    ),
    Step(
        "structured",
        ParallelizeLoops,
        "once kernels are final: each should find its operands in a near cache",
        optional=True,
    ),
    Step("structured", AlternateChunks, "once kernels are final", optional=True),
    Step(
        "structured",
        StructuredToLoops,
        "before memory is planned, so that equal operations share a kernel",
        to="loops",
    ),
    Step(
        "loops",
        SplitLoops,
        "later passes transform loops of constant bounds",
        optional=True,
    ),
    Step(
        "loops",
        InterchangeLoops,
        "a register tile is in the loops of its sums before its lanes are vectors",
        optional=True,
    ),
    Step(
        "loops",
        VectorizeLoops,
        "unrolled, each iteration would have to be compared with the next one",
        optional=True,
    ),
    Step(
        "loops",
        UnrollLoops,
        "kernels mark the loops of their register tiles",
        optional=True,
    ),
    Step(
        "loops",
        PrefetchPanels,
        "after unrolling, so that each cache line is requested once",
        optional=True,
    ),
    Step("loops", PlanMemory, "once all buffers are known", to="program"),
    Step(
        "program",
        SplitKernels,
        "once calls are ordered and results have memory: several calls may write one result",
        optional=True,
    ),
    Step("program", HandNumbers, "once the set of functions is final", optional=True),
)
"""
The whole compiler from import to C, in an order that agrees with what passes declare.

The declarations are `NEEDS`, `GIVES`, `LOSES`, `AFTER` and `BEFORE` of each pass. A line has the
reason for the pass's position, unless the declarations state it.
"""

RENAMED: Mapping[str, str] = {
    "graphcore-to-tile": "graphcore-to-structured",
    "outline-kernels": "structured-to-loops",
    "share-loops": "parallelize-loops",
    "tile-loops": "structured-to-loops",
}
"""Former names of passes, accepted for one version with a warning."""

PASSES: dict[str, type[Pass]] = {step.pass_class.name: step.pass_class for step in PIPELINE}
"""All passes by name."""


def current(name: str) -> str:
    """The current name of a pass."""
    if name not in RENAMED:
        return name
    warnings.warn(f"the pass {name} is now {RENAMED[name]}", FutureWarning, stacklevel=2)
    return RENAMED[name]


def pass_named(name: str) -> type[Pass] | None:
    """The pass with a name, PopGraph's own or an extension's; None for an unknown name."""
    return PASSES.get(current(name)) or outside_pass(name)


def factories() -> dict[str, Callable[[], type[Pass]]]:
    """Pass factories for xDSL's pipeline parser and universe, with passes of loaded extensions."""

    def factory(name: str) -> Callable[[], type[Pass]]:
        return lambda: PASSES[current(name)]

    own = {name: factory(name) for name in (*PASSES, *RENAMED)}

    def outside(name: str) -> Callable[[], type[Pass]]:
        return lambda: OUTSIDE[name][0]

    return own | {name: outside(name) for name in OUTSIDE}


@dataclass(frozen=True)
class Inserted(Step):
    """A step that `Options.passes` requests."""

    made: Pass | None = None

    def make(self, options: Options) -> Pass | None:
        return self.made or self.pass_class.of(options)


def pipeline_of(options: Options) -> Sequence[Step]:
    """The pipeline with the additional passes that options request, at their positions."""
    steps = list(PIPELINE)
    for wanted in options.passes:
        _insert(steps, wanted)
    if options.passes:
        disabled = set(map(current, options.disabled))
        _check([step for step in steps if not (step.optional and step.name in disabled)])
    return steps


def _check(steps: Sequence[Step]) -> None:
    """Raises PassError if a pass cannot run at its position, or another pass because of it."""
    for need in unmet(steps):
        raise PassError(str(need), "Options.passes", need.hint)
    # The other passes also run at their usual positions, which are in order.
    for wrong in disorders(steps):
        if wrong.step.name not in PASSES:
            raise PassError(str(wrong), "Options.passes", "it declares so: change its position")


def _insert(steps: list[Step], wanted: object) -> None:
    given = placed(wanted)
    made = given.step if isinstance(given.step, Pass) else None
    name = made.name if made else str(given.step).partition("{")[0]
    pass_class = type(made) if made else pass_named(name)
    if pass_class is None:
        raise _no_pass(name)
    place = given.place or (OUTSIDE[name][1] if name in OUTSIDE else None)
    if place is None:
        raise PassError(
            f"the pass {name} has no position",
            "Options.passes",
            f"`{name} after canonicalize`, or Placed({pass_class.__name__}(), before=...)",
        )
    if made is None and "{" in str(given.step):
        made = _from_text(str(given.step))
    at, level = _position(steps, place)
    steps.insert(at, Inserted(level, pass_class, pass_class.REASON, made=made))


def _from_text(text: str) -> Pass:
    try:
        (made,) = PassPipeline.parse_spec(dict(factories()), text).passes
    except (ArgSpecParseError, ValueError, TypeError) as error:
        raise PassError(f"{text!r}: {error}", "Options.passes") from error
    assert isinstance(made, Pass)
    return made


def _position(steps: Sequence[Step], place: Place) -> tuple[int, str]:
    """The index of a place in the pipeline, and the level that the module has there."""
    name = current(place.name)
    found = [at for at, step in enumerate(steps) if step.pass_class.name == name]
    if not found:
        raise _no_pass(place.name)
    if place.is_before:
        return found[0], steps[found[0]].level
    after = found[-1] + 1
    level = steps[found[-1]].result
    while after < len(steps) and isinstance(steps[after], Inserted):
        if steps[after].pass_class.IS_LAST:
            break  # Passes after it would never run.
        after += 1  # Passes at the same position run in the order of the request.
    return after, level


def _no_pass(name: str, where: str = "Options.passes") -> PassError:
    close = closest(name, [*PASSES, *OUTSIDE])
    hint = f"did you mean {close!r}?" if close else "`popgraph passes` lists them"
    return PassError(f"there is no pass {name!r}", where, hint)


def planned(
    options: Options, first: str = ONNX, last: str = PROGRAM
) -> Iterator[tuple[Step, Pass]]:
    """The passes that these options request, in order, from level `first` to level `last`."""
    options = aimed(options)
    steps, disabled = pipeline_of(options), set(map(current, options.disabled))
    for name in sorted(disabled):
        _check_disabled(name, steps)
    for step in steps:
        if step.optional and step.pass_class.name in disabled:
            continue
        if LEVELS.index(step.level) < LEVELS.index(first):
            continue
        if LEVELS.index(step.result) > LEVELS.index(last):
            return
        made = step.make(options)
        if made is not None:
            yield step, made
            if made.IS_LAST:
                return


def _check_disabled(name: str, steps: Sequence[Step]) -> None:
    """Raises PassError if a pass is required, or if there is none with this name."""
    found = [step for step in steps if step.name == name]
    if not found and name not in OUTSIDE:
        raise _no_pass(name, "Options.disabled")
    if any(step.optional or isinstance(step, Inserted) for step in found) or not found:
        return
    need = next(unmet([step for step in steps if step.name != name]), None)
    reason = "results depend on it" if need is None else f"{need}, which only {name} gives"
    raise PassError(
        f"the pass {name} cannot be left out: {reason}",
        "Options.disabled",
        "`popgraph passes` marks optional passes with a star",
    )


def _refuse_level(lowering: Step, level: str) -> NoReturn:
    hint = ""
    if LEVELS.index(level) < LEVELS.index(lowering.level):
        (before,) = (one.name for one in PIPELINE if one.to == lowering.level)
        hint = f"run {before} first"
    raise PassError(
        f"{lowering.name} lowers the {lowering.level} level",
        f"the module is at the {level} level",
        hint,
    )


def check_needs(step: Pass, module: ModuleOp) -> None:
    """Raises PassError if a pass lowers another level, or if a module lacks a property it needs."""
    for one in PIPELINE:
        if one.to and one.name == step.name and level_of(module, one.level) != one.level:
            _refuse_level(one, level_of(module))
    for needed in step.NEEDS:
        breach = needed.breach(module)
        if breach is None:
            continue
        givers = [one for one in PIPELINE if needed in one.pass_class.GIVES]
        losers = [one.name for one in PIPELINE if needed in one.pass_class.LOSES]
        if losers and all(one.to for one in givers):  # It held until one of them ran.
            hint = f"run {step.name} before {' and '.join(losers)}"
        else:
            hint = f"run {' or '.join(one.name for one in givers)} first"
        raise PassError(f"{step.name} needs the property {needed} ({needed.about})", breach, hint)


def earlier(pass_class: type[Pass]) -> list[Step]:
    """The steps that run before a pass at its level."""
    places = [place for place, step in enumerate(PIPELINE) if step.pass_class is pass_class]
    level = PIPELINE[places[0]].level
    return [step for step in PIPELINE[: places[0]] if step.result == level]
