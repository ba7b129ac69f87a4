"""The pipeline: all passes in the order in which they run, each with its reason."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.passes import PassPipeline
from xdsl.utils.exceptions import ArgSpecParseError

from popgraph.dialects.levels import LEVELS, ONNX, PROGRAM
from popgraph.passes.base import Pass
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
from popgraph.passes.graphcore.recompute import Recompute
from popgraph.passes.graphcore.return_appended import ReturnAppended
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
from popgraph.passes.loops.unroll_loops import UnrollLoops
from popgraph.passes.loops.vectorize_loops import VectorizeLoops
from popgraph.passes.onnx.evaluate_constants import EvaluateConstants
from popgraph.passes.onnx.infer_shapes import InferShapes
from popgraph.passes.onnx.normalize import Normalize
from popgraph.passes.onnx.select_known import SelectKnown
from popgraph.passes.onnx.share_nodes import ShareNodes
from popgraph.passes.onnx.to_graphcore import OnnxToGraphcore
from popgraph.passes.options import Options, Training
from popgraph.passes.outside import OUTSIDE, Place, outside_pass, placed
from popgraph.passes.program.hand_numbers import HandNumbers
from popgraph.passes.program.plan_memory import PlanMemory
from popgraph.passes.program.split_kernels import SplitKernels
from popgraph.passes.structured.bind_sizes import BindSizes
from popgraph.passes.structured.fusion.fuse_attention import FuseAttention
from popgraph.passes.structured.fusion.fuse_channels import FuseChannels
from popgraph.passes.structured.fusion.fuse_elementwise import FuseElementwise
from popgraph.passes.structured.fusion.fuse_epilogue import FuseEpilogue
from popgraph.passes.structured.fusion.fuse_rows import FuseRows
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
    "current",
    "earlier",
    "factories",
    "pass_named",
    "planned",
]


@dataclass(frozen=True)
class Step:
    """One line of the pipeline."""

    level: str
    """The level that it works on."""
    pass_class: type[Pass]
    reason: str
    """Why it stands here."""
    optional: bool = False
    """It makes programs faster or smaller, not possible."""
    to: str | None = None
    """The level that it lowers to."""
    settles: bool = False
    """It decides which nodes there are, and so what is a program: see `settle_nodes`."""

    @property
    def result(self) -> str:
        """The level that the module is at afterwards."""
        return self.to or self.level

    def make(self, options: Options) -> Pass | None:
        """The pass for these options; None when it does not apply."""
        return self.pass_class.of(options)


PIPELINE: tuple[Step, ...] = (
    Step(
        "onnx",
        EvaluateConstants,
        "first: what Python computes now, it need not when models run",
        settles=True,
    ),
    Step("onnx", SelectKnown, "once conditions made of constants are constants", settles=True),
    Step(
        "onnx",
        ShareNodes,
        "once a model: every program of it, for whatever shapes, has less to read",
        optional=True,
        settles=True,
    ),
    Step("onnx", InferShapes, "every value gets a concrete type: lowering asks, never guesses"),
    Step("onnx", Normalize, "what ONNX itself defines by other operators is gone before lowering"),
    Step("onnx", OnnxToGraphcore, "from here on an operation has one meaning", to="graphcore"),
    Step("graphcore", Autodiff, "first: it wants the user's operators whole, softmax and all"),
    Step("graphcore", Recompute, "as long as gradients and the way to the loss are told apart"),
    Step("graphcore", SpreadReplicas, "gradients are those of one replica until they are added"),
    Step("graphcore", AddOptimizer, "once gradients are those of all, which it consumes"),
    Step(
        "graphcore",
        BucketExchanges,
        "while nothing stands between a gradient and the message that it is part of",
        optional=True,
    ),
    Step("graphcore", FuseSoftmaxLoss, "while both gradients are still whole", optional=True),
    Step(
        "graphcore",
        ContractQuantized,
        "while quantized weights are integers, which folding makes floats of",
        optional=True,
    ),
    Step("graphcore", ScaleSums, "what is left of them, for the same reason", optional=True),
    Step("graphcore", FoldConstants, "so that the algebra sees numbers", optional=True),
    Step("graphcore", Canonicalize, "before expand hides batch norms in arithmetic", optional=True),
    Step("graphcore", ReturnAppended, "once nothing is between a cache and what is appended"),
    Step(
        "graphcore",
        RoundStochastically,
        "when formulas are what they will be, and an operator of the user still is one",
    ),
    Step("graphcore", RoundCheaply, "while to quantize is one operation", optional=True),
    Step("graphcore", Expand, "every composite becomes kinds that structured operations know"),
    Step("graphcore", FoldConstants, "expansion leaves foldable ends", optional=True),
    Step("graphcore", Canonicalize, "and algebra to do", optional=True),
    Step(
        "graphcore",
        EliminateCommonSubexpressions,
        "expansion repeats itself: two softmaxes of one tensor share their maximum",
        optional=True,
    ),
    Step("graphcore", EliminateDeadCode, "what nobody reads needs no kernel", optional=True),
    Step(
        "graphcore",
        SkipPadding,
        "gradients of convolutions are convolutions by now, and weights literals if they are known",
        optional=True,
    ),
    Step(
        "graphcore",
        FoldDepth,
        "once no tap that meets padding alone is left to be copied",
        optional=True,
    ),
    Step(
        "graphcore",
        ContractInWords,
        "when it is decided what is a literal, and how factors are made",
        optional=True,
    ),
    Step(
        "graphcore",
        ContractInFloats,
        "what the machine does not multiply faster as integers",
        optional=True,
    ),
    Step("graphcore", CheckIndices, "what is not computed in the end needs no check"),
    Step(
        "graphcore",
        GraphcoreToStructured,
        "from what to how: kinds become index maps",
        to="structured",
    ),
    Step("structured", FuseElementwise, "fuse-epilogue wants one map, not a chain", optional=True),
    Step(
        "structured", FuseEpilogue, "a schedule depends on what is done to the sums", optional=True
    ),
    Step(
        "structured", AssignLayouts, "a schedule depends on what stands side by side", optional=True
    ),
    Step(
        "structured", AssignHalos, "once axes have their order, rows have their ends", optional=True
    ),
    Step(
        "structured",
        SumInBlocks,
        "sums are parts of no rows yet, and have all their loops when ways to run them are listed",
        optional=True,
    ),
    Step(
        "structured",
        UseWinograd,
        "a convolution is one as long as nothing is packed",
        optional=True,
    ),
    Step("structured", FuseRows, "layouts are known, and maps as long as they get", optional=True),
    Step("structured", SettleLoops, "a schedule refers to loops by number", optional=True),
    Step("structured", ReadNarrow, "a schedule depends on what is read", optional=True),
    Step("structured", ScheduleContractions, "last decision about contractions", optional=True),
    Step(
        "structured", FuseAttention, "which rows run together depends on schedules", optional=True
    ),
    Step("structured", FuseChannels, "panels of channels are what schedules decide", optional=True),
    Step("structured", HoistInvariants, "schedules say what of loops is packed", optional=True),
    Step("structured", HoistConstants, "packing weights is work for load time", optional=True),
    Step(
        "structured", MoveUpdates, "when nothing is taken apart or joined any more", optional=True
    ),
    Step("structured", ViewWords, "what stands where does not change any more", optional=True),
    Step(
        "structured",
        BindSizes,
        "when no loop is joined or taken apart any more, and before threads share them",
    ),
    Step(
        "structured",
        ParallelizeLoops,
        "when all kernels are decided: each is to find what it reads near",
        optional=True,
    ),
    Step("structured", AlternateChunks, "when all kernels are decided", optional=True),
    Step(
        "structured",
        StructuredToLoops,
        "before memory makes every call of a kernel different",
        to="loops",
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
        "kernels say which of their loops are register tiles",
        optional=True,
    ),
    Step(
        "loops",
        PrefetchPanels,
        "every load is written out, so that each line is requested once",
        optional=True,
    ),
    Step("loops", PlanMemory, "it needs to know everything that is alive", to="program"),
    Step(
        "program",
        SplitKernels,
        "calls are in order and results have memory: several may write one",
        optional=True,
    ),
    Step("program", HandNumbers, "which functions there are is decided", optional=True),
)
"""The whole compiler between import and C; the third column is why a pass stands where it does."""

RENAMED: Mapping[str, str] = {
    "graphcore-to-tile": "graphcore-to-structured",
    "outline-kernels": "structured-to-loops",
    "share-loops": "parallelize-loops",
    "tile-loops": "structured-to-loops",
}
"""Names that passes had before: they are understood for one version, with a warning."""

PASSES: dict[str, type[Pass]] = {step.pass_class.name: step.pass_class for step in PIPELINE}
"""Every pass by name."""


def current(name: str) -> str:
    """The name of a pass as it is now."""
    if name not in RENAMED:
        return name
    warnings.warn(f"the pass {name} is now {RENAMED[name]}", FutureWarning, stacklevel=2)
    return RENAMED[name]


def pass_named(name: str) -> type[Pass] | None:
    """The pass of a name, PopGraph's own or from outside; None if there is none."""
    return PASSES.get(current(name)) or outside_pass(name)


