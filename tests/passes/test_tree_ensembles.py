"""Tests the operators of ai.onnx.ml against onnxruntime, compiled and on the host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

import popgraph
from popgraph.backends.reference import evaluate
from popgraph.compiler import load
from popgraph.hosted import HostedModel
from popgraph.passes.graphcore.training.autodiff import Autodiff
from popgraph.passes.onnx.partition import HostStep, host_nodes
from popgraph.passes.options import GRADIENT
from popgraph.support.errors import IndicesError, RunError, UnsupportedError
from tests.passes.test_onnx_gradients import forward

ML = "ai.onnx.ml"
BACKENDS = ("reference", "c")
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")
X = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32) * 2
F32, I64, TEXT = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING


def a_model(
    op: str, inputs: Sequence[Any], outputs: Sequence[Any], opset: Any = 3, **attributes: Any
) -> onnx.ModelProto:
    """A model of one node; inputs are arrays or types, outputs are element types or types."""
    names = [f"x{place}" for place in range(len(inputs))]
    results = [f"y{place}" for place in range(len(outputs))]
    node = helper.make_node(op, names, results, domain=ML, **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_value_info(*pair) for pair in zip(names, map(_type, inputs), strict=True)],
        [helper.make_value_info(*pair) for pair in zip(results, map(_type, outputs), strict=True)],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(ML, opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def _type(of: Any) -> onnx.TypeProto:
    if isinstance(of, onnx.TypeProto):
        return of
    if isinstance(of, int):
        return helper.make_tensor_type_proto(of, None)
    element = TEXT if of.dtype == object else helper.np_dtype_to_tensor_dtype(of.dtype)
    return helper.make_tensor_type_proto(element, of.shape)


def a_map(key: int, value: int) -> onnx.TypeProto:
    return helper.make_map_type_proto(key, helper.make_tensor_type_proto(value, None))


def expected(model: onnx.ModelProto, inputs: Sequence[Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    found: list[Any] = session.run(None, {f"x{at}": one for at, one in enumerate(inputs)})
    return found


def computed(model: onnx.ModelProto, inputs: Sequence[Any], backend: str) -> list[Any]:
    run = popgraph.compile(model, backend=backend)
    return list(run({f"x{at}": one for at, one in enumerate(inputs)}).values())


def assert_same(model: onnx.ModelProto, inputs: Sequence[Any], backend: str = "reference") -> None:
    wanted, found = expected(model, inputs), computed(model, inputs, backend)
    for mine, theirs in zip(found, wanted, strict=True):
        if isinstance(theirs, list):
            assert mine == theirs
            continue
        assert mine.shape == theirs.shape
        if theirs.dtype.kind == "f":
            assert mine.dtype == theirs.dtype
            np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-5)
        else:
            assert mine.dtype == theirs.dtype or theirs.dtype == object
            assert mine.tolist() == theirs.tolist()


def is_compiled(model: onnx.ModelProto) -> bool:
    """Whether the model has no host steps."""
    return not host_nodes(load(model)[0])


# Features


ELEMENTS = ("float32", "float64", "int64", "int32")


@pytest.mark.parametrize("element", ELEMENTS)
def test_scaler_and_normalizer(element: str) -> None:
    x = X.astype(element)
    x[1], x[2] = 0, -np.abs(x[2]) - 1
    for attributes in (
        {"offset": [0.5], "scale": [2.0]},
        {"offset": [0.1, 1, 2], "scale": [3.0, 2, 1]},
    ):
        assert_same(a_model("Scaler", [x], [F32], **attributes), [x])
    for norm in ("MAX", "L1", "L2"):
        assert_same(a_model("Normalizer", [x], [F32], norm=norm), [x])
        assert_same(a_model("Normalizer", [x[0]], [F32], norm=norm), [x[0]])


def test_scaler_keeps_the_digits_of_doubles() -> None:
    x = np.array([[1e8 + 1.0, 3.0, 4.0]])
    (found,) = computed(a_model("Scaler", [x], [F32], offset=[1e8], scale=[1.0]), [x], "reference")
    assert found[0, 0] == 1.0


@pytest.mark.parametrize("element", ELEMENTS)
def test_binarizer(element: str) -> None:
    x = np.array([[-1, 0, 1, 2, 3]]).astype(element)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    (found,) = computed(a_model("Binarizer", [x], [kind], threshold=1.5), [x], "reference")
    assert found.dtype == x.dtype and found.tolist() == [[0, 0, 0, 1, 1]]


@pytest.mark.parametrize("backend", BACKENDS)
def test_imputer(backend: str) -> None:
    x = X.copy()
    x[0, 1], x[1, 2] = np.nan, 0
    nan = {"imputed_value_floats": [1.0, 2.0, 3.0], "replaced_value_float": float("nan")}
    assert_same(a_model("Imputer", [x], [F32], **nan), [x], backend)
    assert_same(a_model("Imputer", [x], [F32], imputed_value_floats=[7.0]), [X], backend)
    whole = np.array([[1, -1, 3], [-1, 2, -1]])
    own = {"imputed_value_int64s": [7, 8, 9], "replaced_value_int64": -1}
    assert_same(a_model("Imputer", [whole], [I64], **own), [whole], backend)


def test_feature_vectorizer() -> None:
    parts = [X, X[:, :2].copy(), X[:, :1] + 1]
    for sizes in ([3, 2, 1], [2, 4, 1]):
        model = a_model("FeatureVectorizer", parts, [F32], inputdimensions=sizes)
        assert is_compiled(model)
        assert_same(model, parts)


@pytest.mark.parametrize("element", ELEMENTS)
def test_array_feature_extractor_and_one_hot_encoder(element: str) -> None:
    x, places = X.astype(element), np.array([[2, 0, 1, 1]])
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    assert_same(a_model("ArrayFeatureExtractor", [x, places], [kind]), [x, places])
    assert_same(a_model("ArrayFeatureExtractor", [x[0], places], [kind]), [x[0], places])
    model = a_model("OneHotEncoder", [x], [F32], cats_int64s=[0, 1, -1, 3])
    assert is_compiled(model)
    (found,) = computed(model, [x], "reference")
    whole = x.astype(np.int64)[..., None]  # the integer part of a float is encoded
    assert found.dtype == np.float32
    assert (found == (whole == np.array([0, 1, -1, 3]))).all()
    if element != "int32":
        assert_same(model, [x])


@pytest.mark.parametrize("place", [-1, 3])
def test_array_feature_extractor_indices_out_of_range(place: int) -> None:
    places = np.array([0, place])
    model = a_model("ArrayFeatureExtractor", [X, places], [F32])
    run = popgraph.compile(model, backend="reference", indices="error")
    with pytest.raises(IndicesError, match=f"index {place} is out of range: 0 to 2 are legal"):
        run(x0=X, x1=places)


# Labels, strings and dictionaries


WORDS = np.array([["a", "b"], ["c", "q"]], object)
WHOLE = np.array([[1, 2], [3, 9]])
REALS = np.array([1.5, np.nan, 0, -0.0, 7], np.float32)


def tensors(key: int, keys: Sequence[Any], value: int, values: Sequence[Any]) -> dict[str, Any]:
    return {
        "keys_tensor": helper.make_tensor("keys", key, [len(keys)], keys),
        "values_tensor": helper.make_tensor("values", value, [len(values)], values),
    }


ENCODINGS: list[tuple[Any, int, int, dict[str, Any]]] = [
    (WORDS, I64, 1, {"classes_strings": ["a", "b", "c"]}),
    (WHOLE, TEXT, 1, {"classes_strings": ["a", "b", "c"]}),
    (WORDS, TEXT, 2, {"keys_strings": ["a", "b", "a"], "values_strings": ["x", "y", "z"]}),
    (WORDS, I64, 2, {"keys_strings": ["a", "b"], "values_int64s": [4, 5], "default_int64": 8}),
    (WORDS, F32, 2, {"keys_strings": ["a", "b"], "values_floats": [4.0, 5.0]}),
    (WHOLE, TEXT, 2, {"keys_int64s": [1, 3], "values_strings": ["x", "y"], "default_string": "?"}),
    (WHOLE, I64, 2, {"keys_int64s": [3, 1, 3], "values_int64s": [7, 8, 9], "default_int64": 5}),
    (WHOLE, F32, 2, {"keys_int64s": [3, 1], "values_floats": [7.0, 8.0]}),
    (REALS, F32, 2, {"keys_floats": [1.5, np.nan, 0.0], "values_floats": [7.0, 8.0, 9.0]}),
    (REALS, I64, 2, {"keys_floats": [1.5, 7.0], "values_int64s": [7, 8]}),
    (REALS, F32, 4, {"keys_floats": [1.5, np.nan, 0.0], "values_floats": [7.0, 8.0, 9.0]}),
    (REALS, TEXT, 4, {"keys_floats": [1.5, np.nan], "values_strings": ["x", "y"]}),
    (WHOLE, TEXT, 4, tensors(I64, [1, 2], TEXT, [b"p", b"q"])),
    (
        REALS.astype(np.float64),
        TensorProto.DOUBLE,
        4,
        tensors(TensorProto.DOUBLE, [7, np.nan, 0.0], TensorProto.DOUBLE, [1.0, 2.0, 3.0])
        | {"default_tensor": helper.make_tensor("default", TensorProto.DOUBLE, [1], [7.5])},
    ),
    (
        REALS.astype(np.float64),
        TensorProto.DOUBLE,
        4,
        tensors(TensorProto.DOUBLE, [7, 1.5], TensorProto.DOUBLE, [1.0, 2.0]),
    ),
    (
        WORDS,
        TensorProto.INT16,
        4,
        {"keys_strings": ["a", "b"]}
        | {"values_tensor": helper.make_tensor("values", TensorProto.INT16, [2], [1, 2])}
        | {"default_tensor": helper.make_tensor("default", TensorProto.INT16, [1], [9])},
    ),
]


@pytest.mark.parametrize(("x", "to", "opset", "attributes"), ENCODINGS)
def test_label_encoder(x: Any, to: int, opset: int, attributes: dict[str, Any]) -> None:
    model = a_model("LabelEncoder", [x], [to], opset, **attributes)
    assert_same(model, [x])
    assert is_compiled(model) == (x.dtype != object and to != TEXT)


@pytest.mark.parametrize("element", ["int16", "int32", "int64", "float32", "float64"])
def test_label_encoder_tables_by_type(element: str) -> None:
    """Keys and their neighbours, with a hash table whose size is not a power of two."""
    keys = np.array([5, -3, 9, 0, 12], element)
    kind = helper.np_dtype_to_tensor_dtype(keys.dtype)
    table = tensors(kind, keys.tolist(), kind, (keys * 2).tolist())
    default = {"default_tensor": helper.make_tensor("default", kind, [1], [77])}
    x = np.arange(-5, 15).astype(element)
    model = a_model("LabelEncoder", [x], [kind], 4, **table, **default)
    for backend in BACKENDS:
        (found,) = computed(model, [x], backend)
        assert found.dtype == x.dtype
        assert found.tolist() == [one * 2 if one in keys else 77 for one in x.tolist()]


def test_category_mapper_and_one_hot_strings() -> None:
    table = {"cats_strings": ["a", "b", "c"], "cats_int64s": [1, 2, 3]}
    assert_same(a_model("CategoryMapper", [WORDS], [I64], **table), [WORDS])
    assert_same(a_model("CategoryMapper", [WHOLE], [TEXT], **table), [WHOLE])
    one_hot = {"cats_strings": ["a", "b", "c"]}
    assert_same(a_model("OneHotEncoder", [WORDS], [F32], **one_hot), [WORDS])
    strict = a_model("OneHotEncoder", [WORDS], [F32], zeros=0, **one_hot)
    with pytest.raises(RunError, match="unknown category 'q'"):
        computed(strict, [WORDS], "reference")
    assert_same(strict, [WORDS[:1].repeat(2, axis=0)])


def test_one_hot_encoder_refuses_unknown_categories() -> None:
    model = a_model("OneHotEncoder", [WHOLE], [F32], cats_int64s=[1, 2, 3], zeros=0)
    with pytest.raises(RunError, match="unknown category 9"):
        computed(model, [WHOLE], "reference")
    assert_same(model, [np.array([[1, 2], [3, 3]])])


@pytest.mark.parametrize("to", ["TO_FLOAT", "TO_STRING", "TO_INT64"])
@pytest.mark.parametrize("form", ["DENSE", "SPARSE"])
def test_cast_map(to: str, form: str) -> None:
    kind = {"TO_FLOAT": F32, "TO_STRING": TEXT, "TO_INT64": I64}[to]
    words = {"cast_to": to, "map_form": form, "max_map": 6}
    model = a_model("CastMap", [a_map(I64, F32)], [kind], **words)
    assert_same(model, [{3: 1.5, 0: 2.25, 5: -7.0}])


def test_dict_vectorizer() -> None:
    """Inputs that onnxruntime's Python cannot feed are compared with values by hand."""
    words = {"string_vocabulary": ["a", "b", "c"]}
    assert_same(
        a_model("DictVectorizer", [a_map(TEXT, F32)], [F32], **words), [{"a": 1.0, "c": 3.0}]
    )
    numbers = {"int64_vocabulary": [1, 2, 3]}
    assert_same(a_model("DictVectorizer", [a_map(I64, F32)], [F32], **numbers), [{1: 1.0, 3: 3.0}])
    model = a_model("DictVectorizer", [a_map(I64, TEXT)], [TEXT], **numbers)
    assert computed(model, [{1: "u", 3: "v"}], "reference")[0].tolist() == [["u", "", "v"]]
    model = a_model("DictVectorizer", [a_map(TEXT, I64)], [I64], **words)
    (found,) = computed(model, [{"c": 4}], "reference")
    assert found.dtype == np.int64 and found.tolist() == [[0, 0, 4]]


