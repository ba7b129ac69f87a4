"""The batch dimension of a model: its fixed size, and a copy of the model for any size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.ir import Attribute

from popgraph.compiler import verify
from popgraph.dialects.onnx import Graph, model_of, tensor_type
from popgraph.dialects.onnx.attributes import ValueInfoAttr
from popgraph.dialects.onnx.containers import input_types
from popgraph.dialects.onnx.types import Dim, dims, erased
from popgraph.dialects.program import WeightStore
from popgraph.dialects.value_types import set_type
from popgraph.passes.onnx.infer_shapes import infer_shapes, specialise
from popgraph.support.arrays import Array
from popgraph.support.errors import PopgraphError

NAME = "N"
"""Name of an open batch dimension, unless the model uses it already."""


def fixed_batch(module: ModuleOp, values: Mapping[str, Array]) -> int | None:
    """The common first dimension of all inputs that have samples, if it is a single integer."""
    types = [type_ for name, type_ in input_types(module).items() if name not in values]
    firsts = {sizes[0] if sizes else None for sizes in map(dims, types)}
    first = firsts.pop() if len(firsts) == 1 else None
    return first if isinstance(first, int) else None


def open_batch(
    module: ModuleOp, weights: WeightStore, values: Mapping[str, Array]
) -> ModuleOp | None:
    """
    Copies a model with an open batch dimension; None if the model depends on its fixed size.

    Found by trial: with one more sample, every output must have one more as well.
    """
    size = fixed_batch(module, values)
    if size is None:
        return None
    made = module.clone()
    _open_in_place(made, weights, values)
    try:
        fits = all(_has_batch(made, weights, number, values) for number in (size, size + 1))
    except PopgraphError:
        return None
    return made if fits else None


def _open_in_place(module: ModuleOp, weights: WeightStore, values: Mapping[str, Array]) -> None:
    """Names the first dimension of inputs, erases all other shapes and infers them again."""
    graph = model_of(module).graph
    name = _unused_name(graph)
    for argument, input_name in zip(graph.block.args, graph.input_names, strict=True):
        if input_name not in values:
            _, *rest = dims(argument.type) or (None,)
            set_type(argument, _with_shape(argument.type, [name, *rest]))
    for op in graph.block.ops:
        if not op.operands and not op.regions:
            continue  # initializers and constants
        for value in op.results:
            set_type(value, erased(value.type))
    graph.properties["inputs"] = ArrayAttr(
        ValueInfoAttr.of(info.text, argument.type)
        for info, argument in zip(graph.inputs, graph.block.args, strict=True)
    )
    graph.properties["outputs"] = ArrayAttr(
        ValueInfoAttr.of(info.text, erased(info.type)) for info in graph.outputs
    )
    graph.properties.pop("value_infos", None)
    infer_shapes(module, weights)


def _with_shape(type_: Attribute, shape: list[Dim]) -> Attribute:
    return tensor_type(type_.element_type, shape)  # type: ignore[attr-defined]


def _unused_name(graph: Graph) -> str:
    used = {one for argument in graph.block.args for one in dims(argument.type) or ()}
    return next(name for name in _names() if name not in used)


def _names() -> Iterator[str]:
    yield NAME
    number = 1
    while True:
        number += 1
        yield f"{NAME}{number}"


def _has_batch(
    module: ModuleOp, weights: WeightStore, size: int, values: Mapping[str, Array]
) -> bool:
    """Whether all outputs have `size` as their first dimension for a batch of that size."""
    trial = module.clone()
    types = {name: one for name, one in input_types(trial).items() if name not in values}
    shapes = {name: _with_shape(one, [size, *(dims(one) or ())[1:]]) for name, one in types.items()}
    fixed = {name: input_types(trial)[name] for name in values}
    specialise(trial, {**shapes, **fixed}, WeightStore(weights), values)
    verify(trial)
    yielded = model_of(trial).graph.yielded
    return all((dims(value.type) or (None,))[0] == size for value in yielded)
