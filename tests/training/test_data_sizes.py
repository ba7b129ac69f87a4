"""Tests gradients through tensors of data-dependent size against finite differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import parser
from onnx.reference import ReferenceEvaluator

import popgraph
from popgraph.builder.pgraph import parse
from popgraph.passes.optimizer_spec import SGD, Scalar
from popgraph.passes.options import GRADIENT, Options, Training
from popgraph.runner import Runner
from popgraph.support.arrays import Array
from popgraph.support.errors import PopgraphError
from popgraph.training.loss_reduction import reduction_of
from popgraph.training.task import task_of
from popgraph.training.trainer import Trainer
from tests.sampling import examples

BACKENDS = ["reference", "c"]
STEP = 1e-6
MASKS = [[0, 1, 0, 1, 1, 0], [1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 1]]
NONE = [0, 0, 0, 0, 0, 0]

X = "double[6, 3] x"
C = "bool[6] c"
SELECTED = "s = Compress<axis = 0>(x, c)"
SUM = "loss = ReduceSum<keepdims = 0>(t)"


def model(signature: str, weights: str, body: str, opset: int = 18) -> onnx.ModelProto:
    return parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : {opset}, "ai.graphcore" : 1]> '
        f"g ({signature}) => (double loss) <{weights}> {{ {body} }}"
    )


def step(made: onnx.ModelProto, names: Sequence[str], backend: str) -> Runner:
    training = Training("loss", SGD(learning_rate=Scalar(0.0)), gradients=tuple(names))
    return popgraph.compile(made, backend=backend, options=Options(training=training))


def drawn(made: onnx.ModelProto, seed: int = 0) -> dict[str, Array]:
    """Random inputs; integer inputs are labels of three classes."""
    generator, found = np.random.default_rng(seed), dict[str, Array]()
    for held in made.graph.input:
        kind = onnx.helper.tensor_dtype_to_np_dtype(held.type.tensor_type.elem_type)
        shape = [one.dim_value for one in held.type.tensor_type.shape.dim]
        array = generator.normal(size=shape)
        if kind == np.int64:
            array = generator.integers(0, 3, shape)
        found[held.name] = array.astype(kind)
    return found


def check(made: onnx.ModelProto, given: Mapping[str, Array], backend: str) -> None:
    """Compares the loss with `onnx.reference`, and gradients with its finite differences."""
    names = [name for name, array in given.items() if array.dtype.kind == "f" and name != "mask"]
    reference = ReferenceEvaluator(made)

    def loss(arrays: Mapping[str, Array]) -> float:
        return float(reference.run(["loss"], dict(arrays))[0])

    found = step(made, names, backend)(dict(given))
    np.testing.assert_allclose(found["loss"], loss(given), rtol=1e-9, atol=1e-12)
    for name in names:
        slope = np.zeros_like(given[name])
        for place in np.ndindex(slope.shape):
            ends = []
            for sign in (1, -1):
                moved = given[name].copy()
                moved[place] += sign * STEP
                ends.append(loss({**given, name: moved}))
            slope[place] = (ends[0] - ends[1]) / (2 * STEP)
        np.testing.assert_allclose(
            found[f"{GRADIENT}{name}"], slope, rtol=1e-4, atol=1e-6, err_msg=name
        )


HALF = "double half = {0.5}, double three = {3}"
LINEAR = "double[3, 3] w, double[3] b"
CASES: dict[str, tuple[str, str, str]] = {
    "sum": (X, "", f"{SELECTED} t = Mul(s, s) {SUM}"),
    "mean": (X, "", f"{SELECTED} t = Mul(s, s) loss = ReduceMean<keepdims = 0>(t)"),
    "mean of rows": (
        X,
        "int64[1] axes = {0}",
        f"{SELECTED} m = ReduceMean<keepdims = 0>(s, axes) t = Exp(m) {SUM}",
    ),
    "most": (
        X,
        "int64[1] axes = {0}",
        f"{SELECTED} m = ReduceMax(s, axes) n = ReduceMin(s, axes) t = Mul(m, n) {SUM}",
    ),
    "product": (X, "int64[1] axes = {0}", f"{SELECTED} t = ReduceProd(s, axes) {SUM}"),
    "norms": (
        X,
        "int64[1] axes = {0}",
        f"{SELECTED} l = ReduceL2(s, axes) m = ReduceLogSumExp(s, axes) t = Mul(l, m) {SUM}",
    ),
    "flat": (X, "", f"m = Compress(x, c) t = Mul(m, m) {SUM}"),
    "by positions": (
        X,
        "",
        f"p = NonZero(c) i = Transpose(p) s = GatherND(x, i) t = Mul(s, s) {SUM}",
    ),
    "by a mask of elements": (
        f"{X}, double[6, 3] mask",
        HALF,
        "m = Greater(mask, half) p = NonZero(m) i = Transpose(p) s = GatherND(x, i) "
        "e = Exp(s) loss = ReduceMean<keepdims = 0>(e)",
    ),
    "all elements": (
        f"{X}, double[18] mask",
        HALF,
        f"m = Greater(mask, half) s = Compress(x, m) t = Sin(s) {SUM}",
    ),
    "columns": (
        "double[3, 6] x",
        "",
        f"s = Compress<axis = 1>(x, c) a = Softmax<axis = 0>(s) t = Mul(a, s) {SUM}",
    ),
    "softmax of what is selected": (
        X,
        "",
        f"{SELECTED} a = Softmax<axis = 0>(s) b = Mul(a, a) l = LogSoftmax<axis = 0>(s) "
        f"t = Mul(b, l) {SUM}",
    ),
    "attention": (
        f"{X}, double[3, 3] w",
        "",
        f"{SELECTED} q = MatMul(s, w) k = Transpose(s) a = MatMul(q, k) p = Softmax(a) "
        f"v = MatMul(p, s) t = Mul(v, v) {SUM}",
    ),
    "a layer": (
        f"{X}, double[3, 3] w, double[3] b",
        "",
        f"{SELECTED} h = Gemm(s, w, b) g = Tanh(h) n = LayerNormalization(g, b) "
        f"t = Mul(n, h) {SUM}",
    ),
    "cross entropy": (
        f"{X}, double[3, 3] w, int64[6] labels",
        "",
        f"{SELECTED} h = MatMul(s, w) y = Compress<axis = 0>(labels, c) "
        "loss = SoftmaxCrossEntropyLoss(h, y)",
    ),
    "sum of cross entropies": (
        f"{X}, double[3, 3] w, int64[6] labels",
        "",
        f"{SELECTED} h = MatMul(s, w) p = NonZero(c) i = Transpose(p) y = GatherND(labels, i) "
        'loss = SoftmaxCrossEntropyLoss<reduction = "sum">(h, y)',
    ),
    "likelihood": (
        f"{X}, int64[6] labels",
        "",
        f"{SELECTED} l = LogSoftmax(s) y = Compress<axis = 0>(labels, c) "
        "loss = NegativeLogLikelihoodLoss(l, y)",
    ),
    "a mean by hand": (
        X,
        "int64 first = {0}",
        f"{SELECTED} r = ReduceSum<keepdims = 0>(s) n = Shape(s) f = Gather(n, first) "
        "d = Cast<to = 11>(f) loss = Div(r, d)",
    ),
    "a mean by size": (
        X,
        "",
        f"{SELECTED} r = ReduceSum<keepdims = 0>(s) n = Size(s) d = Cast<to = 11>(n) "
        "loss = Div(r, d)",
    ),
    "errors": (
        f"{X}, double[6, 3] z",
        "",
        f"{SELECTED} q = Compress<axis = 0>(z, c) e = Sub(s, q) t = Mul(e, e) "
        "loss = ReduceMean<keepdims = 0>(t)",
    ),
    "features side by side": (
        f"{X}, double[6, 3] z, double[6, 2] w",
        "",
        f"{SELECTED} q = Compress<axis = 0>(z, c) a = Concat<axis = 1>(s, q) "
        f"h = MatMul(a, w) t = Sigmoid(h) {SUM}",
    ),
    "lookups": (
        "double[3, 2] x, int64[6] labels",
        "",
        f"y = Compress<axis = 0>(labels, c) s = Gather(x, y) t = Exp(s) {SUM}",
    ),
    "where a logarithm exists": (
        X,
        "double zero = {0}",
        f"m = Greater(x, zero) p = NonZero(m) i = Transpose(p) s = GatherND(x, i) l = Log(s) "
        f"r = Sqrt(s) t = Add(l, r) {SUM}",
    ),
    "reshaped": (
        X,
        "int64[1] flat = {-1}, int64[2] threes = {-1, 3}",
        f"{SELECTED} f = Reshape(s, flat) e = Exp(f) g = Reshape(e, threes) t = Mul(g, s) {SUM}",
    ),
    "unequal": (
        "double[6] x",
        "",
        f"s, i, j, n = Unique(x) t = Exp(s) {SUM}",
    ),
    "different": (
        "double[6] x",
        "int64[1] axes = {0}",
        f"s, i = Unique<sorted = 0>(x) f = Cast<to = 11>(i) e = Mul(s, f) t = Exp(e) {SUM}",
    ),
    "positions of the largest": (
        X,
        "int64[1] axes = {0}",
        f"{SELECTED} a = ArgMax<axis = 0, keepdims = 0>(s) f = Cast<to = 11>(a) "
        f"o = ReduceMax<keepdims = 0>(s, axes) q = Mul(o, f) t = Mul(q, o) {SUM}",
    ),
    "a selection of a selection": (
        X,
        "double zero = {0}",
        f"{SELECTED} m = Greater(s, zero) p = NonZero(m) n = Cast<to = 11>(p) "
        f"r = ReduceSum<keepdims = 0>(n) q = ReduceSum<keepdims = 0>(s) t = Mul(q, r) {SUM}",
    ),
    "a loop that data end": (
        "double[3] x, double[3, 3] w",
        "int64 most = {6}, bool go = {1}, double limit = {1.5}",
        "y, r = Loop(most, go, x) <body = b (int64 i, bool k, double[3] s) => "
        "(bool d, double[3] t, double[3] row) { m = MatMul(s, w) t = Tanh(m) q = Mul(t, t) "
        "n = ReduceSum<keepdims = 0>(q) tiny = Constant<value = double {0.3}>() "
        "d = Greater(n, tiny) row = Add(t, s) }> e = Exp(r) a = ReduceMean<keepdims = 0>(e) "
        "z = ReduceSum<keepdims = 0>(y) loss = Add(a, z)",
    ),
    "the rows of a loop, counted": (
        "double[3] x",
        "int64 most = {5}, bool go = {1}, int64 first = {0}",
        "y, r = Loop(most, go, x) <body = b (int64 i, bool k, double[3] s) => "
        "(bool d, double[3] t, double row) { two = Constant<value = double {2.0}>() "
        "t = Mul(s, two) q = Mul(t, t) row = ReduceSum<keepdims = 0>(q) "
        "far = Constant<value = double {40.0}>() d = Less(row, far) }> "
        "l = Log(r) u = ReduceSum<keepdims = 0>(l) n = Shape(r) f = Gather(n, first) "
        "v = Cast<to = 11>(f) loss = Div(u, v)",
    ),
}


def built(name: str) -> onnx.ModelProto:
    signature, weights, body = CASES[name]
    chooses = "Compress" in body or "NonZero(c)" in body
    return model(f"{signature}, {C}" if chooses else signature, weights, body)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CASES)
def test_gradients_of_selections_are_slopes(name: str, backend: str) -> None:
    made = built(name)
    given = drawn(made)
    masks = MASKS if "c" in given else [[]]
    for mask in masks:
        if mask:
            given["c"] = np.array(mask, bool)
        check(made, given, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["sum", "softmax of what is selected", "a layer", "attention"])
def test_gradients_of_empty_selections_are_zero(name: str, backend: str) -> None:
    made = built(name)
    given = {**drawn(made), "c": np.array(NONE, bool)}
    given["x"][:] = 0.0  # Slopes of unselected elements must not count, even if they are infinite.
    check(made, given, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_unselected_elements_have_zero_gradients(backend: str) -> None:
    """Unselected zeros under a logarithm give a gradient of 0, not 0 * inf = NaN."""
    made = model(
        f"{X}, {C}, double[3] w",
        "",
        f"{SELECTED} l = Log(s) q = Mul(l, w) t = Sqrt(s) u = Mul(q, t) "
        "loss = ReduceSum<keepdims = 0>(u)",
    )
    x = np.zeros((6, 3))
    for mask in (MASKS[0], MASKS[2], NONE):
        x[np.array(mask, bool)] = 0.5
        check(made, {"x": x.copy(), "c": np.array(mask, bool), "w": np.ones(3)}, backend)
        x[:] = 0


REFUSED = {
    "Expand(s, n)": ("n = Shape(s) t = Expand(s, n)", "Expand"),
    "a row": ("t = Gather(s, last)", "elements are gathered from an axis of data-dependent size"),
    "a slice": ("t = Slice(s, one, two)", "an axis of data-dependent size is sliced"),
    "a fixed size": ("t = Add(s, x)", "is combined with one of a static size"),
    "other sizes": (
        "m = Greater(x, half) o = ReduceMax(m, ones) v = Reshape(o, flat) "
        "q = Compress<axis = 0>(x, v) t = Mul(s, q)",
        "two tensors with different data-dependent sizes are combined",
    ),
    "the shape alone": ("e = EyeLike(s) t = Cast<to = 11>(e)", "an input of EyeLike"),
    "a sort": ("t, i = TopK(s, one)", "an input of TopK"),
    "side by side": ("t = Concat<axis = 0>(s, s)", "concatenated along an axis of data-dependent"),
    "a body": (
        "t = If(yes) <then_branch = a () => (double[k, 3] u) { u = Add(s, s) }, "
        "else_branch = b () => (double[k, 3] v) { v = Mul(s, s) }>",
        "If",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_selections_without_a_bound_are_refused(name: str) -> None:
    body, message = REFUSED[name]
    weights = (
        "int64[1] last = {-1}, int64[1] one = {1}, int64[1] two = {2}, double half = {0.5}, "
        "int64[1] ones = {1}, int64[1] flat = {-1}"
    )
    made = model(f"{X}, {C}, bool yes", weights, f"{SELECTED} {body} {SUM}", opset=20)
    with pytest.raises(PopgraphError) as caught:
        step(made, ["x"], "reference")({**drawn(made), "c": np.array(MASKS[0], bool)})
    assert message in str(caught.value)
    assert "node" in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("domain", ["local", "com.microsoft"])
def test_selections_inside_functions_are_trained(domain: str) -> None:
    """Selections in a function of the model, and in the definition of a contrib operator."""
    call = "s = local.pick(x, c)" if domain == "local" else "s, i, n = com.microsoft.Unique(f)"
    made = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 18, "local" : 1, "com.microsoft" : 1]> '
        "g (float[6] f, double[6] x, bool[6] c) => (double loss) { "
        f"{call} t = Cast<to = 11>(s) q = Mul(t, t) loss = ReduceSum<keepdims = 0>(q) }} "
        '<domain: "local", opset_import: ["" : 18]> pick (x, c) => (s) '
        "{ p = NonZero(c) i = Transpose(p) g = GatherND(x, i) s = Exp(g) }"
    )
    x = np.array([0.3, 1.0, 0.3, 2.0, 1.5, 5.0])
    given_ = {"f": x.astype(np.float32), "x": x, "c": np.array(MASKS[0], bool)}
    name = "x" if domain == "local" else "f"
    found = step(made, [name], "reference")(given_)[f"{GRADIENT}{name}"]
    first = np.array([1, 1, 0, 1, 1, 1]) * 2 * given_["f"]
    wanted = given_["c"] * 2 * np.exp(2 * x) if domain == "local" else first
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_an_output_of_data_dependent_size_is_refused() -> None:
    made = model(f"{X}, {C}", "", f"{SELECTED} loss = ReduceSum<keepdims = 0>(s)")
    made.graph.output.append(onnx.helper.make_empty_tensor_value_info("s"))
    with pytest.raises(PopgraphError, match="output 's' has a data-dependent size"):
        step(made, ["x"], "reference")


ROWS = """<ir_version: 10, opset_import: ["" : 18]>
g (float[N, 3] x, bool[N] c, int64[N] labels) => (float[M, 2] y, float loss)
<float[3, 2] w = {1, -1, 0.5, 0.2, 0.3, -0.4}> {
    s = Compress<axis = 0>(x, c)
    y = MatMul(s, w)
    l = Compress<axis = 0>(labels, c)
    loss = SoftmaxCrossEntropyLoss(y, l)
}"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_model_that_selects_is_trained_evaluated_and_saved(backend: str, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(34, 3)).astype(np.float32)
    labels, chosen = (x.sum(1) > 0).astype(np.int64), np.arange(34) % 3 > 0
    data = {"x": x, "c": chosen, "labels": labels}
    trainer = Trainer(parser.parse_model(ROWS), "loss", "SGD(0.1)", backend=backend)
    trainer.fit(data, batch=8, shuffle=False)
    w = np.array([[1, -1], [0.5, 0.2], [0.3, -0.4]])
    for at in range(0, 34, 8):
        rows = slice(at, at + 8)
        some, own = x[rows][chosen[rows]], labels[rows][chosen[rows]]
        likely = softmax(some @ w)
        likely[np.arange(len(own)), own] -= 1
        w -= 0.1 * some.T @ likely / len(own)
    np.testing.assert_allclose(trainer.weights()["w"], w, rtol=1e-4)
    logits, own = x[chosen] @ w, labels[chosen]
    loss = -np.log(softmax(logits)[np.arange(len(own)), own]).mean()
    np.testing.assert_allclose(trainer.evaluate(data, batch=34)["loss"], loss, rtol=1e-4)
    np.testing.assert_allclose(trainer.predict(data), logits, rtol=1e-4, atol=1e-5)
    trainer.save(tmp_path / "trained.onnx")
    found = popgraph.compile(tmp_path / "trained.onnx")(x=x, c=chosen)
    np.testing.assert_allclose(found["y"], logits, rtol=1e-4, atol=1e-5)


