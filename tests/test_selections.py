"""
Tests results of data-dependent size: C computes them up to a bound, and cuts them to size.

NonZero, Compress, Unique, NonMaxSuppression, the post-processing of a detector, and PyTorch's
export of EmbeddingBag are compared with NumPy.
"""

from __future__ import annotations

import warnings
from itertools import product
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import popgraph
from popgraph.support.arrays import Array
from popgraph.support.errors import RunError
from popgraph.support.warnings import ManyProgramsWarning

TYPES = (
    *(TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT8, TensorProto.DOUBLE),
    *(TensorProto.BOOL, TensorProto.FLOAT16, TensorProto.UINT8, TensorProto.INT32),
)
SEEDS = range(12)


def model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, Any]],
    outputs: dict[str, int],
    held: dict[str, Array] | None = None,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, *row) for name, row in inputs.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (held or {}).items()],
    )
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def compiled(proto: onnx.ModelProto, **options: Any) -> Any:
    """A compiled model, which must have no host steps."""
    run = popgraph.compile(proto, **options)

    def checked(**inputs: Array) -> dict[str, Array]:
        found: dict[str, Array] = run(inputs)
        assert run.computed_by.in_c and not run.computed_by.in_python
        return found

    return checked


def drawn(draw: np.random.Generator, kind: int, shape: tuple[int, ...]) -> Array:
    """An array of few distinct elements, with NaN for floats."""
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    array: Array = draw.integers(0, 2 if kind == TensorProto.BOOL else 3, shape).astype(dtype)
    if dtype.kind == "f":
        array = np.where(draw.random(shape) < 0.2, np.nan, array).astype(dtype)
    return array


