"""Tests results and gradients of ai.graphcore operators against NumPy and PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import popgraph
import popgraph.popart as popart
from popgraph.support.arrays import Array
from popgraph.support.errors import PopgraphError

BACKENDS = ("reference", "c")
TYPES = {
    "float16": "FLOAT16",
    "float32": "FLOAT",
    "int32": "INT32",
    "uint8": "UINT8",
    "uint32": "UINT32",
}
Call = Callable[[Any, list[str]], Any]


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


Before = Callable[[popart.Builder, list[str]], list[str]]


def built(
    call: Call, arrays: Sequence[Array], before: Before = lambda _, ids: ids
) -> tuple[popart.Builder, list[str], list[str]]:
    """A model of one operator, whose operands `before` derives from the inputs."""
    builder = popart.Builder()
    ids = [builder.addInputTensor(TYPES[str(one.dtype)], list(one.shape)) for one in arrays]
    made = call(builder.aiGraphcore, before(builder, ids))
    outputs = made if isinstance(made, list) else [made]
    for id in outputs:
        builder.addOutputTensor(id)
    return builder, ids, outputs


def run(call: Call, arrays: Sequence[Array], backend: str) -> list[Array]:
    builder, ids, outputs = built(call, arrays)
    found = popgraph.compile(builder.getModelProto(), backend=backend)(
        dict(zip(ids, arrays, strict=True))
    )
    for id in outputs:
        assert list(found[id].shape) == builder.getTensorShape(id)
        assert str(found[id].dtype) == builder.getTensorDtypeString(id)
    return [found[id] for id in outputs]


def gradients(
    call: Call,
    arrays: Sequence[Array],
    wanted: Sequence[int],
    before: Before = lambda _, ids: ids,
) -> list[Array]:
    """Gradients of sum(y[i] * (i + 1)), where y is the flattened first output."""
    builder, ids, outputs = built(call, arrays, before)
    size = int(np.prod(builder.getTensorShape(outputs[0])))
    weights = np.arange(1, size + 1, dtype=np.float32).reshape(builder.getTensorShape(outputs[0]))
    loss = builder.aiGraphcore.identityloss(
        [builder.aiOnnx.mul([outputs[0], builder.aiOnnx.constant(weights)])],
        popart.ReductionType.Sum,
    )
    anchors = [popart.reservedGradientPrefix() + ids[place] for place in wanted]
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, anchors),
        loss,
        popart.ConstSGD(0.1),
        deviceInfo=popart.DeviceManager().createCpuDevice(),
    )
    session.prepareDevice()
    session.weightsFromHost()
    found = session.initAnchorArrays()
    session.run(popart.PyStepIO(dict(zip(ids, arrays, strict=True)), found))
    return [found[id] for id in anchors]


def slopes(function: Callable[..., torch.Tensor], arrays: Sequence[Array]) -> list[Array]:
    tensors = [torch.tensor(one, requires_grad=True) for one in arrays]
    result = function(*tensors)
    weights = torch.arange(1, result.numel() + 1, dtype=result.dtype).reshape(result.shape)
    (result * weights).sum().backward()
    return [one.grad.numpy() for one in tensors if one.grad is not None]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("descending", [False, True])
def test_sort(backend: str, descending: bool) -> None:
    data = rng().integers(0, 5, (4, 9)).astype(np.float32)
    call = lambda ops, ids: ops.sort(ids, axis=1, descending=int(descending))  # noqa: E731
    values, places = run(call, [data], backend)
    wanted = torch.sort(torch.tensor(data), dim=1, descending=descending, stable=True)
    np.testing.assert_array_equal(values, wanted.values.numpy())
    np.testing.assert_array_equal(places, wanted.indices.numpy())
    found = gradients(call, [data], [0])
    by_torch = slopes(
        lambda x: torch.sort(x, dim=1, descending=descending, stable=True).values, [data]
    )
    np.testing.assert_array_equal(found[0], by_torch[0])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("axes", [None, [], [0], [-1], [0, 2], [2, 1]])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_median(backend: str, axes: list[int] | None, keepdims: int) -> None:
    data = rng().permutation(3 * 5 * 7).reshape(3, 5, 7).astype(np.int32)
    call = lambda ops, ids: ops.reducemedian(ids, axes, keepdims)  # noqa: E731
    values, _ = run(call, [data], backend)
    over = None if axes is None else tuple(axes)
    np.testing.assert_array_equal(values, np.median(data, axis=over, keepdims=bool(keepdims)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_median_of_an_even_count_and_its_index(backend: str) -> None:
    data = rng().standard_normal((4, 6)).astype(np.float32)
    call = lambda ops, ids: ops.reducemedian(ids, [1])  # noqa: E731
    values, places = run(call, [data], backend)
    wanted = torch.median(torch.tensor(data), dim=1, keepdim=True)
    np.testing.assert_array_equal(values, wanted.values.numpy())
    np.testing.assert_array_equal(places, wanted.indices.numpy())
    found = gradients(call, [data], [0])
    by_torch = slopes(lambda x: torch.median(x, 1, True).values, [data])
    np.testing.assert_array_equal(found[0], by_torch[0])


@given(
    st.lists(st.floats(width=32, allow_infinity=True), min_size=1, max_size=9),
    st.lists(st.floats(-9, 9, width=32), max_size=9),
    st.booleans(),
)
def test_bucketize(elements: list[float], boundaries: list[float], right: bool) -> None:
    data = np.array(elements, np.float32)
    bounds = np.sort(np.array(boundaries or [0.0], np.float32))
    call = lambda ops, ids: ops.bucketize(ids, right=int(right))  # noqa: E731
    (found,) = run(call, [data, bounds], "reference")
    wanted = torch.bucketize(torch.tensor(data), torch.tensor(bounds), right=right)
    np.testing.assert_array_equal(found, wanted.numpy())


def test_bucketize_compiles() -> None:
    data = np.array([[3, np.nan, -np.inf], [5, 9, 7]], np.float32)
    bounds = np.array([1, 3, 5, 5, 7], np.float32)
    (found,) = run(lambda ops, ids: ops.bucketize(ids), [data, bounds], "c")
    np.testing.assert_array_equal(found, [[1, 5, 0], [2, 5, 4]])


@pytest.mark.parametrize("backend", BACKENDS)
def test_dynamic_slices(backend: str) -> None:
    data, part = rng().random((5, 6, 7), np.float32), rng().random((2, 6, 3), np.float32)
    at = np.array([2, 4], np.uint32)
    where = {"axes": [0, 2], "sizes": [2, 3]}
    box = np.s_[2:4, :, 4:7]
    replaced, added, zeroed = data.copy(), data.copy(), data.copy()
    replaced[box], zeroed[box] = part, 0
    added[box] += part
    calls: list[tuple[Call, list[Array], Array]] = [
        (lambda ops, ids: ops.dynamicslice(ids, **where), [data, at], data[box]),
        (lambda ops, ids: ops.dynamicupdate(ids, **where), [data, at, part], replaced),
        (lambda ops, ids: ops.dynamicadd(ids, **where), [data, at, part], added),
        (lambda ops, ids: ops.dynamiczero(ids, **where), [data, at], zeroed),
    ]
    for call, arrays, wanted in calls:
        np.testing.assert_array_equal(run(call, arrays, backend)[0], wanted)


def test_gradients_of_dynamic_slices() -> None:
    data, part = rng().random((5, 4), np.float32), rng().random((2, 3), np.float32)
    at = np.array([2, 1], np.uint32)
    box = np.s_[2:4, 1:4]

    def update(whole: torch.Tensor, piece: torch.Tensor, adds: bool) -> torch.Tensor:
        mask = torch.zeros(5, 4)
        mask[box] = 1
        placed = torch.zeros(5, 4)
        placed[box] = piece
        return whole * (1 if adds else 1 - mask) + placed

    named = {"axes": [0, 1], "sizes": [2, 3]}
    for method, adds in (("dynamicupdate", False), ("dynamicadd", True)):
        call = lambda ops, ids, method=method: getattr(ops, method)(ids, **named)  # noqa: E731
        found = gradients(call, [data, at, part], [0, 2])
        wanted = slopes(lambda x, y, adds=adds: update(x, y, adds), [data, part])
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other)
    (found,) = gradients(lambda ops, ids: ops.dynamicslice(ids, **named), [data, at], [0])
    np.testing.assert_allclose(found, slopes(lambda x: x[box], [data])[0])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("unused", [0, 1])
def test_sequence_slice(backend: str, unused: int) -> None:
    source = rng().random((6, 3), np.float32)
    target = rng().random((5, 3), np.float32)
    numbers, first, to = (np.array(one, np.uint32) for one in ([2, 1, 2], [0, 4, 3], [1, 0, 2]))
    wanted = np.zeros_like(target) if unused else target.copy()
    for count, begin, place in zip(numbers, first, to, strict=True):
        wanted[place : place + count] = source[begin : begin + count]
    call = lambda ops, ids: ops.sequenceslice(ids, unused)  # noqa: E731
    (found,) = run(call, [source, target, numbers, first, to], backend)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("axis", [1, 2, 3])
def test_grouped_gather(backend: str, axis: int) -> None:
    data = rng().random((3, 4, 5, 6), np.float32)
    index = rng().integers(0, 4, (3, 2, 2)).astype(np.int32)
    call = lambda ops, ids: ops.groupedgather(ids, axis, 3)  # noqa: E731
    (found,) = run(call, [data, index], backend)
    wanted = np.stack([np.take(one, at, axis - 1) for one, at in zip(data, index, strict=True)])
    np.testing.assert_array_equal(found, wanted)


def test_grouped_gather_clamps_indices() -> None:
    """Indices are clamped within their group, as those of Gather."""
    data = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    index = np.array([[5, -1], [3, 0]], np.int32)
    call = lambda ops, ids: ops.groupedgather(ids, 1, 2)  # noqa: E731
    for backend in BACKENDS:
        (found,) = run(call, [data, index], backend)
        np.testing.assert_array_equal(found[0], data[0, [2, 2]])
        np.testing.assert_array_equal(found[1], data[1, [2, 0]])


def pieces(degree: int, part: float) -> list[float]:
    v = part
    if degree == 1:
        return [1 - v, v]
    if degree == 2:
        return [0.5 * v * v - v + 0.5, -v * v + v + 0.5, 0.5 * v * v]
    sixths = [(1 - v) ** 3, 3 * v**3 - 6 * v * v + 4, -3 * v**3 + 3 * v * v + 3 * v + 1, v**3]
    return [one / 6 for one in sixths]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_spline_basis(backend: str, degree: int) -> None:
    points = rng().random((6, 2), np.float32)
    knots, is_open = np.array([7, 4], np.int32), np.array([1, 0], np.uint8)
    call = lambda ops, ids: ops.splinebasis(ids, degree=degree)  # noqa: E731
    basis, numbers = run(call, [points, knots, is_open], backend)
    for row, point in enumerate(points):
        for place in range((degree + 1) ** 2):
            digits = place % (degree + 1), place // (degree + 1)
            value, number, step = 1.0, 0, 1
            for axis, digit in enumerate(digits):
                at = point[axis] * (knots[axis] - degree * is_open[axis])
                value *= pieces(degree, at - np.floor(at))[digit]
                number += (int(at) + digit) % knots[axis] * step
                step *= int(knots[axis])
            np.testing.assert_allclose(basis[row, place], value, atol=1e-5)
            assert numbers[row, place] == number


@pytest.mark.parametrize("backend", BACKENDS)
def test_spline_weighting(backend: str) -> None:
    rows, weights = rng().random((5, 3), np.float32), rng().random((7, 3, 4), np.float32)
    basis = rng().random((5, 6), np.float32)
    numbers = rng().integers(0, 7, (5, 6)).astype(np.int32)
    (found,) = run(
        lambda ops, ids: ops.splineweighting(ids), [rows, weights, basis, numbers], backend
    )
    wanted = np.einsum("es,ei,esio->eo", basis, rows, weights[numbers])
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_multi_convolution(backend: str) -> None:
    x, w = rng().random((1, 4, 6, 6), np.float32), rng().random((6, 2, 3, 3), np.float32)
    y, v = rng().random((2, 3, 8), np.float32), rng().random((5, 3, 2), np.float32)
    bias = rng().random(5, np.float32)

    def call(ops: Any, ids: list[str]) -> Any:
        return ops.multiconv(
            [ids[:2], ids[2:]],
            dilations=[[1, 2], [2]],
            inDilations=[[1, 1], [3]],
            pads=[[1, 2, 1, 2], [0, 1]],
            outPads=[[0, 0, 0, 0], [1, 0]],
            strides=[[2, 1], [1]],
        )

    first, second = run(call, [x, w, y, v, bias], backend)
    one = torch.conv2d(torch.tensor(x), torch.tensor(w), None, (2, 1), (1, 2), (1, 2), groups=2)
    np.testing.assert_allclose(first, one.numpy(), rtol=1e-5)
    spread = np.zeros((2, 3, 23), np.float32)
    spread[..., :22:3] = y
    plain = torch.conv1d(torch.tensor(spread), torch.tensor(v), None, dilation=2).numpy()
    wanted = np.pad(plain, [(0, 0), (0, 0), (1, 0)]) + bias[None, :, None]
    np.testing.assert_allclose(second, wanted, rtol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_small_operators(backend: str) -> None:
    data = np.array([[5.0, -5.5, 10.25, 1.0]], np.float32)
    (found,) = run(lambda ops, ids: ops.incrementmod(ids, 3.0, 4.0), [data], backend)
    np.testing.assert_array_equal(found, np.fmod(data + 3, np.float32(4)))
    for method in ("nop", "tensorremap", "printtensor"):
        (found,) = run(lambda ops, ids, m=method: getattr(ops, m)(ids), [data], backend)
        np.testing.assert_array_equal(found, data)
    bits = [rng().integers(-9, 9, 5).astype(np.int32) for _ in range(2)]
    (found,) = run(lambda ops, ids: ops.bitwisexnor(ids), bits, backend)
    np.testing.assert_array_equal(found, ~(bits[0] ^ bits[1]))
    image = rng().integers(0, 255, (2, 2, 2, 3)).astype(np.uint8)
    offsets, scales = np.array([1, 2, 3], np.float16), np.array([4, 5, 6], np.float16)
    (found,) = run(
        lambda ops, ids: ops.normalize_image(ids, 1 / 255), [image, offsets, scales], backend
    )
    np.testing.assert_allclose(
        found[..., :3], (image / 255 - offsets) * scales, rtol=2e-3, atol=1e-2
    )
    assert not found[..., 3].any()
    zeros = lambda ops, ids: [ops.init([2, 3], 1, 1), ops.nop(ids)]  # noqa: E731
    np.testing.assert_array_equal(run(zeros, [data], backend)[0], np.zeros((2, 3)))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("reduction", ["NoReduction", "Mean", "Sum"])
@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("blank", [0, 2])
def test_ctc(backend: str, reduction: str, zero: bool, blank: int) -> None:
    steps, count, classes, most = 6, 4, 4, 8 if zero else 3
    chances = torch.log_softmax(torch.tensor(rng().random((steps, count, classes), np.float32)), 2)
    labels = rng().choice([one for one in range(classes) if one != blank], (count, most))
    times, lengths = np.array([6, 5, 6, 4]), np.array([most, 0, 1, 2])
    arrays = [chances.numpy(), *(one.astype(np.uint32) for one in (labels, times, lengths))]

    def call(ops: Any, ids: list[str]) -> Any:
        how = getattr(popart.ReductionType, reduction)
        return ops.ctcloss(ids, how, blank, zeroInfinity=zero)

    def by_torch(log_chances: torch.Tensor) -> torch.Tensor:
        how = {"NoReduction": "none"}.get(reduction, reduction.lower())
        whole = [torch.tensor(one) for one in (labels, times, lengths)]
        return torch.nn.functional.ctc_loss(
            log_chances, *whole, blank=blank, reduction=how, zero_infinity=zero
        )

    (found,) = run(call, arrays, backend)
    np.testing.assert_allclose(found, by_torch(chances).numpy(), rtol=1e-5)
    if backend == "c":
        normal: Before = lambda builder, ids: [builder.aiOnnx.logsoftmax(ids[:1], 2), *ids[1:]]  # noqa: E731
        (slope,) = gradients(call, arrays, [0], normal)
        (wanted,) = slopes(lambda x: by_torch(torch.log_softmax(x, 2)), arrays[:1])
        np.testing.assert_allclose(slope, wanted, atol=1e-5)


def test_ctc_of_impossible_labels_is_infinite() -> None:
    chances = np.full((2, 1, 3), -1.0, np.float32)
    given_ = [np.array(one, np.uint32) for one in ([[1, 1]], [2], [2])]
    for zero, wanted, kind in ((False, np.inf, "FLOAT"), (True, 0.0, "FLOAT16")):
        call = lambda ops, ids, z=zero, k=kind: ops.ctcloss(  # noqa: E731
            ids, popart.ReductionType.Sum, outDataType=k, zeroInfinity=z
        )
        (found,) = run(call, [chances, *given_], "c")
        assert (found, found.dtype.name) == (wanted, kind.lower() + "32" * (kind == "FLOAT"))


def test_ctc_without_labels_is_the_loss_of_blanks() -> None:
    chances = np.log(rng().dirichlet(np.ones(3), (4, 2))).astype(np.float32)
    given_ = [np.empty((2, 0), np.uint32), np.array([4, 3], np.uint32), np.zeros(2, np.uint32)]
    call = lambda ops, ids: ops.ctcloss(ids, popart.ReductionType.NoReduction, 1)  # noqa: E731
    (found,) = run(call, [chances, *given_], "c")
    wanted = [-chances[:4, 0, 1].sum(), -chances[:3, 1, 1].sum()]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("strided", [False, True])
def test_group_normalization_of_strided_channels(strided: bool) -> None:
    x = rng().standard_normal((2, 6, 3), np.float32)
    scale, bias = rng().random(6, np.float32), rng().random(6, np.float32)
    builder = popart.Builder()
    ids = [builder.addInputTensor("FLOAT", list(one.shape)) for one in (x, scale, bias)]
    y, mean, _ = builder.aiGraphcore.groupnormalization(ids, 2)
    options = popart.SessionOptions()
    options.groupNormStridedChannelGrouping = strided
    flow, model = popart.DataFlow(1, [y, mean]), builder.getModelProto()
    session = popart.InferenceSession(model, flow, userOptions=options)
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO(dict(zip(ids, (x, scale, bias), strict=True)), anchors))
    wanted = np.empty_like(x)
    for group in range(2):
        members = slice(group, None, 2) if strided else slice(3 * group, 3 * group + 3)
        some = x[:, members]
        average, variance = (f(some, axis=(1, 2), keepdims=True) for f in (np.mean, np.var))
        wanted[:, members] = (some - average) / np.sqrt(variance + 1e-5)
        np.testing.assert_allclose(anchors[mean].reshape(2, 2)[:, group], average.ravel(), 1e-5)
    wanted = wanted * scale[:, None] + bias[:, None]
    np.testing.assert_allclose(anchors[y], wanted, atol=1e-5)


def test_copy_var_update() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [1])
    held = builder.addInitializedInputTensor(np.zeros(1, np.float32))
    more = builder.aiOnnx.add([held, x])
    alias = builder.aiGraphcore.copyvarupdate([held, more])
    builder.addOutputTensor(alias)
    loss = builder.aiGraphcore.l1loss([builder.aiOnnx.mul([x, x])], 0.1)
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, [alias, loss]),
        loss,
        popart.ConstSGD(0.1),
        deviceInfo=popart.DeviceManager().createCpuDevice(),
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    for turn in range(3):
        session.run(popart.PyStepIO({x: np.ones(1, np.float32)}, anchors))
        assert anchors[alias] == turn + 1


def test_a_call_captures_outer_tensors() -> None:
    builder = popart.Builder()
    x, y = (builder.addInputTensor("FLOAT", [2]) for _ in range(2))
    inner = builder.createSubgraphBuilder()
    inner.addInputTensorFromParentGraph(x)
    inner.addInputTensorFromParentGraph(y)
    inner.addOutputTensor(inner.aiOnnx.sub([x, y]))
    (once,) = builder.aiGraphcore.call([x, y], 1, inner)
    (twice,) = builder.aiGraphcore.call([once, x], 1, inner)
    builder.addOutputTensor(twice)
    given_ = {x: np.array([1, 2], np.float32), y: np.array([3, 5], np.float32)}
    found = popgraph.compile(builder.getModelProto())(given_)
    np.testing.assert_array_equal(found[twice], -given_[y])


def scanned(
    arrays: Sequence[Array],
    write: Callable[[popart.Builder, list[str]], list[str]],
    backend: str,
    states: int = 0,
    **attributes: Any,
) -> list[Array]:
    """The results of a Scan over the last arrays, with the body that `write` builds."""
    builder = popart.Builder(opsets={"ai.onnx": attributes.pop("opset", 10)})
    ids = [builder.addInputTensor("FLOAT", list(one.shape)) for one in arrays]
    body = builder.createSubgraphBuilder()
    for id in write(body, [body.addUntypedInputTensor() for _ in ids]):
        body.addOutputTensor(id)
    count = len(body.getOutputTensorIds())
    outputs = builder.aiOnnx.scan(ids, count, body, len(ids) - states, **attributes)
    for id in outputs:
        builder.addOutputTensor(id)
    found = popgraph.compile(builder.getModelProto(), backend=backend)(
        dict(zip(ids, arrays, strict=True))
    )
    return [found[id] for id in outputs]


@pytest.mark.parametrize("opset", [9, 10, 11])
@pytest.mark.parametrize("backend", BACKENDS)
def test_directions_of_scanned_vectors(backend: str, opset: int) -> None:
    def write(body: popart.Builder, ids: list[str]) -> list[str]:
        return [body.aiOnnx.concat(ids, 0)]

    first, second = np.arange(4, dtype=np.float32), np.arange(4, 8, dtype=np.float32)
    ways = {"scan_input_directions": [0, 1], "scan_output_directions": [1]}
    (found,) = scanned([first, second], write, backend, opset=opset, **ways)
    pairs = np.stack([first, second[::-1]], 1)[::-1]
    np.testing.assert_array_equal(found, pairs.ravel())


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("backend", BACKENDS)
def test_results_of_a_scan_are_joined_along_their_axis(backend: str, axis: int) -> None:
    def write(body: popart.Builder, ids: list[str]) -> list[str]:
        state = body.aiOnnx.add(ids)
        return [state, body.aiOnnx.mul([state, state])]

    rows = rng().standard_normal((2, 5, 3, 4)).astype(np.float32)
    start = rng().standard_normal((2, 3, 4)).astype(np.float32)
    state, found = scanned(
        [start, rows], write, backend, 1, scan_input_axes=[1], scan_output_axes=[axis]
    )
    states = [start + rows[:, :turn].sum(1) for turn in range(1, 6)]
    np.testing.assert_allclose(state, states[-1], rtol=1e-5)
    np.testing.assert_allclose(
        found, np.concatenate([one * one for one in states], axis), rtol=1e-4
    )


@pytest.mark.parametrize("opset", [9, 10, 11])
def test_scan_results_of_unknown_shape(opset: int) -> None:
    def write(body: popart.Builder, ids: list[str]) -> list[str]:
        shape = body.aiOnnx.shape([ids[0]])
        return [body.aiOnnx.expand([body.aiOnnx.reducesum(ids, axes=[0, 1], keepdims=1), shape])]

    rows = rng().standard_normal((2, 3, 2)).astype(np.float32)
    (found,) = scanned([rows], write, "c", scan_output_axes=[1], opset=opset)
    wanted = [np.full((3, 2), one.sum()) for one in rows]
    np.testing.assert_allclose(found, np.concatenate(wanted, 1), rtol=1e-5)


def test_scan_output_axes_are_not_negative() -> None:
    with pytest.raises(popart.popart_exception, match="are negative"):
        scanned([np.ones((2, 3), np.float32)], lambda _, ids: ids, "c", scan_output_axes=[-1])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_loop_body_may_yield_a_value_twice(backend: str) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    trips = builder.aiOnnx.constant(np.array(3, np.int64))
    always = builder.aiOnnx.constant(np.array(True))
    body = builder.createSubgraphBuilder()
    body.addInputTensor("INT64", [])
    going = body.addInputTensor("BOOL", [])
    double = body.aiGraphcore.scale([body.addInputTensor("FLOAT", [2])], 2.0)
    for id in (going, double, double):
        body.addOutputTensor(id)
    last, rows = builder.aiOnnx.loop([trips, always, x], 2, body)
    for id in (last, rows):
        builder.addOutputTensor(id)
    found = popgraph.compile(builder.getModelProto(), backend=backend)(
        {x: np.array([1, -1], np.float32)}
    )
    np.testing.assert_array_equal(found[last], [8, -8])
    np.testing.assert_array_equal(found[rows], [[2, -2], [4, -4], [8, -8]])


def counted(trips: str, counter: str) -> tuple[popart.Builder, str, list[str]]:
    """A loop that sums its iteration numbers, with trip count and counter of these types."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    turns = builder.aiOnnx.constant(np.array(3, trips))
    always = builder.aiOnnx.constant(np.array(True))
    body = builder.createSubgraphBuilder()
    number = body.addInputTensor(counter, [])
    going = body.addInputTensor("BOOL", [])
    value = body.addInputTensor("FLOAT", [2])
    added = body.aiOnnx.add([value, body.aiOnnx.cast([number], "FLOAT")])
    for id in (going, added, body.aiOnnx.identity([number])):
        body.addOutputTensor(id)
    results = builder.aiOnnx.loop([turns, always, x], 2, body)
    for id in results:
        builder.addOutputTensor(id)
    return builder, x, results


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("trips", ["int32", "int64", "uint32", "uint64"])
@pytest.mark.parametrize("counter", ["INT32", "INT64"])
def test_loops_count_in_any_integer_type(trips: str, counter: str, backend: str) -> None:
    builder, x, (last, numbers) = counted(trips, counter)
    compiled = popgraph.compile(builder.getModelProto(), backend=backend)
    found = compiled({x: np.array([1, -1], np.float32)})
    np.testing.assert_array_equal(found[last], [4, 2])
    np.testing.assert_array_equal(found[numbers], np.array([0, 1, 2], counter.lower()))
    assert found[numbers].dtype == counter.lower()


