"""The group of a test: the family of operators that it exercises."""

from __future__ import annotations

from collections.abc import Iterator

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, defs

OTHER = "other"
STRUCTURE = "structure fed at run time"

FAMILIES = {
    "control flow": {"If", "Loop", "Scan"},
    "recurrent": {"GRU", "LSTM", "RNN"},
    "sizes that data decide": {
        "Compress",
        "ImageDecoder",
        "NonMaxSuppression",
        "NonZero",
        "StringSplit",
        "Unique",
    },
    "quantization": {
        "ConvInteger",
        "DequantizeLinear",
        "DynamicQuantizeLinear",
        "MatMulInteger",
        "QLinearConv",
        "QLinearMatMul",
        "QuantizeLinear",
    },
}
"""Operators that put a test into a group; the first match wins."""

DOMAINS = {"ai.onnx.ml": "ml", "ai.onnx.preview.training": "training"}
CONTAINERS = "sequences and optionals"
MAKING_CONTAINERS = {
    "ConcatFromSequence", "Optional", "OptionalGetElement", "OptionalHasElement", "SequenceAt",
    "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength",
    "SequenceMap", "SplitToSequence",
}  # fmt: skip
"""Operators on containers; their models may have tensor inputs and outputs only."""
GROUPS = (*DOMAINS.values(), "strings", CONTAINERS, *FAMILIES, STRUCTURE, OTHER)
"""Groups in matching order, which is also that of the report."""

STRUCTURAL = {
    "axes", "axis", "block_shape", "delta", "depth", "dft_length", "ends", "frame_length",
    "frame_step", "image_shape", "k", "limit", "num_mel_bins", "output_shape", "pads",
    "ratio", "repeats", "roi", "scales", "shape", "size", "sizes", "split", "start", "starts",
    "steps", "training_mode",
}  # fmt: skip
"""Names of ONNX inputs whose values determine the shape or structure of an output."""
STRUCTURAL_SINCE = {("ConstantOfShape", 0), ("TopK", 1)}
"""The same, called as other operators call data."""

SHAPES = {"Shape", "Size"}
"""Operators whose results do not depend on values."""


def nodes_of(graph: GraphProto) -> Iterator[NodeProto]:
    """All nodes, those of inner graphs included."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from nodes_of(inner)


def group_of(model: ModelProto) -> str:
    """The first group that fits."""
    nodes = list(nodes_of(model.graph))
    for domain, name in DOMAINS.items():
        if any(node.domain == domain for node in nodes):
            return name
    types = [info.type for info in (*model.graph.input, *model.graph.output)]
    if any(_is_text(type_) for type_ in types):
        return "strings"
    operators = {node.op_type for node in nodes}
    if any(_is_container(type_) for type_ in types) or operators & MAKING_CONTAINERS:
        return CONTAINERS
    for name, family in FAMILIES.items():
        if operators & family:
            return name
    return STRUCTURE if _is_fed_structure(model) else OTHER


def _is_container(type_: TypeProto) -> bool:
    return type_.WhichOneof("value") in ("sequence_type", "optional_type")


def _is_text(type_: TypeProto) -> bool:
    match type_.WhichOneof("value"):
        case "tensor_type":
            return bool(type_.tensor_type.elem_type == TensorProto.STRING)
        case "sequence_type":
            return _is_text(type_.sequence_type.elem_type)
        case "optional_type":
            return _is_text(type_.optional_type.elem_type)
    return False


def _is_fed_structure(model: ModelProto) -> bool:
    """Whether an input of the model determines a shape."""
    versions = {found.domain: found.version for found in model.opset_import}
    fed = {info.name for info in model.graph.input}
    fed -= {tensor.name for tensor in model.graph.initializer}
    for node in model.graph.node:
        reached = [at for at, name in enumerate(node.input) if name in fed]
        if any(_is_structural(node, at, versions) for at in reached):
            return True
        if reached and node.op_type not in SHAPES:
            fed |= set(node.output)
    return False


def _is_structural(node: NodeProto, at: int, versions: dict[str, int]) -> bool:
    if (node.op_type, at) in STRUCTURAL_SINCE:
        return True
    try:
        schema = defs.get_schema(node.op_type, versions.get(node.domain, 1), node.domain)
    except defs.SchemaError:
        return False
    inputs = schema.inputs
    return at < len(inputs) and inputs[at].name in STRUCTURAL
