"""Products with the Jacobian of a graph: J^T u by the reverse mode, and J v by its reverse mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import BlockArgument, SSAValue
from xdsl.rewriter import InsertPoint

from popgraph.dialects.graphcore import AddOp, MulOp, ReduceSumOp
from popgraph.dialects.graphcore.base import shape_of
from popgraph.dialects.program import GraphOp
from popgraph.dialects.program.ops import names_attribute
from popgraph.passes.analysis.graph import only_graph, set_outputs
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore.dce import EliminateDeadCode
from popgraph.passes.graphcore.training.autodiff import Autodiff
from popgraph.passes.graphcore.training.reverse_mode import zeros
from popgraph.passes.options import GRADIENT
from popgraph.support.errors import DifferentiationError

TANGENT = "Tangent___"
"""Prefix of the tangent of a value."""
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
    # g = J^T u is linear in u, so that d<g, v>/du = J v for any u: the inputs u are not read.
    graph = only_graph(module)
    kept = [*graph.outputs]
    gradients = _gradients(module, compilation, wrt, outputs)
    paired = {TANGENT + name: gradients[GRADIENT + name] for name in wrt}
    found = _differentiated(module, compilation, paired, [GRADIENT + name for name in outputs])
    tangents = dict[str, SSAValue]()
    for name in outputs:
        tangent = found.get(GRADIENT + GRADIENT + name)
        tangents[TANGENT + name] = _no_tangent(graph, name) if tangent is None else tangent
    set_outputs(graph, {name: graph.outputs[name] for name in kept} | tangents)
    EliminateDeadCode().run(compilation, module)
    for name in outputs:
        _drop_input(graph, GRADIENT + name)


def _gradients(
    module: ModuleOp, compilation: Compilation, wrt: Sequence[str], outputs: Sequence[str]
) -> dict[str, SSAValue]:
    """The gradients by `wrt`, for gradients of the outputs that are new inputs."""
    values = only_graph(module).outputs
    pairs = {GRADIENT + name: values[name] for name in outputs}
    found = _differentiated(module, compilation, pairs, wrt)
    for name in wrt:
        if GRADIENT + name not in found:
            raise DifferentiationError(
                f"no output depends on {name!r}",
                hint="no differentiable path leads from one to the other",
            )
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


def _drop_input(graph: GraphOp, name: str) -> None:
    """Drops an input that nothing reads."""
    value = graph.inputs[name]
    assert isinstance(value, BlockArgument) and value.first_use is None, (
        f"a gradient is not linear in {name}"
    )
    names = [one.text for one in graph.input_names if one.text != name]
    graph.block.erase_arg(value)
    graph.properties["input_names"] = names_attribute(names)