@pytest.mark.parametrize("x", [X, X[0]], ids=["rows", "row"])
def test_zip_map(x: Any) -> None:
    for key, labels in (
        (TEXT, {"classlabels_strings": ["no", "yes", "so"]}),
        (I64, {"classlabels_int64s": [4, 9, 1]}),
    ):
        result = helper.make_sequence_type_proto(a_map(key, F32))
        assert_same(a_model("ZipMap", [x], [result], **labels), [x])


def test_zip_map_requires_a_label_per_column() -> None:
    result = helper.make_sequence_type_proto(a_map(I64, F32))
    with pytest.raises(RunError, match="2 labels for rows of 3 elements"):
        computed(a_model("ZipMap", [X], [result], classlabels_int64s=[4, 9]), [X], "reference")


# Linear models


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_linear_classifier(element: str, transform: str) -> None:
    x, weights = X.astype(element), X[:3].reshape(-1)
    for count, labels in ((1, [5, 3]), (2, [5, 3]), (3, [5, 3, 9])):
        attributes: dict[str, Any] = {
            "coefficients": weights[: 3 * count].tolist(),
            "intercepts": [0.5, 0.1, 0.2][:count],
            "post_transform": transform,
        }
        numbered = a_model(
            "LinearClassifier", [x], [I64, F32], classlabels_ints=labels, **attributes
        )
        assert is_compiled(numbered)
        assert_same(numbered, [x])
        names = [f"class {label}" for label in labels]
        named = a_model(
            "LinearClassifier", [x], [TEXT, F32], classlabels_strings=names, **attributes
        )
        assert_same(named, [x])


