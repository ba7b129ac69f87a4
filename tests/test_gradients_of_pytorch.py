"""Tests gradients against those of PyTorch, for operators with the same meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from onnx import numpy_helper
from torch.nn import functional as F

from popgraph.compiler import BuildRequest
from popgraph.passes.options import CONSTANT, GRADIENT, Options
from popgraph.support.arrays import Array
from tests import gradients
from tests.gradient_cases import case, draw, near, whole
from tests.gradients import DOUBLE, SINGLE, Sample, Wide

Tensors = tuple[torch.Tensor, ...]
Peer = Callable[..., Any]
X, IMAGE, GRID = draw(2, 3, 4), draw(2, 4, 6, 7), near(2, 3, 4, 2, low=-0.8, high=0.8)
ROWS = np.array([[0, 2, 1], [1, 0, 2]])


SAMPLINGS = (("linear", 0, "zeros"), ("cubic", 1, "border"), ("linear", 1, "reflection"))


def recurrence(kind: Any, order: list[int]) -> Peer:
    """PyTorch's recurrent layer, with ONNX's gates reordered and its concatenated biases."""

    def run(x: torch.Tensor, w: torch.Tensor, r: torch.Tensor, b: torch.Tensor) -> Tensors:
        def gates(one: torch.Tensor) -> torch.Tensor:
            parts = one.chunk(len(order))
            return torch.cat([parts[at] for at in order])

        made, biases = kind(x.shape[2], r.shape[2]).to(x.dtype), b[0].chunk(2)
        given = [gates(one) for one in (w[0], r[0], *biases)]
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        y, last = torch.func.functional_call(made, dict(zip(names, given, strict=True)), (x,))
        return (y[:, None], *(last if isinstance(last, tuple) else (last,)))

    return run


def recurrent(op: str, gates: int, **more: Any) -> Sample:
    sizes = ((4, 2, 3), (1, gates * 5, 3), (1, gates * 5, 5), (1, 2 * gates * 5))
    outputs = 3 if op == "LSTM" else 2
    return case(op, *(draw(*size) for size in sizes), outputs=outputs, hidden_size=5, **more)


def likelihood(x: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The weighted NLL; PyTorch's own has no gradient of the weights."""
    found = weights[targets]
    return -(found * x.gather(1, targets[:, None])[:, 0]).sum() / found.sum()


