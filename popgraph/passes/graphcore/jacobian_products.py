"""
Products with the Jacobian J and the Hessian of a graph, by the reverse mode alone.

J^T u is the gradient of <u, f>, J v the gradient of <J^T u, v> with respect to u.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import BlockArgument, SSAValue
from xdsl.rewriter import InsertPoint

from popgraph.dialects.graphcore import AddOp, MulOp, ReduceSumOp
from popgraph.dialects.graphcore.base import shape_of
from popgraph.dialects.locations import origin
from popgraph.dialects.program import GraphOp
from popgraph.dialects.program.ops import names_attribute
from popgraph.passes.analysis.graph import only_graph, set_outputs
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore.dce import EliminateDeadCode
from popgraph.passes.graphcore.training.autodiff import Autodiff
from popgraph.passes.graphcore.training.reverse_mode import zeros
from popgraph.support.derivatives import GRADIENT, TANGENT
from popgraph.support.errors import DifferentiationError
from popgraph.support.shapes import prod

SLOPE = "Slope___"
"""Prefix of a gradient while it is differentiated."""
PAIRING = "Pairing___"
"""The name of an inner product while it is differentiated."""


def add_vjp(
    module: ModuleOp, compilation: Compilation, wrt: Sequence[str], outputs: Sequence[str]
) -> None:
    """
    y = f(x)  ->  y, Gradient___x = J^T Gradient___y.

    `Gradient___y` is a new input for each of `outputs`, `Gradient___x` an output for each of `wrt`.
    """
    graph = only_graph(module)
    kept = [*graph.outputs]
    found = _gradients(module, compilation, wrt, outputs)
    set_outputs(graph, {name: graph.outputs[name] for name in kept} | found)
    EliminateDeadCode().run(compilation, module)


def add_jvp(
    module: ModuleOp, compilation: Compilation, wrt: Sequence[str], outputs: Sequence[str]
) -> None:
    """
    y = f(x)  ->  y, Tangent___y = J Tangent___x.

    `Tangent___x` is a new input for each of `wrt`, `Tangent___y` an output for each of `outputs`.
    """
    _check_reached(wrt, _add_tangents(module, compilation, wrt, outputs))


def add_hvp(
    module: ModuleOp, compilation: Compilation, wrt: Sequence[str], outputs: Sequence[str]
) -> None:
    """
    y = f(x)  ->  y, Gradient___x = g, Tangent___Gradient___x = dg/dx Tangent___x.

    g is the gradient of <Gradient___y, y>, where `Gradient___y` is a new input for each of
    `outputs`. For one output with a single element it is the gradient of y, without that input.
    A gradient that is constant, as of a linear y, has the tangent 0.
    """
    graph = only_graph(module)
    kept = [*graph.outputs]
    if len(outputs) == 1 and prod(shape_of(graph.outputs[outputs[0]])) == 1:
        Autodiff(outputs[0], wrt=tuple(wrt)).run(compilation, module)
        _check_reached(wrt, _reached(wrt, graph.outputs))
        found = {GRADIENT + name: graph.outputs[GRADIENT + name] for name in wrt}
    else:
        found = _gradients(module, compilation, wrt, outputs)
    # Under another name, as the gradients of the gradients have these.
    values = {name: graph.outputs[name] for name in kept}
    set_outputs(graph, values | {SLOPE + name: found[GRADIENT + name] for name in wrt})
    _add_tangents(module, compilation, wrt, [SLOPE + name for name in wrt])
    left = graph.outputs
    made = {name: left[name] for name in kept}
    made |= {GRADIENT + name: left[SLOPE + name] for name in wrt}
    made |= {TANGENT + GRADIENT + name: left[TANGENT + SLOPE + name] for name in wrt}
    set_outputs(graph, made)


def _add_tangents(
    module: ModuleOp, compilation: Compilation, wrt: Sequence[str], outputs: Sequence[str]
) -> Sequence[str]:
    """Adds the tangents of outputs; returns the names in `wrt` that an output depends on."""
    # g = J^T u is linear in u, so that d<g, v>/du = J v for any u: the inputs u are not read.
    graph = only_graph(module)
    kept, values = [*graph.outputs], graph.outputs
    pairs = {GRADIENT + name: values[name] for name in outputs}
    gradients = _differentiated(module, compilation, pairs, wrt)
    reached = _reached(wrt, gradients)
    paired = {TANGENT + name: gradients[GRADIENT + name] for name in reached}
    found: Mapping[str, SSAValue] = {}
    if paired:
        found = _differentiated(module, compilation, paired, [GRADIENT + name for name in outputs])
    tangents = dict[str, SSAValue]()
    for name in outputs:
        tangent = found.get(GRADIENT + GRADIENT + name)
        tangents[TANGENT + name] = _no_tangent(graph, name) if tangent is None else tangent
    set_outputs(graph, {name: graph.outputs[name] for name in kept} | tangents)
    EliminateDeadCode().run(compilation, module)
    for name in outputs:
        drop_input(graph, GRADIENT + name)
    _add_unread(graph, wrt)
    return reached


def _add_unread(graph: GraphOp, wrt: Sequence[str]) -> None:
    """Adds the tangents that no output depends on as inputs, so that all of `wrt` have one."""
    values = {**graph.inputs, **graph.outputs}
    values |= {op.variable.text: op.result for op in graph.variables()}
    names = [one.text for one in graph.input_names]
    for name in wrt:
        if TANGENT + name not in names:
            graph.block.insert_arg(values[name].type, len(graph.block.args))
            names.append(TANGENT + name)
    graph.properties["input_names"] = names_attribute(names)


def _reached(wrt: Sequence[str], outputs: Mapping[str, SSAValue]) -> Sequence[str]:
    """The names that have a gradient."""
    return [name for name in wrt if GRADIENT + name in outputs]


def _check_reached(wrt: Sequence[str], reached: Sequence[str]) -> None:
    """DifferentiationError unless an output depends on every name."""
    for name in wrt:
        if name not in reached:
            raise DifferentiationError(
                f"no output depends on {name!r}",
                hint="no differentiable path leads from one to the other",
            )


def _gradients(
    module: ModuleOp, compilation: Compilation, wrt: Sequence[str], outputs: Sequence[str]
) -> dict[str, SSAValue]:
    """The gradients by `wrt`, for gradients of the outputs that are new inputs."""
    values = only_graph(module).outputs
    pairs = {GRADIENT + name: values[name] for name in outputs}
    found = _differentiated(module, compilation, pairs, wrt)
    _check_reached(wrt, _reached(wrt, found))
    return {name: found[name] for name in (GRADIENT + one for one in wrt)}


def _differentiated(
    module: ModuleOp, compilation: Compilation, pairs: Mapping[str, SSAValue], wrt: Sequence[str]
) -> Mapping[str, SSAValue]:
    """The outputs, with the gradients of the sum of <value, new input> by `wrt`."""
    graph = only_graph(module)
    pairing = _pairing(graph, pairs)
    set_outputs(graph, {**graph.outputs, PAIRING: pairing})
    Autodiff(PAIRING, wrt=tuple(wrt)).run(compilation, module)
    return graph.outputs


def _pairing(graph: GraphOp, values: Mapping[str, SSAValue]) -> SSAValue:
    """The sum of the inner products of values with new inputs, given by name."""
    names = [name.text for name in graph.input_names]
    with ImplicitBuilder(Builder(InsertPoint.before(graph.return_op))):
        terms = list[SSAValue]()
        for value in values.values():
            other = graph.block.insert_arg(value.type, len(graph.block.args))
            axes = range(len(shape_of(value)))
            terms.append(ReduceSumOp(MulOp(value, other), axes=axes, keepdims=False).result)
        total = terms[0]
        for term in terms[1:]:
            if term.type != total.type:
                raise DifferentiationError(
                    f"outputs of {total.type} and {term.type} have no common inner product",
                    hint="differentiate outputs, and by inputs, of one element type",
                )
            total = AddOp(total, term).result
    graph.properties["input_names"] = names_attribute([*names, *values])
    return total


def _no_tangent(graph: GraphOp, name: str) -> SSAValue:
    """The tangent of an output that depends on nothing: 0."""
    with ImplicitBuilder(Builder(InsertPoint.before(graph.return_op))):
        return SSAValue.get(zeros(graph.outputs[name]))


def drop_input(graph: GraphOp, name: str) -> None:
    """Drops an input that nothing reads; DifferentiationError if a product is not linear in it."""
    value = graph.inputs[name]
    assert isinstance(value, BlockArgument)
    if value.first_use is not None:
        op = value.first_use.operation
        raise DifferentiationError(
            "a gradient has no forward mode: it is not linear in the gradient that it is given",
            origin(op),
            "use the reverse mode, vjp, or an operator with another gradient",
        )
    names = [one.text for one in graph.input_names if one.text != name]
    graph.block.erase_arg(value)
    graph.properties["input_names"] = names_attribute(names)
