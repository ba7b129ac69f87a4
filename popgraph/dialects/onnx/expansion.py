"""Inlines functions and branches at the nodes that call them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from onnx import FunctionProto, helper
from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Attribute, Operation, SSAValue

from popgraph.dialects.onnx.attributes import GraphsAttr, ValueInfoAttr
from popgraph.dialects.onnx.containers import Function, value_name
from popgraph.dialects.onnx.custom import Custom
from popgraph.dialects.onnx.functions import body_of_call, outputs_of_call
from popgraph.dialects.onnx.inference import Inference
from popgraph.dialects.onnx.initializer import Initializer
from popgraph.dialects.onnx.op import Graph, OnnxOp
from popgraph.dialects.onnx.protos import NameOf, write_node
from popgraph.dialects.onnx.reader import read_function
from popgraph.dialects.onnx.record import record_of
from popgraph.dialects.onnx.schema_facts import body_schema
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.onnx.schemas import op_class
from popgraph.dialects.onnx.typeproto import write_type
from popgraph.dialects.onnx.types import UNKNOWN, NamesAttr, static_shape
from popgraph.dialects.onnx.writer import check_arity
from popgraph.dialects.program import BytesAttr, WeightStore
from popgraph.support.names import hint


def schema_function(op: SchemaOp, opsets: Mapping[str, int], store: WeightStore) -> Function | None:
    """The operator's body from its schema, in opsets near those given; None without one."""
    schema = body_schema(op.SCHEMA)
    versions = schema.all_function_opset_versions
    if not versions:
        return None
    opset = opsets.get(op.domain, op.since_version)
    version = max((one for one in versions if one <= opset), default=min(versions))
    name_of = _Identifiers()
    if version in schema.context_dependent_function_opset_versions:
        types = [
            b"" if value is None else write_type(value.type).SerializeToString()
            for value in op.input_values()
        ]
        node = write_node(op, store, name_of).SerializeToString()
        data = schema.get_context_dependent_function_with_opset_version(version, node, types)
    else:
        data = schema.get_function_with_opset_version(version)
    if not data:
        return None
    proto = _completed(FunctionProto.FromString(data), opsets)
    record = record_of(op.domain, op.op_type)
    if record is not None and record.mend is not None:
        record.mend(proto, op)
    if op.op_type == CROSS_ENTROPY and 0 in (static_shape(op.operands[0].type) or ()):
        _keep_the_shape(proto)
    return read_function(proto, store, (), _captures(op, name_of))


CROSS_ENTROPY = "SoftmaxCrossEntropyLoss"


def _keep_the_shape(proto: FunctionProto) -> None:
    """
    LogSoftmax of scores reshaped to [N, C, -1] and back  ->  LogSoftmax along axis 1

    Only for tensors without elements: -1 is then ambiguous.
    """
    (last,) = (at for at, node in enumerate(proto.node) if "X_Log" in node.output)
    rest = list(proto.node)[last + 1 :]
    del proto.node[:]
    proto.node.append(helper.make_node("LogSoftmax", ["scores"], ["X_Log"], axis=1))
    proto.node.extend(rest)


class _Identifiers:
    """Value names as identifiers: some schemas write constants of inner graphs as text."""

    def __init__(self) -> None:
        self._words: dict[SSAValue, str] = {}

    def __call__(self, value: SSAValue) -> str:
        if value not in self._words:
            word = re.sub(r"\W|^(?=\d)", "_", value_name(value), flags=re.ASCII)
            while word in self._words.values():
                word += "_"
            self._words[value] = word
        return self._words[value]


def _completed(proto: FunctionProto, opsets: Mapping[str, int]) -> FunctionProto:
    """A schema's body as if a model defined the function."""
    imported = {one.domain for one in proto.opset_import}
    for domain, version in opsets.items():
        if domain not in imported:
            proto.opset_import.add(domain=domain, version=version)
    for node in proto.node:
        given = [one for one in node.attribute if len(one.ListFields()) > 1]
        del node.attribute[:]
        node.attribute.extend(given)
    computed = {name for node in proto.node for name in node.output} | {*proto.input}
    wanted = [name for name in proto.output if name in computed]
    del proto.output[:]
    proto.output.extend(wanted)
    return proto


def _captures(op: Operation, name_of: NameOf) -> dict[str, SSAValue]:
    """{name: value} of outer values that graphs inside an operation use."""
    inside = {id(inner) for inner in op.walk()}
    return {
        name_of(value): value
        for inner in op.walk()
        if inner is not op
        for value in inner.operands
        if id(_owner(value)) not in inside
    }


def _owner(value: SSAValue) -> Operation | None:
    owner = value.owner
    return owner if isinstance(owner, Operation) else owner.parent_op()


def inline(call: OnnxOp, function: Function, inference: Inference) -> list[Operation]:
    """
    Replaces a call by the function's body; returns the new operations, with inferred types.

    Inner values and nodes get the call's name as a prefix, and its location. Outputs of the call
    keep their names.
    """
    body = body_of_call(function, call)
    label = call.node_name or next(filter(None, call.output_names), call.op_type)
    rename(body, f"{label}/")
    inputs = call.input_values()
    inputs += [None] * (len(body.block.args) - len(inputs))
    for argument, value in zip(body.block.args, inputs, strict=False):
        if value is None:
            make_absent(argument)
        else:
            argument.replace_all_uses_with(value)
    return _place(call, body, outputs_of_call(call, body, list(body.yielded)), inference)


