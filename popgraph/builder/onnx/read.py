"""The ONNX importer: lossless, with checks against damaged and hostile models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.ir import Attribute

from popgraph.builder.budget import MODELS, most_function_nodes
from popgraph.builder.onnx.external import DataFolders, ExternalData
from popgraph.builder.onnx.message import (
    BYTES_LOCATION,
    check,
    content_of,
    graphs_of,
    parsed,
    where_of,
)
from popgraph.dialects.onnx.attributes import MetadataAttr
from popgraph.dialects.onnx.containers import Function
from popgraph.dialects.onnx.protos import remainder
from popgraph.dialects.onnx.reader import (
    not_utf8,
    read_function,
    read_graph,
    read_opset,
    versions_of,
)
from popgraph.dialects.onnx.tensorproto import move_to_store
from popgraph.dialects.onnx.writer import FunctionKey, GraphWriter
from popgraph.dialects.program import BytesAttr, WeightStore
from popgraph.support.errors import ModelError

_IMPORTED_FIELDS = {
    "ir_version", "opset_import", "producer_name", "producer_version", "domain",
    "model_version", "doc_string", "graph", "metadata_props", "functions",
}  # fmt: skip


def import_model(
    model: str | Path | bytes | ModelProto,
    store: WeightStore,
    *,
    mapped: bool = False,
    folders: DataFolders | None = None,
) -> ModuleOp:
    """
    Imports an ONNX model from a file, bytes or a message.

    If `mapped`, large weights are memory-mapped from the file, which must not be modified then. The
    import is lossless. External data are read on demand, beside the model or at `folders`.
    ModelError if the model is not valid.
    """
    proto, folder = _load(model, store, mapped)
    try:
        return _import(proto, folder, store, folders)
    except UnicodeDecodeError as error:
        raise not_utf8("the model") from error
    except RecursionError as error:
        raise ModelError("the model's graphs or types are nested too deep", "the model") from error


def _import(
    proto: ModelProto, folder: Path | None, store: WeightStore, folders: DataFolders | None
) -> ModuleOp:
    if folder is not None or folders is not None:
        ExternalData(folder, store, folders).resolve(proto)
    opsets = versions_of(proto.opset_import) or {"": 1}
    functions = _read_functions(proto, store)
    writer = GraphWriter(opsets, store, name=proto.graph.name, functions=functions)
    graph = read_graph(writer, proto.graph)
    return writer.module(
        ir_version=proto.ir_version,
        about=_about(proto),
        opsets=[read_opset(opset) for opset in proto.opset_import],
        graph=graph,
    )


def _load(
    model: str | Path | bytes | ModelProto, store: WeightStore, mapped: bool
) -> tuple[ModelProto, Path | None]:
    """The message, with large weights in the store, and the folder of its file."""
    if isinstance(model, ModelProto):
        check(model, "the model given")
        return model, None

    def kept(rest: bytes, elements: memoryview) -> bytes | None:
        return move_to_store(rest, elements, store)

    if isinstance(model, str | Path):
        path = Path(model)
        where = where_of(path)
        content, state = content_of(path, where, mapped=mapped)
        store.files[path.resolve()] = state
        return parsed(content, where, kept), path.parent
    if not isinstance(model, bytes | bytearray | memoryview):
        raise ModelError(
            f"cannot read a model from {type(model).__name__}",
            hint="give a path, a .pgraph text, bytes, a ModelProto, a Builder or an IR module",
        )
    return parsed(memoryview(bytes(model)), BYTES_LOCATION, kept), None


def _about(proto: ModelProto) -> dict[str, Attribute]:
    about: dict[str, Attribute] = {}
    for key, text in (
        ("producer", proto.producer_name),
        ("producer_version", proto.producer_version),
        ("model_domain", proto.domain),
        ("doc", proto.doc_string),
    ):
        if text:
            about[key] = BytesAttr.of(text)
    if proto.model_version:
        about["model_version"] = IntegerAttr(proto.model_version, i64)
    known_fields = set(_IMPORTED_FIELDS)
    if all(entry.HasField("key") and entry.HasField("value") for entry in proto.metadata_props):
        if proto.metadata_props:
            entries = [(entry.key, entry.value) for entry in proto.metadata_props]
            about["metadata"] = MetadataAttr.of(entries)
    else:
        known_fields.remove("metadata_props")
    if rest := remainder(proto, known_fields):
        about["rest"] = BytesAttr(rest)
    return about


def _read_functions(proto: ModelProto, store: WeightStore) -> dict[FunctionKey, Function]:
    keys = [(one.domain, one.name, one.overload) for one in proto.functions]
    if doubled := [key for key in keys if keys.count(key) > 1]:
        raise ModelError(
            f"function {_spelled(doubled[0])} is defined twice", "the model's functions"
        )
    _check_calls(proto)
    return {
        key: read_function(one, store, frozenset(keys))
        for key, one in zip(keys, proto.functions, strict=True)
    }


def _spelled(key: FunctionKey) -> str:
    return "::".join(part for part in key if part)


def _check_calls(proto: ModelProto) -> None:
    """ModelError if functions are recursive, or expand to too many nodes."""
    called = {_key(one): [_key(node) for node in _nodes(one)] for one in proto.functions}
    sizes = _sizes(called)
    total = sum(sizes.get(_key(node), 0) for node in _nodes(proto.graph))
    most = most_function_nodes()
    if total > most:
        count = f"{total:,}" if total < 10**12 else "more than 10^12"
        raise ModelError(
            f"its functions expand to {count} nodes; the limit is {most:,}",
            f"function {_spelled(max(sizes, key=lambda key: sizes[key]))}",
            "functions that call others several times each multiply: write loops as Loop; "
            f"{MODELS}=10 in the environment allows ten times as much",
        )


def _key(one: NodeProto | FunctionProto) -> FunctionKey:
    name = one.op_type if isinstance(one, NodeProto) else one.name
    return one.domain, name, one.overload


def _sizes(called: Mapping[FunctionKey, Sequence[FunctionKey]]) -> dict[FunctionKey, int]:
    """The number of nodes that a call of each function expands to."""
    sizes = dict[FunctionKey, int]()
    for first in called:
        path = {first: iter(called[first])} if first not in sizes else {}
        while path:
            key, rest = next(reversed(path.items()))
            inner = next((one for one in rest if one in called and one not in sizes), None)
            if inner is None:
                sizes[key] = sum(sizes.get(one, 1) for one in called[key])
                del path[key]
            elif inner in path:
                raise _recursion(list(path), inner)
            else:
                path[inner] = iter(called[inner])
    return sizes


def _recursion(path: list[FunctionKey], key: FunctionKey) -> ModelError:
    loop = " -> ".join(map(_spelled, [*path[path.index(key) :], key]))
    return ModelError(
        f"function {_spelled(key)} calls itself: {loop}",
        "the model's functions",
        "ONNX has no recursion; use Loop",
    )


def _nodes(body: GraphProto | FunctionProto) -> Iterator[NodeProto]:
    """The nodes of a body and of its subgraphs."""
    for node in body.node:
        yield node
        for attribute in node.attribute:
            for graph in graphs_of(attribute):
                yield from _nodes(graph)
