"""Reads protobuf nodes, graphs and functions into IR."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    NodeProto,
    OperatorSetIdProto,
    SparseTensorProto,
    TensorProto,
)
from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import Attribute, SSAValue

from popgraph.dialects.onnx.annotations import NOTE, kept_names
from popgraph.dialects.onnx.attributeproto import kind_of, read_attribute, write_attribute
from popgraph.dialects.onnx.attributes import OpsetAttr, ValueInfoAttr
from popgraph.dialects.onnx.containers import Function
from popgraph.dialects.onnx.op import Graph
from popgraph.dialects.onnx.protos import remainder, write_opset
from popgraph.dialects.onnx.schemas import op_class
from popgraph.dialects.onnx.tensorproto import read_sparse, read_tensor
from popgraph.dialects.onnx.typeproto import read_value_info
from popgraph.dialects.onnx.types import UNKNOWN, NamesAttr, erased, tensor_type
from popgraph.dialects.onnx.writer import FunctionKey, Graphs, GraphWriter
from popgraph.dialects.program import BytesAttr, WeightStore
from popgraph.dialects.program.weights import INLINE_BYTES
from popgraph.support.errors import ModelError, PopgraphError, TypeMismatchError, UnsupportedError

_GRAPH_KINDS = ("GRAPH", "GRAPHS")
_TENSOR_KINDS = ("TENSOR", "TENSORS", "SPARSE_TENSOR", "SPARSE_TENSORS")
MOST_OPSETS = 1 << 31
"""The onnx package stores versions in 32 bits."""
MAX_DEPTH = 64
"""Nesting limit of graphs: deeper nesting would overflow Python's stack."""
SHORT = INLINE_BYTES // 4
"""Maximum bytes of a cached attribute; elements of 2 bits take 4 times as many in memory."""


def read_nodes(writer: GraphWriter, nodes: Iterable[NodeProto]) -> None:
    for node in nodes:
        read_node(writer, node)


def read_node(writer: GraphWriter, node: NodeProto) -> None:
    """Reads a node into the writer's graph."""
    _check_texts(node)
    try:
        inputs = [writer.value(name) if name else None for name in node.input]
        read = _Attributes.of(writer, node, inputs)
        writer.add_node(
            node.op_type,
            inputs,
            read.values,
            domain=node.domain,
            outputs=list(node.output),
            name=node.name,
            doc=node.doc_string,
            overload=node.overload,
            extra=_extra(node, read),
        )
    except PopgraphError as error:
        where = f"node {node.name or next(filter(None, node.output), '')!r} ({node.op_type})"
        located = type(error)(error.what, error.where or where, error.hint)
        if isinstance(located, TypeMismatchError) and isinstance(error, TypeMismatchError):
            located.node = error.node
        raise located from error


def _check_texts(node: NodeProto) -> None:
    """Protobuf returns bytes for a string that is not UTF-8."""
    names = [attribute.name for attribute in node.attribute]
    texts = [*node.input, *node.output, *names, node.name, node.op_type, node.domain]
    if set(map(type, [*texts, node.overload, node.doc_string])) != {str}:
        raise not_utf8(f"node {node.name!r}")


def not_utf8(where: str) -> ModelError:
    return ModelError(
        "a name in the model is not UTF-8",
        where,
        "the file is damaged: export the model again",
    )


_STORED = frozenset({"input", "output", "name", "op_type", "attribute", "doc_string"})
"""Fields of a node that its operation stores; `overload` and `domain` depend on the node."""


def _extra(node: NodeProto, read: _Attributes) -> dict[str, Attribute]:
    """Fields of a node that only the attribute dictionary of the operation can store."""
    stored = _STORED | {"overload"} if read.custom else _STORED
    held = remainder(node, stored if node.domain == "ai.onnx" else stored | {"domain"})
    if read.rest:
        rest = NodeProto.FromString(held)
        rest.attribute.extend(read.rest)
        held = rest.SerializeToString()
    extra: dict[str, Attribute] = {}
    if held:
        extra["rest"] = BytesAttr(held)
    if not read.custom:
        trailing = 0
        while trailing < len(node.input) and not node.input[-1 - trailing]:
            trailing += 1
        if trailing:
            extra["trailing"] = IntegerAttr(trailing, i64)
        names = list(read.values)
        # The order of attributes is stored only if writing would change it.
        canonical = [name for name in names if name not in read.graphs] + sorted(read.graphs)
        if names != canonical:
            extra["order"] = NamesAttr.of(names)
    return extra


