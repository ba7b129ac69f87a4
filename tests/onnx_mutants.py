"""Damaged models: small models of every kind, and random changes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from random import Random
from typing import Any

import numpy as np
from onnx import (
    AttributeProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    defs,
    numpy_helper,
    parser,
)

from popgraph.conformance.cases import node_cases
from popgraph.operators.record import supported_operators

NUMBERS = (0, 1, -1, 2, 3, 4, 5, -2, 7, 2**31, -(2**31) - 1, 2**62, -(2**63), 2**63 - 1)
SIZES = (0, 1, 2, 3, 4, 5, 7, -1, 2**31, 2**62)
REALS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, 1e30, float("nan"), float("inf"), -float("inf"))
TEXTS = (b"", b"SAME_UPPER", b"VALID", b"edge", b"mean", b"tanh", b"\xff\xfe", b"a\0b", b"linear")
TYPES = tuple(sorted(set(TensorProto.DataType.values())))

TEXT_MODELS = (
    """<ir_version: 8, opset_import: ["" : 17]> conv (float[1, 3, 8, 8] x) => (y)
    <float[4, 3, 3, 3] w, float[4] b, float[4] s> {
        c = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(x, w, b)
        n = BatchNormalization(c, s, b, b, s)  r = Relu(n)
        p = MaxPool<kernel_shape = [2, 2], ceil_mode = 1>(r)
        f = Flatten(p)  y = Softmax<axis = 1>(f) }""",
    """<ir_version: 8, opset_import: ["" : 17]> block (float[2, 5, 8] x) => (y)
    <float[8, 8] w, float[8] b, float half = {0.5}> {
        l = LayerNormalization<axis = -1>(x, b, b)  q = MatMul(l, w)
        t = Transpose<perm = [0, 2, 1]>(q)  a = MatMul(q, t)  m = Mul(a, half)
        s = Softmax<axis = -1>(m)  v = MatMul(s, q)  y = Add(x, v) }""",
    """<ir_version: 8, opset_import: ["" : 17]> shapes (float[N, 6] x) => (y, z)
    <int64[3] to = {0, 2, 3}, int64[1] one = {1}, int64[1] two = {2}, int64[4] p = {0, 1, 1, 0}> {
        r = Reshape(x, to)  g = Gather<axis = 1>(r, one)  s = Squeeze(g, one)
        u = Unsqueeze(s, two)  y = Tile(u, to)  c = Slice(x, one, two, one)
        z = Pad<mode = "edge">(c, p) }""",
    """<ir_version: 8, opset_import: ["" : 17, "l" : 1]> calls (float[3, 4] x) => (y)
    { h = l.Twice<beta = 0.5>(x)  c = Cast<to = 6>(h)  y = Cast<to = 1>(c) }
    <domain: "l", opset_import: ["" : 17]> Twice <beta: float = 0.25> (a) => (b)
    { c = Celu<alpha: float = @beta>(a)  b = Softmax(c) }""",
    """<ir_version: 8, opset_import: ["" : 17]> branch (float[2, 3] x) => (y) <bool c = {1}> {
        y = If (c) < then_branch = yes () => (t) { t = Neg(x) },
                     else_branch = no () => (e) { e = Exp(x) } > }""",
    """<ir_version: 8, opset_import: ["" : 17]> pieces (float[2, 6, 4, 4] x) => (y)
    <int64[2] parts = {2, 4}, float[4, 2, 3, 3] w, int64 one = {1}, int64 six = {6},
     float[2] w2 = {0.0, 1.0}> {
        a, b = Split<axis = 1>(x, parts)
        u = ConvTranspose<strides = [2, 2], output_padding = [1, 1]>(b, w)
        d = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(u)
        m = ReduceMean<axes = [2, 3], keepdims = 0>(d)
        c = CumSum(m, one)  k = ArgMax<axis = 1>(c)  y = OneHot<axis = 1>(k, six, w2) }""",
)


def _filled(text: str) -> ModelProto:
    """The model of a text; values that are only declared become initializers."""
    model = parser.parse_model(text)
    made = {name for node in model.graph.node for name in node.output}
    for info in [one for one in model.graph.value_info if one.name not in made]:
        shape = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        numbers = 1.1 + np.cos(np.arange(np.prod(shape))).reshape(shape)
        model.graph.initializer.append(numpy_helper.from_array(numbers.astype("f4"), info.name))
        model.graph.value_info.remove(info)
    return model


@cache
def own_models() -> tuple[ModelProto, ...]:
    """Small models for this purpose: exported layers, functions, branches."""
    return tuple(map(_filled, TEXT_MODELS))


@cache
def node_models() -> tuple[ModelProto, ...]:
    """ONNX's node tests whose operators compile or are functions."""
    known = {name for domain, name in supported_operators() if not domain}
    known |= {
        schema.name
        for schema in defs.get_all_schemas()
        if not schema.domain and schema.has_function
    }
    models: dict[str, ModelProto] = {}
    for case in node_cases():
        model = case.model
        small = model is not None and model.ByteSize() < 20_000
        if small and all(node.op_type in known for node in model.graph.node):
            models[case.name] = _with_constants(model, case.data_sets[0][0])
    return tuple(models.values())


