"""Examples of operators that ONNX's suite lacks, or has only for one type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper, parser


@dataclass(frozen=True)
class Example:
    """A node, and the values of its inputs that are present."""

    node: NodeProto
    inputs: Sequence[Any]
    result: str = "tensor(float)"
    """The type of a result that only attributes decide."""


def example(
    operator: str, *inputs: Any, domain: str = "", outputs: int = 1, **more: Any
) -> Example:
    """An example with attributes; None is an absent input."""
    names = ["" if one is None else f"x{at}" for at, one in enumerate(inputs)]
    results = [f"y{at}" for at in range(outputs)]
    node = helper.make_node(operator, names, results, domain=domain, **more)
    return Example(node, [one for one in inputs if one is not None])


def classical(operator: str, *inputs: Any, outputs: int = 1, **more: Any) -> Example:
    return example(operator, *inputs, domain="ai.onnx.ml", outputs=outputs, **more)


def ramp(*shape: int, start: float = 1, step: float = 1) -> Any:
    return (start + step * np.arange(np.prod(shape, dtype=int))).reshape(shape).astype(np.float32)


def held(kind: str, numbers: Sequence[float]) -> TensorProto:
    """A tensor for an attribute."""
    return numpy_helper.from_array(np.array(numbers, kind), "held")


ROWS = np.array([[1, 2, 3], [4, 0, 6], [2, 2, 1], [0, 5, 2]], np.float32)
TREE: dict[str, Any] = {
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [1, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_values": [2.0, 0.0, 0.0],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
}
SVM: dict[str, Any] = {
    "kernel_type": "LINEAR",
    "kernel_params": [0.0, 0.0, 0.0],
    "coefficients": [1.0, 0.5, -0.5],
}
SEQUENCE = [ramp(2, 3), ramp(2, 3, start=3)]
AT = np.array(1, np.int64)

ZERO = np.array(0, np.uint8)
HALF = np.array(0.5, np.float32)
TURNS = np.array(3, np.int64)
YES = np.array(True)


def control(operator: str, *inputs: Any, result: str = "tensor(float)", **graphs: str) -> Example:
    """An example whose graphs are written in ONNX's text."""
    more = {name: parser.parse_graph(text) for name, text in graphs.items() if "=>" in text}
    numbers = {name: int(text) for name, text in graphs.items() if "=>" not in text}
    made = example(operator, *inputs, **more, **numbers)
    body = next((one.g for one in made.node.attribute if one.name == "body"), None)
    outputs = len(body.output) - (operator == "Loop") if body is not None else 1
    made.node.output[:] = [f"y{at}" for at in range(outputs)]
    return Example(made.node, made.inputs, result)


def branch(type_: str, *nodes: str) -> str:
    return (
        f"g () => ({type_} r) {{ c = Constant <value = float[2] {{1, 2}}> () {' '.join(nodes)} }}"
    )


def turn(type_: str) -> str:
    """The text of a loop body that keeps its state."""
    states = f"{type_} s) => (bool d, {type_} t)"
    return f"g (int64 i, bool c, {states} {{ d = Identity (c) t = Identity (s) }}"


def both(type_: str, result: str, *nodes: str) -> Example:
    then, other = branch(type_, *nodes), branch(type_, *nodes)
    return control("If", YES, then_branch=then, else_branch=other, result=result)


TURN = (
    "g (int64 i, bool c, float[2] s) => (bool d, float[2] t, float[2] r)"
    "{ d = Identity (c) t = Identity (s) r = Identity (s) }"
)
KEPT = "g (float[2] x) => (float[2] r) { r = Identity (x) }"
CORNERS = np.array([0, 0, 0.25, 0.25, 1, 1, 0.75, 0.75], np.float32)
REGIONS = np.array([[0, 0, 0, 2, 3], [1, 1, 1, 3, 3]], np.float32)
ROW = "g (float[2] s, float[2] x) => (float[2] t, float[2] r) { t = Identity (s) r = Identity (x) }"

GRID = np.array([[[[-0.5, 0.25], [0.5, -1.0]]]], np.float32)

PATTERNS = ("uint2", "uint4", "uint8", "uint16", "uint32", "uint64")