@dataclass
class _Attributes:
    """The attributes of a node."""

    custom: bool
    """Whether the node is of another domain or calls a function."""
    values: dict[str, object] = field(default_factory=dict)
    graphs: list[str] = field(default_factory=list)
    """Names of the attributes that contain graphs."""
    odd: list[AttributeProto] = field(default_factory=list)
    """Attributes with an encoding that is not canonical."""
    notes: list[AttributeProto] = field(default_factory=list)
    """Notes, which are not among the values; see annotations.py."""

    @property
    def rest(self) -> list[AttributeProto]:
        """The messages that the operation stores."""
        return self.odd + self.notes

    @classmethod
    def of(
        cls, writer: GraphWriter, node: NodeProto, inputs: Sequence[SSAValue | None]
    ) -> _Attributes:
        read = cls(writer.is_custom(node.op_type, node.domain, node.overload))
        kept = set() if read.custom else _kept_notes(writer, node)
        for proto in node.attribute:
            name = proto.name
            if not name or name in read.values:
                raise ModelError(
                    f"duplicate attribute {name!r}" if name else "an attribute has no name",
                    hint="the file is damaged: export the model again",
                )
            kind = kind_of(proto)
            if not read.custom and (name.startswith(NOTE) or name in kept):
                read.notes.append(proto)
            elif kind in _GRAPH_KINDS:
                read.add_graphs(writer, node, proto, inputs)
            else:
                read.values[name], is_canonical = _value(proto, kind, writer.store)
                if not is_canonical:
                    read.odd.append(proto)
        return read

    def add_graphs(
        self,
        writer: GraphWriter,
        node: NodeProto,
        proto: AttributeProto,
        inputs: Sequence[SSAValue | None],
    ) -> None:
        """Reads an attribute whose value is a graph or a list of graphs."""
        self.graphs.append(proto.name)
        if proto.ref_attr_name:
            if not writer.is_custom(node.op_type, node.domain):
                raise UnsupportedError(
                    f"attribute {proto.name!r} takes its graph from the caller of the function",
                    hint="inline the function first",
                )
            self.values[proto.name], is_canonical = _small(proto.SerializeToString())
            if not is_canonical:
                self.odd.append(proto)
            return
        is_list = kind_of(proto) == "GRAPHS"
        arguments = argument_types(node.op_type, inputs)
        lenient = node.op_type == "If"
        graphs = list(proto.graphs) if is_list else [proto.g]
        read = [read_subgraph(writer, graph, arguments, lenient) for graph in graphs]
        self.values[proto.name] = Graphs(read) if is_list else read[0]
        if not {one.name for one, _ in proto.ListFields()} <= {"name", "type", "g", "graphs"}:
            odd = AttributeProto()
            odd.CopyFrom(proto)
            odd.ClearField("g")
            odd.ClearField("graphs")
            self.odd.append(odd)


def _kept_notes(writer: GraphWriter, node: NodeProto) -> set[str]:
    """Names of notes among the attributes; the operator's schema has none of them."""
    kept = kept_names(node)
    if kept and (version := writer.opsets.get(node.domain)) is not None:
        known = op_class(node.op_type, version)
        kept -= {*known.KINDS, *known.GRAPHS}
    return kept


def _value(proto: AttributeProto, kind: str, store: WeightStore) -> tuple[Attribute, bool]:
    """The attribute of a message without graphs, and whether its encoding is canonical."""
    if kind not in _TENSOR_KINDS or _is_short(proto):
        return _small(proto.SerializeToString())
    return read_attribute(proto, store), _is_plain_tensor(proto)


def _is_short(proto: AttributeProto) -> bool:
    """Whether an attribute is a tensor whose elements are stored in the IR, not as a weight."""
    return bool(proto.t.HasField("raw_data") and proto.ByteSize() <= SHORT)


