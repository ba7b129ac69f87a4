"""Selects the outputs of a graph at the onnx level, and removes unused nodes."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.ir import Operation, SSAValue

from popgraph.dialects.onnx.attributes import ValueInfoAttr
from popgraph.dialects.onnx.containers import Model, model_of, standard_domain, value_name
from popgraph.dialects.onnx.op import Graph, OnnxOp, Yield
from popgraph.support.errors import ModelError
from popgraph.support.names import closest

Output = tuple[ValueInfoAttr, SSAValue]
"""The declaration of an output, and its value."""


def cut_to(module: ModuleOp, names: Sequence[str]) -> None:
    """Sets these values as the outputs of a model, and removes everything that they do not use."""
    graph = model_of(module).graph
    values = {value_name(value): value for op in graph.block.ops for value in op.results}
    values |= dict(zip(graph.input_names, graph.block.args, strict=True))
    declared = dict(zip(graph.output_names, graph.outputs, strict=True))
    for name in names:
        if name not in values:
            near = closest(name, values)
            known = f"did you mean {near!r}?" if near else f"its outputs are {', '.join(declared)}"
            raise ModelError(f"the model has no value {name!r}", hint=known)
    outputs = [
        (declared.get(name, ValueInfoAttr.of(name, values[name].type)), values[name])
        for name in names
    ]
    set_outputs(graph, outputs)
    drop_unused(module)


def set_outputs(graph: Graph, outputs: Sequence[Output]) -> None:
    """Sets the outputs of a graph, in this order."""
    old = graph.terminator
    graph.block.insert_op_before(Yield([value for _, value in outputs]), old)
    old.detach()
    old.erase()
    graph.properties["outputs"] = ArrayAttr([info for info, _ in outputs])


def drop_unused(module: ModuleOp, *, inputs: bool = True) -> None:
    """Removes nodes, weights, `inputs` and operator sets that no output uses."""
    model = model_of(module)
    graph = model.graph
    for op in reversed(list(graph.block.ops)):
        if not isinstance(op, Yield) and not any(result.uses for result in op.results):
            _erase(op)
    unused = [one for one in graph.block.args if inputs and not one.uses]
    numbers = {one.index for one in unused}
    infos = [info for number, info in enumerate(graph.inputs) if number not in numbers]
    for argument in reversed(unused):
        graph.block.erase_arg(argument)
    graph.properties["inputs"] = ArrayAttr(infos)
    _drop_unused_domains(model)


def _drop_unused_domains(model: Model) -> None:
    """Other runtimes refuse unknown operator sets, even if no operator uses them."""
    used = {"", *(op.domain for op in model.walk() if isinstance(op, OnnxOp))}
    kept = [one for one in model.opsets if standard_domain(one.domain.text) in used]
    model.properties["opsets"] = ArrayAttr(kept)


def _erase(op: Operation) -> None:
    op.detach()
    op.erase()
