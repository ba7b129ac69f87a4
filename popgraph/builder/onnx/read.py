"""The ONNX importer: lossless, with checks against damaged and hostile models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from mmap import ACCESS_READ, mmap
from pathlib import Path

import numpy as np
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.ir import Attribute

from popgraph.builder.budget import MODELS, most_function_nodes
from popgraph.builder.onnx.external import DataPlaces, ExternalData, graphs_of
from popgraph.builder.onnx.wire import without_weights
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
from popgraph.dialects.onnx.tensorproto import set_aside
from popgraph.dialects.onnx.writer import FunctionKey, GraphWriter
from popgraph.dialects.program import BytesAttr, WeightStore
from popgraph.support.errors import ModelError
from popgraph.support.files import SIZE
from popgraph.support.reading import Unreadable, opened, reading, rest_of

LARGE_MODEL = 1 << 20
"""Bytes from which on a model's weights are not copied through protobuf."""

_TOLD = {
    "ir_version", "opset_import", "producer_name", "producer_version", "domain",
    "model_version", "doc_string", "graph", "metadata_props", "functions",
}  # fmt: skip


def import_model(
    model: str | Path | bytes | ModelProto,
    store: WeightStore,
    *,
    mapped: bool = False,
    places: DataPlaces | None = None,
) -> ModuleOp:
    """
    The module of an ONNX model: a file, its bytes or a message.

    If `mapped`, large weights are those of the file itself, for as long as nobody writes to it.

    Everything in the message survives; weights that stand in files beside the model are read when
    they are needed; `places` are others where they may stand. `ModelError` for whatever is no
    valid model.
    """
    proto, folder = _load(model, store, mapped)
    try:
        return _import(proto, folder, store, places)
    except UnicodeDecodeError as error:
        raise not_utf8("the model") from error
    except RecursionError as error:
        raise ModelError("the model's graphs or types are nested too deep", "the model") from error


def read_message(model: str | Path | bytes) -> ModelProto:
    """The message of a model, a file or its bytes, as it stands there."""
    if isinstance(model, bytes | bytearray | memoryview):
        return _parse(memoryview(model), None, "the bytes given")
    where = f"file {str(model)!r}"
    return _parse(_read(Path(model), WeightStore(), False, where), None, where)


def _import(
    proto: ModelProto, folder: Path | None, store: WeightStore, places: DataPlaces | None
) -> ModuleOp:
    if folder is not None or places is not None:
        ExternalData(folder, store, places).resolve(proto)
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
    """The message, large weights being in the store, and the folder in which it stands."""
    if isinstance(model, ModelProto):
        _check(model, "the model given")
        return model, None
    if isinstance(model, str | Path):
        path = Path(model)
        where = f"file {str(path)!r}"
        return _parse(_read(path, store, mapped, where), store, where), path.parent
    if not isinstance(model, bytes | bytearray | memoryview):
        raise ModelError(
            f"{type(model).__name__} is no kind of model",
            hint="give a path, bytes, a ModelProto, a Builder or an IR module",
        )
    return _parse(memoryview(bytes(model)), store, "the bytes given"), None


def _read(path: Path, store: WeightStore, mapped: bool, where: str) -> memoryview:
    """The content of a file, which the store then knows."""
    try:
        file, state = opened(path)
        with reading(), file:
            store.files[path.resolve()] = state
            size = state[SIZE]
            if size == 0:  # a pipe, for example
                return memoryview(rest_of(file))
            if mapped:
                return memoryview(mmap(file.fileno(), 0, access=ACCESS_READ))
            content = np.empty(size, np.uint8)
            read = file.readinto(content.data)  # type: ignore[attr-defined]
    except Unreadable as error:
        raise ModelError(f"the model cannot be read: {error}", where, "check the path") from error
    return content[:read].data


def _parse(content: memoryview, store: WeightStore | None, where: str) -> ModelProto:
    """The message; its large weights are views of `content`, if there is a store for them."""
    slim = None
    if store is not None and len(content) > LARGE_MODEL:
        slim = without_weights(content, lambda rest, data: set_aside(rest, data, store))
    try:
        proto = ModelProto.FromString(slim or bytes(content))
    except DecodeError as error:
        raise ModelError(
            "this is no ONNX model, or only a part of one",
            where,
            "check that the file was copied whole, and that it is not a Git LFS pointer",
        ) from error
    _check(proto, where)
    return proto


def _check(proto: ModelProto, where: str) -> None:
    if not proto.HasField("graph") or (not proto.opset_import and proto.ir_version >= 3):
        missing = "opset import" if proto.HasField("graph") else "graph"
        raise ModelError(
            f"the model has no {missing}", where, "this is no ONNX model, or only a part of one"
        )


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
    told = set(_TOLD)
    if all(entry.HasField("key") and entry.HasField("value") for entry in proto.metadata_props):
        if proto.metadata_props:
            entries = [(entry.key, entry.value) for entry in proto.metadata_props]
            about["metadata"] = MetadataAttr.of(entries)
    else:
        told.remove("metadata_props")
    if rest := remainder(proto, told):
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
    """`ModelError` when functions call each other without an end, or nearly so."""
    called = {_key(one): [_key(node) for node in _nodes(one)] for one in proto.functions}
    sizes = _sizes(called)
    total = sum(sizes.get(_key(node), 0) for node in _nodes(proto.graph))
    most = most_function_nodes()
    if total > most:
        count = f"{total:,}" if total < 10**12 else "more than 10^12"
        raise ModelError(
            f"its functions unfold into {count} nodes, where {most:,} are the limit",
            f"function {_spelled(max(sizes, key=lambda key: sizes[key]))}",
            "functions that call others several times each multiply: write loops as Loop; "
            f"{MODELS}=10 in the environment allows ten times as much",
        )


def _key(one: NodeProto | FunctionProto) -> FunctionKey:
    name = one.op_type if isinstance(one, NodeProto) else one.name
    return one.domain, name, one.overload


def _sizes(called: Mapping[FunctionKey, Sequence[FunctionKey]]) -> dict[FunctionKey, int]:
    """How many nodes a call of each function becomes."""
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
    """The nodes of a body and of the graphs inside them."""
    for node in body.node:
        yield node
        for attribute in node.attribute:
            for graph in graphs_of(attribute):
                yield from _nodes(graph)