def _is_plain_tensor(proto: AttributeProto) -> bool:
    """Whether an attribute has only a tensor; `TensorAttr` stores the encoding of that."""
    expected = {"name", "type", "t", "tensors", "sparse_tensor", "sparse_tensors"}
    fields = {one.name for one, _ in proto.ListFields()}
    return "type" in fields and fields <= expected


@lru_cache(maxsize=1 << 12)
def _small(data: bytes) -> tuple[Attribute, bool]:
    """
    The attribute of a serialized AttributeProto, and whether its encoding is canonical.

    For attributes without graphs and large tensors. Cached: most nodes repeat those of others.
    """
    proto = AttributeProto.FromString(data)
    attribute = read_attribute(proto)
    if kind_of(proto) in _TENSOR_KINDS:
        return attribute, _is_plain_tensor(proto)
    return attribute, write_attribute(proto.name, attribute) == proto


def argument_types(op_type: str, inputs: Sequence[SSAValue | None]) -> list[Attribute]:
    """The types of a subgraph's inputs, where the graph does not declare them."""
    types = [UNKNOWN if value is None else value.type for value in inputs]
    if op_type == "Loop":
        return [tensor_type("i64", []), tensor_type("bool", []), *map(erased, types[2:])]
    return []


def read_subgraph(
    parent: GraphWriter,
    proto: GraphProto,
    arguments: Sequence[Attribute] = (),
    lenient: bool = False,
) -> Graph:
    """Reads a graph that is the value of an attribute."""
    depth, scope = 0, parent.parent
    while scope is not None:
        depth, scope = depth + 1, scope.parent
    if depth > MAX_DEPTH:
        raise ModelError(f"graphs are nested more than {MAX_DEPTH} deep", f"graph {proto.name!r}")
    writer = parent.subgraph(proto.name, lenient=lenient)
    return read_graph(writer, proto, arguments)


_READ_FIELDS = {
    "node",
    "name",
    "initializer",
    "sparse_initializer",
    "input",
    "output",
    "value_info",
}


def read_graph(
    writer: GraphWriter, proto: GraphProto, arguments: Sequence[Attribute] = ()
) -> Graph:
    """Reads a whole graph; `arguments` are the types of inputs that declare none."""
    outputs = [read_value_info(info) for info in proto.output]
    infos = [read_value_info(info) for info in proto.value_info]
    writer.declared = {info.text: info.type for info in (*infos, *outputs)}
    _read_inputs(writer, proto, arguments)
    check_order(writer, proto)
    read_nodes(writer, proto.node)
    try:
        writer.set_outputs([info.text for info in outputs], outputs)
    except ModelError as error:
        raise ModelError(
            f"output {error.what.removeprefix('no value ').removesuffix(' has been defined')} "
            "is computed by no node",
            error.where,
            error.hint,
        ) from error
    return writer.graph(infos, remainder(proto, _READ_FIELDS))