def test_classifiers_with_names_host_their_labels_only() -> None:
    attributes = {"coefficients": [1.0] * 9, "intercepts": [0.0, 1.0, 2.0]}
    names = {"classlabels_strings": ["p", "q", "r"]}
    model = a_model("LinearClassifier", [X], [TEXT, F32], **names, **attributes)
    runner = popgraph.compile(model, backend="reference")
    assert isinstance(runner.made, HostedModel)
    hosted = [step.op.op_type for step in runner.made.steps if isinstance(step, HostStep)]
    assert hosted == ["LabelEncoder"]


@pytest.mark.parametrize("transform", [*TRANSFORMS, "PROBIT"])
def test_linear_regressor(transform: str) -> None:
    attributes = {"coefficients": (X[:2] / 20).reshape(-1).tolist(), "intercepts": [0.5, 0.4]}
    words = {"targets": 2, "post_transform": transform}
    assert_same(a_model("LinearRegressor", [X], [F32], **attributes, **words), [X])


def test_linear_classifier_probit_of_one_score_is_refused() -> None:
    attributes = {"coefficients": [1.0] * 3, "intercepts": [0.5], "classlabels_ints": [0, 1]}
    model = a_model("LinearClassifier", [X], [I64, F32], post_transform="PROBIT", **attributes)
    with pytest.raises(UnsupportedError, match="PROBIT of one score for two classes"):
        popgraph.compile(model)


