"""Strategies for well-formed ONNX models with every feature of the format."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

from popgraph.dialects.onnx.tensorproto import PACKED
from popgraph.support import dtypes

DOMAIN = "com.example"
texts = st.text(max_size=6) | st.sampled_from(["a b", "x", '"', "\n", "a/1", "y/2"])
words = st.sampled_from(
    ["x", "y", "y/1", "y/2", "a b", "weight", "é", "`", "N", "f32", "_", "zeros"]
)
bytes_ = texts.map(str.encode) | st.binary(max_size=4)
ints = st.integers(-(1 << 63), (1 << 63) - 1)
floats = st.floats(width=32) | st.sampled_from([1.0, -0.0])
shapes = st.lists(st.integers(0, 3), max_size=3)


BITS = {"bool": 1, **PACKED}
"""Bits of element types that do not use a whole byte."""


@st.composite
def tensors(draw: st.DrawFn) -> TensorProto:
    """Tensors of every element type and bit pattern."""
    shape = draw(shapes)
    count = int(np.prod(shape, dtype=int))
    row = draw(st.sampled_from([*dtypes.DTYPES, None]))
    if row is None:
        held = draw(st.lists(bytes_, min_size=count, max_size=count))
        return TensorProto(data_type=TensorProto.STRING, dims=shape, string_data=held)
    same = draw(st.booleans())
    size = row.numpy.itemsize * (min(count, 1) if same else count)
    data = draw(st.binary(min_size=size, max_size=size)) * (count if same else 1)
    used = (1 << BITS.get(row.name, 8)) - 1
    array = np.frombuffer(data, np.uint8) & used
    return numpy_helper.from_array(array.astype(np.uint8).view(row.numpy).reshape(shape))


@st.composite
def sparse_tensors(draw: st.DrawFn) -> SparseTensorProto:
    count = draw(st.integers(0, 3))
    indices = draw(st.lists(st.integers(0, 8), min_size=count, max_size=count, unique=True))
    return helper.make_sparse_tensor(
        numpy_helper.from_array(np.arange(1, count + 1).astype(np.float32)),
        numpy_helper.from_array(np.array(sorted(indices), np.int64)),
        [3, 3],
    )


def tensor_types() -> Any:
    dims = st.lists(st.integers(0, 4) | words | st.none(), max_size=3)
    numbers = st.sampled_from([row.onnx for row in dtypes.DTYPES] + [TensorProto.STRING])
    return st.builds(helper.make_tensor_type_proto, numbers, st.none() | dims)


types = st.recursive(
    tensor_types(),
    lambda inner: st.one_of(
        inner.map(helper.make_sequence_type_proto),
        inner.map(helper.make_optional_type_proto),
        st.builds(helper.make_map_type_proto, st.just(TensorProto.INT64), inner),
    ),
    max_leaves=2,
)

PLAIN: dict[str, Any] = {
    "FLOAT": ("f", floats),
    "INT": ("i", ints),
    "STRING": ("s", bytes_),
    "TENSOR": ("t", tensors()),
    "SPARSE_TENSOR": ("sparse_tensor", sparse_tensors()),
    "TYPE_PROTO": ("tp", types),
}
LISTS = {f"{kind}S": (field, inner) for kind, (field, inner) in PLAIN.items()}
LIST_FIELDS = {
    "FLOATS": "floats",
    "INTS": "ints",
    "STRINGS": "strings",
    "TENSORS": "tensors",
    "SPARSE_TENSORS": "sparse_tensors",
    "TYPE_PROTOS": "type_protos",
}


@st.composite
def attributes(draw: st.DrawFn, name: str, references: list[str]) -> AttributeProto:
    kind = draw(st.sampled_from([*PLAIN, *LISTS]))
    made = AttributeProto(name=name, type=AttributeProto.AttributeType.Value(kind))
    if draw(st.booleans()) and references:
        made.ref_attr_name = draw(st.sampled_from(references))
    elif kind in PLAIN:
        field, values = PLAIN[kind]
        put(made, field, draw(values))
    else:
        for value in draw(st.lists(LISTS[kind][1], max_size=2)):
            getattr(made, LIST_FIELDS[kind]).append(value)
    if draw(st.integers(0, 9)) == 0:
        made.doc_string = draw(texts)
    return made


def put(message: Any, field: str, value: Any) -> None:
    if hasattr(value, "CopyFrom"):
        getattr(message, field).CopyFrom(value)
    else:
        setattr(message, field, value)


class Drawing:
    """Draws graphs in which value names are unique."""

    def __init__(self, draw: st.DrawFn, references: list[str]) -> None:
        self.draw = draw
        self.references = references
        self.taken: set[str] = set()

    def fresh(self) -> str:
        stem = self.draw(words)
        name, number = stem, 1
        while name in self.taken:
            number += 1
            name = f"{stem}{number}"
        self.taken.add(name)
        return name

    def describe(self, message: Any) -> None:
        """Adds a doc string or metadata sometimes."""
        chosen = self.draw(st.integers(0, 7))
        if chosen in (0, 1):
            message.doc_string = self.draw(texts)
        if chosen in (1, 2):
            message.metadata_props.add(key=self.draw(texts), value=self.draw(texts))

    def value(self, name: str, types: Any = types) -> ValueInfoProto:
        made = ValueInfoProto(name=name)
        if self.draw(st.integers(0, 3)):
            made.type.CopyFrom(self.draw(types))
        self.describe(made)
        return made

    def node(self, known: list[str], depth: int) -> NodeProto:
        draw = self.draw
        made = NodeProto(op_type=draw(st.sampled_from(["Odd", "Even"])), domain=DOMAIN)
        made.input.extend(draw(st.lists(st.sampled_from([*known, ""]), max_size=3)))
        made.output.extend(self.fresh() if draw(st.booleans()) else "" for _ in range(2))
        made.name = draw(st.sampled_from(["", "n", *filter(None, made.output)]))
        self.describe(made)
        for index in range(draw(st.integers(0, 2))):
            made.attribute.append(draw(attributes(f"a{index}", self.references)))
        if depth and not draw(st.integers(0, 2)):
            made.attribute.add(name="body", type=AttributeProto.GRAPH).g.CopyFrom(
                self.graph(known, depth - 1)
            )
        if depth and not draw(st.integers(0, 4)):
            graphs = [self.graph(known, depth - 1) for _ in range(draw(st.integers(0, 2)))]
            made.attribute.add(name="many", type=AttributeProto.GRAPHS).graphs.extend(graphs)
        return made

    def graph(self, outer: list[str], depth: int) -> GraphProto:
        draw = self.draw
        made = GraphProto(name=draw(words))
        self.describe(made)
        made.input.extend(self.value(self.fresh()) for _ in range(draw(st.integers(0, 2))))
        known = [*outer, *(info.name for info in made.input)]
        for _ in range(draw(st.integers(0, 2))):
            tensor = draw(tensors())
            tensor.name = self.fresh()
            made.initializer.append(tensor)
            known.append(tensor.name)
        for _ in range(draw(st.integers(0, 3))):
            node = self.node(known, depth)
            made.node.append(node)
            known += filter(None, node.output)
            made.value_info.extend(
                self.value(name) for name in node.output if name and not draw(st.integers(0, 3))
            )
        declared = {info.name: info.type for info in made.value_info}
        own = [name for name in known if name not in outer]
        for name in draw(st.lists(st.sampled_from(own), max_size=2, unique=True)) if own else []:
            info = self.value(name)
            if name in declared or name not in {o for node in made.node for o in node.output}:
                info.ClearField("type")
            made.output.append(info)
        return made

    def function(self, name: str) -> FunctionProto:
        draw = self.draw
        made = FunctionProto(name=name, domain=DOMAIN)
        made.opset_import.add(domain=DOMAIN, version=1)
        self.describe(made)
        made.input.extend(self.fresh() for _ in range(draw(st.integers(0, 2))))
        made.attribute.extend(self.references)
        for index in range(draw(st.integers(0, 2))):
            made.attribute_proto.append(draw(attributes(f"d{index}", [])))
        known = list(made.input)
        for _ in range(draw(st.integers(0, 2))):
            made.node.append(self.node(known, 0))
            made.node[-1].op_type = "Other"
            known += filter(None, made.node[-1].output)
        if known:
            made.output.extend(draw(st.lists(st.sampled_from(known), max_size=2, unique=True)))
        return made


@st.composite
def onnx_models(draw: st.DrawFn) -> ModelProto:
    """A well-formed model with any feature of a ModelProto."""
    made = ModelProto(ir_version=draw(st.sampled_from([3, 8, 10])))
    made.opset_import.add(domain=DOMAIN, version=1)
    if draw(st.booleans()):
        made.opset_import.add(version=21)
    made.producer_name, made.domain = draw(texts), draw(texts)
    made.model_version = draw(st.integers(0, 3))
    drawing = Drawing(draw, [])
    drawing.describe(made)
    made.graph.CopyFrom(drawing.graph([], 2))
    for name in draw(st.lists(st.sampled_from(["Fun", "F b"]), unique=True)):
        made.functions.append(Drawing(draw, ["r"] if draw(st.booleans()) else []).function(name))
    return made
