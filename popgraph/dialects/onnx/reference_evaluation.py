"""Evaluates one node with onnx's reference implementation, see `evaluation.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from onnx import FunctionProto, NodeProto, ValueInfoProto, helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from xdsl.ir import SSAValue

from popgraph.dialects.onnx.images import ImageDecoder
from popgraph.dialects.onnx.older_meaning import older
from popgraph.dialects.onnx.op import OnnxOp
from popgraph.dialects.onnx.pools import AveragePool, GlobalMaxPool, MaxPool
from popgraph.dialects.onnx.protos import write_node
from popgraph.dialects.program import WeightStore


def evaluate_node(
    op: OnnxOp,
    values: Mapping[SSAValue, Any],
    store: WeightStore,
    opsets: Mapping[str, int],
    functions: Iterable[FunctionProto] = (),
) -> list[Any]:
    """The node's outputs, see `evaluation.evaluate_node`."""
    names: dict[SSAValue, str] = {}

    def name_of(value: SSAValue) -> str:
        if not op.regions and value in values and values[value] is None:
            return ""
        return names.setdefault(value, f"v{len(names)}")

    node = write_node(op, store, name_of)
    feeds = {name: values[value] for value, name in names.items() if value in values}
    if (op.domain, op.op_type) in GIVING_FLOATS:
        feeds = {name: _as_floats(array) for name, array in feeds.items()}
    outputs = [name for name in node.output if name]
    versions = dict(opsets)
    if not op.regions:
        versions[op.domain] = op.since_version
    own = [
        AveragePool,
        GlobalMaxPool,
        ImageDecoder,
        MaxPool,
        *(older(op.op_type, op.since_version) if not op.domain else ()),
    ]
    runner = _runner(node, feeds, outputs, versions, functions, own)
    found = dict(zip(outputs, runner.run(outputs, feeds), strict=True))
    return [_as_array(found.get(name)) for name in node.output]


GIVING_FLOATS = frozenset(
    ("ai.onnx.ml", name)
    for name in (
        "LinearClassifier", "LinearRegressor", "Normalizer", "SVMClassifier", "SVMRegressor",
        "Scaler", "TreeEnsembleClassifier", "TreeEnsembleRegressor",
    )
)  # fmt: skip
"""Operators that take integers and give floats: onnx's reference cuts off their fractions."""


def _as_floats(array: Any) -> Any:
    return array.astype(np.float32) if array.dtype.kind in "iu" else array


def _runner(
    node: NodeProto,
    feeds: Mapping[str, Any],
    outputs: list[str],
    versions: Mapping[str, int],
    functions: Iterable[FunctionProto],
    own: list[type[OpRun]],
) -> ReferenceEvaluator:
    """Of a model that holds this node alone: only then does the reference heed its version."""
    graph = helper.make_graph(
        [node],
        "node",
        [ValueInfoProto(name=name) for name in feeds],
        [ValueInfoProto(name=name) for name in outputs],
    )
    imports = [helper.make_opsetid(*pair) for pair in versions.items()]
    model = helper.make_model(graph, opset_imports=imports, functions=list(functions))
    return ReferenceEvaluator(model, new_ops=own)


def _as_array(value: Any) -> Any:
    """Scalars of NumPy as arrays; sequences stay lists."""
    return np.asarray(value) if isinstance(value, np.generic | int | float) else value