# Support vectors


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_svm_regressor(kernel: str) -> None:
    random = np.random.default_rng(1)
    attributes: dict[str, Any] = {
        "kernel_type": kernel,
        "kernel_params": [0.3, 0.5, 3.0],
        "n_supports": 6,
        "support_vectors": random.normal(size=18).tolist(),
        "coefficients": random.normal(size=6).tolist(),
        "rho": [0.25],
    }
    assert_same(a_model("SVMRegressor", [X], [F32], **attributes), [X])
    assert_same(a_model("SVMRegressor", [X], [F32], one_class=1, **attributes), [X])


def a_machine(classes: int, kernel: str, probable: bool) -> dict[str, Any]:
    random = np.random.default_rng(classes)
    counts = random.integers(1, 4, classes).tolist()
    total, pairs = sum(counts), classes * (classes - 1) // 2
    found: dict[str, Any] = {
        "kernel_type": kernel,
        "kernel_params": [0.3, 0.5, 3.0],
        "support_vectors": random.normal(size=3 * total).tolist(),
        "vectors_per_class": counts,
        "coefficients": random.normal(size=total * (classes - 1)).tolist(),
        "rho": (random.normal(size=pairs) * 0.3).tolist(),
    }
    if probable:
        found["prob_a"] = (-np.abs(random.normal(size=pairs))).tolist()
        found["prob_b"] = (random.normal(size=pairs) * 0.2).tolist()
    return found


