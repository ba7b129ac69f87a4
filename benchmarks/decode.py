"""Benchmarks token by token decoding of one language model beside onnxruntime, as JSON."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from language_models import LANGUAGES, Language, text
from spent import Spent, spent

import popgraph
from popgraph.builder.onnx.write import export_model
from popgraph.builder.pgraph import parse
from popgraph.measure.timing import pin

PROMPT = list(range(1, 17))

Advance = Callable[[list[int]], np.ndarray[Any, Any]]
"""Takes new tokens, and returns the logits after the last one."""


def saved(name: str, folder: Path) -> Path:
    """Saves the model to a file."""
    document = parse(text(LANGUAGES[name]))
    onnx.save(export_model(document.module, document.weights), folder / f"{name}.onnx")
    return folder / f"{name}.onnx"


class Theirs:
    """
    onnxruntime with a cache.

    The outputs `present` of a run are the inputs `past` of the next, without copies.
    """

    def __init__(self, path: Path, net: Language, threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(path, options)
        self._outputs = [one.name for one in self._session.get_outputs()]
        self._empty = np.zeros((1, net.kept, 0, net.size), np.float32)
        self.reset()

    def reset(self) -> None:
        self._count = 0
        self._past = {
            one.name: onnxruntime.OrtValue.ortvalue_from_numpy(self._empty)
            for one in self._session.get_inputs()
            if one.name.startswith("past")
        }

    def feed(self, tokens: list[int]) -> np.ndarray[Any, Any]:
        before, self._count = self._count, self._count + len(tokens)
        arrays = {
            "input_ids": np.array([tokens]),
            "attention_mask": np.ones((1, self._count), np.int64),
            "position_ids": np.arange(before, self._count)[None],
        }
        given = {
            name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in arrays.items()
        }
        made = self._session.run_with_ort_values(self._outputs, given | self._past)
        named = dict(zip(self._outputs, made, strict=True))
        self._past = {one: named[one.replace("past_key_values", "present")] for one in self._past}
        logits: np.ndarray[Any, Any] = named["logits"].numpy()[0, -1]
        return logits


def timed(advance: Advance, tokens: list[int]) -> tuple[float, np.ndarray[Any, Any]]:
    start = time.perf_counter()
    logits = advance(tokens)
    return time.perf_counter() - start, logits


def measure(name: str, path: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Decodes the same text by both, alternately; the fastest round counts for each token."""
    net = LANGUAGES[name]
    ours = popgraph.Decoder(path, max_length=1024, threads=arguments.threads)

    def start() -> None:
        logits = ours.feed(PROMPT)
        ours.feed([int(logits.argmax())])

    cold: Spent = spent(start)
    theirs = Theirs(path, net, arguments.threads)
    pin(arguments.threads)
    best = np.full((2, net.tokens), np.inf)
    differ, end = 0.0, time.monotonic() + arguments.seconds
    rounds = 0
    while rounds < arguments.rounds or time.monotonic() < end:
        ours.reset()
        theirs.reset()
        logits = [ours.feed(PROMPT), theirs.feed(PROMPT)]
        for at in range(net.tokens):
            differ = max(differ, float(np.abs(logits[0] - logits[1]).max() / np.ptp(logits[1])))
            token = [int(logits[1].argmax())]
            for who in (0, 1) if at % 2 else (1, 0):
                took, logits[who] = timed((ours, theirs)[who].feed, token)
                best[who, at] = min(best[who, at], took)
        rounds += 1
    return {
        "model": name,
        "ours_ms": 1e3 * best[0].mean(),
        "theirs_ms": 1e3 * best[1].mean(),
        "programs": len(ours.run.kept),
        "cold": cold,
        "differ_by": differ,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=LANGUAGES)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = saved(arguments.name, Path(folder))
        print(json.dumps(measure(arguments.name, path, arguments)))


if __name__ == "__main__":
    main()
