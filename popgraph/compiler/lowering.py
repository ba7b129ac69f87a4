"""Runs the passes that lower a module from its level to another one."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import VerifyException

from popgraph.backends.reference import can_evaluate, signature
from popgraph.backends.reference.meaning import assert_same_meaning
from popgraph.dialects.levels import ONNX, PROGRAM, check_level, level_of
from popgraph.dialects.onnx.containers import model_of
from popgraph.dialects.onnx.op import OnnxOp
from popgraph.dialects.onnx.weight_names import weights_by_name
from popgraph.dialects.program import WeightStore
from popgraph.passes.base import LOWERING, Compilation, Pass
from popgraph.passes.observer import Observer
from popgraph.passes.onnx.infer_shapes import infer_shapes
from popgraph.passes.onnx.partition import host_nodes, is_bounded
from popgraph.passes.onnx.structural_inputs import check_gradients
from popgraph.passes.options import Options
from popgraph.passes.order import check_promises
from popgraph.passes.pipeline import check_needs, current, planned
from popgraph.passes.reproducer import note_failure
from popgraph.support.errors import (
    ModelError,
    NeedsHostError,
    PassError,
    UnsupportedError,
)


def verify(module: ModuleOp) -> None:
    """ModelError unless every operation satisfies the rules of its dialect."""
    try:
        module.verify()
    except (VerifyException, ValueError) as error:
        raise ModelError(
            f"the model violates a rule of its operators: {_cause_of(error)}",
            _place_of(module),
            "`popgraph print --at onnx` shows what was read",
        ) from error


def _cause_of(error: BaseException) -> str:
    """The message of the innermost verifier; outer ones repeat it with the whole text."""
    while isinstance(error.__cause__, VerifyException):
        error = error.__cause__
    return str(error).strip().splitlines()[-1]


def _place_of(module: ModuleOp) -> str:
    """The first operation that fails to verify on its own, for messages."""
    for op in module.walk():
        try:
            op.verify(verify_nested_ops=False)
        except (VerifyException, ValueError):
            return op.where() if isinstance(op, OnnxOp) else op.name
    return ""


def same_meaning(step: Pass, before: ModuleOp, after: ModuleOp, weights: WeightStore) -> None:
    """The check that POPGRAPH_CHECK runs after every pass: its promises and the results."""
    check_promises(step, before, after)
    # Steps that settle nodes also run while sizes are unknown.
    is_static = all(type_.has_static_shape() for type_ in signature(before).values())
    if step.KEEPS_MEANING and is_static and can_evaluate(before):
        assert_same_meaning(before, after, weights, tolerance=step.TOLERANCE)


def lower(
    module: ModuleOp,
    compilation: Compilation,
    options: Options | None = None,
    *,
    level: str = PROGRAM,
    until: str | None = None,
    observer: Observer | None = None,
    settled: bool = False,
) -> ModuleOp:
    """
    Lowers `module`, which must verify, in place from its own level to the end of `level`.

    `settled` says that `settle_nodes` has already run. `until` names the last pass to run
    instead of a level. The environment's debug settings (see `support/debug.py`) apply unless an
    `observer` is given.
    """
    verify(module)
    chosen = options or Options()
    if level_of(module) == ONNX:
        weights_by_name(model_of(module).graph)  # as long as all of them are there
        if not settled:
            _check_gradients(module, compilation, chosen)
    observer = observer or Observer.from_environment(same_meaning)
    until = until or observer.stop_after
    until = None if until is None else current(until)
    steps = [
        (step, made)
        for step, made in planned(chosen, level_of(module), level)
        if not (settled and step.settles)
    ]
    if until is not None and until not in {made.name for _, made in steps}:
        raise PassError(
            f"the pass {until!r} is not in this pipeline", hint="`popgraph passes` lists them"
        )
    original: ModuleOp | None = None  # The module as it is when its nodes are settled.
    try:
        with LOWERING:
            for step, made in steps:
                if original is None and not step.settles:
                    original = module.clone()
                if step.level == ONNX and step.to is not None:
                    check_static_form(module, trained=chosen.training is not None)
                if observer.checks is not None:
                    check_needs(made, module)
                with observer.watching(made, module, compilation.weights):
                    made.run(compilation, module)
                if step.to is not None:
                    check_level(module, step.to)
                if made.name == until:
                    break
    except Exception as error:
        passes = [made for _, made in steps]
        if original is not None:
            note_failure(error, original, passes, compilation, observer.checks)
        if isinstance(error, NeedsHostError):
            error.model = original
        raise
    return module


def settle_nodes(module: ModuleOp, compilation: Compilation, options: Options) -> None:
    """
    Runs the first passes of the pipeline alone, which leaves fewer nodes to Python.

    Whether the model is one program, or several with host steps, depends on the remaining nodes. So
    this runs before the pipeline, and while sizes may still be unknown.
    """
    _check_gradients(module, compilation, options)
    observer = Observer.from_environment(same_meaning)
    with LOWERING:
        for step, made in planned(options, ONNX, ONNX):
            if step.settles:
                with observer.watching(made, module, compilation.weights):
                    made.run(compilation, module)


def _check_gradients(module: ModuleOp, compilation: Compilation, options: Options) -> None:
    """Rejects gradients of tensors that operators read as constants, before these are folded."""
    if options.training is None or not options.training.gradients:
        return
    if any(op.op_type == "If" for op in module.walk() if isinstance(op, OnnxOp)):
        # Branches of equal types decide no structure, but types inside graphs may be unknown yet.
        infer_shapes(module, compilation.weights)
    check_gradients(module, compilation.weights, options.training.gradients)


def check_static_form(module: ModuleOp, *, trained: bool = False) -> None:
    """UnsupportedError if Python computes nodes of the model, which have no form below onnx."""
    for op in host_nodes(module, trained=trained):
        what = f"{op.op_type} is computed by Python and has no form below the onnx level"
        if is_bounded(op):
            what = (
                f"the output size of {op.op_type} depends on data: this model is several programs, "
                "and has no single form below the onnx level"
            )
        raise UnsupportedError(
            what,
            op.where(),
            "`popgraph run` and popgraph.compile run such models, `popgraph print` and "
            "`popgraph profile` show their steps",
        )
