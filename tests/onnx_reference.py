"""
`onnx.reference` as the meaning of the onnx level: an independent oracle.

The package evaluates most operators by their lowering, so it would agree with any lowering.
`conftest` replaces it by this oracle for tests that compare levels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import NodeProto, ValueInfoProto, helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from popgraph.backends.reference.onnx_level import Interpreter, Values
from popgraph.dialects.onnx import model_of
from popgraph.dialects.onnx.op import OnnxOp
from popgraph.dialects.onnx.protos import write_node
from popgraph.dialects.program import WeightStore
from popgraph.support.arrays import Array
from tests.older_meaning import AveragePool, GlobalMaxPool, MaxPool, older

OWN = frozenset({"CastMap", "CategoryMapper", "DictVectorizer", "ImageDecoder", "LabelEncoder"})
OWN |= {"OneHotEncoder", "ZipMap"}
"""Operators that onnx.reference computes unlike ONNX or onnxruntime."""


class Oracle(Interpreter):
    """Computes nodes by onnx.reference, or by the function bodies of their schemas."""

    def evaluate(self, op: OnnxOp, values: Values) -> list[Any]:
        if op.op_type in OWN:
            return super().evaluate(op, values)
        try:
            return evaluate_node(op, values, self.store, self.model.opset_versions)
        except Exception:
            if (body := self.defined(op)) is None:
                raise
            return self.call(op, body, values)


def run_onnx(module: ModuleOp, inputs: Mapping[str, Array], store: WeightStore) -> dict[str, Array]:
    """Replaces `popgraph.backends.reference.onnx_level.run_onnx`."""
    return Oracle(model_of(module), store).graph(inputs)


def evaluate_node(
    op: OnnxOp,
    values: Mapping[SSAValue, Any],
    store: WeightStore,
    opsets: Mapping[str, int],
) -> list[Any]:
    """The outputs of a node without inner graphs."""
    names: dict[SSAValue, str] = {}

    def name_of(value: SSAValue) -> str:
        if value in values and values[value] is None:
            return ""
        return names.setdefault(value, f"v{len(names)}")

    node = write_node(op, store, name_of)
    feeds = {name: values[value] for value, name in names.items() if value in values}
    if (op.domain, op.op_type) in GIVING_FLOATS:
        feeds = {name: _as_floats(array) for name, array in feeds.items()}
    outputs = [name for name in node.output if name]
    versions = dict(opsets)
    versions[op.domain] = op.since_version
    own = [
        AveragePool,
        GlobalMaxPool,
        MaxPool,
        *(older(op.op_type, op.since_version) if not op.domain else ()),
    ]
    runner = _runner(node, feeds, outputs, versions, own)
    found = dict(zip(outputs, runner.run(outputs, feeds), strict=True))
    return [_as_array(found.get(name)) for name in node.output]


GIVING_FLOATS = frozenset(
    ("ai.onnx.ml", name)
    for name in (
        "LinearClassifier", "LinearRegressor", "Normalizer", "SVMClassifier", "SVMRegressor",
        "Scaler", "TreeEnsembleClassifier", "TreeEnsembleRegressor",
    )
)  # fmt: skip
"""Operators from integers to floats, whose fractions onnx's reference cuts off."""


def _as_floats(array: Any) -> Any:
    return array.astype(np.float32) if array.dtype.kind in "iu" else array


def _runner(
    node: NodeProto,
    feeds: Mapping[str, Any],
    outputs: list[str],
    versions: Mapping[str, int],
    own: list[type[OpRun]],
) -> ReferenceEvaluator:
    """An evaluator of a model with this node alone, so that the reference respects its version."""
    graph = helper.make_graph(
        [node],
        "node",
        [ValueInfoProto(name=name) for name in feeds],
        [ValueInfoProto(name=name) for name in outputs],
    )
    imports = [helper.make_opsetid(*pair) for pair in versions.items()]
    model = helper.make_model(graph, opset_imports=imports)
    return ReferenceEvaluator(model, new_ops=own)


def _as_array(value: Any) -> Any:
    """Converts NumPy scalars to arrays, and keeps lists."""
    return np.asarray(value) if isinstance(value, np.generic | int | float) else value