def same(found: Array, expected: Array) -> None:
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_nonzero(seed: int) -> None:
    draw = np.random.default_rng(seed)
    shape = tuple(draw.integers(1, 7, seed % 3 + 1).tolist())
    kind = TYPES[seed % len(TYPES)]
    dims = [None] * len(shape) if seed % 2 else list(shape)
    node = helper.make_node("NonZero", ["x"], ["y"])
    run = compiled(
        model([node], {"x": (kind, dims)}, {"y": TensorProto.INT64}), threads=1 + seed % 2
    )
    for x in (drawn(draw, kind, shape), np.zeros(shape, drawn(draw, kind, ()).dtype)):
        same(run(x=x)["y"], np.array(np.nonzero(x), np.int64))
    nothing = np.zeros((0, *shape[1:]), x.dtype)
    if seed % 2:
        assert run(x=nothing)["y"].shape == (len(shape), 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_compress(seed: int) -> None:
    draw = np.random.default_rng(seed)
    shape = tuple(draw.integers(1, 7, seed % 3 + 1).tolist())
    kind = TYPES[seed % len(TYPES)]
    axis = [None, *range(-len(shape), len(shape))][seed % (2 * len(shape) + 1)]
    size = int(np.prod(shape)) if axis is None else shape[axis]
    count = int(draw.integers(1, size + 1))
    options = {} if axis is None else {"axis": axis}
    node = helper.make_node("Compress", ["x", "keep"], ["y"], **options)
    inputs = {"x": (kind, list(shape)), "keep": (TensorProto.BOOL, [count])}
    run = compiled(model([node], inputs, {"y": kind}))
    x = drawn(draw, kind, shape)
    for keep in (draw.random(count) < 0.5, np.zeros(count, bool), np.ones(count, bool)):
        same(run(x=x, keep=keep)["y"], np.compress(keep, x, axis))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("varying", [0, 1, 2])
def test_compress_of_any_size(axis: int, varying: int) -> None:
    """One axis varies between calls, possibly that of the condition."""
    draw = np.random.default_rng(axis + 3 * varying)
    dims: list[int | str] = [3, 4, 5]
    dims[varying] = "n"
    node = helper.make_node("Compress", ["x", "keep"], ["y"], axis=axis)
    inputs = {"x": (TensorProto.FLOAT, dims), "keep": (TensorProto.BOOL, [dims[axis]])}
    proto = model([node], inputs, {"y": TensorProto.FLOAT})
    runs = [popgraph.compile(proto, backend=name) for name in ("c", "reference")]
    for size in (3, 40, 37, 1):
        shape = [size if dim == "n" else int(dim) for dim in dims]
        x, keep = drawn(draw, TensorProto.FLOAT, tuple(shape)), draw.random(shape[axis]) < 0.5
        for run in runs:
            same(run(x=x, keep=keep)["y"], np.compress(keep, x, axis))


def test_compress_refuses_a_long_condition() -> None:
    node = helper.make_node("Compress", ["x", "keep"], ["y"], axis=0)
    inputs = {"x": (TensorProto.FLOAT, [2]), "keep": (TensorProto.BOOL, [3])}
    run = popgraph.compile(model([node], inputs, {"y": TensorProto.FLOAT}))
    x = np.array([1, 2], np.float32)
    same(run(x=x, keep=np.array([True, False, False]))["y"], x[:1])
    with pytest.raises(RunError):
        run(x=x, keep=np.array([True, False, True]))


def unique(x: Array, axis: int | None, *, ordered: bool) -> dict[str, Array]:
    found, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not ordered:
        order = np.argsort(first)
        numbers = np.empty_like(order)
        numbers[order] = np.arange(len(order))
        found = np.take(found, order, 0 if axis is None else axis)
        first, inverse, counts = first[order], numbers[inverse], counts[order]
    return {"y": found, "first": first, "inverse": inverse, "counts": counts}


@pytest.mark.parametrize("seed", range(16))
def test_unique(seed: int) -> None:
    draw = np.random.default_rng(seed)
    axis = (None, None, 0, 1)[seed % 4]
    kind = TYPES[seed % len(TYPES) if axis is None else (seed + 1) % 3]
    x = drawn(draw, kind, tuple(draw.integers(1, 6, 2).tolist()))
    if axis is not None:
        x = np.nan_to_num(x)  # NumPy treats rows with NaN as distinct.
    options = {"sorted": seed // 4 % 2, **({} if axis is None else {"axis": axis})}
    names = ["y", "first", "inverse", "counts"]
    node = helper.make_node("Unique", ["x"], names, **options)
    outputs = {"y": kind, **dict.fromkeys(names[1:], TensorProto.INT64)}
    found = compiled(model([node], {"x": (kind, list(x.shape))}, outputs))(x=x)
    expected = unique(x, axis, ordered=bool(options["sorted"]))
    for name in names:
        same(found[name], expected[name].astype(found[name].dtype))


def test_unique_sorts_many_elements_by_bytes() -> None:
    """Keys differ in several bytes, and are equal in others."""
    node = helper.make_node("Unique", ["x"], ["y", "", "", "counts"])
    for kind, low, high in (
        (TensorProto.INT64, -(2**40), 2**40),
        (TensorProto.INT32, -300, 300),
        (TensorProto.FLOAT, -5, 5),
    ):
        x = np.random.default_rng(0).integers(low, high, 3000)
        x = x.astype(helper.tensor_dtype_to_np_dtype(kind))
        x[::7] = x[0]
        outputs = {"y": kind, "counts": TensorProto.INT64}
        found = compiled(model([node], {"x": (kind, [3000])}, outputs))(x=x)
        expected = unique(x, None, ordered=True)
        same(found["y"], expected["y"])
        same(found["counts"], expected["counts"])


def test_a_segment_after_nonzero_may_be_split() -> None:
    """The first segment runs once, so the second one gathers the same noise."""
    nodes = [
        helper.make_node("RandomUniformLike", ["x"], ["noise"], seed=1.0),
        helper.make_node("NonZero", ["x"], ["places"]),
        helper.make_node("ReduceMax", ["places"], ["last"], keepdims=0),
        helper.make_node("Range", ["zero", "last", "one"], ["y"]),
        helper.make_node("Squeeze", ["places"], ["flat"]),
        helper.make_node("Gather", ["noise", "flat"], ["z"]),
    ]
    held = {"zero": np.array(0), "one": np.array(1)}
    outputs = {"y": TensorProto.INT64, "z": TensorProto.FLOAT, "noise": TensorProto.FLOAT}
    run = popgraph.compile(model(nodes, {"x": (TensorProto.FLOAT, [9])}, outputs, held))
    for places in ([1, 4], [0, 2, 7], [3], [1, 2, 3, 8]):
        x = np.zeros(9, np.float32)
        x[places] = 1
        found = run(x=x)
        same(found["y"], np.arange(places[-1]))
        same(found["z"], found["noise"][places])


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.INT64])
def test_inputs_of_a_model_with_nonzero_are_checked_and_converted(kind: int) -> None:
    node = helper.make_node("NonZero", ["x"], ["y"])
    run = popgraph.compile(model([node], {"x": (kind, [3])}, {"y": TensorProto.INT64}))
    expected = np.array([[0, 2]])
    same(run(x=np.array([1, 0, 2], helper.tensor_dtype_to_np_dtype(kind)))["y"], expected)
    same(run(x=[1, 0, 2])["y"], expected)
    same(run(x=np.array([1, 0, 2], np.int16))["y"], expected)
    for wrong in ({"x": np.zeros(4, np.float32)}, {"z": np.zeros(3)}, {}):
        with pytest.raises(RunError):
            run(wrong)


