"""Benchmark networks from PyTorch: encoders, perceptrons, EfficientNet-Lite, LSTM and GRU."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import onnx
import torch
from torch import Tensor, nn
from torch.nn import functional


class Attention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def split(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], -1, self.heads, self.size).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (self.split(f(x)) for f in (self.query, self.key, self.value))
        scores = (query @ key.transpose(2, 3)) * self.size**-0.5
        mixed = functional.softmax(scores, -1) @ value
        found: Tensor = self.out(mixed.transpose(1, 2).reshape(x.shape))
        return found


class EncoderLayer(nn.Module):
    """A BERT layer: attention and an MLP with GELU, each with a residual and post-normalization."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = Attention(width, width // 64)
        self.products = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x + self.attention(x))
        found: Tensor = self.second(x + self.products(x))
        return found


class RootMeanSquare(nn.Module):
    """RMS normalization."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * self.scale
        return found


class DecoderLayer(nn.Module):
    """A Llama layer: pre-normalized attention and gated MLP, without a cache."""

    def __init__(self, width: int) -> None:
        super().__init__()
        inner = 11 * width // 4
        self.attention = Attention(width, width // 128)
        self.gate, self.up = nn.Linear(width, inner, False), nn.Linear(width, inner, False)
        self.down = nn.Linear(inner, width, False)
        self.first, self.second = RootMeanSquare(width), RootMeanSquare(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.first(x))
        y = self.second(x)
        found: Tensor = x + self.down(functional.silu(self.gate(y)) * self.up(y))
        return found


class InvertedResidual(nn.Module):
    """An inverted residual block with a depthwise convolution."""

    def __init__(self, inputs: int, outputs: int, expand: int, kernel: int, stride: int) -> None:
        super().__init__()
        inner = inputs * expand
        layers = convolution(inputs, inner, 1) if expand != 1 else []
        layers += convolution(inner, inner, kernel, stride, inner)
        layers += convolution(inner, outputs, 1)[:-1]
        self.body = nn.Sequential(*layers)
        self.is_residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.body(x)
        return x + found if self.is_residual else found


def convolution(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1
) -> list[nn.Module]:
    return [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(),
    ]


STAGES = (
    *((1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3)),
    *((6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1)),
)
"""EfficientNet-Lite0: expansion, kernel, stride, channels, number of blocks."""


def efficientnet_lite0() -> nn.Module:
    layers, channels = convolution(3, 32, 3, 2), 32
    for expand, kernel, stride, outputs, count in STAGES:
        for number in range(count):
            step = stride if number == 0 else 1
            layers.append(InvertedResidual(channels, outputs, expand, kernel, step))
            channels = outputs
    layers += convolution(channels, 1280, 1)
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000)]
    network = nn.Sequential(*layers)
    for module in network.modules():
        if isinstance(module, nn.Conv2d):  # With PyTorch's defaults, deep activations vanish.
            nn.init.kaiming_normal_(module.weight)
    return network


class Recurrent(nn.Module):
    """The outputs of a layer at every step."""

    def __init__(self, kind: type[nn.RNNBase], units: int) -> None:
        super().__init__()
        self.layer = kind(units, units, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x)[0]
        return found


CELLS: dict[str, type[nn.RNNBase]] = {"lstm": nn.LSTM, "gru": nn.GRU}
SEQUENCES = tuple((batch, 64, units) for batch in (1, 16) for units in (128, 512))
"""(batch, steps, units) of recurrent layers; their inputs have as many features as units."""


def recurrent(
    made: Callable[[type[nn.RNNBase], int], nn.Module],
) -> dict[str, tuple[Callable[[], nn.Module], tuple[int, int, int]]]:
    """A network for each cell and each kind of sequence, and the shape of its input."""
    return {
        f"{name}_{'x'.join(map(str, shape))}": (partial(made, cell, shape[-1]), shape)
        for name, cell in CELLS.items()
        for shape in SEQUENCES
    }


def encoder(layers: int, width: int) -> nn.Module:
    return nn.Sequential(*(EncoderLayer(width) for _ in range(layers)))


def perceptron(*widths: int) -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "efficientnet_lite0": (efficientnet_lite0, (1, 3, 224, 224)),
    "encoder_4x256": (lambda: encoder(4, 256), (1, 128, 256)),
    "encoder_12x768": (lambda: encoder(12, 768), (1, 128, 768)),
    "decoder_1x2048": (lambda: DecoderLayer(2048), (1, 1, 2048)),
    "decoder_128x2048": (lambda: DecoderLayer(2048), (1, 128, 2048)),
    "mlp_4_16_3": (lambda: perceptron(4, 16, 3), (1, 4)),
    "mlp_784_128_10": (lambda: perceptron(784, 128, 10), (1, 784)),
    **recurrent(Recurrent),
}
"""{name: (constructor, input shape)}."""


def exported(name: str) -> onnx.ModelProto:
    """The network as ONNX, for inference."""
    torch.manual_seed(0)
    make, shape = NETWORKS[name]
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            make().eval(),
            (torch.randn(shape),),
            file,
            dynamo=False,
            opset_version=20,
            input_names=["x"],
            output_names=["y"],
        )
    return onnx.load_from_string(file.getvalue())
