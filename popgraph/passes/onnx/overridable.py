"""Overridable initializers: a model lists them among its inputs, so callers may give others."""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.dialects.builtin import ArrayAttr, ModuleOp

from popgraph.dialects.onnx.attributes import ValueInfoAttr
from popgraph.dialects.onnx.containers import model_of
from popgraph.dialects.onnx.weight_names import weights_by_name


def overridable(module: ModuleOp) -> tuple[str, ...]:
    """The names of the initializers that a caller may give other values."""
    graph = model_of(module).graph
    return tuple(one.value_name.text for one in graph.initializers if one.input is not None)


def demand(module: ModuleOp, names: Iterable[str]) -> None:
    """
    Makes inputs like all others of these initializers: a call has to bring them.

    Those of graphs inside nodes are called as `weights_by_name` calls them.
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