def _with_constants(model: ModelProto, inputs: Sequence[Any]) -> ModelProto:
    """Turns small integer inputs, such as axes and sizes, into initializers."""
    made = ModelProto()
    made.CopyFrom(model)
    for info, array in zip(list(made.graph.input), inputs, strict=False):
        if info.type.tensor_type.elem_type == TensorProto.INT64 and np.size(array) <= 8:
            made.graph.initializer.append(numpy_helper.from_array(np.asarray(array), info.name))
            made.graph.input.remove(info)
    return made


def mutant(random: Random, seeds: Sequence[ModelProto]) -> bytes:
    """A random seed model with one to three changes."""
    model = ModelProto()
    model.CopyFrom(random.choice(seeds))
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        random.choice(CHANGES)(random, model)
    data = model.SerializeToString()
    return some_bytes(random, data) if random.random() < 0.1 else data


def some_bytes(random: Random, data: bytes) -> bytes:
    """Replaces, deletes or duplicates a few bytes."""
    changed = bytearray(data)
    for _ in range(random.randint(1, 4)):
        place, kind = random.randrange(len(changed) + 1), random.randrange(4)
        length = random.randint(1, 8)
        if kind == 0:
            del changed[place : place + length]
        elif kind == 1:
            changed[place:place] = changed[place : place + length]
        elif place < len(changed):
            changed[place] = random.randrange(256)
    return bytes(changed)


def _node(random: Random, model: ModelProto) -> NodeProto:
    bodies: list[Any] = [model.graph, *model.functions]
    nodes = [node for body in bodies for node in body.node]
    return random.choice(nodes) if nodes else NodeProto()


def _attribute(random: Random, model: ModelProto) -> None:
    """Changes the value of an attribute, or adds an attribute of the schema."""
    node = _node(random, model)
    schema = defs.get_schema(node.op_type) if defs.has(node.op_type) else None
    names = list(schema.attributes) if schema else []
    if (not node.attribute or random.random() < 0.3) and names:
        name = random.choice(names)
        kind = int(schema.attributes[name].type.value)  # type: ignore[union-attr]
        for old in [one for one in node.attribute if one.name == name]:
            node.attribute.remove(old)
        made = node.attribute.add(name=name, type=kind)
        made.ints.extend(random.choice(NUMBERS) for _ in range(random.randrange(4)))
        _value(random, made)
    elif node.attribute:
        found = random.choice(node.attribute)
        if random.random() < 0.15:
            node.attribute.remove(found)
        else:
            _value(random, found)


def _value(random: Random, attribute: AttributeProto) -> None:
    kind = AttributeProto.AttributeType.Name(attribute.type)
    if kind == "INT":
        attribute.i = random.choice(NUMBERS)
    elif kind == "FLOAT":
        attribute.f = random.choice(REALS)
    elif kind == "STRING":
        attribute.s = random.choice(TEXTS)
    elif kind == "INTS":
        _numbers(random, attribute.ints)
    elif kind == "TENSOR":
        _tensor_field(random, attribute.t)
    elif random.random() < 0.5:
        attribute.type = random.choice(AttributeProto.AttributeType.values())
    else:
        attribute.ref_attr_name = "beta"


