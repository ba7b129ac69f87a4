"""Prints an onnx module as a `.pgraph` text."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import ModuleOp

from popgraph.builder.pgraph.print.formatter import format_file
from popgraph.builder.pgraph.print.from_graph import GraphText, declared_target, parameter, path
from popgraph.builder.pgraph.print.from_values import (
    NOWHERE,
    AttributeText,
    WeightFile,
    name,
    type_text,
)
from popgraph.builder.pgraph.print.print_annotations import (
    graph_annotations,
    model_annotations,
    note,
)
from popgraph.builder.pgraph.syntax.tree import (
    Block,
    File,
    Formal,
    Function,
    Graph,
    Opset,
    Target,
)
from popgraph.dialects.onnx import Function as OnnxFunction
from popgraph.dialects.onnx import Graph as OnnxGraph
from popgraph.dialects.onnx import Model, model_of
from popgraph.dialects.onnx.metadata import function_metadata
from popgraph.dialects.program import WeightStore


def text_of(module: ModuleOp, weights: WeightStore, file: WeightFile | None = None) -> str:
    """
    The text of a module; reading it gives an equivalent model.

    `file` stores large arrays. The protobuf encoding of the model is not kept: see
    `popgraph.testing.model_difference`.
    """
    model = model_of(module)
    attributes = AttributeText(weights, file)
    opsets = [Opset(NOWHERE, *pair) for pair in model.opset_versions.items()]
    functions = [
        _function(one, model.opset_versions, attributes) for one in model.functions.values()
    ]
    doc, graph = _graph(model, attributes)
    return format_file(File(NOWHERE, doc, (*opsets, *functions, graph)))


def _graph(model: Model, attributes: AttributeText) -> tuple[str, Graph]:
    """The doc string of the file, and the graph."""
    graph = model.graph
    listed = _weights_are_inputs(graph)
    body = GraphText(graph, attributes, weights_are_inputs=listed)
    doc, graph_doc, notes = model_annotations(model, graph, body.loose)
    if listed:
        notes.append(note("weights_are_inputs"))
    statements = body.statements()
    if attributes.file is not None and attributes.file.arrays:
        notes.append(note("weights", attributes.file.name))
    made = Graph(
        NOWHERE,
        name(graph.graph_name.text or "main"),
        tuple(map(parameter, graph.inputs)),
        tuple(map(declared_target, graph.outputs, graph.yielded)),
        Block(NOWHERE, graph_doc, statements),
        (*notes, *body.rule),
    )
    return doc, made


def _weights_are_inputs(graph: OnnxGraph) -> bool:
    """Whether all weights are listed among the inputs, in order, after the other inputs."""
    weights = list(graph.initializers)
    first = len(graph.inputs)
    return bool(weights) and all(
        op.input is not None
        and op.place_in_inputs == place
        and op.input.type == op.result.type
        and not op.input.exact.data
        for place, op in enumerate(weights, first)
    )


def _function(
    function: OnnxFunction, opsets: Mapping[str, int], attributes: AttributeText
) -> Function:
    body = GraphText(function, attributes)
    inputs = {info.text: info for info in body.loose if info.text in function.input_names}
    plain = {label for label, info in inputs.items() if not info.exact.data}
    loose = [info for info in body.loose if info.text not in plain]
    doc, notes = graph_annotations(function_metadata(function), loose, "function")
    domain, label, overload = function.key
    if overload:
        notes.insert(0, note("overload", overload))
    required = () if function.attribute_names is None else function.attribute_names.texts
    same = function.opset_versions == dict(opsets)
    own = () if same else [Opset(NOWHERE, *pair) for pair in function.opset_versions.items()]
    return Function(
        NOWHERE,
        path(domain, label),
        tuple(
            Formal(NOWHERE, name(one), type_text(inputs[one].type) if one in plain else None, None)
            for one in function.input_names
        ),
        (
            *(Formal(NOWHERE, name(one), None, None) for one in required),
            *(
                Formal(NOWHERE, name(one), None, attributes(one, value, known=False))
                for one, value in function.defaults.items()
            ),
        ),
        tuple(Target(NOWHERE, name(one), None) for one in function.output_names),
        tuple(own),
        Block(NOWHERE, doc, body.statements()),
        (*notes, *body.rule),
    )
