"""Edits of `onnx.ModelProto`: names, initializers and inputs, parts of graphs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import count
from typing import Any, TypeAlias

import onnx
from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto

from popgraph.compat.ort_training.errors import UnknownValue, WrongCall
from popgraph.support.names import closest

Names: TypeAlias = Sequence[str]

_numbers = count(1)
TRAINING_DOMAIN = "ai.onnx.preview.training"
"""The domain of ONNX's own operator Gradient."""
_NUMBERED = re.compile(r"onnx::.*::(\d{1,9})")
LARGE = 1024
"""Bytes from which an initializer is left out of shape inference: no shape depends on it."""


def fresh_name(stem: str) -> str:
    """A name that no other block of this process has."""
    return f"onnx::{stem}::{next(_numbers)}"


def reserve_names(model: ModelProto) -> None:
    """Keeps new names different from the names that another process gave to values of a model."""
    global _numbers
    graph = model.graph
    names = [one.name for one in (*graph.initializer, *graph.input)]
    names += [output for node in graph.node for output in node.output]
    found = [int(match[1]) for name in names if (match := _NUMBERED.fullmatch(name))]
    _numbers = count(max([next(_numbers) - 1, *found]) + 1)


def tuple_of(names: str | Iterable[str]) -> tuple[str, ...]:
    """One name or several as a tuple."""
    return (names,) if isinstance(names, str) else tuple(names)


def value_info(model: ModelProto, name: str) -> ValueInfoProto:
    """The type of a graph input, output or inner value; UnknownValue if it is unknown."""
    found = _infos(model)
    if name not in found:
        found = _infos(with_shapes(model))
    if name not in found:
        graph = model.graph
        close = closest(name, found)
        raise UnknownValue(
            f"Could not find input or output with name {name}",
            f"graph {graph.name!r}",
            f"did you mean {close!r}?" if close else f"its outputs are {_listed(graph.output)}",
        )
    return found[name]


def _infos(model: ModelProto) -> dict[str, ValueInfoProto]:
    graph = model.graph
    return {one.name: one for one in (*graph.value_info, *graph.input, *graph.output)}


def _listed(values: Iterable[ValueInfoProto]) -> str:
    return ", ".join(repr(one.name) for one in values) or "none"


def has_value(model: ModelProto, name: str) -> bool:
    """Whether an input, an initializer or a node has this name as a value."""
    graph = model.graph
    return any(one.name == name for one in (*graph.input, *graph.initializer)) or any(
        name in node.output or name in node.input for node in graph.node
    )


def add_node(
    model: ModelProto, op_type: str, inputs: Names, stem: str = "", **attributes: Any
) -> str:
    """Appends a node with one output; returns the name of that output."""
    output = fresh_name(stem or f"{op_type.lower()}_output")
    name = fresh_name(op_type)
    model.graph.node.append(
        onnx.helper.make_node(op_type, list(inputs), [output], name=name, **attributes)
    )
    return output


def add_initializer(model: ModelProto, array: Any, stem: str) -> str:
    """Appends an initializer; returns its name."""
    name = fresh_name(stem)
    model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return name


def opset_of(model: ModelProto) -> int:
    """The version of ONNX's default domain."""
    return next((one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), 0)


def initializers_to_inputs(model: ModelProto, names: Collection[str]) -> None:
    """Turns initializers into required inputs, after the other inputs."""
    graph = model.graph
    listed = {one.name for one in graph.input}
    kept = []
    for one in graph.initializer:
        if one.name not in names:
            kept.append(one)
        elif one.name not in listed:
            info = onnx.helper.make_tensor_value_info(one.name, one.data_type, one.dims)
            graph.input.append(info)
    _keep(graph.initializer, kept)


def with_shapes(model: ModelProto) -> ModelProto:
    """A copy with the types of inner values; shape inference never sees large initializers."""
    made = ModelProto()
    made.CopyFrom(model)
    large = {one.name for one in model.graph.initializer if one.ByteSize() > LARGE}
    inputs = len(made.graph.input)
    initializers_to_inputs(made, large)
    made = onnx.shape_inference.infer_shapes(made)
    del made.graph.input[inputs:]
    del made.graph.initializer[:]
    made.graph.initializer.extend(model.graph.initializer)
    return made


def set_outputs(model: ModelProto, names: Names) -> None:
    """Makes these values the outputs, in this order; other outputs become inner values."""
    infos = [value_info(model, name) for name in names]
    made = [ValueInfoProto.FromString(one.SerializeToString()) for one in infos]
    model.graph.value_info.extend(one for one in model.graph.output if one.name not in names)
    _keep(model.graph.output, made)


def check(model: ModelProto) -> None:
    """WrongCall if the model is invalid; parameters must be inputs already."""
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        raise WrongCall(
            f"the blocks have built an invalid model: {error}",
            hint="check the values that `build` passes between blocks, and what it returns",
        ) from error


def captured(graph: GraphProto) -> Iterator[str]:
    """The names that the nodes of a graph and of its inner graphs read."""
    for node in graph.node:
        yield from node_inputs(node)


def node_inputs(node: NodeProto) -> Iterator[str]:
    """The names that a node reads, including what its graphs capture."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield from captured(attribute.g)
        for inner in attribute.graphs:
            yield from captured(inner)


def ancestors(graph: GraphProto, names: Iterable[str]) -> set[str]:
    """The names of all values that these values depend on, with the values themselves."""
    producers = {output: node for node in graph.node for output in node.output if output}
    found: set[str] = set()
    stack = list(names)
    while stack:
        name = stack.pop()
        if name in found:
            continue
        found.add(name)
        if name in producers:
            stack.extend(node_inputs(producers[name]))
    return found


def keep_only(model: ModelProto, outputs: Names) -> None:
    """Cuts the graph to the nodes, initializers and inputs that these outputs need."""
    set_outputs(model, outputs)
    graph = model.graph
    needed = ancestors(graph, outputs)
    nodes = [node for node in graph.node if any(name in needed for name in node.output)]
    _keep(graph.node, nodes)
    _keep(graph.initializer, [one for one in graph.initializer if one.name in needed])
    _keep(graph.input, [one for one in graph.input if one.name in needed])
    _keep(graph.value_info, [one for one in graph.value_info if one.name in needed])


def _keep(field: Any, kept: list[Any]) -> None:
    """Reduces a repeated field to some of its messages."""
    del field[:]
    field.extend(kept)
