"""The contractions of a model before scheduling, and the candidate schedules of each."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from popgraph import compiler
from popgraph.dialects.levels import level_of
from popgraph.dialects.tile.structured.schedule_override import Override
from popgraph.passes.base import Compilation
from popgraph.passes.options import Options
from popgraph.passes.pipeline import earlier
from popgraph.passes.structured.alternatives import ContractionCandidates, contraction_candidates
from popgraph.passes.structured.schedule.read_narrow import ReadNarrow
from popgraph.passes.structured.schedule.settle_loops import SettleLoops
from popgraph.passes.structured.winograd.use_winograd import UseWinograd


def before_scheduling(module: ModuleOp, compilation: Compilation, options: Options) -> ModuleOp:
    """Lowers a module, in place, up to the point before contractions are scheduled."""
    if level_of(module) in ("onnx", "graphcore"):
        compiler.lower(module, compilation, options, until=last_before_scheduling(options))
    return module


def last_before_scheduling(options: Options) -> str:
    """The last pass before contractions are scheduled."""
    names = [step.pass_class.name for step in earlier(UseWinograd)]
    return [name for name in names if name not in options.disabled][-1]


def contraction_candidates_of(module: ModuleOp, options: Options) -> list[ContractionCandidates]:
    """The contractions of a module before scheduling, each with its chosen schedule first."""
    found = contraction_candidates(
        module.clone(),
        options.target,
        winograd=options.winograd,
        settle=SettleLoops.name not in options.disabled,
        narrow=ReadNarrow.name not in options.disabled,
    )
    measured = {one.which: one.spec for one in map(Override.of, options.measured or ())}
    for each in found:
        costs = dict(each.specs)
        spec = measured.get(each.text)
        if spec in costs:
            each.specs.remove((spec, costs[spec]))
            each.specs.insert(0, (spec, costs[spec]))
    return found