def softmax(x: Array) -> Array:
    likely = np.exp(x - x.max(1, keepdims=True))
    return np.asarray(likely / likely.sum(1, keepdims=True))


UNARY = ("Exp", "Tanh", "Sigmoid", "Sin", "Neg", "Softplus", "Identity")
LAST = {
    "sum": "r = ReduceSum<keepdims = 0>(h)",
    "mean": "r = ReduceMean<keepdims = 0>(h)",
    "most": "m = ReduceMax(h, zeroth) r = ReduceSum<keepdims = 0>(m)",
    "least": "m = ReduceMin<keepdims = 0>(h, zeroth) r = ReduceSum<keepdims = 0>(m)",
    "length": "r = ReduceL2<keepdims = 0>(h)",
    "mean of squares": "m = Mul(h, h) l = ReduceMean(m, zeroth) r = ReduceProd<keepdims = 0>(l)",
    "logarithm": "m = ReduceLogSumExp(h, zeroth) r = ReduceMean<keepdims = 0>(m)",
}


def chain(draw: st.DrawFn) -> Iterator[str]:
    """Nodes from the selected rows `s` to the loss, with unique names."""
    value = other = "s"
    kinds = draw(st.lists(st.sampled_from(range(9)), min_size=1, max_size=7))
    for count, kind in enumerate(kinds):
        made = f"v{count}"
        yield (
            f"{made} = {draw(st.sampled_from(UNARY))}({value})",
            f"{made} = {draw(st.sampled_from(('Add', 'Mul', 'Sub')))}({value}, {other})",
            f"{made} = Add({value}, b)",
            f"{made} = MatMul({value}, w)",
            f"{made} = Softmax<axis = {draw(st.integers(-2, 1))}>({value})",
            f"f{count} = Reshape({value}, flat) g{count} = Sin(f{count}) "
            f"{made} = Reshape(g{count}, threes)",
            f"a{count} = Transpose({value}) c{count} = MatMul({value}, a{count}) "
            f"p{count} = Softmax(c{count}) {made} = MatMul(p{count}, {other})",
            f"k{count} = Concat<axis = 1>({value}, {other}) {made} = MatMul(k{count}, wide)",
            f"e{count} = ReduceMean(s, zeroth) {made} = Sub({value}, e{count})",
        )[kind]
        value, other = made, draw(st.sampled_from((value, other)))
    yield f"h = Identity({value}) {LAST[draw(st.sampled_from(sorted(LAST)))]} loss = Tanh(r)"


