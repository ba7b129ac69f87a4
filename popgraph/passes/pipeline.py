"""In which order do the passes run, and why there?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from popgraph.passes.add_optimizer import AddOptimizer
from popgraph.passes.autodiff import Autodiff
from popgraph.passes.base import Pass
from popgraph.passes.canonicalize import Canonicalize
from popgraph.passes.cse import EliminateCommonSubexpressions
from popgraph.passes.dce import EliminateDeadCode
from popgraph.passes.expand import Expand
from popgraph.passes.fold_constants import FoldConstants
from popgraph.passes.fuse_elementwise import FuseElementwise
from popgraph.passes.fuse_epilogue import FuseEpilogue
from popgraph.passes.fuse_softmax_loss import FuseSoftmaxLoss
from popgraph.passes.graphcore_to_tile import GraphcoreToTile
from popgraph.passes.hoist_constants import HoistConstants
from popgraph.passes.infer_shapes import InferShapes
from popgraph.passes.normalize import Normalize
from popgraph.passes.onnx_to_graphcore import OnnxToGraphcore
from popgraph.passes.optimizer_spec import OptimizerSpec
from popgraph.passes.outline_kernels import OutlineKernels
from popgraph.passes.plan_memory import PlanMemory
from popgraph.passes.schedule_contractions import ScheduleContractions
from popgraph.passes.tile_loops import TileLoops


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
    disabled: frozenset[str] = frozenset()
    """Names of passes to leave out; only those marked optional can be."""


@dataclass(frozen=True)
class Step:
    """One line of the pipeline."""

    level: str
    """The level that it works on."""
    pass_class: type[Pass]
    make: Callable[[Options], Pass | None]
    """The pass for these options; None when it does not apply."""
    optional: bool = False
    """It makes programs faster or smaller, not possible."""
    to: str | None = None
    """The level that it lowers to."""

    @property
    def result(self) -> str:
        """The level that the module is at afterwards."""
        return self.to or self.level


def always(pass_class: type[Pass]) -> Callable[[Options], Pass | None]:
    return lambda options: pass_class()


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


def onnx_to_graphcore(options: Options) -> Pass:
    return OnnxToGraphcore(
        weights="variable" if options.variables or options.training else "constant",
        extra_outputs=options.extra_outputs,
        training=options.training is not None,
    )


def schedule_contractions(options: Options) -> Pass:
    return ScheduleContractions(options.vector_bytes, options.registers)


def tile_loops(options: Options) -> Pass:
    return TileLoops(options.vector_bytes)


LEVELS = ("onnx", "graphcore", "tile")
"""The levels, downwards."""

PIPELINE: tuple[Step, ...] = (
    # Every value has a concrete type from here on; lowering only asks, never guesses.
    Step("onnx", InferShapes, always(InferShapes)),
    # Functions and operators that ONNX itself defines by others are gone before lowering starts.
    Step("onnx", Normalize, always(Normalize)),
    Step("onnx", OnnxToGraphcore, onnx_to_graphcore, to="graphcore"),
    # First at this level: it wants the user's operators whole, softmax and all.
    Step("graphcore", Autodiff, autodiff),
    # Right after autodiff, whose gradients it consumes.
    Step("graphcore", AddOptimizer, add_optimizer),
    # The pair is recognised while both gradients are still whole.
    Step("graphcore", FuseSoftmaxLoss, always(FuseSoftmaxLoss), optional=True),
    # Constants first, so that the algebra sees numbers.
    Step("graphcore", FoldConstants, always(FoldConstants), optional=True),
    Step("graphcore", Canonicalize, always(Canonicalize), optional=True),
    # Every composite becomes kinds that the tile level knows.
    Step("graphcore", Expand, always(Expand)),
    # Expansion repeats itself (two softmaxes of one tensor) and leaves foldable ends.
    Step("graphcore", FoldConstants, always(FoldConstants), optional=True),
    Step("graphcore", Canonicalize, always(Canonicalize), optional=True),
    Step(
        "graphcore",
        EliminateCommonSubexpressions,
        always(EliminateCommonSubexpressions),
        optional=True,
    ),
    # What nobody reads must not become kernels.
    Step("graphcore", EliminateDeadCode, always(EliminateDeadCode), optional=True),
    Step("graphcore", GraphcoreToTile, always(GraphcoreToTile), to="tile"),
    # Before fuse-epilogue, which wants one map behind a contraction, not a chain.
    Step("tile", FuseElementwise, always(FuseElementwise), optional=True),
    Step("tile", FuseEpilogue, always(FuseEpilogue), optional=True),
    # After fusion: what is packed and how it is blocked depends on what was fused.
    Step("tile", ScheduleContractions, schedule_contractions, optional=True),
    # Packed weights are constants' business: once at load, not in every step.
    Step("tile", HoistConstants, always(HoistConstants), optional=True),
    # From here on a kernel is loops; nothing above needs to look into one.
    Step("tile", TileLoops, tile_loops),
    # Equal kernels become one function before memory makes every call different.
    Step("tile", OutlineKernels, always(OutlineKernels)),
    # Last: needs to know everything that is alive.
    Step("tile", PlanMemory, always(PlanMemory)),
)

PASSES: dict[str, type[Pass]] = {step.pass_class.name: step.pass_class for step in PIPELINE}
"""Every pass by name."""


def factories() -> dict[str, Callable[[], type[Pass]]]:
    """As xDSL's pipeline parser and universe want them."""

    def factory(pass_class: type[Pass]) -> Callable[[], type[Pass]]:
        return lambda: pass_class

    return {name: factory(pass_class) for name, pass_class in PASSES.items()}


def planned(options: Options) -> Iterator[tuple[Step, Pass]]:
    """The passes that these options ask for, in order."""
    for step in PIPELINE:
        if step.optional and step.pass_class.name in options.disabled:
            continue
        made = step.make(options)
        if made is not None:
            yield step, made
