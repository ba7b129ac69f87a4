"""Federated averaging: three devices in C learn digits together, and each keeps its samples."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

HERE = Path(__file__).parent
MODEL = HERE.parent / "mlp.pgraph"
FOLDER = Path("federated")
ROUNDS, BATCH = 5, 8
DIGITS = ((0, 1, 2, 3, 4, 5), (4, 5, 6, 7, 8, 9), (8, 9, 0, 1, 2, 3))
"""The digits that each device sees."""


def build() -> None:
    """Exports the training step and builds the program of a device."""
    export = [sys.executable, "-m", "popgraph", "export", str(MODEL), "--train"]
    options = ["--dim", f"N={BATCH}", "--name", "net", "-o", str(FOLDER)]
    subprocess.run([*export, *options], check=True)
    subprocess.run(["make", "-s", "libnet.a"], cwd=FOLDER, check=True)
    shutil.copy(HERE / "client.c", FOLDER)
    command = ["cc", "-std=c11", "-Wall", "-Wextra", "client.c", "libnet.a", "-lm", "-o", "client"]
    subprocess.run(command, cwd=FOLDER, check=True)


def share(images: np.ndarray, labels: np.ndarray) -> list[int]:
    """Writes the samples of each device; returns their numbers."""
    counts = []
    for device, digits in enumerate(DIGITS):
        own = np.isin(labels, digits)
        data = images[own].tobytes() + labels[own].tobytes()
        (FOLDER / f"data_{device}").write_bytes(data)
        counts.append(int(own.sum()))
    return counts


def deltas_of_round(counts: list[int]) -> np.ndarray:
    """Runs the devices; returns a row for each, with the change of its weights."""
    rows = []
    for device, count in enumerate(counts):
        files = [f"data_{device}", str(count), f"state_{device}", "average", f"delta_{device}"]
        subprocess.run(["./client", *files], cwd=FOLDER, check=True)
        rows.append(np.fromfile(FOLDER / f"delta_{device}", np.float32))
    return np.array(rows)


def named(weights: np.ndarray) -> dict[str, np.ndarray]:
    """The tensors in an array of all weights, by the layout that the export wrote."""
    found = {}
    for one in json.loads((FOLDER / "net.json").read_text())["delta"]:
        last = one["first"] + int(np.prod(one["shape"]))
        found[one["name"]] = weights[one["first"] : last].reshape(one["shape"])
    return found


def accuracy(weights: dict[str, np.ndarray], x: np.ndarray, labels: np.ndarray) -> float:
    """The accuracy of the network with these weights; `Trainer.set_weights` takes them, too."""
    hidden = np.maximum(x @ weights["w1"] + weights["b1"], 0)
    scores = hidden @ weights["w2"] + weights["b2"]
    return float((scores.argmax(1) == labels).mean())


def main() -> None:
    """Trains for some rounds, and evaluates the server's weights after each."""
    images, labels = load_digits(return_X_y=True)
    x = (images / 16).astype(np.float32)
    labels = labels.astype(np.int32)
    order = np.random.default_rng(0).permutation(len(x))
    x, labels = x[order], labels[order]
    test, x, labels = (x[:400], labels[:400]), x[400:], labels[400:]
    shutil.rmtree(FOLDER, ignore_errors=True)
    build()
    counts = share(x, labels)
    weights: np.ndarray | None = None
    accuracies = []
    for number in range(ROUNDS):
        deltas = deltas_of_round(counts)
        if weights is None:
            weights = np.fromfile(FOLDER / "state_0", np.float32)  # the exported weights
        # Federated averaging: the mean of the deltas, weighted by the numbers of samples.
        average = np.average(deltas, axis=0, weights=counts).astype(np.float32)
        average.tofile(FOLDER / "average")
        for device in range(len(counts)):
            base = np.fromfile(FOLDER / f"state_{device}", np.float32)
            assert np.array_equal(base, weights), "devices and server have the same bits"
        weights = weights + average
        accuracies.append(accuracy(named(weights), *test))
        print(f"round {number + 1}: accuracy {accuracies[-1]:.1%}", flush=True)
    assert accuracies[-1] > max(0.8, accuracies[0]), accuracies


if __name__ == "__main__":
    main()
