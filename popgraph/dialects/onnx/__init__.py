"""The `onnx` dialect: what was written, one class per operator and version."""

from __future__ import annotations

from xdsl.ir import Attribute, Dialect, Operation

from popgraph.dialects.onnx.attributes import (
    FloatsAttr,
    GraphsAttr,
    ManyAttr,
    MetadataAttr,
    OpsetAttr,
    RefAttr,
    SparseTensorAttr,
    StringTensorAttr,
    TensorAttr,
    TypeAttr,
    ValueInfoAttr,
)
from popgraph.dialects.onnx.containers import (
    Function,
    Graph,
    Initializer,
    Model,
    Yield,
    model_of,
    value_name,
)
from popgraph.dialects.onnx.custom import Custom
from popgraph.dialects.onnx.op import OnnxOp, SchemaOp
from popgraph.dialects.onnx.schemas import OPERATORS, PREFIXES, op_base, op_class
from popgraph.dialects.onnx.types import (
    DimsAttr,
    MapType,
    NamesAttr,
    OpaqueType,
    OptType,
    SeqType,
    SparseType,
    StringType,
    UnknownType,
    tensor_type,
)

_CONTAINERS: list[type[Operation]] = [Custom, Function, Graph, Initializer, Model, Yield]
_ATTRIBUTES: list[type[Attribute]] = [
    DimsAttr,
    FloatsAttr,
    GraphsAttr,
    ManyAttr,
    MapType,
    MetadataAttr,
    NamesAttr,
    OpaqueType,
    OpsetAttr,
    OptType,
    RefAttr,
    SeqType,
    SparseTensorAttr,
    SparseType,
    StringTensorAttr,
    StringType,
    TensorAttr,
    TypeAttr,
    UnknownType,
    ValueInfoAttr,
]


def _dialect(prefix: str) -> Dialect:
    own: list[type[Operation]] = [op for op in OPERATORS if op.name.startswith(f"{prefix}.")]
    if prefix == "onnx":
        return Dialect(prefix, [*_CONTAINERS, *own], _ATTRIBUTES)
    return Dialect(prefix, own, [])


ONNX, ONNX_ML, ONNX_PREVIEW, ONNX_TRAINING = DIALECTS = tuple(map(_dialect, PREFIXES.values()))
"""One dialect per standard domain; `DIALECTS` holds all four."""

__all__ = [
    "DIALECTS",
    "ONNX",
    "ONNX_ML",
    "ONNX_PREVIEW",
    "ONNX_TRAINING",
    "OPERATORS",
    "Custom",
    "Function",
    "Graph",
    "Initializer",
    "Model",
    "OnnxOp",
    "SchemaOp",
    "TensorAttr",
    "Yield",
    "model_of",
    "op_base",
    "op_class",
    "tensor_type",
    "value_name",
]