def in_order(row: Array, largest: bool) -> Array:
    """Stable argsort of a row; NaN is the largest, -0 equals 0."""
    _, ranks = np.unique(row, return_inverse=True)
    return np.argsort(-ranks if largest else ranks, kind="stable")


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("count", [1, 40, 300])
def test_topk_of_many_elements(count: int, largest: int) -> None:
    """TopK by a heap, and by groups that are skipped by their largest key; with many ties."""
    for kind in TYPES:
        if kind in (TensorProto.BOOL, TensorProto.INT8):
            continue  # These types have too few distinct elements.
        draw = np.random.default_rng(count + kind)
        dtype = helper.tensor_dtype_to_np_dtype(kind)
        x = draw.integers(0, 100, (3, 2000)).astype(dtype)
        if dtype.kind == "f":
            x = (draw.integers(-500, 500, x.shape) / 8).astype(dtype)
            for special in (np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.0):
                x[draw.random(x.shape) < 0.002] = special
        x[1] = np.sort(x[1])[:: 1 if largest else -1]
        x[2] = 7
        node = helper.make_node("TopK", ["x", "k"], ["y", "at"], largest=largest)
        held = {"k": np.array([count])}
        outputs = {"y": kind, "at": TensorProto.INT64}
        found = compiled(model([node], {"x": (kind, [3, 2000])}, outputs, held))(x=x)
        expected = np.stack([in_order(row, bool(largest))[:count] for row in x])
        same(found["at"], expected)
        same(found["y"], np.take_along_axis(x, expected, 1))


def overlap(one: Array, other: Array) -> float:
    """Intersection over union of boxes (y0, x0, y1, x1); 0 for an invalid box."""
    with np.errstate(all="ignore"):
        sides = np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2])
        areas = [np.prod(box[2:] - box[:2]) for box in (one, other)]
        common = np.prod(sides)
        found = common / (sum(areas) - common)
    return float(found) if min(sides) > 0 and min(areas) > 0 and found > 0 else 0


