"""Times programs with the same bits everywhere beside the default, as a table."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from math import exp, fsum, log

import numpy as np
from chosen import one_of
from models import CNNS, FROM_TORCH, model
from onnx import helper
from training import Trained

import popgraph
from popgraph.measure.timing import Contestant, pin, race
from popgraph.support.determinism import MACHINE, PORTABLE, VARIABLE

LEFT_OUT = {"vgg19", "bvlc_alexnet", "encoder_12x768"}
"""Networks of several seconds of compilation that have the same kinds of layers as others."""
INFERENCE = tuple(name for name in (*CNNS, *FROM_TORCH) if name not in LEFT_OUT)
TRAINING = ("mlp", "lenet", "lstm_16x64x128", "transformer")


def inference(name: str) -> Callable[[], object]:
    """A run of a model."""
    loaded, generator = model(name), np.random.default_rng(0)
    filled = {each.name for each in loaded.graph.initializer}
    inputs = {}
    for value in loaded.graph.input:
        if value.name not in filled:
            type_ = value.type.tensor_type
            dtype = helper.tensor_dtype_to_np_dtype(type_.elem_type)
            shape = [dim.dim_value or 1 for dim in type_.shape.dim]
            floats = np.issubdtype(dtype, np.floating)
            drawn = generator.standard_normal(shape) if floats else generator.integers(0, 2, shape)
            inputs[value.name] = drawn.astype(dtype)
    runner = popgraph.compile(loaded, quick=False)
    return lambda: runner(inputs)


def training(name: str) -> Callable[[], object]:
    """A training step of a network."""
    trained = Trained(name)
    step, arrays = trained.ours(), trained.arrays
    return lambda: step.run(arrays)


def ratio(name: str, made: Callable[[str], Callable[[], object]], seconds: float) -> float:
    """The time of the portable program, in times of the default."""
    contestants = []
    for choice in (MACHINE, PORTABLE):
        os.environ[VARIABLE] = choice
        contestants.append(Contestant(choice, made(name)))
    race(contestants, threads=1, seconds=seconds, rounds=5)
    default, portable = (each.best for each in contestants)
    print(f"| {name} | {1e3 * default:.3f} | {1e3 * portable:.3f} | {portable / default:.2f} |")
    return portable / default


def geometric_mean(ratios: Sequence[float]) -> float:
    return exp(fsum(map(log, ratios)) / len(ratios))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    known = one_of("network", dict.fromkeys((*INFERENCE, *TRAINING)))
    parser.add_argument("names", nargs="*", type=known, help="networks (default: all)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each pair")
    arguments = parser.parse_args()
    pin(1)
    for kind, made, names in (("run", inference, INFERENCE), ("step", training, TRAINING)):
        chosen = [name for name in names if name in arguments.names or not arguments.names]
        if chosen:
            print(f"| ms a {kind} | default | portable | ratio |\n| --- | --- | --- | --- |")
            ratios = [ratio(name, made, arguments.seconds) for name in chosen]
            print(f"| geometric mean | | | {geometric_mean(ratios):.3f} |\n")


if __name__ == "__main__":
    main()
