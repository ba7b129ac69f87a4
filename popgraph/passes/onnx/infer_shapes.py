"""Shape and type inference over ONNX graphs, and specialization to given input types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.ir import Attribute, SSAValue

from popgraph.dialects.onnx.attributes import ValueInfoAttr
from popgraph.dialects.onnx.containers import model_of
from popgraph.dialects.onnx.inference import Inference
from popgraph.dialects.onnx.op import Graph
from popgraph.dialects.onnx.schemas import op_class
from popgraph.dialects.onnx.tensorproto import from_value
from popgraph.dialects.onnx.types import (
    Dim,
    describe,
    dims,
    erased,
    refined,
    substituted,
    tensor_type,
)
from popgraph.dialects.program import WeightStore
from popgraph.dialects.value_types import set_type
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.options import CONSTANT, VARIABLE, Options
from popgraph.support.arrays import Array
from popgraph.support.errors import TypeMismatchError
from popgraph.support.names import closest
from popgraph.support.shapes import Shape


@dataclass(frozen=True)
class InferShapes(Pass):
    """
    y = Add(x: f32[2, 3], b: f32[3])  ->  y: f32[2, 3], and so on for every value.

    Small constants are evaluated, so that shapes computed from other shapes are known. Graphs
    inside nodes are inferred with the types of their inputs. `weights`: float initializers are

    "constant", or "variable" and decide no branch.
    """

    name = "infer-shapes"

    weights: str = CONSTANT

    @classmethod
    def of(cls, options: Options) -> InferShapes:
        return cls(options.weights)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        infer_shapes(module, compilation.weights, self.weights)


def infer_shapes(
    module: ModuleOp, store: WeightStore | None = None, weights: str = CONSTANT
) -> Inference:
    """Infers all types anew; returns the inference with its known constants."""
    model = model_of(module)
    store = store if store is not None else WeightStore()
    inference = Inference(model.opset_versions, store, model.functions)
    inference.weights_change = weights == VARIABLE
    inference.into_graphs = True
    inference.visit_graph(model.graph)
    _declare(model.graph)
    return inference


def _declare(graph: Graph) -> None:
    """Refines the declared types of outputs by the inferred ones."""
    infos = [
        ValueInfoAttr.of(info.text, refined(value.type, info.type), info.exact.data)
        for info, value in zip(graph.outputs, graph.yielded, strict=True)
    ]
    graph.properties["outputs"] = ArrayAttr(infos)


def specialise(
    module: ModuleOp,
    inputs: Mapping[str, Shape | Attribute],
    store: WeightStore | None = None,
    values: Mapping[str, Array] | None = None,
) -> None:
    """
    Sets the shapes (or types, see `tensor_type`) of inputs and infers all other types.

    A symbolic dimension gets the same size everywhere. Inputs in `values` become constants. Raises
    a `TypeMismatchError` if a shape contradicts the declaration of the input.
    """
    graph = model_of(module).graph
    arguments: dict[str, SSAValue] = dict(zip(graph.input_names, graph.block.args, strict=True))
    symbols: dict[str, int] = {}
    for name, given in inputs.items():
        if name not in arguments:
            raise _no_input(name, list(arguments))
        wanted = arguments[name].type
        type_ = given if isinstance(given, Attribute) else _with_shape(name, wanted, given)
        check_case(name, wanted, type_, symbols)
        set_type(arguments[name], type_)
    for op in graph.walk():
        for value in (*op.results, *(a for r in op.regions for b in r.blocks for a in b.args)):
            set_type(value, substituted(value.type, symbols))
    infos = [
        ValueInfoAttr.of(info.text, argument.type, info.exact.data)
        for info, argument in zip(graph.inputs, graph.block.args, strict=True)
    ]
    graph.properties["inputs"] = ArrayAttr(infos)
    store = store if store is not None else WeightStore()
    for name, value in (values or {}).items():
        _settle(module, name, value, store)
    infer_shapes(module, store)


def _settle(module: ModuleOp, name: str, value: Array, store: WeightStore) -> None:
    """Replaces an input by a Constant; an initializer would be a weight that training changes."""
    model = model_of(module)
    graph, versions = model.graph, model.opset_versions
    argument = graph.block.args[graph.input_names.index(name)]
    held = from_value(value, store)
    made = op_class("Constant", versions.get("", 1)).make(
        [], {"value": held}, {}, [name], [held.type], {}
    )
    made.locate()
    first = graph.block.first_op
    assert first is not None, "a graph ends with its outputs"
    graph.block.insert_op_before(made, first)
    argument.replace_all_uses_with(made.results[0])
    graph.block.erase_arg(argument)
    infos = [info for info in graph.inputs if info.text != name]
    graph.properties["inputs"] = ArrayAttr(infos)


def _no_input(name: str, names: list[str]) -> TypeMismatchError:
    close = closest(name, names)
    listed = ", ".join(map(repr, names)) or "none"
    return TypeMismatchError(
        f"the model has no input {name!r}",
        hint=f"the closest name is {close!r}" if close else f"its inputs are {listed}",
    )


def _with_shape(name: str, wanted: Attribute, shape: Shape) -> Attribute:
    element = getattr(wanted, "element_type", None)
    if element is None:
        raise TypeMismatchError(
            f"input {name!r} has the type {describe(wanted)}, which has no shape", f"input {name!r}"
        )
    return tensor_type(element, shape)


def check_case(name: str, wanted: Attribute, given: Attribute, symbols: dict[str, int]) -> None:
    """Raises a `TypeMismatchError` unless `given` is a case of `wanted`; binds its symbols."""

    def wrong(hint: str) -> TypeMismatchError:
        return TypeMismatchError(
            f"input {name!r} is {describe(wanted)}, not {describe(given)}",
            f"input {name!r}",
            hint,
        )

    if erased(wanted) != erased(given):
        raise wrong("convert the array to the model's element type")
    mine: tuple[Dim, ...] | None = dims(wanted)
    theirs = dims(given)
    if mine is None or theirs is None:
        return
    if len(mine) != len(theirs):
        raise wrong(f"the model requires {len(mine)} dimensions, not {len(theirs)}")
    for place, (dim, size) in enumerate(zip(mine, theirs, strict=True)):
        if isinstance(dim, int) and dim != size:
            raise wrong(f"dimension {place} must be {dim}")
        if isinstance(dim, str) and isinstance(size, int) and symbols.setdefault(dim, size) != size:
            raise wrong(f"{dim!r} is {symbols[dim]} in another input, but {size} here")