@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("probable", [False, True])
def test_svm_classifier(classes: int, probable: bool) -> None:
    labels = [5, 3, 9, 1][:classes]
    for kernel in ("LINEAR", "POLY", "RBF", "SIGMOID"):
        machine = a_machine(classes, kernel, probable)
        for transform in TRANSFORMS if kernel == "RBF" else ("NONE",):
            own = {"post_transform": transform, "classlabels_ints": labels}
            assert_same(a_model("SVMClassifier", [X], [I64, F32], **own, **machine), [X])
    named = {"classlabels_strings": [str(label) for label in labels]}
    assert_same(a_model("SVMClassifier", [X], [TEXT, F32], **named, **machine), [X])


@pytest.mark.parametrize("probable", [False, True])
def test_svm_classifier_in_c(probable: bool) -> None:
    machine = a_machine(3, "RBF", probable)
    model = a_model("SVMClassifier", [X], [I64, F32], classlabels_ints=[1, 2, 3], **machine)
    assert_same(model, [X], "c")


# Trees


ALL_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


class Growing:
    """Attributes of a forest that grows at random."""

    def __init__(self, seed: int, modes: Sequence[str], missing: bool) -> None:
        self.random = np.random.default_rng(seed)
        self.modes, self.missing = modes, missing
        names = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids")
        more = ("falsenodeids", "missing_value_tracks_true")
        self.nodes: dict[str, list[Any]] = {f"nodes_{name}": [] for name in (*names, *more)}
        self.leaves: list[tuple[int, int, int, float]] = []

    def grow(self, tree: int, depth: int, targets: Sequence[int]) -> int:
        """Grows a subtree; returns the number of its root in the tree."""
        place = len(self.nodes["nodes_treeids"])
        own: int = self.nodes["nodes_treeids"].count(tree)
        for name, value in zip(self.nodes, (tree, own, 0, 0.0, "LEAF", 0, 0, 0), strict=True):
            self.nodes[name].append(value)
        if not depth or self.random.random() < 0.15:
            for target in targets:
                self.leaves.append((tree, own, target, float(self.random.normal())))
            return own
        self.nodes["nodes_featureids"][place] = int(self.random.integers(3))
        self.nodes["nodes_values"][place] = float(self.random.integers(-2, 3))
        self.nodes["nodes_modes"][place] = str(self.random.choice(self.modes))
        tracks = int(self.missing and self.random.random() < 0.5)
        self.nodes["nodes_missing_value_tracks_true"][place] = tracks
        self.nodes["nodes_truenodeids"][place] = self.grow(tree, depth - 1, targets)
        self.nodes["nodes_falsenodeids"][place] = self.grow(tree, depth - 1, targets)
        return own

    def attributes(self, prefix: str, positive: bool = False) -> dict[str, Any]:
        trees, nodes, targets, weights = (list(one) for one in zip(*self.leaves, strict=True))
        return self.nodes | {
            f"{prefix}_treeids": trees,
            f"{prefix}_nodeids": nodes,
            f"{prefix}_ids": targets,
            f"{prefix}_weights": [abs(one) if positive else one for one in weights],
        }


def a_forest(
    seed: int, targets: Sequence[int], modes: Sequence[str] = ALL_MODES, missing: bool = False
) -> Growing:
    found = Growing(seed, modes, missing)
    for tree in range(4):
        found.grow(tree, 4, targets)
    return found