def factories() -> dict[str, Callable[[], type[Pass]]]:
    """As xDSL's pipeline parser and universe want them; those from outside once they are loaded."""

    def factory(name: str) -> Callable[[], type[Pass]]:
        return lambda: PASSES[current(name)]

    own = {name: factory(name) for name in (*PASSES, *RENAMED)}

    def outside(name: str) -> Callable[[], type[Pass]]:
        return lambda: OUTSIDE[name][0]

    return own | {name: outside(name) for name in OUTSIDE}


@dataclass(frozen=True)
class Inserted(Step):
    """A line that `Options.passes` asks for."""

    made: Pass | None = None

    def make(self, options: Options) -> Pass | None:
        return self.made or self.pass_class.of(options)


def pipeline_of(options: Options) -> Sequence[Step]:
    """The pipeline with the passes from outside that options ask for, each in its place."""
    steps = list(PIPELINE)
    for wanted in options.passes:
        _insert(steps, wanted)
    return steps


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
            f"nobody says where {name} is to run",
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
    """Where in the pipeline a place is, and the level that the module has there."""
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
            break  # Passes that follow it never run.
        after += 1  # Of several in one place, the first that is asked for runs first.
    return after, level


def _no_pass(name: str) -> PassError:
    close = closest(name, [*PASSES, *OUTSIDE])
    hint = f"did you mean {close!r}?" if close else "`popgraph passes` lists them"
    return PassError(f"there is no pass {name!r}", "Options.passes", hint)


def planned(
    options: Options, first: str = ONNX, last: str = PROGRAM
) -> Iterator[tuple[Step, Pass]]:
    """The passes that these options ask for, in order, from one level down to another."""
    disabled = set(map(current, options.disabled))
    for step in pipeline_of(options):
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


def earlier(pass_class: type[Pass]) -> list[Step]:
    """What runs before a pass, at its level."""
    places = [place for place, step in enumerate(PIPELINE) if step.pass_class is pass_class]
    level = PIPELINE[places[0]].level
    return [step for step in PIPELINE[: places[0]] if step.result == level]
