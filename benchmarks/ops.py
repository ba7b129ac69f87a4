"""Benchmarks the cases of one operator beside onnxruntime, one thread, as JSON."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from chosen import one_of
from operator_cases import CASES, Array, Case, reason

import popgraph
from popgraph.measure.peers import PEERS, ready
from popgraph.measure.timing import Contestant, pin, race
from popgraph.support.errors import PopgraphError

PEER = "onnxruntime"
Run = Callable[[], Mapping[str, Array]]


def measure(case: Case, seconds: float, rounds: int) -> dict[str, Any]:
    """Times of both and the difference of results, or the reason why one does not run the case."""
    said: dict[str, Any] = {"operator": case.title, "case": case.text, "reason": reason(case)}
    proto, inputs = case.model()
    try:
        executable = popgraph.compile(proto, threads=1, quick=False)
    except PopgraphError as error:
        return said | {"failed": first_line(error)}
    runs: list[Run] = [lambda: executable(inputs)]
    try:
        runs.append(ready(PEERS[PEER], proto, inputs, 1))
        runs[1]()
    except Exception as error:  # Kernels of onnxruntime raise any exception.
        return said | {"refused": first_line(error)}
    contestants = [Contestant(name, run) for name, run in zip(("ours", PEER), runs, strict=True)]
    race(contestants, threads=1, seconds=seconds, rounds=rounds)
    ours, theirs = (each.best * 1e3 for each in contestants)
    apart = distance(*(run() for run in runs))
    return said | {"ours_ms": ours, "theirs_ms": theirs, "differ_by": apart}


def first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def distance(ours: Mapping[str, Array], theirs: Mapping[str, Array]) -> float:
    """The largest difference, relative to the largest number (or 1); infinite for other shapes."""
    return max(_apart(ours[name], array) for name, array in theirs.items())


def _apart(one: Array, other: Array) -> float:
    if one.shape != other.shape:
        return float("inf")
    found, wanted = one.astype(np.float64), other.astype(np.float64)
    both = np.isfinite(wanted) & np.isfinite(found)
    if not np.array_equal(np.isnan(found), np.isnan(wanted)):
        return float("inf")
    scale = max(1.0, float(np.max(np.abs(wanted), initial=0, where=both)))
    return float(np.max(np.abs(found - wanted), initial=0, where=both)) / scale


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", type=one_of("operator", (case.title for case in CASES)))
    parser.add_argument("--threads", type=int, choices=[1], default=1)
    parser.add_argument("--seconds", type=float, default=1, help="at least, for each case")
    parser.add_argument("--rounds", type=int, default=15, help="at least, for each case")
    arguments = parser.parse_args()
    pin(1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["POPGRAPH_CACHE_DIR"] = folder
        chosen = [case for case in CASES if case.title == arguments.name]
        found = [measure(case, arguments.seconds, arguments.rounds) for case in chosen]
    print(json.dumps({"model": arguments.name, "cases": found}))


if __name__ == "__main__":
    main()
