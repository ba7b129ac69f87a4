"""Random networks with sums of every kind and length, as texts."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

SIZES = (*range(1, 10), 13, 16, 17, 20, 31, 32, 33, 48, 64, 65, 100, 129, 200, 257, 300, 513)
ACTIVATIONS = ("Relu", "Gelu", "Tanh", "Sigmoid", "Erf", "Softplus", "HardSwish")
SUMS = ("ReduceSum", "ReduceMean", "ReduceL2", "ReduceLogSumExp", "ReduceSumSquare", "ReduceMax")


@dataclass
class Text:
    """A text of a few layers on the input `x`, of rows, tokens or images."""

    random: Random
    shape: list[int] = field(init=False)
    """The shape of the last value without its first axis, N."""
    value: str = "x"
    weights: list[str] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        random = self.random
        self.shape = random.choice(
            [
                [self.size(700)],
                [self.size(60), random.choice((8, 16, 24, 33, 64))],
                [self.size(70), random.randint(1, 18), random.randint(1, 18)],
            ]
        )
        self.input = list(self.shape)
        layers = (self.row, self.tokens, self.image)
        for _ in range(random.randint(1, 4)):
            layers[len(self.shape) - 1]()

    def __str__(self) -> str:
        lines = "\n".join(f"    {line}" for line in [*self.weights, *self.nodes])
        shape = ", ".join(map(str, self.input))
        return (
            f"opset 21\n\ngraph g(x: f32[N, {shape}]) -> (y) {{\n{lines}\n"
            f"    y = Identity({self.value})\n}}\n"
        )

    def size(self, most: int) -> int:
        return min(most, self.random.choice(SIZES))

    def weight(self, *shape: int) -> str:
        name, sizes = f"w{len(self.weights)}", ", ".join(map(str, shape))
        self.weights.append(f"weight {name}: f32[{sizes}] = normal(seed={len(self.weights)})")
        return name

    def add(self, text: str, shape: list[int]) -> None:
        """Adds a node, the next value."""
        name = f"t{len(self.nodes)}"
        self.nodes.append(f"{name} = {text}")
        self.value, self.shape = name, shape

    def activation(self) -> None:
        self.add(f"{self.random.choice(ACTIVATIONS)}({self.value})", self.shape)

    def reduction(self) -> None:
        axes = [axis for axis in range(len(self.shape)) if self.random.random() < 0.5] or [0]
        kept = [1 if axis in axes else size for axis, size in enumerate(self.shape)]
        named = [axis + 1 for axis in axes]
        self.add(f"{self.random.choice(SUMS)}({self.value}, {named}, keepdims=1)", kept)

    def softmax(self) -> None:
        axis = self.random.randint(1, len(self.shape))
        self.add(f"Softmax({self.value}, axis={axis})", self.shape)

    def normalization(self) -> None:
        last = self.shape[-1]
        scale, shift = self.weight(last), self.weight(last)
        self.add(f"LayerNormalization({self.value}, {scale}, {shift})", self.shape)

    def product(self) -> None:
        to = self.size(300)
        self.add(f"{self.value} @ {self.weight(self.shape[-1], to)}", [*self.shape[:-1], to])

    def row(self) -> None:
        chosen = self.random.randint(0, 5)
        if chosen == 0:
            to = self.size(513)
            weight, bias = self.weight(to, self.shape[0]), self.weight(to)
            self.add(f"Gemm({self.value}, {weight}, {bias}, transB=1)", [to])
        else:
            others = (self.product, self.activation, self.reduction, self.softmax)
            (*others, self.normalization)[chosen - 1]()

    def tokens(self) -> None:
        chosen = self.random.randint(0, 6)
        if chosen == 0:
            self.attention()
        elif chosen == 1:
            self.add(f"Transpose({self.value}, perm=[0, 2, 1])", self.shape[::-1])
        else:
            others = (self.product, self.activation, self.reduction, self.softmax)
            (*others, self.normalization)[chosen - 2]()

    def attention(self) -> None:
        shape, before, width = self.shape, self.value, self.shape[-1]
        rows = self.shape[:1]
        self.add(f"{before} @ {self.weight(width, width)}", shape)
        query = self.value
        self.add(f"Transpose({before} @ {self.weight(width, width)}, perm=[0, 2, 1])", shape)
        self.add(f"Softmax({query} @ {self.value}, axis=-1)", rows * 2)
        self.add(f"{self.value} @ ({before} @ {self.weight(width, width)})", shape)

    def image(self) -> None:
        chosen = self.random.randint(0, 8)
        channels, rows, columns = self.shape
        if chosen < 3:
            self.convolution()
        elif chosen == 3:
            kernel = self.random.choice((3, 5, 7))
            pads, weight = [kernel // 2] * 4, self.weight(channels, 1, kernel, kernel)
            self.add(f"Conv({self.value}, {weight}, group={channels}, pads={pads})", self.shape)
        elif chosen == 4 and min(rows, columns) > 1:
            kind = self.random.choice(("MaxPool", "AveragePool"))
            text = f"{kind}({self.value}, kernel_shape=[2, 2], strides=[2, 2])"
            self.add(text, [channels, rows // 2, columns // 2])
        elif chosen == 5:
            scale, shift = self.weight(channels), self.weight(channels)
            self.add(f"InstanceNormalization({self.value}, {scale}, {shift})", self.shape)
        elif chosen == 6:
            self.add(f"Flatten({self.value})", [channels * rows * columns])
        else:
            (self.activation, self.reduction)[chosen % 2]()

    def convolution(self) -> None:
        channels, rows, columns = self.shape
        kernel = self.random.choice((1, 3, 3, 3, 5))
        stride, pad, to = self.random.choice((1, 1, 2)), kernel // 2, self.size(70)
        weight, bias = self.weight(to, channels, kernel, kernel), self.weight(to)
        options = f"pads={[pad] * 4}, strides={[stride] * 2}"
        self.add(
            f"Conv({self.value}, {weight}, {bias}, {options})",
            [to, -(-rows // stride), -(-columns // stride)],
        )


TRAINING = """
train {
    loss = ReduceMean(y * y)
    optimizer = Adam(0.01)
}
"""
