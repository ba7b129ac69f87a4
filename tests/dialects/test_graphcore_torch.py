"""Tests graphcore operations and their gradients against PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from _pytest.mark import ParameterSet

from popgraph.dialects import graphcore as gc
from tests.dialects.graphcore_run import Sample, analytic, build
from tests.dialects.graphcore_samples import CONVOLUTIONS, POOLS, SAMPLES

torch = pytest.importorskip("torch")
functional = torch.nn.functional

Function = Callable[..., Any]

FUNCTIONS: dict[Any, Function] = {
    gc.ExpOp: torch.exp,
    gc.LogOp: torch.log,
    gc.SqrtOp: torch.sqrt,
    gc.SinOp: torch.sin,
    gc.CosOp: torch.cos,
    gc.TanOp: torch.tan,
    gc.Log1pOp: torch.log1p,
    gc.Expm1Op: torch.expm1,
    gc.AtanOp: torch.atan,
    gc.AsinOp: torch.asin,
    gc.AcosOp: torch.acos,
    gc.SinhOp: torch.sinh,
    gc.CoshOp: torch.cosh,
    gc.AsinhOp: torch.asinh,
    gc.AcoshOp: torch.acosh,
    gc.AtanhOp: torch.atanh,
    gc.ErfOp: torch.erf,
    gc.TanhOp: torch.tanh,
    gc.SigmoidOp: torch.sigmoid,
    gc.ReluOp: torch.relu,
    gc.AbsOp: torch.abs,
    gc.PowOp: torch.pow,
    gc.RemOp: torch.fmod,
    gc.Atan2Op: torch.atan2,
    gc.MaxOp: torch.maximum,
    gc.MinOp: torch.minimum,
    gc.MatMulOp: torch.matmul,
    gc.GeluOp: lambda x, approximate: functional.gelu(
        x, approximate="tanh" if approximate else "none"
    ),
    gc.LeakyReluOp: lambda x, alpha: functional.leaky_relu(x, alpha),
    gc.SoftmaxOp: lambda x, axis: torch.softmax(x, axis),
    gc.LogSoftmaxOp: lambda x, axis: torch.log_softmax(x, axis),
    gc.ReduceProdOp: lambda x, axes, keepdims: torch.prod(x, axes[0], keepdims),
}


def assert_agree(sample: Sample, function: Function) -> None:
    """Checks results and gradients of `function` against those of the sample, in float64."""
    built = build(sample)
    tensors = [torch.tensor(array) for array in built.arrays]
    for tensor in tensors:
        tensor.requires_grad_(tensor.is_floating_point())
    expected = function(*tensors)
    (result, *_) = built.op.evaluate(*built.arrays)
    np.testing.assert_allclose(result, expected.detach().numpy(), rtol=1e-9, atol=1e-12)
    weight = np.random.default_rng(3).standard_normal(result.shape)
    expected.backward(torch.tensor(weight))
    others = [None] * (len(built.op.results) - 1)
    for gradient, tensor in zip(analytic(built, [weight, *others]), tensors, strict=True):
        if tensor.requires_grad:
            assert gradient is not None
            np.testing.assert_allclose(gradient, tensor.grad.numpy(), rtol=1e-9, atol=1e-12)


def plain() -> Iterator[ParameterSet]:
    """Samples of operations that PyTorch has under another name."""
    for number, sample in enumerate(SAMPLES):
        floats = all(array.dtype.kind == "f" and array.size for array in sample.arrays)
        one_axis = len(sample.properties.get("axes", (0,))) == 1
        if sample.op in FUNCTIONS and floats and sample.smooth and one_axis:
            yield pytest.param(sample.with_floats("f64"), id=f"{number}-{sample}"[:100])


@pytest.mark.parametrize("sample", list(plain()))
def test_elementwise_functions(sample: Sample) -> None:
    assert_agree(sample, lambda *tensors: FUNCTIONS[sample.op](*tensors, **sample.properties))


@pytest.mark.parametrize("case", [at for at, (x, _, _) in enumerate(CONVOLUTIONS) if 0 not in x])
def test_convolutions(case: int) -> None:
    x_shape, w_shape, given = CONVOLUTIONS[case]
    rank = len(x_shape) - 2
    plain = {"strides": (1,) * rank, "dilations": (1,) * rank, "pads": (0,) * 2 * rank, "groups": 1}
    options = {**plain, **given}
    random = np.random.default_rng(case)

    def convolve(x: Any, w: Any) -> Any:
        ends = zip(options["pads"][:rank], options["pads"][rank:], strict=True)
        widths = [width for low, high in reversed(list(ends)) for width in (low, high)]
        function = (functional.conv1d, functional.conv2d, functional.conv3d)[rank - 1]
        return function(
            functional.pad(x, widths),
            w,
            stride=options["strides"],
            dilation=options["dilations"],
            groups=options["groups"],
        )

    operands = [random.standard_normal(x_shape), random.standard_normal(w_shape)]
    assert_agree(Sample(gc.ConvOp, operands, options), convolve)


def torch_pools(kind: str) -> list[int]:
    """Pools with equal padding at both ends, as PyTorch requires."""
    return [
        number
        for number, (shape, options) in enumerate(POOLS)
        if options["pads"][: len(shape) - 2] == options["pads"][len(shape) - 2 :]
        and (kind == "max" or set(options["dilations"]) == {1})
    ]


@pytest.mark.parametrize("case", torch_pools("max"))
def test_max_pools(case: int) -> None:
    shape, options = POOLS[case]
    rank = len(shape) - 2
    function = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)[rank - 1]
    ceil = bool(case)

    def pool(x: Any) -> Any:
        return function(
            x,
            options["kernel"],
            options["strides"],
            options["pads"][:rank],
            options["dilations"],
            ceil_mode=ceil,
        )

    x = np.random.default_rng(case).standard_normal(shape)
    assert_agree(Sample(gc.MaxPoolOp, [x], options), pool)


@pytest.mark.parametrize("include_pad", [False, True])
@pytest.mark.parametrize("case", torch_pools("average"))
def test_average_pools(case: int, include_pad: bool) -> None:
    shape, options = POOLS[case]
    rank = len(shape) - 2
    function = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)[rank - 1]
    ceil = bool(case)

    def pool(x: Any) -> Any:
        pads = options["pads"][:rank]
        return function(x, options["kernel"], options["strides"], pads, ceil, include_pad)

    x = np.random.default_rng(case).standard_normal(shape)
    assert_agree(Sample(gc.AveragePoolOp, [x], {**options, "include_pad": include_pad}), pool)


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 5), (2, 3, 2, 2)])
def test_batch_norm(shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(1)
    vectors = [random.uniform(0.5, 2, shape[1]) for _ in range(4)]
    x = random.standard_normal(shape)

    def train(x: Any, scale: Any, bias: Any) -> Any:
        return functional.batch_norm(x, None, None, scale, bias, True, eps=1e-3)

    def infer(x: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> Any:
        # PyTorch does not differentiate the running statistics.
        column = (1, -1) + (1,) * (len(shape) - 2)
        deviation = torch.sqrt(variance + 1e-3).reshape(column)
        normalized = (x - mean.reshape(column)) / deviation
        return normalized * scale.reshape(column) + bias.reshape(column)

    assert_agree(Sample(gc.BatchNormTrainOp, [x, *vectors[:2]], {"epsilon": 1e-3}), train)
    assert_agree(Sample(gc.BatchNormOp, [x, *vectors], {"epsilon": 1e-3}), infer)


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("with_bias", [False, True])
def test_layer_norm(axis: int, with_bias: bool) -> None:
    random = np.random.default_rng(2)
    x = random.standard_normal((2, 3, 4))
    scale, bias = (random.standard_normal(x.shape[axis:]) for _ in range(2))

    def normalize(x: Any, scale: Any, bias: Any = None) -> Any:
        return functional.layer_norm(x, x.shape[axis:], scale, bias, 1e-5)

    operands = [x, scale, bias if with_bias else None]
    assert_agree(Sample(gc.LayerNormOp, operands, {"axis": axis, "epsilon": 1e-5}), normalize)


@pytest.mark.parametrize("size", [1, 3, 4])
def test_local_response_normalization(size: int) -> None:
    x = np.random.default_rng(3).standard_normal((2, 5, 3, 2))
    options = {"size": size, "alpha": 0.3, "beta": 0.75, "bias": 1.5}
    if size % 2:
        assert_agree(
            Sample(gc.LrnOp, [x], options),
            lambda x: functional.local_response_norm(x, size, 0.3, 0.75, 1.5),
        )
        return
    # The window of an even size is one longer at the end in ONNX, at the start in PyTorch.
    built = build(Sample(gc.LrnOp, [x[:, ::-1]], options))
    (result,) = built.op.evaluate(*built.arrays)
    expected = functional.local_response_norm(torch.tensor(x), size, 0.3, 0.75, 1.5).numpy()
    np.testing.assert_allclose(result[:, ::-1], expected, rtol=1e-9)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("ignore", [None, 1])
def test_nll_of_logarithms(reduction: str, ignore: int | None) -> None:
    random = np.random.default_rng(4)
    logs, labels = random.standard_normal((5, 4)), random.integers(0, 4, 5)
    labels[0] = 1
    options = {"reduction": reduction, "log_probabilities": True}
    if ignore is not None:
        options["ignore_index"] = ignore
    assert_agree(
        Sample(gc.NllLossOp, [logs, labels], options),
        lambda logs, labels: functional.nll_loss(
            logs, labels, reduction=reduction, ignore_index=-100 if ignore is None else ignore
        ),
    )


def test_nll_of_softmax_is_cross_entropy() -> None:
    random = np.random.default_rng(5)
    logits, labels = random.standard_normal((5, 4)), random.integers(0, 4, 5)
    softmax = build(Sample(gc.SoftmaxOp, [logits], {"axis": 1}))
    (probabilities,) = softmax.op.evaluate(logits)
    options = {"reduction": "mean", "log_probabilities": False}
    loss = build(Sample(gc.NllLossOp, [probabilities, labels], options))
    (value,) = loss.op.evaluate(probabilities, labels)
    tensor = torch.tensor(logits, requires_grad=True)
    expected = functional.cross_entropy(tensor, torch.tensor(labels))
    expected.backward()
    np.testing.assert_allclose(value, expected.item(), rtol=1e-9)
    (slope, _) = analytic(loss, [np.ones(())])
    assert slope is not None
    (dlogits,) = analytic(build(Sample(gc.SoftmaxOp, [logits], {"axis": 1})), [slope])
    np.testing.assert_allclose(dlogits, tensor.grad.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions_to_extremes(keepdims: bool) -> None:
    x = np.array([[1.0, 5, 5, 2], [3, 3, 3, 0]])
    for op, function in ((gc.ReduceMaxOp, torch.amax), (gc.ReduceMinOp, torch.amin)):
        sample = Sample(op, [x], {"axes": (1,), "keepdims": keepdims})
        assert_agree(sample, lambda x, function=function: function(x, 1, keepdims))