def samples(seed: int, missing: bool, element: str = "float32") -> Any:
    """Samples, many of them exactly at thresholds."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(40, 3)) * 2
    x[::2] = np.round(x[::2])
    if missing:
        x[random.random(x.shape) < 0.2] = np.nan
    return x.astype(element)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_tree_ensemble_regressor(aggregate: str, missing: bool) -> None:
    for targets in ([0], [0, 1, 2]):
        x = samples(3, True)
        forest = a_forest(len(targets), targets, missing=missing).attributes("target")
        own = {"aggregate_function": aggregate, "n_targets": len(targets)}
        own["base_values"] = [0.5, 0.25, -1.0][: len(targets)]
        assert_same(a_model("TreeEnsembleRegressor", [x], [F32], 1, **forest, **own), [x])
        wide = {name: forest.pop(name) for name in ("nodes_values", "target_weights")}
        for name, numbers in wide.items():
            tensor = helper.make_tensor(name, TensorProto.DOUBLE, [len(numbers)], numbers)
            forest[f"{name}_as_tensor"] = tensor
        del own["base_values"]
        y = x.astype(np.float64)
        assert_same(a_model("TreeEnsembleRegressor", [y], [F32], 3, **forest, **own), [y])


@pytest.mark.parametrize("missing", [False, True])
def test_tree_ensembles_in_c(missing: bool) -> None:
    x = samples(4, missing)
    forest = a_forest(7, [0, 1, 2], missing=missing)
    regressor = forest.attributes("target") | {"n_targets": 3}
    assert_same(a_model("TreeEnsembleRegressor", [x], [F32], **regressor), [x], "c")
    classifier = forest.attributes("class") | {"classlabels_int64s": [7, 5, 9]}
    assert_same(a_model("TreeEnsembleClassifier", [x], [I64, F32], **classifier), [x], "c")


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_tree_ensemble_classifier(element: str, transform: str) -> None:
    x = samples(5, False, element)
    for seed, (classes, targets, positive, base) in enumerate(
        (
            ([7, 5, 9], [0, 1, 2], False, []),
            ([7, 5, 9], [0, 1, 2], True, [0.1, 0.2, 0.3]),
            ([7, 5], [0], False, []),
            ([7, 5], [0], False, [0.3]),
            ([7, 5], [0], True, []),
            ([7, 5], [1], True, []),
            ([7, 5], [1], False, []),
        )
    ):
        forest = a_forest(seed, targets).attributes("class", positive)
        own = {"post_transform": transform} | ({"base_values": base} if base else {})
        numbered = {"classlabels_int64s": classes} | own | forest
        assert_same(a_model("TreeEnsembleClassifier", [x], [I64, F32], **numbered), [x])
        named = {"classlabels_strings": [f"<{label}>" for label in classes]} | own | forest
        assert_same(a_model("TreeEnsembleClassifier", [x], [TEXT, F32], **named), [x])


def test_tree_ensemble_class_without_a_leaf_is_not_chosen() -> None:
    """All sums are negative, so the sum 0 of a class without a leaf must not win."""
    forest = a_forest(1, [0, 2]).attributes("class", positive=True)
    forest["class_weights"] = [-one for one in forest["class_weights"]]
    x = samples(6, False)
    model = a_model(
        "TreeEnsembleClassifier", [x], [I64, F32], classlabels_int64s=[7, 5, 9], **forest
    )
    assert_same(model, [x])
    assert 5 not in computed(model, [x], "reference")[0]


def test_tree_ensemble_classifier_compares_two_classes() -> None:
    """By ONNX's definition; onnxruntime checks the sign of the second sum and returns 0 or 1."""
    forest = a_forest(2, [0, 1]).attributes("class")
    x = samples(7, False)
    model = a_model("TreeEnsembleClassifier", [x], [I64, F32], classlabels_int64s=[7, 5], **forest)
    labels, scores = computed(model, [x], "reference")
    assert labels.tolist() == [7 if first >= second else 5 for first, second in scores]
    np.testing.assert_allclose(scores, expected(model, [x])[1], rtol=1e-5)


def test_tree_ensemble_classifier_with_one_base_value_is_refused() -> None:
    forest = a_forest(2, [1]).attributes("class") | {"base_values": [0.5]}
    model = a_model("TreeEnsembleClassifier", [X], [I64, F32], classlabels_int64s=[0, 1], **forest)
    with pytest.raises(UnsupportedError, match="base values for 1 of two classes"):
        popgraph.compile(model)


MEMBER = 6


@st.composite
def ensembles(draw: st.DrawFn) -> dict[str, Any]:
    """TreeEnsembles of all modes, as lists of branches and leaves, with separate member sets."""
    count = draw(st.integers(1, 9))
    values = st.integers(-2, 2).map(float)
    ends: dict[str, list[tuple[int, bool]]] = {"true": [], "false": []}
    leaves = draw(st.integers(1, 5))
    for place in range(count):
        for side in ends.values():
            is_leaf = place == count - 1 or draw(st.booleans())
            low, high = (0, leaves - 1) if is_leaf else (place + 1, count - 1)
            side.append((draw(st.integers(low, high)), is_leaf))
    modes = draw(st.lists(st.integers(0, MEMBER), min_size=count, max_size=count))
    return {
        "modes": modes,
        "members": [
            draw(st.lists(values, min_size=1, max_size=4)) if mode == MEMBER else [draw(values)]
            for mode in modes
        ],
        "features": draw(st.lists(st.integers(0, 1), min_size=count, max_size=count)),
        "missing": draw(st.lists(st.booleans(), min_size=count, max_size=count)),
        "ends": ends,
        "weights": draw(st.lists(values, min_size=leaves, max_size=leaves)),
        "targets": draw(st.lists(st.integers(0, 1), min_size=leaves, max_size=leaves)),
        "roots": sorted(draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=3))),
        "aggregate": draw(st.integers(0, 3)),
        "element": draw(st.sampled_from(["float16", "float32", "float64"])),
    }


