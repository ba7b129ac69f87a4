"""Derivatives of a model, for `popgraph.onnx_vjp`, `popgraph.onnx_jvp` and exports as C."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Attribute

from popgraph.builder.onnx.write import Proto, export_model
from popgraph.compiler import Model, load, lower
from popgraph.compiler.sizes import specialise
from popgraph.dialects import element_types
from popgraph.dialects.levels import ONNX, level_of
from popgraph.dialects.onnx import model_of
from popgraph.dialects.onnx.containers import input_types
from popgraph.passes.analysis.graph import only_graph, set_outputs
from popgraph.passes.base import LOWERING, Compilation
from popgraph.passes.graphcore.jacobian_products import add_hvp, add_jvp, add_vjp
from popgraph.passes.graphcore.jacobians import add_jacobian
from popgraph.passes.graphcore.to_onnx import graphcore_to_onnx
from popgraph.passes.onnx.to_graphcore import OnnxToGraphcore
from popgraph.passes.options import Options
from popgraph.support.argument_types import check_types
from popgraph.support.arrays import Array
from popgraph.support.derivatives import GRADIENT, TANGENT
from popgraph.support.errors import ModelError
from popgraph.support.names import closest
from popgraph.support.spelling import setting
from popgraph.training.gradient_model import check_names, simplify

Adder: TypeAlias = Callable[[ModuleOp, Compilation, Sequence[str], Sequence[str]], None]
"""Adds the derivatives of outputs by other values, both given by name, to a graph."""


@dataclass(frozen=True)
class Derivative:
    """A derivative of a model that is exported as a function."""

    function: str
    """The name of the function, after the model's prefix."""
    about: str
    """One sentence on its results."""
    add: Adder


DERIVATIVES: Mapping[str, Derivative] = {
    "jvp": Derivative(
        "jvp", "Computes Tangent___y = sum over x of dy/dx Tangent___x, in forward mode.", add_jvp
    ),
    "vjp": Derivative(
        "vjp",
        "Computes Gradient___x = sum over y of (dy/dx)^T Gradient___y, in reverse mode.",
        add_vjp,
    ),
    "jacobian": Derivative(
        "jacobian", "Computes Jacobian___y___x = dy/dx, in rows of elements of y.", add_jacobian
    ),
    "hessian-vector": Derivative(
        "hvp",
        "Computes the gradient of y (weighted by Gradient___y), and its product with the Hessian.",
        add_hvp,
    ),
}
"""The derivatives of a model, by the names that `popgraph export --derivatives` takes."""


@check_types()
def onnx_vjp(
    model: Model,
    wrt: Sequence[str] | str | None = None,
    *,
    outputs: Sequence[str] | str | None = None,
    sizes: Mapping[str, int] | None = None,
    values: Mapping[str, Array] | None = None,
    straight_through: bool = False,
) -> Proto:
    """
    The vector-Jacobian product of a model (reverse mode) as a model of standard ONNX operators.

    `wrt` names inputs, weights or inner values, by default all float inputs; `outputs` the outputs
    to differentiate, by default all float outputs. The result has an additional input
    `Gradient___y` for each such output, and an output `Gradient___x` for each name in `wrt`:
    `Gradient___x = sum over y of (dy/dx)^T Gradient___y`. Its other outputs are those of the model.

    `sizes`, `values` and `straight_through` are as in `onnx_gradient`.
    """
    return _exported(add_vjp, model, wrt, outputs, sizes, values, straight_through)


@check_types()
def onnx_jvp(
    model: Model,
    wrt: Sequence[str] | str | None = None,
    *,
    outputs: Sequence[str] | str | None = None,
    sizes: Mapping[str, int] | None = None,
    values: Mapping[str, Array] | None = None,
    straight_through: bool = False,
) -> Proto:
    """
    The Jacobian-vector product of a model (forward mode) as a model of standard ONNX operators.

    `wrt` and `outputs` are as in `onnx_vjp`. The result has an additional input `Tangent___x` for
    each name in `wrt`, and an output `Tangent___y` for each output that is differentiated:
    `Tangent___y = sum over x of (dy/dx) Tangent___x`. Its other outputs are those of the model.

    `sizes`, `values` and `straight_through` are as in `onnx_gradient`.
    """
    return _exported(add_jvp, model, wrt, outputs, sizes, values, straight_through)