def scattered(data: torch.Tensor, at: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    return data.scatter_add(1, at, new)


def framed(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(torch.fft.fft(torch.complex(x[..., 0], x[..., 1]), dim=1))


def short_time(x: torch.Tensor, step: Any, window: torch.Tensor) -> torch.Tensor:
    found = torch.stft(
        x[..., 0], 8, int(step), window=window, center=False, onesided=True, return_complex=True
    )
    return torch.view_as_real(found.transpose(1, 2))


def pairs() -> dict[str, tuple[Sample, Peer]]:
    w, one = draw(6, 2, 3, 3), {"kernel_shape": [3, 3]}
    found: dict[str, tuple[Sample, Peer]] = {
        "Conv": (
            case("Conv", IMAGE, w, draw(6), group=2, strides=[2, 1], pads=[1, 0, 1, 0]),
            lambda x, k, b: F.conv2d(x, k, b, (2, 1), (1, 0), 1, 2),
        ),
        "ConvTranspose": (
            case(
                "ConvTranspose", IMAGE, draw(4, 3, 3, 3), draw(3), strides=[2, 2],
                pads=[1, 1, 1, 1], output_padding=[1, 0],
            ),
            lambda x, k, b: F.conv_transpose2d(x, k, b, 2, 1, (1, 0)),
        ),
        "MaxPool": (
            case("MaxPool", IMAGE, strides=[2, 2], pads=[1, 1, 1, 1], **one),
            lambda x: F.max_pool2d(x, 3, 2, 1),
        ),
        "AveragePool": (
            case("AveragePool", IMAGE, strides=[2, 1], pads=[1, 1, 1, 1], **one),
            lambda x: F.avg_pool2d(x, 3, (2, 1), 1, count_include_pad=False),
        ),
        "Resize nearest": (
            case(
                "Resize", IMAGE, None, None, whole(2, 4, 9, 13), mode="nearest",
                coordinate_transformation_mode="asymmetric", nearest_mode="floor",
            ),
            lambda x, _: F.interpolate(x, (9, 13), mode="nearest"),
        ),
        "Col2Im": (
            case("Col2Im", draw(2, 12, 12), whole(4, 5), whole(2, 2)),
            lambda x, *_: F.fold(x, (4, 5), (2, 2)),
        ),
        "AffineGrid": (
            case("AffineGrid", draw(1, 2, 3), whole(1, 2, 3, 4), opset=20),
            lambda x, _: F.affine_grid(x, [1, 2, 3, 4], align_corners=False),
        ),
        "Einsum": (
            case("Einsum", X, draw(3, 5), draw(2, 4), equation="abc,bd,ac->ad"),
            lambda *all: torch.einsum("abc,bd,ac->ad", *all),
        ),
        "Gather": (
            case("Gather", X, whole(0, 2, -1, 0), axis=1), lambda x, i: x[:, i]
        ),
        "GatherElements": (
            case("GatherElements", draw(2, 3), ROWS, axis=1), lambda x, i: x.gather(1, i)
        ),
        "ScatterElements": (
            case("ScatterElements", draw(2, 3), ROWS, draw(2, 3), axis=1, reduction="add"),
            scattered,
        ),
        "InstanceNormalization": (
            case("InstanceNormalization", IMAGE, draw(4), draw(4)),
            lambda x, s, b: F.instance_norm(x, weight=s, bias=b, eps=1e-5),
        ),
        "GroupNormalization": (
            case("GroupNormalization", IMAGE, draw(4), draw(4), opset=21, num_groups=2),
            lambda x, s, b: F.group_norm(x, 2, s, b),
        ),
        "LRN": (
            case("LRN", IMAGE, size=3, alpha=0.25, beta=0.75, bias=1.25),
            lambda x: F.local_response_norm(x, 3, 0.25, 0.75, 1.25),
        ),
        "PRelu": (case("PRelu", X, near(3, 1)), lambda x, s: F.prelu(x, s[:, 0])),
        "Softmax": (case("Softmax", X, opset=13, axis=1), lambda x: x.softmax(1)),
        "LogSoftmax": (case("LogSoftmax", X, opset=13, axis=-1), lambda x: x.log_softmax(-1)),
        "NegativeLogLikelihoodLoss": (
            case("NegativeLogLikelihoodLoss", X, ROWS[:, [0, 1, 2, 0]], near(3)),
            likelihood,
        ),
        "SoftmaxCrossEntropyLoss": (
            case("SoftmaxCrossEntropyLoss", X, ROWS[:, [0, 1, 2, 0]]),
            F.cross_entropy,
        ),
        "Det": (case("Det", draw(2, 3, 3)), torch.linalg.det),
        "TopK": (
            case("TopK", X, whole(2), outputs=2, axis=1),
            lambda x, _: (x.topk(2, 1).values,),
        ),
        "DFT": (case("DFT", draw(2, 6, 2), None, np.array(1), opset=20), lambda x, _: framed(x)),
        "STFT": (case("STFT", draw(2, 20, 1), np.array(3), near(8), opset=17), short_time),
        "Attention": (
            case("Attention", *(draw(2, 3, 5, 16) for _ in range(3)), opset=23, is_causal=1),
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        ),
        "RNN": (recurrent("RNN", 1), recurrence(torch.nn.RNN, [0])),
        "LSTM": (recurrent("LSTM", 4), recurrence(torch.nn.LSTM, [0, 2, 3, 1])),
        "GRU": (recurrent("GRU", 3, linear_before_reset=1), recurrence(torch.nn.GRU, [1, 0, 2])),
    }  # fmt: skip
    for mode, aligned, padding in (
        ("linear", 0, "zeros"),
        ("cubic", 1, "border"),
        ("linear", 1, "reflection"),
    ):
        name = {"linear": "bilinear", "cubic": "bicubic"}[mode]

        def sampled(
            x: torch.Tensor, at: torch.Tensor, name: str = name, aligned: int = aligned,
            padding: str = padding,
        ) -> torch.Tensor:  # fmt: skip
            return F.grid_sample(x, at, name, padding, bool(aligned))

        attributes = {"mode": mode, "align_corners": aligned, "padding_mode": padding}
        found[f"GridSample {mode} {padding}"] = (
            case("GridSample", IMAGE, GRID, **attributes),
            sampled,
        )
        if padding != "border":
            transformation = "align_corners" if aligned else "pytorch_half_pixel"
            sample = case(
                "Resize", IMAGE, None, None, whole(2, 4, 9, 13), mode=mode,
                coordinate_transformation_mode=transformation,
            )  # fmt: skip
            found[f"Resize {transformation}"] = (
                sample,
                lambda x, _, aligned=aligned: F.interpolate(
                    x, (9, 13), mode="bilinear", align_corners=bool(aligned)
                ),
            )
    for op, peer in ACTIVATIONS.items():
        found[op] = (case(op, draw(3, 4), opset=22), peer)
    return found


ACTIVATIONS: dict[str, Peer] = {
    "Elu": F.elu,
    "Selu": F.selu,
    "Celu": F.celu,
    "Gelu": F.gelu,
    "LeakyRelu": F.leaky_relu,
    "Mish": F.mish,
    "Softplus": F.softplus,
    "Softsign": F.softsign,
    "Sigmoid": torch.sigmoid,
    "Tanh": torch.tanh,
    "Erf": torch.erf,
    "HardSwish": F.hardswish,
}
IN_C = ("Conv", "MaxPool", "LSTM")


PAIRS = pairs()
ROUNDED = ("Selu", "Celu", "HardSwish")
"""Operators whose constants or results are f32 in ONNX."""


def of_pytorch(wide: Wide, peer: Peer) -> dict[str, Array]:
    """PyTorch's gradients of the loss of a case."""
    held = {one.name: numpy_helper.to_array(one) for one in wide.model.graph.initializer}
    given = {
        name: torch.tensor(np.array(array), requires_grad=name in wide.arrays)
        for name in wide.model.graph.node[0].input
        if name
        for array in (wide.arrays.get(name, held.get(name)),)
    }
    made = peer(*given.values())
    results = made if isinstance(made, tuple) else (made,)
    names = [f"{name}_weights" for name in wide.model.graph.node[0].output]
    mixed = [torch.tensor(held[name]) for name in names if name in held]
    pairs_of_results = zip(results, mixed, strict=True)
    torch.stack([(result * weights).sum() for result, weights in pairs_of_results]).sum().backward()
    return {name: one.grad.numpy() for name, one in given.items() if one.grad is not None}


def compare(found: Mapping[str, Array], wanted: Mapping[str, Array], tolerance: float) -> None:
    assert wanted
    for name, gradient in wanted.items():
        assert np.abs(gradient).max() > 0, f"{name} decides nothing"
        error = np.abs(found[GRADIENT + name] - gradient).max() / np.abs(gradient).max()
        assert error < tolerance, f"{name}: {error}"


@pytest.mark.parametrize("name", PAIRS)
def test_gradients_are_those_of_pytorch(name: str) -> None:
    sample, peer = PAIRS[name]
    wide = sample.wide
    assert wide.precision is (SINGLE if name == "Celu" else DOUBLE)
    found = wide.gradients(wide.backward(CONSTANT), CONSTANT)
    wanted = of_pytorch(wide, peer)
    assert wanted.keys() == wide.arrays.keys()
    compare(found, wanted, 1e-6 if name in ROUNDED else 1e-9)


@pytest.mark.parametrize("name", IN_C)
def test_gradients_in_c_are_those_of_pytorch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, "precision_of", lambda model: SINGLE)
    sample, peer = PAIRS[name]
    narrow = Wide.of(sample)
    module, compilation = narrow.backward(CONSTANT)
    found = BuildRequest(module, compilation, Options(), "c", 1).runner()(narrow.arrays)
    compare(found, of_pytorch(narrow, peer), 2e-5)