def _numbers(random: Random, numbers: Any) -> None:
    """Extends, shortens or changes a list."""
    kind = random.randrange(4)
    if kind == 0 and numbers:
        del numbers[random.randrange(len(numbers))]
    elif kind == 1:
        numbers.append(random.choice(NUMBERS))
    elif numbers:
        numbers[random.randrange(len(numbers))] = random.choice(NUMBERS)


def _shape(random: Random, model: ModelProto) -> None:
    """Changes the shape of an input or output."""
    infos: list[ValueInfoProto] = [*model.graph.input, *model.graph.output]
    if not infos:
        return
    dims = random.choice(infos).type.tensor_type.shape.dim
    kind = random.randrange(4)
    if kind == 0 and dims:
        del dims[random.randrange(len(dims))]
    elif kind == 1:
        dims.add(dim_value=random.choice(SIZES))
    elif dims:
        dim = random.choice(dims)
        dim.Clear()
        if kind == 2:
            dim.dim_value = random.choice(SIZES)
        else:
            dim.dim_param = random.choice(("N", "M", ""))


def _type(random: Random, model: ModelProto) -> None:
    infos = [*model.graph.input, *model.graph.output]
    if infos:
        random.choice(infos).type.tensor_type.elem_type = random.choice(TYPES)


def _tensor(random: Random, model: ModelProto) -> None:
    if model.graph.initializer:
        _tensor_field(random, random.choice(model.graph.initializer))


def _tensor_field(random: Random, tensor: TensorProto) -> None:
    """Changes the dims, type, location or elements of a tensor."""
    kind = random.randrange(6)
    if kind == 0:
        _numbers(random, tensor.dims)
    elif kind == 1:
        tensor.data_type = random.choice(TYPES)
    elif kind == 2:
        tensor.data_location = TensorProto.EXTERNAL
        for key in ("location", "offset", "length"):
            tensor.external_data.add(key=key, value=random.choice(("w.bin", "../secret", "8", "")))
    elif kind == 3 and tensor.raw_data:
        tensor.raw_data = some_bytes(random, tensor.raw_data)
    else:
        _other_elements(random, tensor)


def _other_elements(random: Random, tensor: TensorProto) -> None:
    """Rewrites a tensor with another shape or another element."""
    try:
        array = np.array(numpy_helper.to_array(tensor))
    except Exception:
        return
    if array.dtype == np.int64:
        numbers = array.reshape(-1).tolist()
        _numbers(random, numbers)
        array = np.array(numbers, np.int64)
    elif array.ndim and random.random() < 0.7:
        array = np.concatenate([array, array], random.randrange(array.ndim))
    else:
        array = array[None] if random.random() < 0.5 else array.reshape(-1)
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _wiring(random: Random, model: ModelProto) -> None:
    """Changes an input or the number of outputs of a node."""
    node = _node(random, model)
    names = [info.name for info in model.graph.input]
    names += [tensor.name for tensor in model.graph.initializer]
    names += [name for other in model.graph.node for name in other.output]
    kind = random.randrange(6)
    if kind == 0 and node.input:
        del node.input[-1]
    elif kind == 1 and names:
        node.input.append(random.choice(names))
    elif kind == 2:
        node.output.append(f"more{len(node.output)}")
    elif kind == 3 and node.input:
        node.input[random.randrange(len(node.input))] = ""
    elif node.input and names:
        node.input[random.randrange(len(node.input))] = random.choice(names)


def _operator(random: Random, model: ModelProto) -> None:
    """Changes an operator, or an opset version."""
    if random.random() < 0.5:
        name = random.choice([name for domain, name in supported_operators() if not domain])
        _node(random, model).op_type = name
    elif model.opset_import:
        opset = random.choice(model.opset_import)
        opset.version = random.choice((1, 6, 7, 9, 11, 12, 13, 17, 18, 21, 23, 0, -1, 2**62))


CHANGES: tuple[Callable[[Random, ModelProto], None], ...] = (
    *(_attribute,) * 4,
    *(_shape,) * 3,
    *(_tensor,) * 2,
    _type,
    _wiring,
    _operator,
)