def _exported(
    add: Adder,
    model: Model,
    wrt: Sequence[str] | str | None,
    outputs: Sequence[str] | str | None,
    sizes: Mapping[str, int] | None,
    values: Mapping[str, Array] | None,
    straight_through: bool,
) -> Proto:
    """The ONNX model of a model with a product."""
    module, compilation = load(model)
    specialise(module, compilation, sizes or {}, values=values)
    options = Options(variables=True, straight_through=straight_through)
    by = _lower_with(add, module, compilation, options, wrt, outputs)
    with LOWERING:
        simplify(module, compilation, options)
        made = graphcore_to_onnx(module, compilation.weights, by)
        return export_model(made, compilation.weights)


def add_derivative(
    kind: str,
    module: ModuleOp,
    compilation: Compilation,
    options: Options,
    wrt: Sequence[str] = (),
    outputs: Sequence[str] = (),
) -> None:
    """
    Lowers an onnx-level module to the graphcore level and adds a derivative, one of `DERIVATIVES`.

    `wrt` lists inputs and `outputs` outputs, by default all float ones.
    """
    if level_of(module) != ONNX:
        raise ModelError(
            f"a module of the {level_of(module)} level cannot be differentiated",
            hint="derivatives are those of models: .onnx, .pgraph, and .mlir of the onnx level",
        )
    inputs = input_types(module)
    for name in wrt:
        if name not in _floats(inputs):
            close = closest(name, inputs, 0.5)
            raise ModelError(
                f"the model has no float input {name!r} to differentiate by",
                setting("wrt", name),
                f"did you mean {close!r}?" if close else f"it has {', '.join(inputs)}",
            )
    _lower_with(DERIVATIVES[kind].add, module, compilation, options, wrt or None, outputs or None)


def _lower_with(
    add: Adder,
    module: ModuleOp,
    compilation: Compilation,
    options: Options,
    wrt: Sequence[str] | str | None,
    outputs: Sequence[str] | str | None,
) -> tuple[str, ...]:
    """Lowers an onnx-level module to graphcore with a derivative; returns the names in `wrt`."""
    graph = model_of(module).graph
    results = {
        name: value.type for name, value in zip(graph.output_names, graph.yielded, strict=True)
    }
    by = _chosen("wrt", wrt, _floats(input_types(module)), "float input")
    of = _chosen("outputs", outputs, _floats(results), "float output")
    check_names(module, by, setting("wrt", by[0]))
    for name in of:
        _check_output(name, results)
    for name in (prefix + one for prefix in (GRADIENT, TANGENT) for one in (*by, *of)):
        if name in results or name in graph.input_names:
            raise ModelError(
                f"the model has a tensor {name!r}, the name of a derivative",
                hint="give it another name",
            )
    inner = tuple(name for name in by if name not in results)
    lower(module, compilation, replace(options, extra_outputs=inner), until=OnnxToGraphcore.name)
    with LOWERING:
        add(module, compilation, by, of)
        lowered = only_graph(module)
        left = {name: value for name, value in lowered.outputs.items() if name not in inner}
        set_outputs(lowered, left)
    return by


def _check_output(name: str, results: Mapping[str, Attribute]) -> None:
    """ModelError unless the model has a float output of this name."""
    if name not in results:
        close = closest(name, results, 0.5)
        raise ModelError(
            f"the model has no output {name!r}",
            setting("outputs", name, option="of"),
            f"did you mean {close!r}?" if close else f"it has {', '.join(results)}",
        )
    if name not in _floats(results):
        raise ModelError(
            f"the output {name!r} is not a float tensor: {results[name]}",
            setting("outputs", name, option="of"),
        )


def _floats(types: Mapping[str, Attribute]) -> list[str]:
    """The names of the float tensors."""
    return [
        name
        for name, type_ in types.items()
        if isinstance(type_, TensorType) and element_types.from_ir(type_.element_type).is_float
    ]


def _chosen(
    argument: str, given: Sequence[str] | str | None, floats: Sequence[str], what: str
) -> tuple[str, ...]:
    """The names that an argument gives; by default all floats."""
    if isinstance(given, str):
        return (given,)
    found = tuple(floats if given is None else given)
    if not found:
        raise ModelError(
            f"the model has no {what} to differentiate",
            hint=setting(argument, "x", option={"outputs": "of"}.get(argument, "")),
        )
    return found
