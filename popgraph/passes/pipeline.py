"""In which order do the passes run, and why there?"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from popgraph.dialects.levels import LEVELS, ONNX, PROGRAM
from popgraph.dialects.tile.structured.decisions import Decision
from popgraph.passes.base import Pass
from popgraph.passes.graphcore.canonicalize import Canonicalize
from popgraph.passes.graphcore.check_indices import CheckIndices
from popgraph.passes.graphcore.cse import EliminateCommonSubexpressions
from popgraph.passes.graphcore.dce import EliminateDeadCode
from popgraph.passes.graphcore.expand import Expand
from popgraph.passes.graphcore.fold_constants import FoldConstants
from popgraph.passes.graphcore.fuse_softmax_loss import FuseSoftmaxLoss
from popgraph.passes.graphcore.to_structured import GraphcoreToStructured
from popgraph.passes.graphcore.training.add_optimizer import AddOptimizer
from popgraph.passes.graphcore.training.autodiff import Autodiff
from popgraph.passes.graphcore.training.optimizer_spec import OptimizerSpec
from popgraph.passes.loops.outline_kernels import OutlineKernels
from popgraph.passes.onnx.infer_shapes import InferShapes
from popgraph.passes.onnx.normalize import Normalize
from popgraph.passes.onnx.to_graphcore import OnnxToGraphcore
from popgraph.passes.program.plan_memory import PlanMemory
from popgraph.passes.program.split_kernels import SplitKernels
from popgraph.passes.structured.fusion.fuse_attention import FuseAttention
from popgraph.passes.structured.fusion.fuse_channels import FuseChannels
from popgraph.passes.structured.fusion.fuse_elementwise import FuseElementwise
from popgraph.passes.structured.fusion.fuse_epilogue import FuseEpilogue
from popgraph.passes.structured.fusion.fuse_rows import FuseRows
from popgraph.passes.structured.hoist_constants import HoistConstants
from popgraph.passes.structured.layout.assign_halos import AssignHalos
from popgraph.passes.structured.layout.assign_layouts import AssignLayouts
from popgraph.passes.structured.move_updates import MoveUpdates
from popgraph.passes.structured.parallel.parallelize_loops import ParallelizeLoops
from popgraph.passes.structured.schedule.schedule_contractions import ScheduleContractions
from popgraph.passes.structured.to_loops import StructuredToLoops
from popgraph.passes.structured.winograd.use_winograd import UseWinograd
from popgraph.support.errors import PassError
from popgraph.support.index_checks import CHOICES, ERROR, NEAREST


@dataclass(frozen=True)
class Training:
    """What to train: the output to make small, and by which rule."""

    loss: str
    optimizer: OptimizerSpec
    gradients: tuple[str, ...] = ()
    """Tensors whose gradient is to be an output, named `Gradient___<tensor>`."""
    after_step: tuple[str, ...] = ()
    """Variables (weights, optimizer state, streamed scalars) that are to be outputs as well, as
    they are when the step has ended."""


@dataclass(frozen=True)
class Options:
    """What the user decides about a compilation."""

    training: Training | None = None
    variables: bool = False
    """Weights are variables that the host may write (always so in training)."""
    extra_outputs: tuple[str, ...] = ()
    """Inner tensors, inputs or weights that are to be outputs as well."""
    vector_bytes: int = 64
    registers: int = 32
    threads: int = 1
    """So many are to share the work (`compile(threads=...)` says it); any number gives the same."""
    winograd: bool = True
    """3x3 convolutions may be computed with fewer multiplications, which rounds differently."""
    schedules: tuple[str, ...] = ()
    """How contractions run: `WHICH -> WAY`, as in `dialects/tile/structured/decisions.py`."""
    measured: tuple[str, ...] | None = None
    """The same, followed where it fits; None: what `popgraph tune` found on this machine."""
    disabled: frozenset[str] = frozenset()
    """Names of passes to leave out; only those marked optional can be."""
    indices: str | None = None
    """What an index that data brings, and that is out of range, means: "nearest" or "error" (the
    run ends with an `IndicesError`); None: an error in training."""
    search: tuple[str, ...] = ()
    """Folders in which a `.pgraph` text looks for what it imports."""

    def __post_init__(self) -> None:
        if self.indices not in (None, *CHOICES):
            raise PassError(
                f"indices cannot be {self.indices!r}",
                "Options.indices",
                f"one of {', '.join(map(repr, CHOICES))}",
            )


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

    @property
    def result(self) -> str:
        """The level that the module is at afterwards."""
        return self.to or self.level

    def make(self, options: Options) -> Pass | None:
        """The pass for these options; None when it does not apply."""
        maker = MAKERS.get(self.pass_class)
        return maker(options) if maker else self.pass_class()


def autodiff(options: Options) -> Pass | None:
    training = options.training
    if training is None:
        return None
    return Autodiff.of(training.loss, training.optimizer, training.gradients)


def add_optimizer(options: Options) -> Pass | None:
    training = options.training
    if training is None:
        return None
    return AddOptimizer.of(training.optimizer, training.gradients, training.after_step)


def normalize(options: Options) -> Pass:
    return Normalize(options.indices or (NEAREST if options.training is None else ERROR))


def onnx_to_graphcore(options: Options) -> Pass:
    return OnnxToGraphcore(
        weights="variable" if options.variables or options.training else "constant",
        extra_outputs=options.extra_outputs,
        training=options.training is not None,
    )


def contraction_options(options: Options) -> tuple[int, int, tuple[str, ...], tuple[str, ...]]:
    """What passes that decide about contractions know of the machine, and of decisions."""
    return options.vector_bytes, options.registers, options.schedules, options.measured or ()


def use_winograd(options: Options) -> Pass | None:
    if options.winograd:
        return UseWinograd(*contraction_options(options), options.threads)
    for text in options.schedules:
        if Decision.of(text).way.size:
            raise PassError("a schedule asks for Winograd's transforms, which are off", text)
    return None


def schedule_contractions(options: Options) -> Pass:
    return ScheduleContractions(*contraction_options(options))


def share_loops(options: Options) -> Pass:
    return ParallelizeLoops(options.threads, options.vector_bytes)


def fuse_channels(options: Options) -> Pass:
    return FuseChannels(options.threads)


def tile_loops(options: Options) -> Pass:
    return StructuredToLoops(options.vector_bytes)


MAKERS: dict[type[Pass], Callable[[Options], Pass | None]] = {
    Normalize: normalize,
    OnnxToGraphcore: onnx_to_graphcore,
    Autodiff: autodiff,
    AddOptimizer: add_optimizer,
    UseWinograd: use_winograd,
    ScheduleContractions: schedule_contractions,
    ParallelizeLoops: share_loops,
    FuseChannels: fuse_channels,
    StructuredToLoops: tile_loops,
}
"""How passes that depend on options are made from them; the others take none."""

PIPELINE: tuple[Step, ...] = (
    Step("onnx", InferShapes, "every value gets a concrete type: lowering asks, never guesses"),
    Step("onnx", Normalize, "what ONNX itself defines by other operators is gone before lowering"),
    Step("onnx", OnnxToGraphcore, "from here on an operation has one meaning", to="graphcore"),
    Step("graphcore", Autodiff, "first: it wants the user's operators whole, softmax and all"),
    Step("graphcore", AddOptimizer, "right after autodiff, whose gradients it consumes"),
    Step("graphcore", FuseSoftmaxLoss, "while both gradients are still whole", optional=True),
    Step("graphcore", FoldConstants, "so that the algebra sees numbers", optional=True),
    Step("graphcore", Canonicalize, "before expand hides batch norms in arithmetic", optional=True),
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
        UseWinograd,
        "a convolution is one as long as nothing is packed",
        optional=True,
    ),
    Step("structured", FuseRows, "layouts are known, and maps as long as they get", optional=True),
    Step("structured", ScheduleContractions, "last decision about contractions", optional=True),
    Step(
        "structured", FuseAttention, "which rows run together depends on schedules", optional=True
    ),
    Step("structured", FuseChannels, "panels of channels are what schedules decide", optional=True),
    Step("structured", HoistConstants, "packing weights is work for load time", optional=True),
    Step(
        "structured", MoveUpdates, "when nothing is taken apart or joined any more", optional=True
    ),
    Step(
        "structured",
        ParallelizeLoops,
        "when all kernels are decided: each is to find what it reads near",
        optional=True,
    ),
    Step("structured", StructuredToLoops, "from here on nothing looks into a kernel", to="loops"),
    Step("loops", OutlineKernels, "before memory makes every call of a kernel different"),
    Step("loops", PlanMemory, "it needs to know everything that is alive", to="program"),
    Step(
        "program",
        SplitKernels,
        "calls are in order and results have memory: several may write one",
        optional=True,
    ),
)
"""The whole compiler between import and C; the third column is why a pass stands where it does."""

RENAMED: Mapping[str, str] = {
    "graphcore-to-tile": "graphcore-to-structured",
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


def factories() -> dict[str, Callable[[], type[Pass]]]:
    """As xDSL's pipeline parser and universe want them."""

    def factory(name: str) -> Callable[[], type[Pass]]:
        return lambda: PASSES[current(name)]

    return {name: factory(name) for name in (*PASSES, *RENAMED)}


def planned(
    options: Options, first: str = ONNX, last: str = PROGRAM
) -> Iterator[tuple[Step, Pass]]:
    """The passes that these options ask for, in order, from one level down to another."""
    disabled = set(map(current, options.disabled))
    for step in PIPELINE:
        if step.optional and step.pass_class.name in disabled:
            continue
        if LEVELS.index(step.level) < LEVELS.index(first):
            continue
        if LEVELS.index(step.result) > LEVELS.index(last):
            return
        made = step.make(options)
        if made is not None:
            yield step, made


def earlier(pass_class: type[Pass]) -> list[Step]:
    """What runs before a pass, at its level."""
    places = [place for place, step in enumerate(PIPELINE) if step.pass_class is pass_class]
    level = PIPELINE[places[0]].level
    return [step for step in PIPELINE[: places[0]] if step.result == level]
