"""Descriptions of models before lowering: inputs, outputs and parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xdsl.dialects.builtin import ModuleOp, TensorType, UnrankedTensorType
from xdsl.ir import Attribute

from popgraph.backends.reference import first_state, output_types, signature
from popgraph.compiler.loading import Model, load
from popgraph.dialects.element_types import from_ir, is_number
from popgraph.dialects.levels import ONNX, level_of
from popgraph.dialects.onnx.containers import input_types, model_of
from popgraph.dialects.onnx.op import Graph
from popgraph.dialects.onnx.types import UNKNOWN, describe, dims, refined
from popgraph.dialects.onnx.weight_names import weights_by_name
from popgraph.passes.base import Compilation
from popgraph.passes.options import GRADIENT, Options
from popgraph.support.description import Description, TensorSpec, specs
from popgraph.support.dtypes import from_numpy
from popgraph.support.files import path_of


def described(model: Model, options: Options | None) -> Description | None:
    """The description of a model, see `description_of`."""
    chosen = options or Options()
    module, _ = load(model, mapped=True, search=chosen.search)
    return description_of(model, module, chosen)


def description_of(model: Model, module: ModuleOp, options: Options) -> Description | None:
    """
    The description of a module at the onnx level; None below, where the program has it all.

    Outputs that the options request are included.
    """
    if level_of(module) != ONNX:
        return None
    graph = model_of(module).graph
    weights = weights_by_name(graph)
    inputs = input_types(module)
    parameters = {name: one.result.type for name, one in weights.items()}
    outputs = _outputs(graph)
    if asked := list(_asked(options)):
        known = _values(graph) | parameters | inputs | outputs
        outputs |= {name: known.get(_source(name), UNKNOWN) for name in asked}
    path = path_of(model)
    return Description(
        path.name if path else graph.graph_name.text,
        *(_specs(types) for types in (inputs, outputs, parameters)),
    )


def description_here(model: Model, module: ModuleOp, compilation: Compilation) -> Description:
    """The description of a module at any level."""
    said = description_of(model, module, Options())
    if said is not None:
        return said
    inputs, outputs = signature(module), dict(output_types(module, compilation.weights))
    state = first_state(module, compilation.weights)
    held = {name: (from_numpy(array.dtype), array.shape) for name, array in state.items()}
    return Description(str(model), _specs(inputs), _specs(outputs), specs(held))


def _outputs(graph: Graph) -> dict[str, Attribute]:
    """Refines the declared types of outputs by the types of their values."""
    pairs = zip(graph.outputs, graph.yielded, strict=False)  # Nothing is verified yet.
    return {info.text: refined(value.type, info.type) for info, value in pairs}


def _values(graph: Graph) -> dict[str, Attribute]:
    """The types of all node results."""
    return {
        name: value.type
        for node in graph.nodes
        for name, value in zip(node.output_names, node.output_values(), strict=False)
        if value is not None
    }


def _asked(options: Options) -> Iterator[str]:
    """The outputs that options add to those of the model."""
    yield from options.extra_outputs
    if options.training is not None:
        yield from (f"{GRADIENT}{name}" for name in options.training.gradients)
        yield from options.training.after_step


def _source(name: str) -> str:
    """The tensor of a gradient, which has the same type."""
    return name.removeprefix(GRADIENT)


def _specs(types: Mapping[str, Attribute]) -> dict[str, TensorSpec]:
    return {name: spec(name, type_) for name, type_ in types.items()}


def spec(name: str, type_: Attribute) -> TensorSpec:
    """The specification of a value with this type."""
    if not isinstance(type_, TensorType | UnrankedTensorType) or not is_number(type_.element_type):
        return TensorSpec(name, describe(type_), None, dims(type_))
    return TensorSpec(name, describe(type_), from_ir(type_.element_type).numpy, dims(type_))
