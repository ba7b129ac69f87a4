"""Bisects the passes: finds the first one after which a model fails or computes other results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import ModuleOp

from popgraph import compiler
from popgraph.backends.reference import can_evaluate, evaluate, signature
from popgraph.backends.reference.meaning import assert_close, assert_same_meaning, random_inputs
from popgraph.backends.registry import DEFAULT, backend_named
from popgraph.dialects.levels import ONNX, PROGRAM, level_of
from popgraph.dialects.program import WeightStore
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.options import Options
from popgraph.passes.pipeline import planned
from popgraph.passes.reproducer import text_of
from popgraph.support.arrays import Array
from popgraph.support.errors import PopgraphError
from popgraph.support.index_checks import NEAREST

GENERATED_CODE = "the generated C"
C_TOLERANCE = 1e-4
"""Tolerance of results in C against the reference, relative to the largest value."""


@dataclass(frozen=True)
class State:
    """The module after a pass; `step` is None for the model as it was read."""

    step: Pass | None
    module: ModuleOp


@dataclass(frozen=True)
class Culprit:
    """The cause of a failure: a pass or the generated C, the symptom, and a reproducer."""

    name: str
    what: str
    reproducer: str = ""
    """The module before the pass, and the pass: a file for `popgraph opt`."""


def bisect(
    module: ModuleOp, compilation: Compilation, options: Options, *, seed: int = 0
) -> Culprit | None:
    """
    Finds the pass that breaks a model with static shapes; None if no pass does.

    Compares results for random inputs on the reference backend, which runs modules of every level.
    """
    compiler.verify(module)
    if level_of(module) == ONNX:
        compiler.check_static_form(module)
    states = [State(None, module.clone())]
    for _, step in planned(options, level_of(module)):
        try:
            step.run(compilation, module)
            module.verify()
        except PopgraphError:
            raise
        except Exception as error:
            return _failed(states[-1], step, error)
        states.append(State(step, module.clone()))
    for stretch in _stretches(states):
        found = _search(stretch, compilation.weights, seed)
        if found is not None:
            return found
    inputs = random_inputs(signature(states[0].module), seed)
    return _generated_code(states[-1].module, compilation.weights, inputs)


def _failed(last: State, step: Pass, error: Exception) -> Culprit:
    what = f"it fails: {type(error).__name__}: {error}"
    return Culprit(step.name, what, text_of(last.module, [step]))


def _stretches(states: Sequence[State]) -> list[list[State]]:
    """Splits the pipeline into runs of meaning-preserving passes whose modules can be evaluated."""
    made: list[list[State]] = []
    for state in states:
        if (
            state.step is None
            or not state.step.KEEPS_MEANING
            or not can_evaluate(made[-1][0].module)
        ):
            made.append([state])
        else:
            made[-1].append(state)
    return [stretch for stretch in made if can_evaluate(stretch[0].module)]


def _search(stretch: Sequence[State], weights: WeightStore, seed: int) -> Culprit | None:
    """Bisects a run of passes for the first one that changes results."""
    if _difference(stretch, len(stretch) - 1, weights, seed) is None:
        return None
    same, differs = 0, len(stretch) - 1
    while differs - same > 1:
        middle = (same + differs) // 2
        if _difference(stretch, middle, weights, seed) is None:
            same = middle
        else:
            differs = middle
    step = stretch[differs].step
    what = _difference(stretch, differs, weights, seed)
    assert step is not None and what is not None
    return Culprit(step.name, what, text_of(stretch[same].module, [step]))


def _difference(
    stretch: Sequence[State], place: int, weights: WeightStore, seed: int
) -> str | None:
    """The difference between the results at `place` and at the beginning, beyond the tolerance."""
    tolerance = sum(state.step.TOLERANCE for state in stretch[1 : place + 1] if state.step)
    try:
        assert_same_meaning(
            stretch[0].module, stretch[place].module, weights, tolerance=tolerance, seed=seed
        )
    except AssertionError as error:
        return _numpy_report(error)
    return None


def _generated_code(
    module: ModuleOp, weights: WeightStore, inputs: Mapping[str, Array]
) -> Culprit | None:
    if level_of(module) != PROGRAM:
        return None
    expected, _ = evaluate(module, inputs, weights)
    found = backend_named(DEFAULT).build(module.clone(), weights).run(inputs)
    try:
        for name, wanted in expected.items():
            assert_close(found[name], wanted, C_TOLERANCE, name)
    except AssertionError as error:
        return Culprit(GENERATED_CODE, _numpy_report(error), text_of(module, ()))
    return None


def _numpy_report(error: AssertionError) -> str:
    """NumPy's report in one line: the result that differs, and its largest difference."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    most = next((line for line in lines if line.startswith("Max absolute difference")), "")
    if not most or len(lines) < 2:
        return " ".join(lines) or "results differ"
    return f"{lines[1]} differs by up to {most.rpartition(':')[2].strip()}"


def options_here(options: Options, threads: int) -> Options:
    """Options for this machine without measured schedules; random indices stay in range."""
    wanted = compiler.for_this_machine(options, threads)
    return replace(wanted, measured=(), indices=wanted.indices or NEAREST)
