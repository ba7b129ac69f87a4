"""Nodes that break a constraint of their operator: some for every operator that compiles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper, parser

from popgraph.dialects.graphcore import GRAPHCORE, Binary, Unary
from popgraph.support import dtypes

LATEST = 24
PREVIEW = "ai.onnx.preview.training"


@dataclass(frozen=True)
class Broken:
    """
    An illegal node.

    `inputs` are types such as `f32[2, 3]`, constants such as `i64{1, 2}` (a list) or `i64=1` (a
    scalar), and `_` for an absent input.
    """

    inputs: str
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    opset: int = LATEST


def row(inputs: str, outputs: int = 1, opset: int = LATEST, **attributes: Any) -> Broken:
    return Broken(inputs, attributes, outputs, opset)


_INPUT = re.compile(r"(_)|(\w+)\[([^\]]*)\]|(\w+)\{([^}]*)\}|(\w+)=(\S+)")


def model_of(operator: str, node: Broken) -> ModelProto:
    """A model of the broken node alone."""
    domain, _, name = operator.rpartition(".")
    names, infos, constants = [], [], []
    for place, found in enumerate(_INPUT.finditer(node.inputs)):
        label = "" if found[1] else f"x{place}"
        names.append(label)
        if found[2]:
            shape = [int(size) for size in found[3].split(",") if size.strip()]
            infos.append(helper.make_tensor_value_info(label, _number(found[2]), shape))
        elif not found[1]:
            dtype = np.dtype(dtypes.BY_NAME[found[4] or found[6]].numpy)
            numbers = [float(one) for one in (found[5] or "").split(",") if one.strip()]
            array = np.array(numbers if found[4] else float(found[7]), dtype)
            constants.append(numpy_helper.from_array(array, label))
    outputs = [f"y{place}" for place in range(node.outputs)]
    made = helper.make_node(name, names, outputs, domain=domain, **node.attributes)
    graph = helper.make_graph(
        [made], "g", infos, [helper.make_empty_tensor_value_info(outputs[0])], constants
    )
    classical = 5 if name == "TreeEnsemble" else 3
    versions = {
        "": node.opset, "ai.graphcore": 1, "ai.onnx.ml": classical, PREVIEW: 1,
    }  # fmt: skip
    opsets = [helper.make_opsetid(*pair) for pair in versions.items()]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _number(dtype: str) -> int:
    return TensorProto.STRING if dtype == "str" else dtypes.BY_NAME[dtype].onnx


def _each(names: str, *nodes: Broken) -> Iterator[tuple[str, tuple[Broken, ...]]]:
    for name in names.split():
        yield name, nodes


def _of_operations() -> Iterator[tuple[str, tuple[Broken, ...]]]:
    """
    Broken nodes of operators that are one elementwise operation: element types it does not admit.

    Binary ones also get shapes that do not broadcast, and, outside of ONNX's domain, too few
    operands.
    """
    for op in GRAPHCORE.operations:
        if not issubclass(op, Unary | Binary):
            continue
        names = op.ELEMENTS.names
        right = "f32" if "f32" in names else "i32"
        wrong = next(kind for kind in ("bool", "f32", "str") if kind not in names)
        for operator in op.ONNX.split():
            own = "." in operator
            if issubclass(op, Unary):
                yield operator, (row(f"{wrong}[2]"), row("" if own else "str[2]"))
            else:
                kind = "bool" if operator in ("And", "Or", "Xor") else right
                yield (
                    operator,
                    (
                        row(f"{wrong}[2] {wrong}[2]"),
                        row(f"{kind}[2, 3] {kind}[2, 4]"),
                        row(f"{kind}[2, 3] {kind}[3, 3]"),
                        row(f"{kind}[2]" if own else f"{kind}[2] i64[2]"),
                    ),
                )


def _recurrences() -> Iterator[tuple[str, tuple[Broken, ...]]]:
    """Broken recurrences of 5 steps, batch 2, 3 features and state size 4."""
    for name, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        x, rows = "f32[5, 2, 3]", 4 * gates
        w, r, b = f"f32[1, {rows}, 3]", f"f32[1, {rows}, 4]", f"f32[1, {2 * rows}]"
        nodes = [
            row(f"{x} {w}"),
            row(f"f32[2, 3] {w} {r}"),
            row(f"{x} f32[1, {rows}, 2] {r}"),
            row(f"{x} f32[1, {rows + 1}, 3] {r}"),
            row(f"{x} {w} f32[1, {rows}, 5]"),
            row(f"{x} {w} f32[1, {rows}, 0]"),
            row(f"{x} {w} {r}", direction="bidirectional"),
            row(f"{x} {w} {r}", direction="backward"),
            row(f"{x} {w} {r}", hidden_size=5),
            row(f"{x} {w} {r}", layout=2),
            row(f"{x} {w} {r}", clip=0.0),
            row(f"{x} {w} {r}", activations=["Tanh"] * 4),
            row(f"{x} {w} {r}", activations=["Cosh"] * {"RNN": 1, "GRU": 2, "LSTM": 3}[name]),
            row(f"{x} {w} {r}", activations=["ScaledTanh"] * {"RNN": 1, "GRU": 2, "LSTM": 3}[name]),
            row(f"{x} {w} {r} f32[1, {rows}]"),
            row(f"{x} {w} {r} {b} i32[3]"),
            row(f"{x} {w} {r} {b} i64[2]"),
            row(f"{x} {w} {r} {b} _ f32[2, 1, 4]"),
            row(f"{x} {w} {r} {b} _ f32[1, 2, 4]", layout=1),
        ]
        if name == "LSTM":
            nodes += [
                row(f"{x} {w} {r} {b} _ _ f32[1, 2, 3]"),
                row(f"{x} {w} {r} {b} _ _ _ f32[1, 16]"),
                row(f"{x} {w} {r}", input_forget=2),
            ]
        yield name, tuple(nodes)


_STUMP: dict[str, Any] = {
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [1, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_values": [0.5, 0.0, 0.0],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
}
"""Attributes of a tree with one branch."""


def _stumps(prefix: str, **more: Any) -> Iterator[Broken]:
    """Malformed trees of classifiers and regressors."""
    leaves: dict[str, Any] = {
        f"{prefix}_treeids": [0, 0],
        f"{prefix}_nodeids": [1, 2],
        f"{prefix}_ids": [0, 1],
        f"{prefix}_weights": [1.0, 2.0],
    }
    whole = _STUMP | leaves | more
    for wrong in (
        {"nodes_truenodeids": [7, 0, 0]},
        {"nodes_truenodeids": [0, 0, 0]},
        {"nodes_nodeids": [0, 1, 1]},
        {"nodes_featureids": [1, 0]},
        {"nodes_featureids": [4, 0, 0]},
        {"nodes_values": [0.5]},
        {"nodes_missing_value_tracks_true": [1]},
        {f"{prefix}_ids": [0, 9]},
        {f"{prefix}_nodeids": [1, 7]},
        {f"{prefix}_weights": [1.0]},
        {"base_values": [1.0, 2.0, 3.0, 4.0, 5.0]},
        {"post_transform": "TANH"},
    ):
        yield row("f32[5, 3]", 2 if prefix == "class" else 1, **whole | wrong)
    yield row("f32[5, 3, 2]", 2 if prefix == "class" else 1, **whole)


def _classical() -> Iterator[tuple[str, tuple[Broken, ...]]]:
    """Broken nodes of ai.onnx.ml."""
    x = "f32[5, 3]"
    words: dict[str, Any] = {"post_transform": "TANH"}
    svm: dict[str, Any] = {
        "vectors_per_class": [1, 1],
        "support_vectors": [1.0] * 6,
        "coefficients": [1.0, 2.0],
        "rho": [0.5],
        "classlabels_ints": [0, 1],
    }
    regressor: dict[str, Any] = {
        "n_supports": 2,
        "support_vectors": [1.0] * 6,
        "coefficients": [1.0, 2.0],
    }
    linear: dict[str, Any] = {"coefficients": [1.0] * 6, "intercepts": [0.0, 1.0]}
    stump: dict[str, Any] = {
        "tree_roots": [0],
        "nodes_featureids": [1],
        "nodes_modes": numpy_helper.from_array(np.zeros(1, np.uint8)),
        "nodes_splits": numpy_helper.from_array(np.zeros(1, np.float32)),
        "nodes_truenodeids": [0],
        "nodes_trueleafs": [1],
        "nodes_falsenodeids": [1],
        "nodes_falseleafs": [1],
        "leaf_targetids": [0, 0],
        "leaf_weights": numpy_helper.from_array(np.ones(2, np.float32)),
        "n_targets": 1,
    }
    rows: dict[str, list[Broken]] = {
        "ArrayFeatureExtractor": [
            row(f"{x} f32[1]"),
            row(x),
            row("bool[5, 3] i64[1]"),
            row(f"{x} i64{{3}}"),
            row(f"{x} i64{{-1}}"),
        ],
        "Binarizer": [row("bool[2]"), row("str[2]")],
        "FeatureVectorizer": [
            row(x, inputdimensions=[3, 4]),
            row(f"{x} f32[4, 3]", inputdimensions=[3, 3]),
        ],
        "Imputer": [
            row(x),
            row(x, imputed_value_floats=[1.0, 2.0]),
            row("i64[5, 3]", imputed_value_floats=[1.0]),
        ],
        "LabelEncoder": [
            row("i64[2]", keys_int64s=[1, 2], values_int64s=[1]),
            row("i64[2]", keys_floats=[1.0], values_int64s=[1]),
        ],
        "LinearClassifier": [
            row(x, 2, **linear | words),
            row(x, 2, **linear | {"coefficients": [1.0] * 5}),
            row(x, 2, **linear | {"intercepts": [1.0]}),
            row(x, 2, classlabels_ints=[1], **linear),
        ],
        "LinearRegressor": [
            row(x, targets=2, **linear | words),
            row(x, targets=3, **linear),
            row(x, targets=2, **linear | {"intercepts": [1.0]}),
        ],
        "Normalizer": [row(x, norm="L3"), row("str[2]")],
        "OneHotEncoder": [row("bool[2]", cats_int64s=[1])],
        "SVMClassifier": [
            row(x, 2, **svm | {"kernel_type": "CUBIC"}),
            row(x, 2, **svm | {"support_vectors": [1.0] * 5}),
            row(x, 2, **svm | {"support_vectors": [1.0] * 4}),
            row(x, 2, **svm | {"rho": [1.0, 2.0]}),
            row(x, 2, **svm | {"coefficients": [1.0]}),
            row(x, 2, **svm | {"classlabels_ints": [0, 1, 2]}),
            row(x, 2, **svm | {"prob_a": [1.0, 2.0], "prob_b": [1.0]}),
        ],
        "SVMRegressor": [
            row(x, **regressor | {"kernel_type": "CUBIC"}),
            row(x, **regressor | {"coefficients": [1.0]}),
            row(x, **regressor | {"support_vectors": [1.0] * 4}),
        ],
        "Scaler": [row(x, offset=[1.0, 2.0], scale=[1.0]), row("str[2]")],
        "TreeEnsemble": [
            row(x, **stump | {"nodes_featureids": [3]}),
            row(x, **stump | {"nodes_truenodeids": [5]}),
            row(x, **stump | {"nodes_truenodeids": [0], "nodes_trueleafs": [0]}),
            row(x, **stump | {"leaf_targetids": [0, 1]}),
            row(x, **stump | {"tree_roots": [1]}),
            row(x, **stump | {"nodes_featureids": [1, 2]}),
            row(x, **stump | {"aggregate_function": 4}),
            row(x, **stump | {"post_transform": 5}),
            row(
                x,
                **stump
                | {
                    "nodes_modes": numpy_helper.from_array(np.full(1, 6, np.uint8)),
                    "membership_values": numpy_helper.from_array(np.zeros(0, np.float32)),
                },
            ),
        ],
        "TreeEnsembleClassifier": [*_stumps("class", classlabels_int64s=[0, 1, 2])],
        "TreeEnsembleRegressor": [
            *_stumps("target", n_targets=2),
            row(x, **_STUMP, aggregate_function="PRODUCT"),
        ],
    }
    for name, nodes in rows.items():
        yield f"ai.onnx.ml.{name}", tuple(nodes)


def _of_training() -> Iterator[tuple[str, tuple[Broken, ...]]]:
    """Broken nodes of ai.onnx.preview.training."""
    yield (
        f"{PREVIEW}.Gradient",
        (
            row("f32[2]", xs=["x0"], y="nobody"),
            row("f32[2]", xs=["nobody"], y="x0"),
            row("f32[2] f32[2]", xs=["x0", "x0"], y="x0"),
            row("f32[2] f32[2]", xs=["x0"], y="x0"),
            row("f32[2]", xs=["x0"], zs=["x1"], y="x0"),
            row("f32[2]", outputs=2, xs=["x0"], y="x0"),
            row("i32[2]", xs=["x0"], y="x0"),
            row("f32[2]", xs=["x0"], y="y0"),
            row("f32[2]", xs=["x0"]),
        ),
    )
    momentum = {"alpha": 0.9, "beta": 1.0, "mode": "standard", "norm_coefficient": 0.0}
    for name, groups in (("Momentum", 3), ("Adagrad", 3), ("Adam", 4)):
        given = momentum if name == "Momentum" else {}
        nodes = [
            row("f32[2] i64[]" + " f32[3]" * groups, **given),
            row("f32[] i64[2]" + " f32[3]" * groups, **given),
            row("f32[] f32[]" + " f32[3]" * groups, **given),
            row("f32[] i64[]" + " i64[3]" * groups, **given),
            row("f32[] i64[]" + " f32[3]" * (groups + 1), **given),
            row("f32[] i64[]", **given),
            row("f32[] i64[]" + " f32[3]" * (groups - 1) + " f32[2]", **given),
            row("f32[] i64[]" + " f32[3]" * groups, outputs=groups, **given),
        ]
        if name == "Momentum":
            nodes.append(row("f32[] i64[] f32[3] f32[3] f32[3]", **momentum | {"mode": "fast"}))
            nodes.append(row("f32[] i64[] f32[3] f32[3] f32[3]"))
        yield f"{PREVIEW}.{name}", tuple(nodes)


_IMAGE, _WEIGHT = "f32[1, 4, 6, 6]", "f32[8, 4, 3, 3]"
_BATCH = "f32[2, 3, 4]"


def _graph(text: str) -> GraphProto:
    """Parses a graph attribute."""
    return parser.parse_graph(f"inner {text}")


_NOTHING = _graph("() => () {}")
_CONSTANT = _graph("() => (float y) { y = Constant<value_float = 1.0>() }")
_TURN = _graph("(int64 i, bool c, float[2] s) => (bool d, float[2] t) { d = Not(c) t = Neg(s) }")
_WIDER = _graph(
    "(int64 i, bool c, float[2] s) => (bool d, double[2] t) { d = Not(c) t = Cast<to = 11>(s) }"
)
_ROW = _graph("(float[3] s, float[3] x) => (float[3] t, float[3] y) { t = Add(s, x) y = Neg(x) }")
_PADDED = _graph("(float[2, 3] x) => (float[2, 3] y) { y = Neg(x) }")


def _batches(size: int, longest: list[int]) -> dict[str, Any]:
    return {"callbackBatchSize": size, "maxSequenceLengths": longest}


_POOLS = (
    row(_IMAGE),
    row(_IMAGE, kernel_shape=[2]),
    row(_IMAGE, kernel_shape=[0, 2]),
    row(_IMAGE, kernel_shape=[7, 7]),
    row(_IMAGE, kernel_shape=[2, 2], strides=[0, 1]),
    row(_IMAGE, kernel_shape=[2, 2], pads=[1, 1, 1]),
    row(_IMAGE, kernel_shape=[2, 2], dilations=[0, 1]),
    row(_IMAGE, kernel_shape=[2, 2], ceil_mode=2),
    row(_IMAGE, kernel_shape=[2, 2], auto_pad="SIDE"),
    row("f32[4]", kernel_shape=[2]),
)
"""Illegal attributes of pools."""

TERMS: dict[str, Any] = {
    "mode": "TF", "min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0,
    "ngram_counts": [0], "ngram_indexes": [0, 1], "pool_int64s": [3, 5],
}  # fmt: skip

NODES: dict[str, tuple[Broken, ...]] = {
    # graphs inside nodes
    "If": (
        row("f32[]", then_branch=_CONSTANT, else_branch=_CONSTANT),
        row("bool[2]", then_branch=_CONSTANT, else_branch=_CONSTANT),
        row("bool[]", then_branch=_CONSTANT, else_branch=_NOTHING),
        row("bool=1", then_branch=_NOTHING, else_branch=_NOTHING),
        row("bool[]", then_branch=_CONSTANT),
    ),
    "Loop": (
        row("f32[] bool[] f32[2]", body=_TURN),
        row("i64=2 i64[] f32[2]", body=_TURN),
        row("i64=2 bool[2] f32[2]", body=_TURN),
        row("i64=2 bool=1 f32[2] f32[2]", 2, body=_TURN),
        row("i64=2 bool=1 f32[2]", 2, body=_TURN),
        row("i64=2 bool=1", body=_TURN),
        row("i64=2 bool=1 f32[2]", body=_WIDER),
        row("i64=2 bool=1 f32[2]"),
    ),
    "Scan": (
        row("f32[3] f32[4, 3]", 2, body=_ROW, num_scan_inputs=0),
        row("f32[3] f32[4, 3]", 2, body=_ROW, num_scan_inputs=3),
        row("f32[3] f32[4, 3] f32[4, 3]", 2, body=_ROW, num_scan_inputs=1),
        row("f32[3, 4] f32[4, 3]", 2, body=_ROW, num_scan_inputs=2),
        row("f32[3] f32[4, 3]", 3, body=_ROW, num_scan_inputs=1),
        row("f32[3] f32[4, 3]", 2, body=_ROW, num_scan_inputs=1, scan_input_axes=[2]),
        row("f32[3] f32[4, 3]", 2, body=_ROW, num_scan_inputs=1, scan_output_axes=[2]),
        row("f32[3] f32[4, 3]", 2, body=_ROW, num_scan_inputs=1, scan_input_axes=[0, 0]),
        row("f32[3] f32[4, 3]", 2, body=_ROW, num_scan_inputs=1, scan_input_directions=[2]),
        row("f32[3] f32[4, 3]", 2, body=_ROW),
        row("_ f32[2, 3] f32[5, 4, 3]", 2, 8, body=_ROW, num_scan_inputs=1),
        row("_ f32[3] f32[4]", 2, 8, body=_ROW, num_scan_inputs=1),
    ),
    "ai.graphcore.Call": (
        row("f32[3] f32[3]", 2),
        row("f32[3]", 2, callee=_ROW),
        row("f32[3] f32[3]", 3, callee=_ROW),
    ),
    "ai.graphcore.PackedDataBlock": tuple(
        row(inputs, resultSize=6, callback=_PADDED, **attributes)
        for inputs, attributes in (
            ("f32[6] u32[2] u32[2] u32[2] u32[2]", {"callbackBatchSize": 2}),
            ("f32[6] u32[2] u32[2] u32[2] u32[2]", _batches(2, [3, 3])),
            ("f32[6] u32[2] u32[2] u32[2]", _batches(2, [3])),
            ("f32[6] u32[2] u32[1] u32[2] u32[2]", _batches(2, [3])),
            ("f32[6] u32[2] u32[2] u32[2] u32[2]", _batches(0, [3])),
            ("f32[6] u32[2] u32[2] u32[2] u32[2]", _batches(3, [3])),
        )
    ),
    # elementwise
    **dict(_of_operations()),
    **dict(
        _each(
            "Elu LeakyRelu Selu Softplus Mish HardSigmoid HardSwish Softsign ThresholdedRelu Swish",
            row("bool[2]"),
            row("str[2]"),
        )
    ),
    "Shrink": (row("bool[2]"), row("str[2]")),
    **dict(
        _each(
            "Pow Greater GreaterOrEqual Less LessOrEqual",
            row("f32[2, 3] f32[2, 4]"),
            row("bool[2] bool[2]"),
        )
    ),
    **dict(_each("Max Min Sum Mean", row("f32[2] f32[3]"), row("f32[2] f32[3] f32[2]"), row(""))),
    "Celu": (row("f32[2]", alpha=0.0), row("i32[2]")),
    "Gelu": (row("f32[2]", approximate="tan"), row("i32[2]")),
    "IsInf": (row("f32[2]", detect_negative=2), row("i32[2]")),
    "Equal": (row("f32[2] f32[3]"), row("f32[2] i32[2]")),
    "Mod": (row("i32[2] i32[3]"), row("i32[2] i32[2]", fmod=2)),
    "PRelu": (row("f32[2, 3] f32[4]"), row("f32[3] f32[2, 3]")),
    "Where": (row("f32[2] f32[2] f32[2]"), row("bool[2] f32[3] f32[3]")),
    "Clip": (row("f32[2] f32[2]"), row("f32[2] i32[]"), row("bool[2]")),
    "Identity": (row("f32[2] f32[2]"), row("f32[2]", outputs=2)),
    "Optional": (row("f32[2] f32[2]"),),
    "OptionalGetElement": (row("f32[2] f32[2]"), row("f32[2]", outputs=2)),
    "OptionalHasElement": (row("f32[2] f32[2]"), row("f32[2]", outputs=2)),
    "ConcatFromSequence": (row("f32[4]", axis=0), row("f32[4]")),
    "SequenceAt": (row("f32[4] i64=0"),),
    "SequenceConstruct": (row("f32[4] i64[4]"),),
    "SequenceEmpty": (row("f32[4]"), row("", dtype=99)),
    "SequenceErase": (row("f32[4] i64=0"),),
    "SequenceInsert": (row("f32[4] f32[4]"),),
    "SequenceLength": (row("f32[4]"),),
    "SplitToSequence": (
        row("f32[4] i64{3, 3}"),
        row("f32[4] i64{-1, 5}"),
        row("f32[4] i64=0"),
        row("f32[4]", axis=1),
    ),
    "TfIdfVectorizer": (
        row("f32[4]", **TERMS),
        row("i64[4]", **{**TERMS, "mode": "none"}),
        row("i64[4]"),
    ),
    "Cast": (row("f32[2]"), row("f32[2]", to=99), row("f32[2]", to=0), row("f32[2]", to="f32")),
    "CastLike": (row("f32[2]"), row("f32[2] f32[2]", saturate=3)),
    "SwiGLU": (row("f32[2, 3] f32[2, 4]", opset=28), row("bool[2] bool[2]", opset=28)),
    # matrices
    "MatMul": (row("f32[2, 3] f32[4, 2]"), row("f32[] f32[2]"), row("f32[2, 3, 4] f32[3, 4, 2]")),
    "Gemm": (
        row("f32[2, 3] f32[4, 2]"),
        row("f32[1, 2, 3] f32[3, 4]"),
        row("f32[2, 3] f32[3, 4] f32[5]"),
        row("f32[2, 3] f32[3, 4] f32[1, 2, 4]"),
        row("f32[1, 3] f32[3, 4] f32[2, 4]"),
        row("f32[2, 3] f32[3, 4]", transA=1),
        row("f32[2, 2] f32[2, 2]", transB=2),
    ),
    # windows
    "Conv": (
        row(f"{_IMAGE} {_WEIGHT} f32[1, 8]"),
        row(f"{_IMAGE} {_WEIGHT} f32[4]"),
        row(f"{_IMAGE} {_WEIGHT} f32[]"),
        row(f"{_IMAGE} f32[8, 3, 3, 3]"),
        row(f"{_IMAGE} f32[8, 4, 3]"),
        row(f"{_IMAGE} f32[6, 1, 3, 3]", group=4),
        row(f"{_IMAGE} {_WEIGHT}", group=0),
        row(f"{_IMAGE} {_WEIGHT}", group=-1),
        row(f"{_IMAGE} {_WEIGHT}", strides=[0, 1]),
        row(f"{_IMAGE} {_WEIGHT}", strides=[1]),
        row(f"{_IMAGE} {_WEIGHT}", dilations=[1, -1]),
        row(f"{_IMAGE} {_WEIGHT}", dilations=[3, 3]),
        row(f"{_IMAGE} {_WEIGHT}", pads=[1, 1]),
        row(f"{_IMAGE} {_WEIGHT}", pads=[-1, 0, 0, 0]),
        row(f"{_IMAGE} {_WEIGHT}", pads=[2**62, 0, 0, 0]),
        row(f"{_IMAGE} {_WEIGHT}", kernel_shape=[2, 2]),
        row(f"{_IMAGE} {_WEIGHT}", auto_pad="SAME"),
        row(f"{_IMAGE} f32[8, 4, 9, 9]"),
        row("f32[4] f32[4]"),
    ),
    "ConvTranspose": (
        row(f"{_IMAGE} f32[4, 1, 3, 3] f32[3]"),
        row(f"{_IMAGE} f32[4, 2, 3, 3] f32[1, 2]"),
        row(f"{_IMAGE} f32[3, 2, 3, 3]"),
        row(f"{_IMAGE} f32[4, 2, 3]"),
        row(f"{_IMAGE} f32[4, 2, 3, 3]", group=3),
        row(f"{_IMAGE} f32[4, 2, 3, 3]", output_padding=[1, 1]),
        row(f"{_IMAGE} f32[4, 2, 3, 3]", strides=[2, 2], output_padding=[2, 0]),
        row(f"{_IMAGE} f32[4, 2, 3, 3]", strides=[2, 2], output_padding=[-1, 0]),
        row(f"{_IMAGE} f32[4, 2, 3, 3]", strides=[0, 2]),
        row(f"{_IMAGE} f32[4, 2, 3, 3]", output_shape=[0, 8]),
        row(f"{_IMAGE} f32[4, 2, 3, 3]", output_shape=[8]),
        row(f"{_IMAGE} f32[4, 2, 3, 3]", kernel_shape=[2, 2]),
        row(f"{_IMAGE} f32[4, 2, 3, 3]", pads=[9, 9, 9, 9]),
    ),
    "AveragePool": _POOLS,
    "MaxPool": (
        *_POOLS,
        row(_IMAGE, kernel_shape=[2, 2], storage_order=2),
    ),
    "GlobalLpPool": (row("f32[4]"), row("f32[1, 2, 3]", p=0)),
    "LpPool": (
        *_POOLS,
        row(_IMAGE, kernel_shape=[2, 2], p=0),
        row(_IMAGE, kernel_shape=[2, 2], p=-1.0, opset=1),
        row(_IMAGE, kernel_shape=[2, 2], p=float("inf"), opset=1),
        row(_IMAGE, opset=1),
    ),
    "DeformConv": (
        row(f"{_IMAGE} {_WEIGHT}"),
        row(f"{_IMAGE} {_WEIGHT} f32[1, 18, 4, 5]"),
        row(f"{_IMAGE} {_WEIGHT} f32[1, 9, 4, 4]"),
        row(f"{_IMAGE} {_WEIGHT} f32[2, 18, 4, 4]"),
        row(f"{_IMAGE} {_WEIGHT} f32[1, 18, 4, 4] f32[4]"),
        row(f"{_IMAGE} {_WEIGHT} f32[1, 18, 4, 4] _ f32[1, 18, 4, 4]"),
        row(f"{_IMAGE} {_WEIGHT} f32[1, 54, 4, 4]", offset_group=3),
        row(f"{_IMAGE} {_WEIGHT} f32[1, 18, 4, 4]", offset_group=0),
        row(f"{_IMAGE} {_WEIGHT} f32[1, 18, 4, 4]", group=2),
        row(f"{_IMAGE} {_WEIGHT} f32[1, 18, 4, 4]", kernel_shape=[2, 3]),
        row(f"{_IMAGE} {_WEIGHT} f32[1, 18, 4, 4]", strides=[0, 1]),
        row(f"{_IMAGE} {_WEIGHT} f32[1, 18, 4, 4]", dilations=[3, 3]),
        row("f32[1, 4] f32[8, 4] f32[1, 0]"),
    ),
    "MaxUnpool": (
        row("f32[1, 1, 2] i64[1, 1, 3]", kernel_shape=[2]),
        row("f32[1, 1, 2] i64[1, 1, 2]", kernel_shape=[2, 2]),
        row("f32[1, 1, 2] i64[1, 1, 2]", kernel_shape=[0]),
        row("f32[1, 1, 2] i64[1, 1, 2]", kernel_shape=[2], strides=[0]),
        row("f32[1, 1, 2] i64[1, 1, 2]", kernel_shape=[2], pads=[9, 9]),
        row("f32[1, 1, 2] i64[1, 1, 2] i64{1, 1, 2}", kernel_shape=[2]),
        row("f32[1, 1, 2] i64[1, 1, 2] i64{1, 2, 4}", kernel_shape=[2]),
        row("f32[1, 1, 2] i64[1, 1, 2] i64{4}", kernel_shape=[2]),
        row("f32[1, 1, 2] i64[1, 1, 2]"),
        row("f32[1, 2] i64[1, 2]", kernel_shape=[2]),
    ),
    "Col2Im": (
        row("f32[1, 4, 9] i64{4, 4} i64{2, 3}"),
        row("f32[1, 4, 8] i64{4, 4} i64{2, 2}"),
        row("f32[1, 4, 9] i64{4, 4} i64{2}"),
        row("f32[1, 4, 9] i64{4, 4} i64{2, 0}"),
        row("f32[1, 4, 9] i64{4, -4} i64{2, 2}"),
        row("f32[1, 4, 9] i64{1, 1} i64{2, 2}"),
        row("f32[1, 4, 9] i64{4, 4} i64{2, 2}", strides=[0, 1]),
        row("f32[1, 4, 9] i64{4, 4} i64{2, 2}", pads=[1, 1]),
        row("f32[4, 9] i64{4, 4} i64{2, 2}"),
    ),
    **dict(_each("GlobalAveragePool GlobalMaxPool", row("f32[4]"), row("i32[1, 2, 3]"))),
    # recurrences
    **dict(_recurrences()),
    # normalizations
    "BatchNormalization": (
        row("f32[2, 3, 4] f32[3] f32[3] f32[3] f32[4]"),
        row("f32[2, 3, 4] f32[3] f32[4] f32[3] f32[3]"),
        row("f32[2, 3, 4] f32[1, 3] f32[3] f32[3] f32[3]"),
        row("f32[2, 3, 4] f32[3] f32[3] f32[3] f32[3]", training_mode=2),
    ),
    "LpNormalization": (
        row("f32[2, 3]", axis=2),
        row("f32[2, 3]", p=3),
        row("i32[2, 3]"),
    ),
    "InstanceNormalization": (
        row("f32[2, 3, 4] f32[3] f32[4]"),
        row("f32[2, 3, 4] f32[1, 3] f32[3]"),
        row("f32[2, 3] f32[3] f32[3]"),
    ),
    "GroupNormalization": (
        row("f32[2, 6, 4] f32[6] f32[6]", num_groups=4),
        row("f32[2, 6, 4] f32[6] f32[6]", num_groups=0),
        row("f32[2, 6, 4] f32[2] f32[6]", num_groups=2),
        row("f32[2, 6, 4] f32[6] f32[6]"),
    ),
    "LayerNormalization": (
        row("f32[2, 3, 4] f32[5]"),
        row("f32[2, 3, 4] f32[1, 2, 3, 4]"),
        row("f32[2, 3, 4] f32[4] f32[3]"),
        row("f32[2, 3, 4] f32[4]", axis=3),
        row("f32[2, 3, 4] f32[4]", axis=2**63 - 1),
        row("f32[2, 3, 4] f32[4]", stash_type=-1),
        row("f32[2, 3, 4] f32[4]", stash_type=7),
    ),
    "RMSNormalization": (
        row("f32[2, 3] f32[2, 2, 3]"),
        row("f32[2, 3] f32[4]"),
        row("f32[2, 3] f32[3]", axis=-3),
    ),
    "LRN": (row(_IMAGE, size=0), row(_IMAGE, size=-3), row(_IMAGE), row("f32[4]", size=3)),
    "MeanVarianceNormalization": (row("f32[2, 3]"), row(_IMAGE, axes=[0, 4])),
    **dict(
        _each(
            "Softmax LogSoftmax Hardmax",
            row("f32[2, 3]", axis=2),
            row("f32[2, 3]", axis=-3),
            row("f32[2, 3]", axis=3, opset=11),
            row("i32[2, 3]"),
        )
    ),
    # reductions
    **dict(
        _each(
            "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin "
            "ReduceProd ReduceSum ReduceSumSquare",
            row(f"{_BATCH} i64{{3}}"),
            row(f"{_BATCH} i64{{-4}}"),
            row(f"{_BATCH} i64{{1, 1}}"),
            row(f"{_BATCH} i64[1, 1]"),
            row(f"{_BATCH} i64{{1}}", keepdims=2),
            row(f"{_BATCH} i64{{1}}", keepdims=-1),
            row(_BATCH, axes=[3], opset=11),
            row("str[2]"),
        )
    ),
    **dict(
        _each(
            "ArgMax ArgMin",
            row(_BATCH, axis=3),
            row(_BATCH, keepdims=3),
            row(_BATCH, select_last_index=-1),
            row("f32[2, 0]", axis=1),
        )
    ),
    "QuantizeLinear": (
        row("f32[2, 3] f32[2] u8[2]"),
        row("f32[2, 3] f32[2] u8[2]", axis=2),
        row("f32[2, 3] f32[2, 2] u8[2, 2]", axis=1, block_size=1),
        row("f32[2, 3] f32[2, 2] u8[2, 2]", axis=1, block_size=-1),
        row("f32[2, 3] f32[2, 2] u8[2, 2]", axis=1),
        row("f32[2, 3] f32[] u8[]", output_dtype=3),
        row("f32[2, 3] f32[] u8[]", precision=3),
        row("f32[2, 3] f32[] u8[]", saturate=2),
        row("f32[2, 3] f32[] f32[]"),
        row("u8[2, 3] f32[] u8[]"),
    ),
    "DequantizeLinear": (
        row("u8[2, 3] f32[2] u8[2]"),
        row("u8[2, 3] f32[2] u8[2]", axis=2),
        row("u8[2, 3] f32[2, 2] u8[2, 2]", axis=1, block_size=1),
        row("u8[2, 3] f32[] i8[]"),
        row("u8[2, 3] f32[]", output_dtype=3),
        row("f32[2, 3] f32[]"),
    ),
    "MatMulInteger": (
        row("u8[2, 3] u8[2, 3]"),
        row("u8[] u8[2, 3]"),
        row("u8[2, 3] u8[3, 4] u8[3]"),
        row("u8[2, 3] u8[3, 4] u8[] u8[3]"),
        row("u8[2, 3] u8[3, 4] i8[]"),
    ),
    "QLinearMatMul": (
        row("u8[2, 3] f32[] u8[] u8[2, 3] f32[] u8[] f32[] u8[]"),
        row("u8[2, 3] f32[3] u8[3] u8[3, 4] f32[] u8[] f32[] u8[]"),
        row("u8[2, 3] f32[] u8[] u8[3, 4] f32[3] u8[3] f32[] u8[]"),
        row("u8[2, 3] f32[] u8[] u8[3, 4] f32[] u8[] f32[2] u8[2]"),
        row("u8[2, 3] f32[] u8[] u8[3, 4] f32[] u8[] f32[]"),
    ),
    "ConvInteger": (
        row("u8[1, 2, 4, 4] u8[3, 1, 2, 2]"),
        row("u8[1, 2, 4, 4] u8[3, 2, 2, 2] u8[2]"),
        row("u8[1, 2, 4, 4] u8[3, 2, 2, 2] u8[] u8[2]"),
        row("u8[1, 2, 4, 4] u8[3, 2, 2, 2]", auto_pad="ALL"),
        row("u8[1, 2, 4, 4] u8[3, 2, 2, 2]", strides=[0, 1]),
    ),
    "QLinearConv": (
        row("u8[1, 2, 4, 4] f32[] u8[] u8[3, 1, 2, 2] f32[] u8[] f32[] u8[]"),
        row("u8[1, 2, 4, 4] f32[] u8[] u8[3, 2, 2, 2] f32[2] u8[2] f32[] u8[]"),
        row("u8[1, 2, 4, 4] f32[2] u8[] u8[3, 2, 2, 2] f32[] u8[] f32[] u8[]"),
        row("u8[1, 2, 4, 4] f32[] u8[] u8[3, 2, 2, 2] f32[] u8[] f32[] u8[] i32[2]"),
        row("u8[1, 2, 4, 4] f32[] u8[] u8[3, 2, 2, 2] f32[] u8[] f32[] u8[]", pads=[-1, 0, 0, 0]),
    ),
    "BitShift": (
        row("u8[2] u8[2]"),
        row("u8[2] u8[2]", direction="UP"),
        row("u8[2] u16[2]", direction="LEFT"),
        row("u8[2] u8[3]", direction="LEFT"),
    ),
    "BitCast": (
        row("f32[2]", opset=26),
        row("f32[2]", opset=26, to=7),
        row("f32[2]", opset=26, to=99),
        row("str[2]", opset=26, to=7),
    ),
    "TopK": (
        row("f32[2, 3] i64{4}", outputs=2),
        row("f32[2, 3] i64{-1}", outputs=2),
        row("f32[2, 3] i64{1, 1}", outputs=2),
        row("f32[2, 3] i64{1}", outputs=2, axis=2),
        row("f32[2, 3] i64{1}", outputs=2, largest=2),
        row("f32[2, 3] i64{1}", outputs=2, sorted=2),
        row("f32[2, 3]", outputs=2, opset=9, k=4),
        row("bool[2, 3] i64{1}", outputs=2),
        row("str[2] i64{1}", outputs=2),
    ),
    **dict(
        _each(
            "CumSum CumProd",
            row("f32[2, 3] i64=2", opset=26),
            row("f32[2, 3] i64{0, 1}", opset=26),
            row("f32[2, 3] i64=0", reverse=2, opset=26),
        )
    ),
    # movement
    "Reshape": (
        row("f32[2, 3] i64{4, 2}"),
        row("f32[2, 3] i64{-1, -1}"),
        row("f32[2, 3] i64{-2, 3}"),
        row("f32[2, 3] i64{2, 3, 0}"),
        row("f32[2, 3] i64{-1, 4}"),
        row("f32[2, 0] i64{-1, 0}", allowzero=1),
        row("f32[2, 3] i64=6"),
    ),
    "Flatten": (row("f32[2, 3]", axis=3), row("f32[2, 3]", axis=-3)),
    "Transpose": (
        row("f32[2, 3]", perm=[0, 0]),
        row("f32[2, 3]", perm=[0]),
        row("f32[2, 3]", perm=[0, 2]),
        row("f32[2, 3]", perm=[-1, 0]),
    ),
    "Concat": (
        row("f32[2, 3] f32[2, 4]", axis=0),
        row("f32[2, 3] f32[2]", axis=0),
        row("f32[2, 3] f32[2, 3]", axis=2),
        row("f32[2, 3] i32[2, 3]", axis=0),
        row("f32[2, 3]"),
    ),
    "Split": (
        row("f32[6] i64{2, 2, 2}", outputs=2),
        row("f32[6] i64{3, 3}", outputs=3),
        row("f32[6] i64[2, 1]", outputs=2),
        row("f32[6] i64{2, 3}", outputs=2),
        row("f32[6] i64{7, -1}", outputs=2),
        row("f32[6]", outputs=2, num_outputs=3),
        row("f32[6]", outputs=2, num_outputs=0),
        row("f32[6]", outputs=2, num_outputs=2, axis=1),
        row("f32[5]", outputs=2, opset=13),
        row("f32[6]", outputs=2, split=[3, 4], opset=11),
    ),
    "Slice": (
        row("f32[6] i64{0} i64{2} i64{1}"),
        row("f32[6] i64{0} i64{2} i64{0} i64{0}"),
        row("f32[6] i64{0, 1} i64{2}"),
        row("f32[6] i64{0, 0} i64{2, 2} i64{0, 0}"),
        row("f32[6] i64{0, 0} i64{2, 2}"),
        row("f32[6] i64[1, 1] i64[1]"),
        row("f32[6] i64[1] i64[1, 1]"),
        row("f32[6] i64[1] i64[1] i64[1, 1]"),
        row("f32[6] i64[1] i64[1] i64[1] i64[1, 1]"),
    ),
    "Pad": (
        row("f32[2, 3] i64{1, 1}"),
        row("f32[2, 3] i64{0, 0, 0, -4}"),
        row("f32[2, 3] i64{0, 0, 0, 1}", mode="sideways"),
        row("f32[0, 3] i64{1, 0, 0, 0}", mode="edge"),
        row("f32[0, 3] i64{1, 0, 0, 0}", mode="wrap"),
        row("f32[2, 3] i64{2, 0, 0, 0}", mode="reflect"),
        row("f32[2, 3] i64{1, 1} f32[2]"),
        row("f32[2, 3] i64{1, 1} _ i64{2}"),
        row("f32[2, 3] i64{1, 1, 1, 1} _ i64{0, 0}"),
        row("f32[2, 3] i64{4611686018427387904, 0, 0, 0}"),
    ),
    "GridSample": (
        row("f32[1, 1, 4, 4] f32[1, 2, 2, 3]"),
        row("f32[1, 1, 4, 4] f32[2, 2, 2, 2]"),
        row("f32[1, 1, 4, 4] f32[1, 2, 2]"),
        row("f32[1, 1, 0, 4] f32[1, 2, 2, 2]"),
        row("f32[1, 1] f32[1, 0]"),
        row("f32[1, 1, 4, 4] f32[1, 2, 2, 2]", mode="bilinear"),
        row("f32[1, 1, 4, 4] f32[1, 2, 2, 2]", mode="linear", opset=16),
        row("f32[1, 1, 4, 4] f32[1, 2, 2, 2]", padding_mode="edge"),
        row("f32[1, 1, 4, 4] f32[1, 2, 2, 2]", align_corners=2),
    ),
    "MaxRoiPool": (
        row("f32[1, 2, 4, 4] f32[3, 5]", pooled_shape=[2]),
        row("f32[1, 2, 4, 4] f32[3, 5]", pooled_shape=[2, 0]),
        row("f32[1, 2, 4, 4] f32[3, 4]", pooled_shape=[2, 2]),
        row("f32[1, 2, 4] f32[3, 5]", pooled_shape=[2, 2]),
    ),
    "RoiAlign": (
        row("f32[1, 2, 4, 4] f32[3, 4]"),
        row("f32[1, 2, 4, 4] f32[3, 5] i64[3]"),
        row("f32[1, 2, 4, 4] f32[3, 4] i64[2]"),
        row("f32[1, 2, 4, 4] f32[3, 4] f32[3]"),
        row("f32[1, 2, 4] f32[3, 4] i64[3]"),
        row("f32[1, 2, 0, 4] f32[3, 4] i64[3]"),
        row("f32[1, 2, 4, 4] f32[3, 4] i64[3]", mode="min"),
        row("f32[1, 2, 4, 4] f32[3, 4] i64[3]", output_height=0),
        row("f32[1, 2, 4, 4] f32[3, 4] i64[3]", sampling_ratio=-1),
        row("f32[1, 2, 4, 4] f32[3, 4] i64[3]", spatial_scale=0.0),
        row("f32[1, 2, 4, 4] f32[3, 4] i64[3]", coordinate_transformation_mode="pixel"),
        row(
            "f32[1, 2, 4, 4] f32[3, 4] i64[3]",
            opset=10,
            coordinate_transformation_mode="half_pixel",
        ),
    ),
    "DFT": (
        row("f32[2, 8, 3]"),
        row("f32[2, 8, 2]", onesided=1),
        row("f32[2, 8, 1]", onesided=1, inverse=1),
        row("f32[2, 8, 1] i64=0"),
        row("f32[2, 8, 1] i64{4, 4}"),
        row("f32[2, 8, 1] f32=4"),
        row("f32[2, 8, 1] _ i64=2"),
        row("f32[2, 8, 1] _ i64=-1"),
        row("f32[2, 8, 1] _ i64=3"),
        row("f32[2, 8, 1]", axis=2, opset=17),
        row("f32[2, 8, 1]", inverse=2),
        row("f32[2, 0, 1]"),
        row("f32[2, 1, 2]", onesided=1, inverse=1),
        row("f32[1]"),
    ),
    "STFT": (
        row("f32[2, 8, 3] i64=2 _ i64=4"),
        row("f32[2, 8] i64=2 _ i64=4"),
        row("f32[2, 8, 2] i64=2 _ i64=4"),
        row("f32[2, 8, 1] i64=0 _ i64=4"),
        row("f32[2, 8, 1] i64=2 _ i64=0"),
        row("f32[2, 8, 1] i64=2 _ i64=9"),
        row("f32[2, 8, 1] i64=2 f32[9]"),
        row("f32[2, 8, 1] i64=2 f32[0]"),
        row("f32[2, 8, 1] i64=2 f32[3] i64=4"),
        row("f32[2, 8, 1] i64=2 f32[4, 1]"),
        row("f32[2, 8, 1] i64=2 f64[4]"),
        row("f32[2, 8, 1] i64=2 f32[4]", onesided=2),
    ),
    "MelWeightMatrix": (
        row("i64=0 i64=16 i64=8192 f32=0 f32=4096"),
        row("i64=8 i64=0 i64=8192 f32=0 f32=4096"),
        row("i64=8 i64=16 i64=0 f32=0 f32=4096"),
        row("i64=8 i64=16 i64=8192 f32=-1 f32=4096"),
        row("i64=8 i64=16 i64=8192 f32=0 f32=5000"),
        row("i64=8 i64=16 i64=8192 f32=3000 f32=2000"),
        row("i64{8, 8} i64=16 i64=8192 f32=0 f32=4096"),
        row("i64=8 i64=16 i64=8192 f32=0"),
    ),
    "Resize": (
        row("f32[2, 3]"),
        row("f32[2, 3] _ f32{1, 2} i64{2, 6}"),
        row("f32[2, 3] _ f32{2}"),
        row("f32[2, 3] _ f32{1, 0}"),
        row("f32[2, 3] _ f32{1, -2}"),
        row("f32[2, 3] _ f32{1, nan}"),
        row("f32[2, 3] _ f32{1, 3e38}"),
        row("f32[2, 3] _ f32[2, 1]"),
        row("f32[2, 3] _ _ i64{6}"),
        row("f32[2, 3] _ _ i64{2, -1}"),
        row("f32[2, 0] _ _ i64{2, 4}"),
        row("f32[2, 3] _ f32{2}", axes=[2]),
        row("f32[2, 3] _ f32{2, 2}", axes=[1, -1]),
        row("f32[2, 3] _ f32{1, 2}", mode="quadratic"),
        row("f32[2, 3] _ f32{1, 2}", nearest_mode="up"),
        row("f32[2, 3] _ f32{1, 2}", coordinate_transformation_mode="pixel"),
        row("f32[2, 3] _ _ i64{2, 6}", keep_aspect_ratio_policy="smaller"),
        row("f32[2, 3] _ f32{1, 2}", antialias=1),
        row("f32[2, 3] _ f32{1, 2}", coordinate_transformation_mode="tf_crop_and_resize"),
        row(
            "f32[2, 3] f32{0, 1} f32{1, 2}",
            coordinate_transformation_mode="tf_crop_and_resize",
        ),
        row("f32[2, 3] f32{1, 2}", mode="cubic", opset=10),
        row("f32[2, 3] f32{2}", opset=10),
    ),
    "Upsample": (
        row("f32[2, 3] f32{2}", opset=9),
        row("f32[2, 3] f32{1, 0.5}", opset=9),
        row("f32[2, 3] f32{1, 2}", mode="cubic", opset=9),
        row("f32[2, 3]", scales=[2.0], opset=7),
        row("f32[2, 3]", scales=[1.0, 0.5], opset=7),
    ),
    "Squeeze": (
        row("f32[2, 1] i64{0}"),
        row("f32[2, 1] i64{2}"),
        row("f32[2, 1] i64{1, 1}"),
        row("f32[2, 1] i64[1, 1]"),
    ),
    "Unsqueeze": (
        row("f32[2] i64{3}"),
        row("f32[2] i64{0, 0}"),
        row("f32[2] i64{-3}"),
        row("f32[2] i64[1, 1]"),
    ),
    "Expand": (row("f32[2] i64{3}"), row("f32[2] i64{-1, 2}"), row("f32[2] i64=2")),
    "Tile": (row("f32[2, 3] i64{2}"), row("f32[2, 3] i64{2, -1}"), row("f32[2] i64{1, 1}")),
    **dict(
        _each(
            "DepthToSpace SpaceToDepth",
            row("f32[1, 3, 3, 4]", blocksize=2),
            row("f32[1, 4, 4, 4]", blocksize=0),
            row("f32[1, 4, 4, 4]", blocksize=-2),
            row("f32[1, 4, 4]", blocksize=2),
            row("f32[1, 4, 4, 4]"),
        )
    ),
    "DepthToSpace": (
        row("f32[1, 4, 4, 4]", blocksize=2, mode="CDR"),
        row("f32[1, 6, 4, 4]", blocksize=2),
        row("f32[1, 4, 4, 4]", blocksize=2**32),
    ),
    "Trilu": (row("f32[3]"), row("f32[2, 3] i64{0, 1}"), row("f32[2, 3]", upper=2)),
    "CenterCropPad": (
        row("f32[4, 4] i64{2}"),
        row("f32[4, 4] i64{-1, 2}"),
        row("f32[4, 4] i64{2}", axes=[2]),
    ),
    # lookups
    "Gather": (row("f32[2, 3] i64[2]", axis=2), row("f32[2, 3] f32[2]"), row("f32[] i64[2]")),
    "GatherElements": (
        row("f32[2, 3] i64[2]"),
        row("f32[2, 3] i64[3, 3]", axis=1),
        row("f32[2, 3] i64[2, 3]", axis=2),
    ),
    "GatherND": (
        row("f32[2, 3, 4] i64[3, 1]", batch_dims=1),
        row("f32[2, 3] i64[2, 3]"),
        row("f32[2, 3] i64[2, 2]", batch_dims=1),
        row("f32[2, 3] i64[2, 1]", batch_dims=2),
        row("f32[2, 3] i64[2, 1]", batch_dims=-1),
        row("f32[2, 3] i64[2, 0]"),
        row("f32[2, 3] i64[]"),
    ),
    **dict(
        _each(
            "Scatter ScatterElements",
            row("f32[2, 3] i64[2] f32[2]"),
            row("f32[2, 3] i64[3, 3] f32[3, 3]", axis=1),
            row("f32[2, 3] i64[2, 3] f32[2, 3]", axis=2),
            row("f32[2, 3] i64[2, 3] f32[2, 2]"),
            row("f32[2, 3] i64[2, 3] f64[2, 3]"),
        )
    ),
    "ScatterND": (
        row("f32[2, 3] i64[2, 3] f32[2]"),
        row("f32[2, 3] i64[2, 1] f32[2, 2]"),
        row("f32[2, 3] i64[2, 1] f32[2, 3]", reduction="mean"),
        row("f32[2, 3] i64[] f32[]"),
    ),
    "TensorScatter": (
        row("f32[2, 5, 3] f32[2, 6, 3]"),
        row("f32[2, 5, 3] f32[2, 2, 4]"),
        row("f32[2, 5, 3] f32[2, 2]"),
        row("f32[2, 5, 3] f32[2, 2, 3] i64[3]"),
        row("f32[2, 5, 3] f32[1, 5, 3]", axis=0),
        row("f32[2, 5, 3] f32[2, 2, 3]", axis=3),
        row("f32[2, 5, 3] f32[2, 2, 3]", mode="round"),
    ),
    "Det": (row("f32[3]"), row("f32[2, 3]"), row("i32[2, 2]")),
    "ReverseSequence": (
        row("f32[3] i64[3]"),
        row("f32[3, 2] i64[3]"),
        row("f32[3, 2] i64[2, 1]"),
        row("f32[3, 2] i64[2]", batch_axis=0),
        row("f32[3, 2, 4] i64[2]", time_axis=2),
    ),
    "Einsum": (
        row("f32[2, 3]", equation="ij,jk"),
        row("f32[2, 3]", equation="ijk"),
        row("f32[2, 3]", equation="i->i"),
        row("f32[2, 3]", equation="i1->i"),
        row("f32[2, 3]", equation="ij->ii"),
        row("f32[2, 3]", equation="ij->ik"),
        row("f32[2, 3]", equation="i...j...->ij"),
        row("f32[2, 3] f32[2, 3]", equation="ij,jk->ik"),
        row("f32[2, 3]", equation="ii->i"),
    ),
    "OneHot": (
        row("i64[3] i64{3, 4} f32[2]"),
        row("i64[3] i64=4 f32[3]"),
        row("i64[3] i64=0 f32[2]"),
        row("i64[3] i64=-2 f32[2]"),
        row("i64[3] i64=4 f32[2]", axis=2),
    ),
    # constants and random values
    "Constant": (
        row(""),
        row("", value_int=1, value_float=1.0),
        row("", value=numpy_helper.from_array(np.zeros(2, np.float32)), value_int=1),
        row("f32[1]", value_int=1),
    ),
    "ConstantOfShape": (
        row("i64{-1, 2}"),
        row("i64=3"),
        row("i64{4611686018427387904, 2}"),
        row("i64{2}", value=numpy_helper.from_array(np.zeros(2, np.float32))),
        row("i64{2}", value=numpy_helper.from_array(np.zeros(0, np.float32))),
    ),
    "Range": (
        row("i64=0 i64=10 i64=0"),
        row("f32=0 f32=inf f32=1"),
        row("f32=0 f32=nan f32=1"),
        row("f32=0 f32=1 f32=0"),
        row("f64=0 f64=1e300 f64=1"),
        row("i64{0, 1} i64=10 i64=1"),
    ),
    "Shape": (row(""), row("f32[2] f32[2]")),
    "Size": (row(""), row("f32[2] f32[2]")),
    "EyeLike": (row("f32[3]"), row("f32[3, 3, 3]"), row("f32[3, 3]", dtype=99)),
    **dict(_each("RandomNormal RandomUniform", row(""), row("", shape=[-1]), row("", shape="a"))),
    **dict(_each("RandomNormalLike RandomUniformLike", row(""), row("f32[2]", dtype=6))),
    "Multinomial": (row("f32[4]"), row("f32[2, 3]", sample_size=0), row("i32[2, 3]")),
    "Bernoulli": (row("i32[2]"), row("f32[2]", dtype=99)),
    "Dropout": (row("f32[2] f32{0.5, 0.5}"), row("f32[2] f32=1.5"), row("f32[2] f32=-0.5")),
    **dict(
        _each(
            "BlackmanWindow HammingWindow HannWindow", row("i64{2, 3}"), row("i64=-1"), row("f32=3")
        )
    ),
    "AffineGrid": (
        row("f32[1, 3, 3] i64{1, 1, 4, 4}"),
        row("f32[1, 2, 3] i64{1, 1, 4}"),
        row("f32[2, 2, 3] i64{1, 1, 4, 4}"),
    ),
    "DynamicQuantizeLinear": (row("f64[2]"), row("i32[2]")),
    # losses
    **dict(
        _each(
            "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss",
            row("f32[3, 5] i64[4]"),
            row("f32[3, 5, 2] i64[3, 3]"),
            row("f32[3, 5] i64[3] f32[4]"),
            row("f32[3, 5] i64[3]", reduction="max"),
            row("f32[3] i64[3]"),
        )
    ),
    # attention
    "RotaryEmbedding": (
        row("f32[1, 2, 3, 4] f32[1, 3, 4] f32[1, 3, 4]"),
        row("f32[1, 2, 3, 4] f32[1, 3, 2] f32[1, 3, 1]"),
        row("f32[1, 2, 3, 4] f32[1, 4, 2] f32[1, 4, 2]"),
        row("f32[1, 2, 3, 5] f32[1, 3, 2] f32[1, 3, 2]"),
        row("f32[1, 3, 8] f32[1, 3, 2] f32[1, 3, 2]"),
        row("f32[1, 3, 8] f32[1, 3, 2] f32[1, 3, 2]", num_heads=3),
        row("f32[1, 2, 3, 4] f32[1, 3, 3] f32[1, 3, 3]", rotary_embedding_dim=6),
        row("f32[1, 2, 3, 4] f32[9, 4] f32[9, 4] i64[1, 3]"),
        row("f32[1, 2, 3, 4] f32[9, 2] f32[9, 2] i64[1, 4]"),
        row("f32[3, 4] f32[1, 3, 2] f32[1, 3, 2]"),
    ),
    "Attention": (
        row("f32[1, 2, 3, 4] f32[1, 2, 5, 6] f32[1, 2, 5, 4]"),
        row("f32[1, 2, 3, 4] f32[1, 2, 5, 4] f32[1, 2, 6, 4]"),
        row("f32[1, 3, 3, 4] f32[1, 2, 5, 4] f32[1, 2, 5, 4]"),
        row("f32[1, 2, 3, 4] f32[2, 2, 5, 4] f32[1, 2, 5, 4]"),
        row("f32[1, 3, 8] f32[1, 5, 8] f32[1, 5, 8]"),
        row("f32[1, 3, 8] f32[1, 5, 8] f32[1, 5, 8]", q_num_heads=3, kv_num_heads=2),
        row("f32[1, 2, 3, 4] f32[1, 2, 5, 4] f32[1, 2, 5, 4] f32[4, 5]"),
        row("f32[1, 2, 3, 4] f32[1, 2, 5, 4] f32[1, 2, 5, 4] _ f32[1, 2, 5, 4]"),
    ),
    "LinearAttention": (
        row("f32[1, 3, 8] f32[1, 3, 6] f32[1, 3, 8]", q_num_heads=2, kv_num_heads=2, opset=27),
        row("f32[1, 3, 8] f32[1, 4, 8] f32[1, 3, 8]", q_num_heads=2, kv_num_heads=2, opset=27),
        row("f32[1, 3, 8] f32[1, 3, 8] f32[1, 3, 8]", q_num_heads=3, kv_num_heads=2, opset=27),
        row("f32[1, 3, 8] f32[1, 3, 8] f32[1, 3, 8]", q_num_heads=2, kv_num_heads=0, opset=27),
        row("f32[1, 3, 8] f32[1, 3, 8] f32[1, 3, 8]", opset=27),
    ),
    "CausalConvWithState": (
        row("f32[1, 4, 6] f32[4, 2, 3]", opset=27),
        row("f32[1, 4, 6] f32[3, 1, 3]", opset=27),
        row("f32[1, 4, 6] f32[4, 1, 3] f32[3]", opset=27),
        row("f32[1, 4, 6] f32[4, 1, 3] f32[4] f32[1, 4, 3]", opset=27),
        row("f32[1, 4, 6] f32[4, 1, 3]", activation="round", opset=27),
        row("f32[4, 6] f32[4, 1, 3]", opset=27),
    ),
    # of PopART
    **dict(
        _each(
            "ai.graphcore.Gelu ai.graphcore.GeluErf ai.graphcore.Swish ai.graphcore.Scale "
            "ai.graphcore.IdentityLoss ai.graphcore.L1",
            row("bool[2]"),
            row(""),
        )
    ),
    **dict(
        _each(
            "ai.graphcore.Fmod ai.graphcore.Remainder ai.graphcore.ScaledAdd",
            row("f32[2] f32[3]"),
            row("f32[2]"),
            row("f32[2] i32[2]"),
        )
    ),
    "ai.graphcore.Detach": (row(""),),
    "ai.graphcore.LSTM": (
        row("f32[5, 2, 3] f32[4, 6, 4]", outputs=2),
        row("f32[5, 2, 3] f32[3, 7, 4]", outputs=2),
        row("f32[5, 2, 3] f32[7, 4]", outputs=2),
        row("f32[5, 2] f32[4, 7, 4]", outputs=2),
        row("f32[5, 2, 3] f32[4, 7, 4] f32[16]", outputs=2),
        row("f32[5, 2, 3] f32[4, 7, 4] f32[4, 4] f32[1, 2, 4]", outputs=2),
        row("f32[5, 2, 3]", outputs=2),
    ),
    "ai.graphcore.GroupNormalization": (
        row("f32[2, 6, 4] f32[6] f32[6]", outputs=3, num_groups=4),
        row("f32[2, 6, 4] f32[6] f32[6]", outputs=3, num_groups=0),
        row("f32[2, 6, 4] f32[2] f32[6]", outputs=3, num_groups=2),
    ),
    "ai.graphcore.BatchNormalization": (row("f32[2, 3, 4] f32[3] f32[4] f32[3] f32[3]"),),
    "ai.graphcore.DepthToSpace": (
        row("f32[1, 3, 4, 4]", blocksize=2),
        row("f32[1, 4, 4]", blocksize=2),
        row("f32[1, 4, 4, 4]", blocksize=0),
        row("f32[1, 4, 4, 4]"),
    ),
    "ai.graphcore.Nll": (
        row("f32[3, 5] i32[4]"),
        row("f32[3, 5] f32[3]"),
        row("f32[3, 5] i32[3]", reduction="Max"),
    ),
    "ai.graphcore.Reshape": (row("f32[2, 3]", shape=[4, 2]), row("f32[2, 3]", shape=[-2, 3])),
    "ai.graphcore.Reverse": (row("f32[2, 3]", dimensions=[2]), row("f32[2, 3]", dimensions=[0, 0])),
    "ai.graphcore.ShapedDropout": (row(""), row("f32[2, 3]", shape=[4, 3], ratio=0.5)),
    "ai.graphcore.Slice": (
        row("f32[6]", starts=[0], ends=[2], axes=[1]),
        row("f32[6]", starts=[0, 1], ends=[2], axes=[0]),
    ),
    "ai.graphcore.ScatterReduce": (
        row("f32[4, 3] i64[4]", axis=0, axis_size=0),
        row("f32[4, 3] i64[4]", axis=2, axis_size=2),
        row("f32[4, 3] i64[4]", axis=0, axis_size=2, reduction="mean"),
        row("f32[4, 3] i64[5]", axis=0, axis_size=2),
        row("f32[4, 3] i64[4, 3, 1]", axis=0, axis_size=2),
        row("f32[4, 3] i64[4]", axis=0, axis_size=2, group_size=2),
        row("f32[4, 3] i64[4] f32[2, 2]", axis=0, axis_size=2),
        row("f32[4, 3] i64[5, 3]", axis=0, axis_size=2, enable_index_broadcast=0),
        row("f32[4, 3] f32[4]", axis=0, axis_size=2),
    ),
    **dict(_each("ai.graphcore.Nop ai.graphcore.PrintTensor ai.graphcore.TensorRemap", row(""))),
    "ai.graphcore.BitwiseXnor": (row("f32[2] f32[2]"), row("i32[2]"), row("i32[2] i32[3]")),
    "ai.graphcore.Bucketize": (row("f32[2] f32[2, 2]"), row("f32[2]"), row("f32[2] i32[2]")),
    "ai.graphcore.CopyVarUpdate": (row("f32[2]"), row("f32[2] f32[3]")),
    "ai.graphcore.Ctc": (
        row("f32[5, 2, 4] u32[3, 2] u32[2] u32[2]"),
        row("f32[5, 2, 4] u32[2, 3] u32[3] u32[2]"),
        row("f32[5, 2] u32[2, 3] u32[2] u32[2]"),
        row("f32[5, 2, 4] f32[2, 3] u32[2] u32[2]"),
        row("f32[5, 2, 4] u32[2, 3] u32[2] u32[2]", blank=4),
        row("f32[5, 2, 4] u32[2, 3] u32[2] u32[2]", reduction="Max"),
    ),
    **dict(
        _each(
            "ai.graphcore.DynamicSlice ai.graphcore.DynamicZero",
            row("f32[4, 3] u32[1]", axes=[2], sizes=[1]),
            row("f32[4, 3] u32[1]", axes=[0], sizes=[5]),
            row("f32[4, 3] u32[2]", axes=[0], sizes=[2]),
            row("f32[4, 3] f32[1]", axes=[0], sizes=[2]),
        )
    ),
    **dict(
        _each(
            "ai.graphcore.DynamicAdd ai.graphcore.DynamicUpdate",
            row("f32[4, 3] u32[1] f32[2, 2]", axes=[0], sizes=[2]),
            row("f32[4, 3] u32[1] i32[2, 3]", axes=[0], sizes=[2]),
            row("f32[4, 3] u32[1]", axes=[0], sizes=[2]),
        )
    ),
    "ai.graphcore.GroupedGather": (
        row("f32[2, 3] i32[3, 1]", axis=1, group_size=2),
        row("f32[2, 3] i32[2, 1]", axis=0, group_size=2),
        row("f32[2, 3] f32[2, 1]", axis=1, group_size=2),
    ),
    "ai.graphcore.IncrementMod": (row("bool[2]", increment=1.0, modulus=2.0), row("f32[2]")),
    "ai.graphcore.Init": (row("", shape=[2], data_type=99), row("", shape=[-2], data_type=1)),
    **dict.fromkeys(
        ("ai.graphcore.ReplicatedAllReduce", "ai.graphcore.ReplicatedReduceScatter"),
        (
            row("bool[2]"),
            row("f32[2]", __collectiveOperator=9),
            row("f32[2]", __collectiveCommGroup=[1, 3]),
        ),
    ),
    "ai.graphcore.ReplicatedAllGather": (
        row("bool[2]"),
        row("f32[2]", __collectiveReplicaGrouping=[4, 1, 4]),
    ),
    "ai.graphcore.MultiConv": (
        row("f32[1, 2, 5] f32[3, 4, 3] _", strides=[1]),
        row("f32[1, 2, 5] f32[3, 2, 7] _"),
        row("f32[1, 2, 5] f32[3, 2, 3] f32[2]"),
    ),
    "ai.graphcore.NormalizeImage": (
        row("f32[2, 2, 5] f32[5] f32[5]"),
        row("f32[2, 2, 3] f32[2] f32[3]"),
    ),
    "ai.graphcore.ReduceMedian": (
        row("f32[2, 3]", axes=[2], outputs=2),
        row("f32[2, 0]", axes=[1], outputs=2),
    ),
    "ai.graphcore.SequenceSlice": (
        row("f32[6, 3] f32[5, 2] u32[2] u32[2] u32[2]"),
        row("f32[6, 3] f32[5, 3] u32[2] u32[3] u32[2]"),
        row("f32[6, 3] i32[5, 3] u32[2] u32[2] u32[2]"),
    ),
    "ai.graphcore.Sort": (row("f32[2, 3]", axis=2, outputs=2),),
    "ai.graphcore.SplineBasis": (
        row("f32[4, 2] i32[3] u8[2]", outputs=2),
        row("f32[4, 2] i32[2] u8[3]", outputs=2),
        row("f32[4, 2] i32[2] u8[2]", outputs=2, degree=4),
        row("f32[4] i32[1] u8[1]", outputs=2),
    ),
    "ai.graphcore.SplineWeighting": (
        row("f32[5, 3] f32[7, 2, 4] f32[5, 6] i32[5, 6]"),
        row("f32[5, 3] f32[7, 3, 4] f32[4, 6] i32[5, 6]"),
        row("f32[5, 3] f32[7, 3, 4] f32[5, 6] i32[5, 5]"),
        row("f32[5, 3] f32[7, 3, 4] f32[5, 6] f32[5, 6]"),
    ),
    "ai.graphcore.Subsample": (row("f32[6]", strides=[0]), row("f32[6]", strides=[1, 1])),
    **dict(_classical()),
    **dict(_of_training()),
}
"""Broken nodes by operator, outside of ONNX's domain with the domain as prefix."""