def test_trip_counts_must_be_integers() -> None:
    with pytest.raises(popart.popart_exception, match="unsupported trip count data type FLOAT"):
        counted("float32", "INT64")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["gather", "gatherelements", "scatter", "scatterelements"])
def test_unsigned_indices(name: str, backend: str) -> None:
    data = rng().standard_normal((3, 4)).astype(np.float32)
    updates = rng().standard_normal((2, 4)).astype(np.float32)
    places = np.array([[2, 0, 1, 1], [0, 1, 2, 0]])
    given_ = [data, places, updates] if name.startswith("scatter") else [data, places]
    found = []
    for kind in ("UINT32", "INT64"):
        builder = popart.Builder(opsets={"ai.onnx": 9 if name == "scatter" else 11})
        shapes = [list(one.shape) for one in given_]
        types = ["FLOAT", kind, "FLOAT"]
        ids = [builder.addInputTensor(*pair) for pair in zip(types, shapes, strict=False)]
        result = getattr(builder.aiOnnx, name)(ids, axis=0)
        builder.addOutputTensor(result)
        arrays = [data, places.astype(kind.lower()), updates]
        compiled = popgraph.compile(builder.getModelProto(), backend=backend)
        found.append(compiled(dict(zip(ids, arrays, strict=False)))[result])
    np.testing.assert_array_equal(*found)


