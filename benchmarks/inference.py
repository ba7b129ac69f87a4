"""How fast is inference, next to onnxruntime? Minima of interleaved runs, one table."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np
import onnxruntime
from models import NAMES, light, logits, with_random_weights

import popgraph
from popgraph.dialects.program.attributes import Array

ROUNDS = 15


def best(calls: list[Callable[[], object]], rounds: int = ROUNDS) -> list[float]:
    """The fastest of `rounds` interleaved runs of every call, in thread-CPU seconds."""
    fastest = [float("inf")] * len(calls)
    for _ in range(rounds):
        for number, call in enumerate(calls):
            start = time.thread_time()
            call()
            fastest[number] = min(fastest[number], time.thread_time() - start)
    return fastest


def measure(name: str) -> str:
    """One row: times of both, their ratio, compile times, and how far the results differ."""
    model = logits(with_random_weights(light(name)))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    peer = onnxruntime.InferenceSession(model.SerializeToString(), options)
    (given,) = peer.get_inputs()
    inputs: dict[str, Array] = {
        given.name: np.random.default_rng(0).standard_normal(given.shape).astype(np.float32)
    }
    compile_times = []
    for _ in range(2):  # the second finds its kernels in the cache
        start = time.perf_counter()
        run = popgraph.compile(model)
        compile_times.append(time.perf_counter() - start)
    (expected,) = peer.run(None, inputs)
    (found,) = run(inputs).values()
    error = np.abs(found - expected).max() / np.abs(expected).max()
    theirs, ours = best([lambda: peer.run(None, inputs), lambda: run(inputs)])
    cold, warm = compile_times
    return (
        f"| {name} | {ours * 1e3:.2f} | {theirs * 1e3:.2f} | {theirs / ours:.2f} "
        f"| {cold:.1f} | {warm:.1f} | {error:.1e} |"
    )


def main() -> None:
    cache = tempfile.mkdtemp()
    os.environ["POPGRAPH_CACHE_DIR"] = cache
    os.sched_setaffinity(0, {0})
    print("| model | PopGraph ms | onnxruntime ms | ratio | cold s | warm s | difference |")
    print("|---|---|---|---|---|---|---|")
    for name in sys.argv[1:] or NAMES:
        print(measure(name), flush=True)
    shutil.rmtree(cache)


if __name__ == "__main__":
    main()
