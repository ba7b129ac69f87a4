"""Separates weights that PyTorch's exporters merged because they were equal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from popgraph.dialects.onnx import Graph, Initializer, OnnxOp, model_of
from popgraph.dialects.onnx.op import Yield
from popgraph.dialects.onnx.tensorproto import from_value
from popgraph.dialects.program import WeightStore
from popgraph.passes.analysis.replace import insert_made_for
from popgraph.training.roles import PYTORCH, is_float, producer

SCALES_AND_SHIFTS = frozenset(
    [
        "Add",
        "Mul",
        "Conv",
        "ConvTranspose",
        "Gemm",
        "BatchNormalization",
        "LayerNormalization",
        "InstanceNormalization",
        "GroupNormalization",
        "RMSNormalization",
    ]
)
"""Operators whose weights are all 0 or all 1 in a new network."""


def separate_weights(module: ModuleOp, store: WeightStore) -> None:
    """
    Gives each of several equal weights of a PyTorch model an initializer of its own.

    The TorchScript exporter merges equal weights by `Identity` nodes with the names of the weights;
    a weight that PyTorch itself shares has one name and no such node. The newer exporter leaves no
    trace: a constant-valued weight is split by module, and two readers belong to the same module if
    they share a weight whose elements differ.
    """
    if producer(module) != PYTORCH:
        return
    graph = model_of(module).graph
    for op in list(graph.nodes):
        _split_identity(op)
    names = {value for op in graph.block.ops for value in _names(op)} | {*graph.input_names}
    for initializer in list(graph.initializers):
        if is_float(initializer):
            _split_by_module(initializer, names, store)


def _names(op: Operation) -> Iterable[str]:
    if isinstance(op, Initializer):
        return [op.value_name.text]
    return op.output_names if isinstance(op, OnnxOp) else ()


def _split_identity(op: OnnxOp) -> None:
    """`v = Identity(w)`  ->  `v = Initializer w`, if w is a weight and v is not an output."""
    if (op.domain, op.op_type) != ("", "Identity"):
        return
    source, result = op.operands[0].owner, op.results[0]
    is_output = any(isinstance(use.operation, Yield) for use in result.uses)
    if isinstance(source, Initializer) and is_float(source) and not is_output:
        made = Initializer(op.output_names[0], source.value)
        _insert_before(made, op)
        result.replace_all_uses_with(made.result)
        op.detach()
        op.erase()


def _insert_before(made: Initializer, op: Operation) -> None:
    insert_made_for(op, made)
    made.result.name_hint = op.results[0].name_hint


def _split_by_module(initializer: Initializer, names: set[str], store: WeightStore) -> None:
    """Gives each module that reads a constant-valued initializer a copy of its own."""
    readers = list(dict.fromkeys(use.operation for use in initializer.result.uses))
    if len(readers) < 2 or not all(_scales_or_shifts(reader) for reader in readers):
        return
    value = initializer.array(store)
    if value.size < 2 or (value != value.flat[0]).any():
        return
    modules = {_module(reader, store): None for reader in readers}
    copies = dict.fromkeys(modules, initializer.result)
    for module in list(modules)[1:]:
        made = Initializer(
            _unused_name(initializer.value_name.text, names), from_value(value, store)
        )
        insert_after(initializer, made)
        copies[module] = made.result
    for reader in readers:
        _replace(reader, initializer.result, copies[_module(reader, store)])


def insert_after(initializer: Initializer, made: Initializer) -> None:
    block = initializer.parent
    assert block is not None, "an initializer is in a graph"
    block.insert_op_after(made, initializer)
    made.result.name_hint = initializer.result.name_hint


def _scales_or_shifts(reader: Operation) -> bool:
    return (
        isinstance(reader, OnnxOp)
        and reader.op_type in SCALES_AND_SHIFTS
        and isinstance(reader.parent_op(), Graph)
    )


def _module(reader: Operation, store: WeightStore) -> frozenset[SSAValue] | Operation:
    """
    Identifies the module of a reader: its weights whose elements differ, or the reader itself.
    """
    found = {
        value
        for value in _operands_and_factors(reader)
        if isinstance(value.owner, Initializer) and _has_distinct_elements(value.owner, store)
    }
    return frozenset(found) or reader


def _operands_and_factors(reader: Operation) -> Iterator[SSAValue]:
    """The operands of a reader, and of a MatMul whose result it adds to."""
    for value in reader.operands:
        yield value
        if isinstance(value.owner, OnnxOp) and value.owner.op_type == "MatMul":
            yield from value.owner.operands


def _has_distinct_elements(initializer: Initializer, store: WeightStore) -> bool:
    value = initializer.array(store)
    return bool((value != value.flat[0]).any()) if value.size else False


def _unused_name(name: str, names: set[str]) -> str:
    number = 2
    while f"{name}.{number}" in names:
        number += 1
    names.add(f"{name}.{number}")
    return f"{name}.{number}"


def _replace(reader: Operation, old: SSAValue, new: SSAValue) -> None:
    old.replace_uses_with_if(new, lambda use: use.operation is reader)