SOME: Sequence[Example] = (
    *(
        example("BitCast", np.array([1, 2]).astype(getattr(ml_dtypes, name, name)),
                to=TensorProto.DataType.Value(name.upper()))
        for name in PATTERNS
    ),
    example("Cast", ramp(2, 3), to=TensorProto.FLOAT),
    example("CastLike", ramp(2, 3), ramp(1)),
    example("GridSample", ramp(1, 1, 3, 3), GRID),
    example("GridSample", ramp(1, 1, 3, 3), GRID, mode="nearest"),
    example("SequenceConstruct", ramp(2, 3), ramp(2, 3)),
    example("ConcatFromSequence", SEQUENCE, axis=0),
    example("MaxRoiPool", ramp(2, 1, 4, 4), REGIONS, pooled_shape=[2, 2]),
    both("float[2]", "tensor(float)", "r = Identity (c)"),
    both("seq(float[2])", "seq(tensor(float))", "r = SequenceConstruct (c, c)"),
    both("optional(float[2])", "optional(tensor(float))", "r = Optional (c)"),
    both(
        "optional(seq(float[2]))", "optional(seq(tensor(float)))",
        "s = SequenceConstruct (c, c) r = Optional (s)",
    ),
    control("Loop", TURNS, YES, ramp(2), body=TURN),
    control("Loop", TURNS, YES, [ramp(2), ramp(2)], body=turn("seq(float[2])")),
    control("Loop", TURNS, YES, ramp(2), body=turn("optional(float[2])")),
    control("Loop", TURNS, YES, SEQUENCE, body=turn("optional(seq(float[2, 3]))")),
    control("Scan", ramp(2), ramp(3, 2), body=ROW, num_scan_inputs="1"),
    control("Scan", None, ramp(1, 2), ramp(1, 3, 2), body=ROW, num_scan_inputs="1"),
    control("SequenceMap", [ramp(2), ramp(2)], body=KEPT),
    control(
        "SequenceMap", [ramp(2), ramp(2)], ramp(2),
        body="g (float[2] x, float[2] z) => (float[2] r) { r = Identity (z) }",
    ),
    example("SequenceInsert", [ramp(2), ramp(2)], ramp(2)),
    example("OptionalGetElement", [ramp(2), ramp(2)]),
    example("OptionalHasElement", [ramp(2), ramp(2)]),
    example("SplitToSequence", ramp(4, 2), axis=0),
    example("DequantizeLinear", np.array([1, 2, 0, 1], np.uint8), HALF),
    example("DequantizeLinear", np.array([1, 2, 0, 1], np.uint8), HALF, output_dtype=1),
    example("QuantizeLinear", ramp(4, start=-2), HALF, ZERO),
    example("QuantizeLinear", ramp(4, start=1), HALF, ZERO),
    example("QuantizeLinear", ramp(4, start=-2), HALF),
    example("Dropout", ramp(2, 3), HALF, np.array(False)),
    example("Dropout", ramp(2, 3)),
    example("BatchNormalization", ramp(1, 2, 2), *(ramp(2) for _ in range(4))),
    example("Pad", ramp(2, 2), np.array([0, 1, 1, 0], np.int64), np.array(1, np.float32)),
    example("Pad", ramp(2, 2), np.array([0, 1, 1, 0], np.int64), mode="edge"),
    example("Split", ramp(6), np.array([2, 4], np.int64), outputs=2),
    example("PRelu", ramp(1, 2, 2, start=-2), ramp(2, start=0.5)),
    example("PRelu", ramp(2, 2, start=-2), ramp(2, 2, start=0.5)),
    example("Resize", ramp(1, 1, 2, 2), None, np.array([1, 1, 2, 2], np.float32)),
    example("Resize", ramp(1, 1, 2, 2), np.array([1, 1, 2, 2], np.float32)),
    example(
        "Resize", ramp(1, 1, 4, 4), CORNERS, None,
        np.array([1, 1, 3, 3], np.int64), coordinate_transformation_mode="tf_crop_and_resize",
    ),
    example("RandomNormalLike", ramp(2, 3), dtype=TensorProto.FLOAT),
    example("RandomUniformLike", ramp(2, 3), dtype=TensorProto.FLOAT),
    example("Tile", ramp(2, 2), np.array([2, 1], np.int64)),
    example("Tile", ramp(2, 2), np.array(2, np.float32), np.array(1, np.float32)),
    example("Upsample", ramp(1, 1, 2, 2), height_scale=2.0, width_scale=2.0),
    example("Upsample", ramp(1, 1, 2, 2), np.array([1, 1, 2, 2], np.float32)),
    example("ScatterND", ramp(4), np.array([[1], [3]]), ramp(2, start=5)),
    example("Scatter", ramp(2, 2), np.array([[1, 0]]), ramp(1, 2, start=5)),
    example("Multinomial", ramp(2, 3), sample_size=4, dtype=TensorProto.INT32),
    classical(
        "LabelEncoder", ramp(3), keys_floats=[1.0, 2.0], values_floats=[5.0, 6.0]
    ),
    classical(
        "LabelEncoder", ramp(3), keys_tensor=held("f", [1, 2]), values_tensor=held("f", [5, 6]),
        default_tensor=held("f", [9]),
    ),
    classical("LabelEncoder", np.array([1, 2, 3]), keys_int64s=[1, 2], values_int64s=[5, 6]),
    classical("OneHotEncoder", np.array([1, 2, 3]), cats_int64s=[1, 2]),
    classical("OneHotEncoder", np.array(["1", "2", "3"], object), cats_strings=["1", "2"]),
    example("ConcatFromSequence", SEQUENCE, axis=0),
    example("SequenceAt", SEQUENCE, AT),
    example("SequenceConstruct", *SEQUENCE),
    example("SequenceEmpty", dtype=TensorProto.FLOAT),
    example("SequenceErase", SEQUENCE, AT),
    example("SequenceLength", SEQUENCE),
    example("Optional", ramp(2, 3)),
    example("Optional", SEQUENCE),
    example("GlobalLpPool", ramp(1, 2, 3, 3), p=2),
    example("Multinomial", ramp(2, 3), sample_size=4),
    example("RandomNormal", shape=[2, 3]),
    example("RandomNormalLike", ramp(2, 3)),
    example("RandomUniform", shape=[2, 3]),
    example("RandomUniformLike", ramp(2, 3)),
    classical("CastMap", {1: 2.0, 3: 4.0}, cast_to="TO_FLOAT"),
    classical(
        "CategoryMapper", np.array([1, 2, 3], np.int64), cats_int64s=[1, 2], cats_strings=["1", "2"]
    ),
    classical("DictVectorizer", {1: 2.0, 3: 4.0}, int64_vocabulary=[1, 2, 3]),
    classical("DictVectorizer", {"1": 2.0, "3": 4.0}, string_vocabulary=["1", "2", "3"]),
    classical("FeatureVectorizer", ROWS, ROWS, inputdimensions=[3, 3]),
    classical("Imputer", ROWS, imputed_value_floats=[7.0], replaced_value_float=2.0),
    classical("Imputer", ROWS, imputed_value_int64s=[7], replaced_value_int64=2),
    classical(
        "LinearClassifier", ROWS, outputs=2, classlabels_ints=[3, 5], multi_class=0,
        coefficients=[1.0, 0.5, -1.0, -0.5, 1.0, 0.5], intercepts=[0.25, -0.25],
    ),
    classical("LinearRegressor", ROWS, coefficients=[1.0, 0.5, -1.0], intercepts=[0.25]),
    classical("Normalizer", ROWS, norm="L1"),
    classical("Scaler", ROWS, offset=[1.0, 0.0, 2.0], scale=[2.0, 1.0, 0.5]),
    classical(
        "SVMClassifier", ROWS, outputs=2, classlabels_ints=[0, 1], vectors_per_class=[1, 1],
        support_vectors=[1.0, 0.0, 2.0, 0.0, 1.0, 1.0], rho=[0.25],
        **SVM | {"coefficients": [1.0, -0.5]},
    ),
    classical(
        "SVMRegressor", ROWS, n_supports=3, rho=[0.25],
        support_vectors=[1.0, 0.0, 2.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0], **SVM,
    ),
    classical(
        "TreeEnsembleClassifier", ROWS, outputs=2, classlabels_int64s=[0, 1],
        class_treeids=[0, 0], class_nodeids=[1, 2], class_ids=[0, 1], class_weights=[1.0, 1.0],
        **TREE,
    ),
    classical(
        "TreeEnsembleRegressor", ROWS, n_targets=1, target_treeids=[0, 0], target_nodeids=[1, 2],
        target_ids=[0, 0], target_weights=[1.5, -2.5], **TREE,
    ),
    classical("ZipMap", ROWS, classlabels_int64s=[1, 2, 3]),
    classical("ZipMap", ROWS, classlabels_strings=["a", "b", "c"]),
)  # fmt: skip


def _by_operator() -> dict[tuple[str, str], list[Example]]:
    found: dict[tuple[str, str], list[Example]] = {}
    for one in SOME:
        found.setdefault((one.node.domain, one.node.op_type), []).append(one)
    return found


MADE: Mapping[tuple[str, str], Sequence[Example]] = _by_operator()

NEEDED: Mapping[tuple[str, str], Any] = {
    ("", "consumed_inputs"): lambda values: [0] * len(values),
    ("Cast", "to"): "FLOAT",
    ("Upsample", "height_scale"): 2.0,
    ("Upsample", "width_scale"): 2.0,
}
"""Attributes that old versions require, by operator ("" is any) and name."""
