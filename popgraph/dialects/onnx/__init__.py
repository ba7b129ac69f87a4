"""The `onnx` dialect: the model as written, one class per operator and version."""

from __future__ import annotations

from functools import cache

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
from popgraph.dialects.onnx.containers import Function, Model, model_of, value_name
from popgraph.dialects.onnx.custom import Custom
from popgraph.dialects.onnx.initializer import Initializer
from popgraph.dialects.onnx.op import Graph, OnnxOp, Yield
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.onnx.schemas import all_schemas, is_removed, op_base, op_class, operators
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


@cache
def dialect(name: str) -> Dialect:
    """The dialect of a standard domain, with all its operators."""
    own: list[type[Operation]] = [op for op in operators() if op.name.startswith(f"{name}.")]
    if name == "onnx":
        return Dialect(name, [*_CONTAINERS, *own], _ATTRIBUTES)
    return Dialect(name, own, [])


__all__ = [
    "all_schemas",
    "Custom",
    "Function",
    "Graph",
    "Initializer",
    "Model",
    "OnnxOp",
    "SchemaOp",
    "TensorAttr",
    "Yield",
    "dialect",
    "is_removed",
    "model_of",
    "op_base",
    "op_class",
    "operators",
    "tensor_type",
    "value_name",
]