def test_mismatched_calls_are_refused() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    inner = builder.createSubgraphBuilder()
    inner.addOutputTensor(inner.aiGraphcore.scale([inner.addUntypedInputTensor()], 2))
    with pytest.raises(popart.popart_exception, match=r"number of inputs \(2\) does not match"):
        builder.aiGraphcore.call([x, x], 1, inner, "debug")
    with pytest.raises(popart.popart_exception, match=r"number of outputs \(2\) does not match"):
        builder.aiGraphcore.call([x], 2, inner, "debug")


def test_a_branch_holds_operators_of_popart() -> None:
    builder = popart.Builder()
    yes = builder.addInputTensor("BOOL", [])
    x = builder.addInputTensor("FLOAT", [2])
    branches = []
    for factor in (2.0, 3.0):
        branch = builder.createSubgraphBuilder()
        branch.addOutputTensor(branch.aiGraphcore.scale([x], factor))
        branches.append(branch)
    (result,) = builder.aiOnnx.logical_if([yes], 1, branches[1], branches[0])
    builder.addOutputTensor(result)
    runner = popgraph.compile(builder.getModelProto())
    for truth, factor in ((True, 2), (False, 3)):
        found = runner({yes: np.array(truth), x: np.ones(2, np.float32)})
        np.testing.assert_array_equal(found[result], [factor, factor])