def suppressed(
    boxes: Array, scores: Array, most: int, threshold: float, least: float | None, centered: bool
) -> Array:
    """NumPy's NonMaxSuppression; ties in order of position, NaN last."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if centered:
        first, second = first - second / 2, first + second / 2
    corners = np.concatenate([np.minimum(first, second), np.maximum(first, second)], -1)
    rows = []
    for batch, label in product(*map(range, scores.shape[:2])):
        row = scores[batch, label]
        kept: list[int] = []
        for at in np.lexsort((np.arange(len(row)), -row)):
            if len(kept) >= most or (least is not None and not row[at] > least):
                continue
            box = corners[batch, at]
            if all(overlap(corners[batch, other], box) <= threshold for other in kept):
                kept.append(int(at))
        rows += [(batch, label, at) for at in kept]
    return np.array(rows, np.int64).reshape(-1, 3)


def suppression(shape: tuple[int, ...], centered: bool, held: dict[str, Any]) -> onnx.ModelProto:
    batches, _, count = shape
    given = [
        "boxes",
        "scores",
        *(name if name in held else "" for name in ("most", "over", "least")),
    ]
    node = helper.make_node("NonMaxSuppression", given, ["y"], center_point_box=int(centered))
    inputs = {
        "boxes": (TensorProto.FLOAT, [batches, count, 4]),
        "scores": (TensorProto.FLOAT, list(shape)),
    }
    arrays = {
        name: np.array([value], np.int64 if name == "most" else np.float32)
        for name, value in held.items()
    }
    return model([node], inputs, {"y": TensorProto.INT64}, arrays)


@pytest.mark.parametrize("seed", SEEDS)
def test_non_max_suppression(seed: int) -> None:
    """Boxes on a grid, so that overlaps are exact, with ties, NaN, and more boxes than lanes."""
    draw = np.random.default_rng(seed)
    shape = (1 + seed % 2, 1 + seed % 3, int(draw.integers(1, 90)))
    centered = bool(seed // 2 % 2)
    low = draw.integers(0, 30, (shape[0], shape[2], 2))
    size = 2 * draw.integers(0, 6, low.shape)
    boxes = np.concatenate([low, size if centered else low + size], -1).astype(np.float32)
    if not centered:
        boxes[::, ::3] = boxes[::, ::3][..., [2, 3, 0, 1]]
    if seed % 4 == 3:  # Such boxes neither suppress nor are suppressed.
        boxes[draw.random(boxes.shape) < 0.05] = (np.nan, np.inf, -np.inf)[seed // 4 % 3]
    scores = (draw.integers(-3, 9, shape) / 8).astype(np.float32)
    scores[draw.random(shape) < 0.1] = np.nan
    held: dict[str, Any] = {"most": (0, 1, 5, 100)[seed % 4], "over": (0.0, 0.45, 0.7)[seed % 3]}
    least = (None, 0.0, 0.5)[seed // 3 % 3]
    held |= {} if least is None else {"least": least}
    run = compiled(suppression(shape, centered, held))
    expected = suppressed(boxes, scores, held["most"], held["over"], least, centered)
    same(run(boxes=boxes, scores=scores)["y"], expected)


def test_non_max_suppression_with_fed_limits_and_sizes() -> None:
    names = ["boxes", "scores", "most", "over", "least"]
    kind = TensorProto.FLOAT
    inputs: dict[str, tuple[int, Any]] = {
        "boxes": (kind, ["B", "N", 4]),
        "scores": (kind, ["B", "C", "N"]),
        "most": (TensorProto.INT64, [1]),
        "over": (kind, [1]),
        "least": (kind, [1]),
    }
    node = helper.make_node("NonMaxSuppression", names, ["y"])
    run = compiled(model([node], inputs, {"y": TensorProto.INT64}))
    for seed, most in enumerate((0, 3, 100, -1)):
        draw = np.random.default_rng(seed)
        low = draw.integers(0, 9, (2, 9, 2))
        boxes = np.concatenate([low, low + draw.integers(0, 6, low.shape)], -1).astype(np.float32)
        scores = (draw.integers(-2, 8, (2, 2, 9)) / 8).astype(np.float32)
        limits = {"most": np.array([most]), "over": np.array([0.3], np.float32)}
        found = run(boxes=boxes, scores=scores, least=np.array([0.125], np.float32), **limits)
        same(found["y"], suppressed(boxes, scores, most, 0.3, 0.125, False))


def test_non_max_suppression_on_the_reference_equals_c() -> None:
    draw = np.random.default_rng(5)
    low = draw.integers(0, 9, (1, 20, 2))
    boxes = np.concatenate([low, low + draw.integers(1, 5, low.shape)], -1).astype(np.float32)
    scores = draw.integers(0, 9, (1, 2, 20)).astype(np.float32)
    proto = suppression((1, 2, 20), False, {"most": 9, "over": 0.3})
    c, reference = (
        popgraph.compile(proto, backend=name)(boxes=boxes, scores=scores)["y"]
        for name in ("c", "reference")
    )
    same(c, reference)


def detector(candidates: int, labels: int) -> onnx.ModelProto:
    """
    A YOLO-like head: centers, sizes and a score per label.

    Returns the selected boxes, their scores and labels.
    """
    nodes = [
        helper.make_node("Split", ["raw", "parts"], ["boxes", "logits"], axis=2),
        helper.make_node("Sigmoid", ["logits"], ["rows"]),
        helper.make_node("Transpose", ["rows"], ["scores"], perm=[0, 2, 1]),
        helper.make_node(
            "NonMaxSuppression",
            ["boxes", "scores", "most", "over", "least"],
            ["found"],
            center_point_box=1,
        ),
        helper.make_node("Split", ["found", "ones"], ["image", "label", "place"], axis=1),
        helper.make_node("Concat", ["image", "place"], ["at_box"], axis=1),
        helper.make_node("GatherND", ["boxes", "at_box"], ["kept"]),
        helper.make_node("GatherND", ["scores", "found"], ["score"]),
        helper.make_node("Squeeze", ["label", "last"], ["labels"]),
    ]
    held: dict[str, Any] = {
        "parts": np.array([4, labels]),
        "ones": np.array([1, 1, 1]),
        "last": np.array([1]),
        "most": np.array([50]),
        "over": np.array([0.45], np.float32),
        "least": np.array([0.6], np.float32),
    }
    inputs = {"raw": (TensorProto.FLOAT, [1, candidates, 4 + labels])}
    outputs = {"kept": TensorProto.FLOAT, "score": TensorProto.FLOAT, "labels": TensorProto.INT64}
    return model(nodes, inputs, outputs, held)


def test_a_detector_head_runs_in_c_for_any_number_of_boxes() -> None:
    run = compiled(detector(200, 4))
    numbers = set()
    with warnings.catch_warnings():
        warnings.simplefilter("error", ManyProgramsWarning)
        for seed in range(24):
            draw = np.random.default_rng(seed)
            place = draw.integers(0, 40, (1, 200, 2))
            size = 2 * draw.integers(1, 8, place.shape)
            logits = draw.normal(0.2 * seed - 3, 1, (1, 200, 4))
            raw = np.concatenate([place, size, logits], 2).astype(np.float32)
            found = run(raw=raw)
            scores = 1 / (1 + np.exp(-raw[..., 4:].transpose(0, 2, 1)))
            rows = suppressed(raw[..., :4], scores, 50, 0.45, 0.6, True)
            numbers.add(len(rows))
            same(found["labels"], rows[:, 1])
            np.testing.assert_array_equal(found["kept"], raw[0, rows[:, 2], :4])
            expected = scores[0, rows[:, 1], rows[:, 2]]
            np.testing.assert_allclose(found["score"], expected, rtol=1e-5)
    assert 0 in numbers and len(numbers) > 12, "more sizes than programs are kept"


def bags(reduce: str, *, weighted: bool) -> onnx.ModelProto:
    """EmbeddingBag as PyTorch exports it: each iteration slices a bag, looks up, and reduces."""
    inner = [
        helper.make_node("Gather", ["starts", "turn"], ["start"], axis=0),
        helper.make_node("Gather", ["ends", "turn"], ["end"], axis=0),
        helper.make_node("Unsqueeze", ["start", "zero"], ["from"]),
        helper.make_node("Unsqueeze", ["end", "zero"], ["to"]),
        helper.make_node("Slice", ["words", "from", "to", "zero"], ["bag"]),
        helper.make_node("Gather", ["table", "bag"], ["rows"], axis=0),
    ]
    if weighted:
        inner += [
            helper.make_node("Slice", ["weights", "from", "to", "zero"], ["own"]),
            helper.make_node("Unsqueeze", ["own", "one"], ["factors"]),
            helper.make_node("Mul", ["rows", "factors"], ["scaled"]),
        ]
    last = "scaled" if weighted else "rows"
    inner += [
        helper.make_node(reduce, [last, "zero"], ["row"], keepdims=0),
        helper.make_node("Identity", ["going"], ["on"]),
    ]
    body = helper.make_graph(
        inner,
        "body",
        [
            helper.make_tensor_value_info("turn", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("row", TensorProto.FLOAT, None),
        ],
    )
    nodes = [
        helper.make_node("Shape", ["starts"], ["shape"]),
        helper.make_node("Gather", ["shape", "first"], ["count"], axis=0),
        helper.make_node("Loop", ["count", "yes"], ["y"], body=body),
    ]
    held: dict[str, Any] = {
        "table": np.random.default_rng(0).normal(size=(50, 20)).astype(np.float32),
        "zero": np.array([0]),
        "one": np.array([1]),
        "first": np.array(0),
        "yes": np.array(True),
    }
    inputs: dict[str, tuple[int, Any]] = {
        "words": (TensorProto.INT64, ["N"]),
        "starts": (TensorProto.INT64, ["B"]),
        "ends": (TensorProto.INT64, ["B"]),
    }
    if weighted:
        inputs["weights"] = (TensorProto.FLOAT, ["N"])
    return model(nodes, inputs, {"y": TensorProto.FLOAT}, held)


@pytest.mark.parametrize("reduce", ["ReduceSum", "ReduceMean", "ReduceMax"])
@pytest.mark.parametrize("weighted", [False, True])
def test_embedding_bag_loops_become_one_reduction(reduce: str, weighted: bool) -> None:
    """Bags may overlap, have negative offsets, and exceed the end; only sums allow empty bags."""
    proto = bags(reduce, weighted=weighted)
    run = compiled(proto, threads=1 + weighted)
    table = numpy_helper.to_array(proto.graph.initializer[0])
    joins: dict[str, Any] = {"ReduceSum": np.sum, "ReduceMean": np.mean, "ReduceMax": np.max}
    for count in (12, 13, 19, 40):
        draw = np.random.default_rng(count)
        words, weights = draw.integers(0, 50, count), draw.normal(size=count).astype(np.float32)
        starts = np.array([0, 3, 2, -4, 5 if reduce == "ReduceSum" else 6])
        ends = np.array([3, 11, 3, 2**62, 5 if reduce == "ReduceSum" else 9])
        given = {"weights": weights} if weighted else {}
        found = run(words=words, starts=starts, ends=ends, **given)["y"]
        rows = table[words] * (weights[:, None] if weighted else 1)
        expected = [
            joins[reduce](rows[slice(*each)], axis=0) for each in zip(starts, ends, strict=True)
        ]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