def walked(ensemble: Mapping[str, Any], x: Sequence[float]) -> Iterator[int]:
    """The leaves that a sample reaches, tree by tree."""
    for root in ensemble["roots"]:
        place, is_leaf = root, False
        while not is_leaf:
            value = x[ensemble["features"][place]]
            members = ensemble["members"][place]
            answer = (
                value <= members[0],
                value < members[0],
                value >= members[0],
                value > members[0],
                value == members[0],
                value != members[0],
                value in members,
            )[ensemble["modes"][place]] or (ensemble["missing"][place] and value != value)
            place, is_leaf = ensemble["ends"]["true" if answer else "false"][place]
        yield place


def aggregated(ensemble: Mapping[str, Any], x: Sequence[float]) -> list[float]:
    found = []
    for target in range(2):
        reached = [leaf for leaf in walked(ensemble, x) if ensemble["targets"][leaf] == target]
        weights = [ensemble["weights"][leaf] for leaf in reached]
        match ensemble["aggregate"]:
            case 0:
                found.append(sum(weights) / len(ensemble["roots"]))
            case 1:
                found.append(sum(weights))
            case 2:
                found.append(min(weights, default=0.0))
            case _:
                found.append(max(weights, default=0.0))
    return found


def ensemble_model(ensemble: Mapping[str, Any], x: Any) -> onnx.ModelProto:
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)

    def tensor(name: str, element: int, numbers: Sequence[float]) -> onnx.TensorProto:
        return helper.make_tensor(name, element, [len(numbers)], numbers)

    sets = [
        [*members, np.nan]
        for mode, members in zip(ensemble["modes"], ensemble["members"], strict=True)
        if mode == MEMBER
    ]
    attributes: dict[str, Any] = {
        "tree_roots": ensemble["roots"],
        "nodes_featureids": ensemble["features"],
        "nodes_modes": tensor("m", TensorProto.UINT8, ensemble["modes"]),
        "nodes_splits": tensor("s", kind, [members[0] for members in ensemble["members"]]),
        "nodes_missing_value_tracks_true": [int(one) for one in ensemble["missing"]],
        "leaf_targetids": ensemble["targets"],
        "leaf_weights": tensor("w", kind, ensemble["weights"]),
        "n_targets": 2,
        "aggregate_function": ensemble["aggregate"],
    }
    for side, ends in ensemble["ends"].items():
        attributes[f"nodes_{side}nodeids"] = [place for place, _ in ends]
        attributes[f"nodes_{side}leafs"] = [int(is_leaf) for _, is_leaf in ends]
    if sets:
        attributes["membership_values"] = tensor("v", kind, [one for row in sets for one in row])
    return a_model("TreeEnsemble", [x], [kind], 5, **attributes)


@given(ensembles())
def test_fuzz_tree_ensemble(ensemble: dict[str, Any]) -> None:
    values = [-np.inf, -2, -1.5, -1, 0, 0.5, 1, 2, np.inf, np.nan]
    x = np.array([[a, b] for a in values for b in values], ensemble["element"])
    (found,) = computed(ensemble_model(ensemble, x), [x], "reference")
    wanted = np.array([aggregated(ensemble, row) for row in x.astype(float).tolist()])
    assert found.dtype == x.dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-3)


def test_tree_ensemble_thresholds_are_exact() -> None:
    """In each element type, the next number is on the other side of the threshold."""
    for element in ("float16", "float32", "float64"):
        one = np.array(1, element)
        x = np.array([[np.nextafter(one, -one)], [one], [np.nextafter(one, one + one)]], element)
        answers = []
        for mode in range(7):
            ensemble = {
                "modes": [mode],
                "members": [[1.0]],
                "features": [0],
                "missing": [False],
                "ends": {"true": [(0, True)], "false": [(1, True)]},
                "weights": [1.0, 0.0],
                "targets": [0, 0],
                "roots": [0],
                "aggregate": 1,
            }
            (found,) = computed(ensemble_model(ensemble, x), [x], "reference")
            answers.append(found[:, 0].astype(int).tolist())
        assert answers == [
            [1, 1, 0],
            [1, 0, 0],
            [0, 1, 1],
            [0, 0, 1],
            [0, 1, 0],
            [1, 0, 1],
            [0, 1, 0],
        ]


