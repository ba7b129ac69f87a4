"""Tests the size of the arena against the largest live set of real networks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import popgraph
from popgraph.compiler import load, lower
from popgraph.dialects import element_types
from popgraph.dialects.tile import BufferOp, ProgramOp
from popgraph.passes.optimizer_spec import SGD, Scalar
from popgraph.passes.options import Options, Training
from popgraph.support.shapes import prod


class Net:
    """Builds a network on images, layer by layer."""

    def __init__(self, channels: int = 3, size: int = 32, batch: int = 1) -> None:
        self.builder = popgraph.Builder()
        self.onnx = self.builder.aiOnnx
        self.batch, self.weights = batch, 0
        shape = [batch, channels, size, size]
        self.x = self.builder.addInputTensor(popgraph.TensorInfo("FLOAT", shape), "x")

    def weight(self, *shape: int) -> str:
        self.weights += 1
        values = np.random.default_rng(self.weights).standard_normal(shape).astype(np.float32)
        return self.builder.addInitializedInputTensor(values / 10, f"w{self.weights}")

    def channels(self, x: str) -> int:
        return int(self.builder.getTensorShape(x)[1])

    def conv(self, x: str, filters: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> str:
        given = self.weight(filters, self.channels(x) // groups, kernel, kernel)
        pads = [kernel // 2] * 4
        made = self.onnx.conv(
            [x, given, self.weight(filters)], pads=pads, strides=[stride] * 2, group=groups
        )
        return self.onnx.relu([made])

    def pool(self, x: str) -> str:
        return self.onnx.maxpool([x], 1, kernel_shape=[2, 2], strides=[2, 2])[0]

    def classes(self, x: str, count: int = 10) -> str:
        """A dense layer and softmax: the probabilities of classes."""
        x = self.onnx.flatten([x])
        x = self.onnx.gemm([x, self.weight(count, self.channels(x)), self.weight(count)], transB=1)
        return self.onnx.softmax([x])

    def finish(self, x: str) -> popgraph.Builder:
        self.builder.addOutputTensor(self.classes(x))
        return self.builder


def vgg() -> popgraph.Builder:
    net = Net()
    x = net.x
    for filters in (8, 16, 32):
        x = net.pool(net.conv(net.conv(x, filters), filters))
    return net.finish(x)


def residual(net: Net, x: str) -> str:
    """Blocks of two convolutions with a shortcut around them."""
    x = net.conv(x, 8, 7, 2)
    for filters, stride in ((8, 1), (8, 1), (16, 2), (16, 1)):
        past = x if stride == 1 else net.conv(x, filters, 1, stride)
        x = net.onnx.relu(
            [net.onnx.add([net.conv(net.conv(x, filters, 3, stride), filters), past])]
        )
    return x


def resnet() -> popgraph.Builder:
    net = Net()
    return net.finish(residual(net, net.x))


def squeezenet() -> popgraph.Builder:
    net = Net()
    x = net.conv(net.x, 8)
    for narrow, wide in ((4, 16), (4, 16), (8, 32)):
        x = net.conv(x, narrow, 1)
        x = net.onnx.concat([net.conv(x, wide, 1), net.conv(x, wide)], 1)
    return net.finish(net.pool(x))


def inception() -> popgraph.Builder:
    net = Net()
    x = net.conv(net.x, 8, 7, 2)
    for _ in range(3):
        (pooled,) = net.onnx.maxpool([x], 1, kernel_shape=[3, 3], pads=[1] * 4)
        parts = [net.conv(x, 8, 1), net.conv(net.conv(x, 4, 1), 16)]
        parts += [net.conv(net.conv(x, 4, 1), 8, 5), net.conv(pooled, 8, 1)]
        x = net.onnx.concat(parts, 1)
    return net.finish(net.pool(x))


def densenet() -> popgraph.Builder:
    net = Net()
    x = net.conv(net.x, 8)
    for _ in range(2):
        for _ in range(4):
            x = net.onnx.concat([x, net.conv(net.conv(x, 16, 1), 4)], 1)
        x = net.pool(net.conv(x, 12, 1))
    return net.finish(x)


def shufflenet() -> popgraph.Builder:
    net = Net()
    x = net.conv(net.x, 16)
    for _ in range(3):
        y = net.conv(x, 16, 1, groups=4)
        y = net.onnx.transpose(
            [net.builder.reshape_const(net.onnx, [y], [1, 4, 4, 1024])], [0, 2, 1, 3]
        )
        y = net.conv(net.builder.reshape_const(net.onnx, [y], [1, 16, 32, 32]), 16, groups=16)
        x = net.onnx.relu([net.onnx.add([x, net.conv(y, 16, 1, groups=4)])])
    return net.finish(net.pool(x))


def trained(net: Net, x: str) -> tuple[popgraph.Builder, Options]:
    """The network with a loss, and its training options."""
    labels = net.builder.addInputTensor(popgraph.TensorInfo("INT32", [net.batch]), "labels")
    loss = net.builder.aiGraphcore.nllloss([net.classes(x), labels])
    net.builder.addOutputTensor(loss)
    return net.builder, Options(training=Training(loss, SGD(learning_rate=Scalar(0.1))))


def lenet_step() -> tuple[popgraph.Builder, Options]:
    net = Net(channels=1, size=28, batch=8)
    return trained(net, net.pool(net.conv(net.pool(net.conv(net.x, 6, 5)), 16, 5)))


def resnet_step() -> tuple[popgraph.Builder, Options]:
    net = Net(batch=2)
    return trained(net, residual(net, net.x))


def planned(builder: popgraph.Builder, options: Options) -> ProgramOp:
    module, compilation = load(builder)
    lower(module, compilation, options)
    (program,) = [op for op in module.ops if isinstance(op, ProgramOp)]
    return program


def check_bound(program: ProgramOp) -> None:
    """The arena holds all buffers and is at most 10 % above the live set."""
    bound, arena = program.lower_bound.value.data, program.arena.value.data
    assert 0 < bound <= arena <= 1.1 * bound
    pieces = {
        op.offset.value.data: op.offset.value.data
        + prod(op.memory.type.get_shape())
        * element_types.from_ir(op.memory.type.element_type).numpy.itemsize
        for op in program.walk()
        if isinstance(op, BufferOp) and op.space.data == "arena"
    }
    assert max(pieces.values()) <= arena
    assert len(pieces) > 1


@pytest.mark.parametrize(
    "make",
    [vgg, resnet, squeezenet, inception, densenet, shufflenet],
    ids=lambda make: make.__name__,
)
def test_the_arena_of_inference_is_close_to_the_live_set(
    make: Callable[[], popgraph.Builder],
) -> None:
    check_bound(planned(make(), Options()))


@pytest.mark.parametrize("make", [lenet_step, resnet_step], ids=lambda make: make.__name__)
def test_the_arena_of_training_is_close_to_the_live_set(
    make: Callable[[], tuple[popgraph.Builder, Options]],
) -> None:
    check_bound(planned(*make()))


def test_the_live_set_of_a_chain_is_two_layers() -> None:
    """64 KiB go into every convolution and out of it, whatever its epilogue."""
    net = Net()
    x = net.conv(net.x, 16, 1)
    for _ in range(5):
        x = net.onnx.tanh([net.onnx.add([net.conv(x, 16, 1), net.weight(16, 1, 1)])])
    layer = 16 * 32 * 32 * 4
    program = planned(net.finish(net.pool(x)), Options())
    assert 2 * layer <= program.lower_bound.value.data <= 2.1 * layer