@st.composite
def chains(draw: st.DrawFn) -> tuple[str, str, int]:
    chosen = draw(st.sampled_from((SELECTED, "p = NonZero(c) i = Transpose(p) s = GatherND(x, i)")))
    mask = "".join(map(str, draw(st.sampled_from(MASKS))))
    return f"{chosen} {' '.join(chain(draw))}", mask, draw(st.integers(0, 9))


@given(chains())
@settings(max_examples=examples(40, slow=4))
def test_gradients_of_random_chains_of_selections(
    drawn_chain: tuple[str, str, int],
) -> None:
    body, mask, seed = drawn_chain
    weights = "int64[1] zeroth = {0}, int64[1] flat = {-1}, int64[2] threes = {-1, 3}"
    made = model(f"{X}, {C}, double[3, 3] w, double[6, 3] wide, double[3] b", weights, body)
    given_ = {name: array * 0.5 for name, array in drawn(made, seed).items()}
    read = {name for node in made.graph.node for name in node.input}
    given_["c"] = np.array([int(one) for one in mask], bool)
    for info in [one for one in made.graph.input if one.name not in read]:
        made.graph.input.remove(info)
        del given_[info.name]
    check(made, given_, "reference")


@pytest.mark.parametrize(
    ("loss", "reduction"),
    [
        ("ReduceMean(Compress(y, masked, axis=0), keepdims=0)", None),
        ("ReduceSum(Compress(y, masked, axis=0), keepdims=0)", "sum"),
        ("nll(Compress(y, masked, axis=0), Compress(labels, masked, axis=0))", None),
        ("nll(y, labels)", "mean"),
    ],
)
def test_means_over_selections_are_not_means_over_samples(loss: str, reduction: str | None) -> None:
    """Means over selected elements of micro-batches do not add up: no reduction over samples."""
    text = f"""
graph g(x: f32[N, 3], masked: bool[N]) -> (y: f32[N, 3]) {{
    weight w: f32[3, 3] = glorot_uniform
    y = Softmax(x @ w)
}}
train (labels: i32[N]) {{
    loss = {loss}
    optimizer = SGD(0.1)
}}
"""
    task = task_of(parse(text))
    assert task is not None and reduction_of(task, task.loss) == reduction