class RepeatedInput(ModelError):
    """A graph has two inputs with the same name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"two values have the name {name!r}", f"input {name!r}")
        self.name = name


def _read_inputs(writer: GraphWriter, proto: GraphProto, arguments: Sequence[Attribute]) -> None:
    """Reads inputs, then initializers; an input with an initializer becomes part of the latter."""
    dense = {tensor.name: tensor for tensor in proto.initializer}
    sparse = {tensor.values.name: tensor for tensor in proto.sparse_initializer}
    places: dict[str, tuple[int, ValueInfoAttr]] = {}
    seen = set[str]()
    for place, value in enumerate(proto.input):
        info = read_value_info(value)
        if info.text in seen:
            raise RepeatedInput(info.text)
        seen.add(info.text)
        if info.text in dense or info.text in sparse:
            places[info.text] = (place, info)
            continue
        type_ = info.type
        if type_ == UNKNOWN and place < len(arguments):
            type_ = arguments[place]
        writer.add_input(info.text, type_, info=info)
    for tensor in (*proto.initializer, *proto.sparse_initializer):
        _read_initializer(writer, tensor, places)


def _read_initializer(
    writer: GraphWriter,
    tensor: TensorProto | SparseTensorProto,
    places: dict[str, tuple[int, ValueInfoAttr]],
) -> None:
    """Reads an initializer; its name is stored in the operation, the rest in the tensor."""
    place, info = 0, None
    if isinstance(tensor, SparseTensorProto):
        name = tensor.values.name
        value: Attribute = read_sparse(tensor, writer.store)
    else:
        name = tensor.name
        bare = tensor
        value = read_tensor(bare, writer.store)
    if name in places:
        place, info = places[name]
    writer.add_initializer(name, value, input=info, place=place)


def check_order(writer: GraphWriter, proto: GraphProto) -> None:
    """Raises ModelError if a node uses a value that is computed later: a cycle or a wrong order."""
    defined = {name for node in proto.node for name in node.output if name}
    seen: set[str] = set()
    for node in proto.node:
        for name in node.input:
            if name in defined and name not in seen and not writer.has_value(name):
                raise _out_of_order(proto, node, name)
        seen.update(node.output)


def _out_of_order(proto: GraphProto, node: NodeProto, name: str) -> ModelError:
    where = f"node {node.name or next(filter(None, node.output), '')!r} ({node.op_type})"
    if cycle := _cycle_through(proto, name):
        return ModelError(
            f"the graph has a cycle: {' -> '.join(cycle)}",
            where,
            "a graph computes every value before it is used; use Loop or Scan for repetition",
        )
    return ModelError(
        f"value {name!r} is used before the node that computes it",
        where,
        "sort the model's nodes: a node must follow the nodes whose outputs it uses",
    )


def _cycle_through(proto: GraphProto, start: str) -> list[str]:
    """Names of values on a cycle through `start`; empty if there is none."""
    makers = {name: node for node in proto.node for name in node.output if name}
    came_from: dict[str, str] = {}
    pending = [start]
    while pending:
        name = pending.pop()
        for source in makers[name].input if name in makers else ():
            if source == start:
                path = [start, name]
                while name != start:
                    name = came_from[name]
                    path.append(name)
                return path
            if source in makers and source not in came_from:
                came_from[source] = name
                pending.append(source)
    return []


_READ_FUNCTION_FIELDS = {
    "name", "input", "output", "attribute", "attribute_proto", "node", "opset_import",
    "domain", "overload", "value_info",
}  # fmt: skip


def versions_of(opsets: Iterable[OperatorSetIdProto]) -> dict[str, int]:
    """Versions of imported operator sets by domain; ModelError if one is out of range."""
    versions = {opset.domain: opset.version for opset in opsets}
    for domain, version in versions.items():
        if not 0 <= version < MOST_OPSETS:
            raise ModelError(
                f"opset {version} of domain {domain or 'ai.onnx'} is not known",
                "the model's opset imports",
                "the file is damaged: export the model again",
            )
    return versions


def read_opset(proto: OperatorSetIdProto) -> OpsetAttr:
    plain = OpsetAttr.of(proto.domain, proto.version)
    if write_opset(plain) == proto:
        return plain
    return OpsetAttr.of(proto.domain, proto.version, proto.SerializeToString())


def read_function(
    proto: FunctionProto,
    store: WeightStore,
    calls: Collection[FunctionKey] = (),
    outer: Mapping[str, SSAValue] | None = None,
) -> Function:
    """
    Reads a function whose body may call functions in `calls`; its values have no types.

    `outer` are values of the caller that graphs inside it use by name.
    """
    opsets = versions_of(proto.opset_import)
    writer = GraphWriter(opsets, store, name=proto.name, calls=calls, typed=False)
    writer.capture(outer or {})
    for name in proto.input:
        writer.add_input(name)
    as_graph = GraphProto(node=proto.node)
    check_order(writer, as_graph)
    read_nodes(writer, proto.node)
    writer.set_outputs(list(proto.output), [ValueInfoAttr.of(name) for name in proto.output])
    rest = FunctionProto.FromString(remainder(proto, _READ_FUNCTION_FIELDS))
    defaults = {one.name: _value(one, kind_of(one), store) for one in proto.attribute_proto}
    rest.attribute_proto.extend(one for one in proto.attribute_proto if not defaults[one.name][1])
    return writer.function(
        proto.domain,
        proto.name,
        proto.overload,
        attributes=list(proto.attribute),
        defaults={name: attribute for name, (attribute, _) in defaults.items()},
        infos=[read_value_info(info) for info in proto.value_info],
        opsets=[read_opset(opset) for opset in proto.opset_import],
        rest=rest.SerializeToString(),
    )