@pytest.mark.parametrize(
    ("call", "arrays", "message"),
    [
        (lambda ops, ids: ops.reducemedian(ids, [3]), [(2, 2)], r"Axis 3 is out of acceptable"),
        (
            lambda ops, ids: ops.multiconv([ids, ids], dilations=[[1], [2, 2]]),
            [(1, 1, 4), (1, 1, 2)],
            r"Length of dilations vector 2 != number of spatial dimensions 1",
        ),
        (
            lambda ops, ids: ops.multiconv([ids[:1]]),
            [(1, 1, 4)],
            "at least two inputs - data and weights",
        ),
        (
            lambda ops, ids: ops.groupedgather(ids, 1, 5),
            [(2, 3), (2, 2)],
            "5 groups do not fit",
        ),
        (
            lambda ops, ids: ops.sequenceslice(ids),
            [()] * 5,
            "SequenceSlice differ in the shape of a row",
        ),
        (
            lambda ops, ids: ops.depthtospace(ids, 0),
            [(1, 1, 2, 2)],
            "`blocksize` is 0 for",
        ),
        (
            lambda ops, ids: ops.depthtospace(ids, 2),
            [()],
            "is 2 for a tensor of 0 axes",
        ),
        (lambda ops, ids: ops.scale(ids[1:], 2.0**40), [(), (2,)], "is out of the range of i32"),
        (lambda ops, ids: ops.splinebasis([ids[0]] * 3, degree=4), [(2, 2)], "degree 4"),
        (
            lambda ops, ids: ops.dynamicslice(ids, [0], [3]),
            [(2, 2), (1,)],
            "size 3 is out of range for axis 0",
        ),
        (lambda ops, ids: ops.ctcloss(ids[:1] * 4), [(2, 2, 2)], "Ctc takes log probabilities"),
    ],
)
def test_mismatched_operands_are_refused(
    call: Call, arrays: list[tuple[int, ...]], message: str
) -> None:
    zeros = [
        np.zeros(shape, np.float32 if place == 0 else np.int32)
        for place, shape in enumerate(arrays)
    ]
    if "spatial" in message:
        zeros = [one.astype(np.float32) for one in zeros]
    with pytest.raises(PopgraphError, match=message):
        run(call, zeros, "reference")


def test_lists_may_be_arrays() -> None:
    data = np.arange(8, dtype=np.float32).reshape(2, 4)
    call: Call = lambda ops, ids: ops.reverse(ids, np.array([0, 1]))  # noqa: E731
    np.testing.assert_array_equal(run(call, [data], "reference")[0], data[::-1, ::-1])