# Whole pipelines


def test_a_classifier_pipeline_with_names_and_dictionaries() -> None:
    """
    Scaled features and a tree ensemble in one segment, then host steps for names and dictionaries.
    """
    forest = a_forest(3, [0, 1, 2], ["BRANCH_LEQ"]).attributes("class", positive=True)
    names = ["setosa", "versicolor", "virginica"]
    nodes = [
        helper.make_node("Scaler", ["x0"], ["s"], domain=ML, offset=[0.5], scale=[2.0]),
        helper.make_node(
            "TreeEnsembleClassifier",
            ["s"],
            ["label", "score"],
            domain=ML,
            classlabels_strings=names,
            post_transform="SOFTMAX",
            **forest,
        ),
        helper.make_node("ZipMap", ["score"], ["map"], domain=ML, classlabels_strings=names),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x0", F32, ["N", 3])],
        [
            helper.make_tensor_value_info("label", TEXT, ["N"]),
            helper.make_value_info("map", helper.make_sequence_type_proto(a_map(TEXT, F32))),
        ],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(ML, 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    for count in (40, 1):
        x = samples(1, False)[:count]
        label, rows = computed(model, [x], "c")
        wanted = expected(model, [x])
        assert label.tolist() == wanted[0].tolist()
        assert [list(row) for row in rows] == [names] * count
        np.testing.assert_allclose(
            [list(row.values()) for row in rows],
            [list(row.values()) for row in wanted[1]],
            rtol=1e-5,
        )


# Gradients


KERNELS = [
    {
        "kernel_type": kernel,
        "kernel_params": [0.3, 0.5, 2.0],
        "n_supports": 2,
        "support_vectors": [0.5, -1.0, 0.25, 1.0, 0.75, -0.5],
        "coefficients": [1.0, -2.0],
        "rho": [0.25],
    }
    for kernel in ("LINEAR", "POLY", "RBF", "SIGMOID")
]
SMOOTH: list[tuple[str, dict[str, Any]]] = [
    ("Scaler", {"offset": [0.5, 0.25, 0.0], "scale": [2.0, 1.0, 3.0]}),
    *[("Normalizer", {"norm": norm}) for norm in ("MAX", "L1", "L2")],
    *[
        (
            "LinearRegressor",
            {
                "coefficients": [1.0, -2.0, 0.5, 0.5, 1.0, 1.0],
                "targets": 2,
                "post_transform": transform,
            },
        )
        for transform in TRANSFORMS
    ],
    *[("SVMRegressor", kernel) for kernel in KERNELS],
]


@pytest.mark.parametrize(("op", "attributes"), SMOOTH)
def test_ai_onnx_ml_gradients_are_slopes(op: str, attributes: dict[str, Any]) -> None:
    """Inputs are in f64, but results in f32, so the steps of differences are long."""
    x = np.random.default_rng(2).uniform(0.5, 1.5, (4, 3))
    model = a_model(op, [x], [F32], **attributes)
    cube = [
        helper.make_node("Mul", ["y0", "y0"], ["square"]),
        helper.make_node("Mul", ["y0", "square"], ["cube"]),
        helper.make_node("ReduceSum", ["cube"], ["loss"], keepdims=0),
    ]
    model.graph.node.extend(cube)
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("loss", F32, []))
    module, compilation = forward(model, ["x0"])
    backward = module.clone()
    Autodiff("loss", wrt=("x0",)).run(compilation, backward)
    found, _ = evaluate(backward, {"x0": x}, compilation.weights)
    slopes = np.zeros_like(x)
    for place in np.ndindex(*x.shape):
        step = np.zeros_like(x)
        step[place] = 5e-3
        ends = [
            float(evaluate(module, {"x0": x + side * step}, compilation.weights)[0]["loss"])
            for side in (1, -1)
        ]
        slopes[place] = (ends[0] - ends[1]) / 1e-2
    assert np.abs(slopes).max() > 1e-2
    gradient = np.asarray(found[GRADIENT + "x0"], np.float64)
    np.testing.assert_allclose(gradient, slopes, rtol=1e-2, atol=3e-3)