def inline_branch(op: SchemaOp, branch: Graph, inference: Inference) -> list[Operation]:
    """Replaces an If by the branch that it always takes; returns the operations moved."""
    return _place(op, branch, list(branch.yielded), inference)


def _place(
    call: OnnxOp, body: Function | Graph, yielded: list[SSAValue | None], inference: Inference
) -> list[Operation]:
    """Moves the operations of a body before a call and redirects the users of its outputs."""
    block = call.parent_block()
    assert block is not None, "a call is in a graph"
    placed: list[Operation] = [op for op in body.block.ops if isinstance(op, OnnxOp | Initializer)]
    for op in placed:
        op.detach()
        block.insert_op_before(op, call)
        if isinstance(body, Function):
            op.location = call.location
        inference.visit(op)
    own = {id(value) for op in placed for value in op.results}
    names = zip(call.output_names, call.output_values(), strict=False)
    for (name, old), new in zip(names, yielded, strict=False):
        if old is None:
            continue
        assert new is not None, f"the body of {call.op_type} must yield {name}"
        if id(new) not in own or not isinstance(new.owner, OnnxOp):
            new = _copied(new, name, call, inference)
            placed.append(_maker(new))
        else:
            own.remove(id(new))
            _set_name(new, name)
        old.replace_all_uses_with(new)
    end = body.terminator
    end.detach()
    end.erase()
    call.detach()
    call.erase()
    return [op for op in placed if op.parent is not None]


def _maker(value: SSAValue) -> Operation:
    assert isinstance(value.owner, Operation)
    return value.owner


def _set_name(value: SSAValue, name: str) -> None:
    """Renames an output of a node."""
    op = value.owner
    assert isinstance(op, OnnxOp)
    values = zip(op.output_names, op.output_values(), strict=False)
    op.attributes["outputs"] = NamesAttr.of([name if one is value else old for old, one in values])
    value.name_hint = hint(name)


def _copied(value: SSAValue, name: str, call: OnnxOp, inference: Inference) -> SSAValue:
    """An Identity of a result that has a name of its own already."""
    copy = op_class("Identity", 1).make([value], {}, {}, [name], [value.type], {})
    block = call.parent_block()
    assert block is not None, "a call is in a graph"
    block.insert_op_before(copy, call)
    copy.location = call.location
    inference.visit(copy)
    return copy.results[0]


def rename(body: Function, prefix: str) -> None:
    """Prefixes the names of all values and nodes of a body."""

    def longer(names: NamesAttr) -> NamesAttr:
        return NamesAttr.of([prefix + name if name else "" for name in names.texts])

    def infos(held: ArrayAttr[ValueInfoAttr]) -> ArrayAttr[ValueInfoAttr]:
        return ArrayAttr([ValueInfoAttr.of(prefix + one.text, one.type) for one in held])

    for op in body.walk():
        if isinstance(op, OnnxOp):
            op.attributes["outputs"] = longer(op.node_outputs)
            if op.node_name:
                op.attributes["name"] = BytesAttr.of(prefix + op.node_name)
        elif isinstance(op, Initializer):
            op.properties["value_name"] = BytesAttr.of(prefix + op.value_name.text)
        elif isinstance(op, Graph):
            op.properties["inputs"] = infos(op.inputs)
            op.properties["outputs"] = infos(op.outputs)
            op.properties.pop("value_infos", None)


def make_absent(value: SSAValue) -> None:
    """Removes an input that a call omits from the nodes that use it."""
    for user in {id(use.operation): use.operation for use in value.uses}.values():
        if not isinstance(user, OnnxOp):
            continue
        inputs = [None if one is value else one for one in user.input_values()]
        replace_node(user, with_inputs(user, inputs))


def replace_node(op: OnnxOp, made: OnnxOp) -> None:
    """Replaces a node by another one."""
    block = op.parent_block()
    assert block is not None, "a node is in a graph"
    block.insert_op_before(made, op)
    for old, new in zip(op.results, made.results, strict=True):
        old.replace_all_uses_with(new)
    op.detach()
    op.erase()


def with_inputs(op: OnnxOp, inputs: list[SSAValue | None]) -> OnnxOp:
    """The same node with other inputs; its graphs move to the new node."""
    graphs = op.graphs()
    for graph in (one for many in graphs.values() for one in many):
        graph.detach()
    types = [UNKNOWN if value is None else value.type for value in op.output_values()]
    types = (types + [UNKNOWN] * len(op.output_names))[: len(op.output_names)]
    extra = {key: value for key, value in op.attributes.items() if key != "outputs"}
    if isinstance(op, SchemaOp):
        check_arity(type(op), inputs, op.output_names)
        single = {name: many[0] for name, many in graphs.items()}
        return type(op).make(inputs, op.onnx_attributes(), single, op.output_names, types, extra)
    assert isinstance(op, Custom)
    alone = [name for name, value in op.entries() if _is_one_graph(value)]
    held: dict[str, Attribute | Graph | Sequence[Graph]] = {**op.onnx_attributes(), **graphs}
    held |= {name: graphs[name][0] for name in alone}
    return Custom.make(
        op.domain, op.op_type, inputs, held, op.output_names, types, extra, op.key[2]
    )


def _is_one_graph(value: Attribute) -> bool:
    return isinstance(value, GraphsAttr) and value.kind.data == "GRAPH"
