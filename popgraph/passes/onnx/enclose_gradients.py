"""Gives every Gradient node the function that it differentiates, as a graph inside the node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, Region, SSAValue

from popgraph.dialects.onnx.attributes import ValueInfoAttr
from popgraph.dialects.onnx.containers import Function, model_of, value_name
from popgraph.dialects.onnx.custom import GRADIENT, Custom
from popgraph.dialects.onnx.initializer import Initializer
from popgraph.dialects.onnx.op import Graph, OnnxOp, Yield
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.onnx.types import UNKNOWN
from popgraph.passes.analysis.replace import insert_made_for
from popgraph.passes.onnx.partition import host_node, read_by
from popgraph.support.errors import DifferentiationError, ModelError


def enclose_gradients(module: ModuleOp) -> None:
    """
    `d = Gradient(a) {xs = ["x"], y = "y"}`  ->  the same, with the graph `x => { ... y }`

    A Gradient refers to tensors by name. With the graph, passes that move, rename or drop nodes see
    its dependencies. The graph has copies of the nodes from `xs` to `y`. Nodes that do not
    depend on `xs` and `zs` stay outside.
    """
    for op in list(model_of(module).walk()):
        if _is_open(op) and op.parent is not None:
            assert isinstance(op, SchemaOp)
            _enclose(op, ())


def _is_open(op: Operation) -> bool:
    return isinstance(op, SchemaOp) and (op.domain, op.op_type) == GRADIENT


def _enclose(op: SchemaOp, around: Sequence[Operation]) -> None:
    """Encloses a node after other Gradients on the path to its `y`; `around` depend on it."""
    sources, target = _names(op)
    while waiting := next(filter(_is_open, _between(target, sources)), None):
        if waiting is op or waiting in around:
            raise _circular(op)
        assert isinstance(waiting, SchemaOp)
        _enclose(waiting, (*around, op))
        sources, target = _names(op)
    graph = _function(op, sources, target)
    outputs = list(zip(op.output_names, op.output_values(), strict=True))
    made = Custom.make(
        *GRADIENT,
        op.input_values(),
        {**op.onnx_attributes(), "function": graph},
        op.output_names,
        [UNKNOWN if value is None else value.type for _, value in outputs],
        {key: value for key, value in op.attributes.items() if key != "outputs"},
    )
    insert_made_for(op, made)
    named = [value for name, value in outputs if name and value is not None]
    for old, new in zip(named, made.results, strict=True):
        old.replace_all_uses_with(new)
        new.name_hint = old.name_hint
    op.detach()
    op.erase()


def _names(op: SchemaOp) -> tuple[list[SSAValue], SSAValue]:
    """The tensors `xs` and `zs` of a node, and its `y`."""
    names = op.attribute_values()
    independent = [*cast(list[str], names["xs"]), *cast(list[str], names.get("zs", []))]
    return [_named(op, str(name)) for name in independent], _named(op, str(names["y"]))


def _named(op: SchemaOp, name: str) -> SSAValue:
    """The tensor with a name in the node's graph or one around it."""
    block = op.parent
    while block is not None:
        body = block.parent_op()
        if not isinstance(body, Graph | Function):
            break
        for value in _values(block):
            if value_name(value) == name:
                return value
        block = None if isinstance(body, Function) else _around(body)
    raise ModelError(
        f"Gradient-1 names {name!r}, but the graph has no such tensor",
        op.where(),
        "`xs`, `zs` and `y` must be inputs, initializers or outputs of nodes of the same graph",
    )


def _around(graph: Graph) -> Block | None:
    """The block that contains the node of a graph."""
    holder = graph.parent_op()
    return holder.parent if isinstance(holder, OnnxOp) else None


def _values(block: Block) -> Iterator[SSAValue]:
    yield from block.args
    for op in block.ops:
        yield from op.results


def _between(target: SSAValue, sources: Iterable[SSAValue]) -> list[Operation]:
    """Operations that compute a value from the sources, in their order."""
    found, seen, pending = set[Operation](), set(sources), [target]
    home = _home(target)
    while pending:
        value = pending.pop()
        if value in seen or _home(value) is not home:
            continue
        seen.add(value)
        if isinstance(value.owner, Operation):
            found.add(value.owner)
            pending += read_by(value.owner)
    return [op for op in home.ops if op in found]


def _home(value: SSAValue) -> Block:
    home = value.owner.parent if isinstance(value.owner, Operation) else value.owner
    assert home is not None
    return home


def _function(op: SchemaOp, sources: Sequence[SSAValue], target: SSAValue) -> Graph:
    """The graph from the sources to the target."""
    between = _between(target, sources)
    place = _place(op, _home(target))
    if place in between:
        raise _circular(op)
    block = Block(arg_types=[value.type for value in sources])
    values: dict[SSAValue, SSAValue] = dict(zip(sources, block.args, strict=True))
    follows = False  # Nodes after the Gradient are not visible to it, so they are copied, too.
    for one in _home(target).ops:
        follows |= one is place
        if one not in between or isinstance(one, Initializer):
            continue
        if follows or any(value in values for value in read_by(one)):
            _check_compiled(op, one)
            block.add_op(one.clone(values))
    given = values.get(target, target)
    block.add_op(Yield([given]))
    return Graph("gradient", _infos(sources), _infos([target]), Region(block))


def _place(op: Operation, block: Block) -> Operation:
    """The operation of a block that is, or contains, another operation."""
    while op.parent is not block:
        holder = op.parent_op()
        assert holder is not None, "names are looked up in the graphs around a node"
        op = holder
    return op


def _check_compiled(op: SchemaOp, inner: Operation) -> None:
    if isinstance(inner, OnnxOp) and host_node(inner):
        raise DifferentiationError(
            f"Gradient-1 leads through {inner.where()}, which only Python computes",
            op.where(),
            "it has no gradient: name its outputs in `zs`",
        )


def _infos(values: Iterable[SSAValue]) -> list[ValueInfoAttr]:
    return [ValueInfoAttr.of(value_name(value), value.type) for value in values]


def _circular(op: SchemaOp) -> ModelError:
    return ModelError(
        "the `y` of Gradient-1 depends on the node's own result",
        op.where(),
        "name a `y` that does not depend on the node, or tensors in between in `zs`",
    )
