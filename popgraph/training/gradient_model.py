"""`popgraph.onnx_gradient`: the gradients of a model, or a training step, as an ONNX model."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from popgraph.builder.onnx.write import Proto, export_model
from popgraph.builder.pgraph.check.loss_table import loss_named
from popgraph.compiler import Model, lower
from popgraph.compiler.sizes import specialise
from popgraph.dialects.onnx import model_of
from popgraph.dialects.onnx.weight_names import weights_by_name
from popgraph.engine.plan import StepPlan
from popgraph.passes.analysis.graph import only_graph, set_outputs
from popgraph.passes.base import LOWERING, Compilation
from popgraph.passes.graphcore.canonicalize import Canonicalize
from popgraph.passes.graphcore.cse import EliminateCommonSubexpressions
from popgraph.passes.graphcore.dce import EliminateDeadCode
from popgraph.passes.graphcore.fold_constants import FoldConstants
from popgraph.passes.graphcore.to_onnx import expansion, graphcore_to_onnx
from popgraph.passes.graphcore.training.add_optimizer import AddOptimizer
from popgraph.passes.graphcore.training.autodiff import Autodiff
from popgraph.passes.options import GRADIENT, Options
from popgraph.support import dtypes
from popgraph.support.argument_types import check_types
from popgraph.support.arrays import Array
from popgraph.support.errors import ModelError
from popgraph.support.names import closest
from popgraph.support.spelling import setting
from popgraph.training.problem import Optimizer, TrainingArguments, TrainingProblem
from popgraph.training.selection import WeightPatterns

ANY_RULE = "SGD(0.1)"
"""A training has an optimizer, also where only its gradients are exported."""


@check_types()
def onnx_gradient(
    model: Model,
    loss: str | None = None,
    *,
    wrt: Sequence[str] | str | None = None,
    optimizer: Optimizer = None,
    inputs: Mapping[str, Array | str] | None = None,
    sizes: Mapping[str, int] | None = None,
    values: Mapping[str, Array] | None = None,
    prediction: str | None = None,
    freeze: Sequence[str] | str = (),
    train_only: Sequence[str] | str = (),
    straight_through: bool = False,
    dropout: bool = True,
) -> Proto:
    """
    The forward and backward pass of a model as a model of standard ONNX operators.

    `loss` is a value of the model, an expression such as `nll(y, labels)`, or a loss by name.
    `inputs` are the inputs that it adds, such as the labels: an array of that type, or a text such
    as `i64[32]`. `sizes` sets symbolic dimensions and `values` inputs that decide shapes.

    The result has the outputs of the model, the loss, and `Gradient___x` for each name in `wrt`:
    inputs, weights or inner values; by default the weights that `Trainer` would train. These
    weights are inputs as well, with their values in the model as the default.

    With an `optimizer`, such as `Adam(0.001)`, the result is a training step: each weight and each
    state of the optimizer is an input with a default, and `UpdatedVar___w` is its next value.
    """
    module, compilation = gradient_module(
        model,
        TrainingArguments(
            loss,
            optimizer,
            patterns=WeightPatterns.of(freeze, train_only),
            prediction=prediction,
        ),
        Request(
            None if wrt is None else (wrt,) if isinstance(wrt, str) else tuple(wrt),
            {name: _example(name, one, sizes or {}) for name, one in (inputs or {}).items()},
            sizes or {},
            values or {},
            straight_through,
            dropout,
        ),
    )
    return export_model(module, compilation.weights)


@dataclass(frozen=True)
class Request:
    """The arguments of an export that a training does not have."""

    wrt: tuple[str, ...] | None
    examples: Mapping[str, Array]
    """Arrays of the inputs that the loss adds."""
    sizes: Mapping[str, int]
    values: Mapping[str, Array]
    straight_through: bool = False
    dropout: bool = True


def gradient_module(
    model: Model, arguments: TrainingArguments, request: Request
) -> tuple[ModuleOp, Compilation]:
    """The module of the onnx level that `onnx_gradient` exports, and its weights."""
    is_step = arguments.optimizer is not None
    chosen = arguments if is_step else replace(arguments, optimizer=ANY_RULE)
    problem = TrainingProblem(model, chosen)
    if not request.examples:
        _check_target(arguments.loss, problem)
    task = problem.task(request.examples, StepPlan())
    module, compilation = task.module.clone(), Compilation(task.weights)
    specialise(module, compilation, request.sizes, values=request.values)
    kept = [*model_of(module).graph.output_names]
    wanted = request.wrt
    if wanted is None and not is_step:
        wanted = task.selection.trained
        if not wanted:
            raise ModelError(
                "the model has no weight to differentiate by",
                problem.where,
                f"name inputs or weights, {setting('wrt', next(iter(problem.inputs), 'x'))}",
            )
    check_names(module, wanted or (), problem.where)
    training = replace(task.training, gradients=tuple(wanted or ()))
    options = Options(
        training=training,
        extra_outputs=tuple(name for name in wanted or () if name not in kept),
        straight_through=request.straight_through,
        dropout=request.dropout,
    )
    last = AddOptimizer.name if is_step else Autodiff.name
    lower(module, compilation, options, level="graphcore", until=last)
    gradients = [GRADIENT + name for name in wanted or ()]
    with LOWERING:
        _keep_outputs(module, [*dict.fromkeys((*kept, task.loss, *gradients))])
        simplify(module, compilation, options)
        differentiated = () if wanted is None else wanted
        return graphcore_to_onnx(module, compilation.weights, differentiated), compilation


def _check_target(loss: str | None, problem: TrainingProblem) -> None:
    """ModelError for a loss by name that needs labels, where no input is declared for them."""
    named = None if loss is None else loss_named(loss)
    outputs = model_of(problem.module).graph.output_names
    if named is None or not named.takes_target or loss in outputs:
        return
    labels, kind = named.target_name, "i64[32]" if named.takes_classes else "f32[32]"
    raise ModelError(
        f"the loss {loss!r} compares the output with {labels}, which is not an input of the model",
        problem.where,
        f"declare it by its type: inputs={{{labels!r}: {kind!r}}}, or --input {labels}={kind}",
    )


def check_names(module: ModuleOp, names: Collection[str], where: str) -> None:
    """ModelError for a name that no value of the model has."""
    graph = model_of(module).graph
    own = [*graph.input_names, *weights_by_name(graph)]
    known = {*own, *(name for op in graph.nodes for name in op.output_names)}
    listed = ", ".join(own[:8]) + ", ..." * (len(own) > 8)
    for name in names:
        if name not in known:
            close = closest(name, known, 0.5)
            raise ModelError(
                f"the model has no value {name!r} to differentiate by",
                where,
                f"did you mean {close!r}?" if close else f"its inputs and weights are {listed}",
            )


def _keep_outputs(module: ModuleOp, names: Sequence[str]) -> None:
    """Drops other outputs: values requested for the gradients, and gradients of other weights."""
    graph = only_graph(module)
    outputs = graph.outputs
    set_outputs(graph, {name: outputs[name] for name in names if name in outputs})


def simplify(module: ModuleOp, compilation: Compilation, options: Options) -> None:
    """Expands composites without an ONNX form, and removes what need not be computed."""
    for step in (
        FoldConstants(),
        Canonicalize.of(options),
        expansion(),
        FoldConstants(),
        Canonicalize.of(options),
        EliminateCommonSubexpressions(),
        EliminateDeadCode(),
    ):
        assert step is not None
        step.run(compilation, module)


_TYPE = re.compile(r"\s*(\w+)\s*(?:\[([\w\s,]*)\])?\s*")


def _example(name: str, given: Array | str, sizes: Mapping[str, int]) -> Array:
    """An array of a type such as `i64[32]` or `f32[N, 10]`."""
    if not isinstance(given, str):
        return np.asarray(given)
    found = _TYPE.fullmatch(given)
    dtype = dtypes.BY_NAME.get(found[1]) if found else None
    if found is None or dtype is None:
        raise ModelError(f"{given!r} is not a type", f"input {name!r}", "'i64[32]', for example")
    dims = [dim.strip() for dim in (found[2] or "").split(",") if dim.strip()]
    for dim in dims:
        if not dim.isdigit() and dim not in sizes:
            raise ModelError(
                f"the size of {dim!r} is unknown", f"input {name!r}", f"give one: {dim}=32"
            )
    shape = [int(dim) if dim.isdigit() else sizes[dim] for dim in dims]
    return np.zeros(shape, dtype.numpy)
