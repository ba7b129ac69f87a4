"""Overridable initializers, which a model lists among its inputs: defaults that callers replace."""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.dialects.builtin import ArrayAttr, ModuleOp

from popgraph.dialects.onnx.attributes import ValueInfoAttr
from popgraph.dialects.onnx.containers import model_of
from popgraph.dialects.onnx.weight_names import weights_by_name


def overridable(module: ModuleOp) -> tuple[str, ...]:
    """The names of initializers that a caller may override."""
    graph = model_of(module).graph
    return tuple(one.value_name.text for one in graph.initializers if one.input is not None)


def demand(module: ModuleOp, names: Iterable[str]) -> None:
    """
    Turns these initializers into required inputs.

    Initializers of graphs inside nodes have the names of `weights_by_name`.
    """
    graph, known = model_of(module).graph, weights_by_name(model_of(module).graph)
    infos = list(graph.inputs)
    for name in dict.fromkeys(names):
        initializer = known[name]
        info = initializer.input or ValueInfoAttr.of(name, initializer.result.type)
        infos.append(ValueInfoAttr.of(name, info.type, info.exact.data))
        argument = graph.block.insert_arg(info.type, len(graph.block.args))
        argument.name_hint = initializer.result.name_hint
        initializer.result.replace_all_uses_with(argument)
        initializer.detach()
        initializer.erase()
    graph.properties["inputs"] = ArrayAttr(infos)
