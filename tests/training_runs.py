"""
Trains random networks in C and in NumPy, and compares them.

    python -m tests.training_runs runs.jsonl --count 10000

Each seed draws some networks with Hypothesis. A network runs two steps of an optimizer; outputs,
requested gradients, weights and the optimizer's state are compared. Each run appends a line to the
file, and a second start continues after them.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import lru_cache
from hashlib import sha256
from itertools import count, islice
from math import inf
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy
from numpy.typing import NDArray

from popgraph.backends.c.build_program import build as build_c
from popgraph.backends.reference import evaluate, signature
from popgraph.compiler import lower
from popgraph.conformance.workers import Ended, isolated
from popgraph.passes.base import Compilation
from popgraph.passes.optimizer_spec import SGD, Adam, Adaptive, OptimizerSpec, Scalar
from popgraph.passes.options import Options, Training
from popgraph.support.errors import PopgraphError
from popgraph.testing import (
    Network,
    build_network,
    learning_convolutions,
    random_inputs,
    training_controlled,
    training_networks,
)

Array = NDArray[Any]

BATCH = 50
"""Networks that a seed draws; equal ones are dropped."""
STEPS = 2
TOLERANCES = {"f32": 2e-5, "f64": 1e-9}
"""Bounds of errors, relative to the largest magnitude of a tensor, or to 1."""
MARGIN = 16
"""
A larger error is rounding if it is at most this multiple of a change of the reference: in f64
instead of f32, or after the first step with rounding errors added to inputs.
"""
TRIALS = 4
ULPS = 4
"""The largest error that is added, in units in the last place."""
EPSILON = Scalar(0.1)
"""Large, so that a gradient of 0 with a rounding error does not decide an update."""
OPTIMIZERS: dict[str, OptimizerSpec] = {
    "SGD": SGD(learning_rate=Scalar(0.1)),
    "momentum": SGD(learning_rate=Scalar(0.1, constant=False), momentum=Scalar(0.5)),
    "Adam": Adam(learning_rate=Scalar(0.01), epsilon=EPSILON),
    "AdamW": Adam(learning_rate=Scalar(0.01), epsilon=EPSILON, weight_decay=Scalar(0.1)),
    "RMSProp": Adaptive(epsilon=EPSILON),
    "AdaGrad": Adaptive(mode="ada_grad", epsilon=EPSILON),
}
KINDS: dict[str, Callable[[str], SearchStrategy[Network]]] = {
    "network": lambda dtype: training_networks(dtype=dtype),
    "large network": lambda dtype: training_networks(dtype=dtype, max_nodes=12),
    "control flow": lambda dtype: training_controlled(dtype=dtype),
    "convolutions": lambda dtype: learning_convolutions(dtype=dtype),
}
"""The strategies of `popgraph.testing`, by kind."""


@dataclass(frozen=True)
class Case:
    """A network with the way to train it."""

    network: Network
    kind: str
    optimizer: str


@dataclass(frozen=True)
class Found:
    """The outcome of a run: equal, rounding, wrong, refused or failed, with the reason."""

    outcome: str
    reason: str = ""


@lru_cache(maxsize=2)
def cases(seed: int) -> list[Case]:
    """The distinct networks of a seed: in f32 for even seeds, else in f64."""
    found: dict[str, Network] = {}
    kind = list(KINDS)[seed // 2 % len(KINDS)]

    @hypothesis.seed(seed)
    @settings(
        max_examples=BATCH,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(KINDS[kind](("f32", "f64")[seed % 2]))
    def collect(network: Network) -> None:
        found.setdefault(repr(network), network)

    collect()
    optimizers = list(OPTIMIZERS)
    return [
        Case(network, kind, optimizers[(seed + number) % len(optimizers)])
        for number, network in enumerate(found.values())
    ]


Results = Sequence[dict[str, Array]]
"""All tensors of each step."""
Trained = tuple[Results, Results]
"""By the reference, and in C."""
Errors = dict[tuple[int, str], float]
"""Relative differences by step and name of a tensor."""


class Runs:
    """A training of a network, to be run by the reference and in C."""

    def __init__(self, case: Case) -> None:
        network = case.network
        names = tuple(network.name(number, "loss") for number in network.gradients)
        training = Training("loss", OPTIMIZERS[case.optimizer], names)
        self._options = Options(training, extra_outputs=names)
        self._compilation = Compilation()
        self._module = build_network(network, self._compilation.weights, "loss")
        self.types = signature(self._module)
        lower(self._module, self._compilation, self._options, level="graphcore")

    def reference(self, inputs: dict[str, Array], after: Results = ()) -> Results:
        """
        Outputs and variables after each step, in NumPy.

        With the results of another run, each step but the first begins with its variables.
        """
        state: dict[str, Array] | None = None
        found: list[dict[str, Array]] = []
        for number in range(STEPS):
            if state is not None and after:
                state = {name: after[number - 1][f"variable {name}"] for name in state}
            outputs, state = evaluate(self._module, inputs, self._compilation.weights, state)
            found.append({**outputs, **{f"variable {name}": state[name] for name in state}})
        return found

    def compiled(self, inputs: dict[str, Array], like: Results) -> Results:
        """The same tensors, in C."""
        module = self._module.clone()
        # The training is in the graph already.
        lower(module, self._compilation, replace(self._options, training=None))
        executable = build_c(module, self._compilation.weights, threads=1)
        found = []
        for step in like:
            outputs = executable.run(inputs)
            names = [name.removeprefix("variable ") for name in step if name not in outputs]
            found.append(
                {**outputs, **{f"variable {name}": executable.read(name) for name in names}}
            )
        return found


def run(case: Case) -> Found:
    """Trains a network in C and by the reference."""
    warnings.simplefilter("ignore")
    try:
        with np.errstate(all="ignore"):
            runs = Runs(case)
            inputs = random_inputs(runs.types)
            expected = runs.reference(inputs)
            found = runs.compiled(inputs, expected)
            return compared(case, runs, inputs, (expected, found))
    except PopgraphError as error:
        return Found("refused", error.what)
    except Exception as error:  # Whatever it is, the next network is to run.
        return Found("failed", f"{type(error).__name__}: {error}")


def compared(case: Case, runs: Runs, inputs: dict[str, Array], trained: Trained) -> Found:
    """Compares tensors, and explains differences by rounding if the reference changes as much."""
    expected, found = trained
    errors = _errors(expected, found)
    bound = TOLERANCES[case.network.dtype]
    off = {name for name, error in errors.items() if error > bound}
    if not off:
        return Found("equal")
    changes = [_changes_in_f64(case, inputs, expected)] if case.network.dtype == "f32" else []
    if all(step > 0 for step, _ in off):
        # Data have many equal values, which decide in the first step and must not change there.
        numbers = np.random.default_rng(0)
        for _ in range(TRIALS):
            near = {name: _with_error(array, numbers) for name, array in inputs.items()}
            changes.append(_errors(expected, runs.reference(near)))
    left = [
        name
        for name in off
        if errors[name] > MARGIN * max((change[name] for change in changes), default=0.0)
    ]
    if left and all(step > 0 for step, _ in off):
        # A gradient that cancels is off by much for its size, and decides NaN in the next step.
        again = _errors(runs.reference(inputs, after=found), found)
        left = [name for name in left if again[name] > bound]
    step, name = worst = max(left or off, key=lambda name: errors[name])
    change = max((change[worst] for change in changes), default=0.0)
    reason = f"step {step}, {name}: {errors[worst]:.2g}; errors of the reference: {change:.2g}"
    return Found("wrong" if left else "rounding", reason)


def _changes_in_f64(case: Case, inputs: dict[str, Array], expected: Results) -> Errors:
    exact = Runs(replace(case, network=_in_f64(case.network)))
    wide = [{name: _widened(array) for name, array in step.items()} for step in expected]
    return _errors(wide, exact.reference({name: _widened(array) for name, array in inputs.items()}))


def _with_error(array: Array, numbers: np.random.Generator) -> Array:
    """The array with a random error of up to ULPS units in the last place."""
    if not np.issubdtype(array.dtype, np.floating):
        return array
    units = numbers.uniform(-ULPS, ULPS, array.shape) * np.finfo(array.dtype).eps
    return np.asarray(array * (1 + units), array.dtype)


def _widened(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype == np.float32 else array


def _in_f64(value: Any) -> Any:
    """The same network, with f64 for f32 in constants and bodies."""
    if isinstance(value, tuple):
        return tuple(map(_in_f64, value))
    if is_dataclass(value) and not isinstance(value, type):
        changed = {each.name: _in_f64(getattr(value, each.name)) for each in fields(value)}
        return replace(value, **changed)
    return "f64" if value == "f32" else value


def _errors(expected: Results, found: Results) -> Errors:
    """The relative difference of each tensor, by step and name."""
    return {
        (number, name): _error(step[name], other.get(name))
        for number, (step, other) in enumerate(zip(expected, found, strict=True))
        for name in step
    }


def _error(expected: Array, found: Array | None) -> float:
    """The largest difference, relative to the largest magnitude or to 1."""
    if found is None or (expected.shape, expected.dtype) != (found.shape, found.dtype):
        return inf
    if not np.issubdtype(expected.dtype, np.floating):
        return 0.0 if np.array_equal(expected, found) else inf
    finite = np.isfinite(expected)
    if not np.array_equal(expected[~finite], found[~finite], equal_nan=True):
        return inf
    largest = float(np.abs(expected[finite]).max(initial=1.0))
    change = np.abs(found.astype(np.float64) - expected)[finite]
    return float(change.max(initial=0.0)) / largest if np.isfinite(change).all() else inf


def run_numbered(number: int) -> Found:
    """Runs a network by its seed and its position among the networks of that seed."""
    seed, position = divmod(number, BATCH)
    return run(cases(seed)[position])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("log", type=Path)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--count", type=int, default=10_000, help="number of networks")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--limit", type=float, default=120.0, help="timeout of a network in seconds"
    )
    wished = parser.parse_args()
    done = {row["number"]: row for row in rows(wished.log)}
    wanted = islice(numbers(wished.first), wished.count)
    left = (number for number in wanted if number not in done)
    for number, found in isolated(run_numbered, left, wished.jobs, wished.limit):
        case = cases(number // BATCH)[number % BATCH]
        outcome = Found("failed", found.reason) if isinstance(found, Ended) else found
        row = {
            "number": number,
            "seed": number // BATCH,
            "dtype": case.network.dtype,
            "kind": case.kind,
            "optimizer": case.optimizer,
            "network": sha256(repr(case.network).encode()).hexdigest()[:16],
            **asdict(outcome),
        }
        with wished.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    print(report(rows(wished.log)))


def numbers(first: int) -> Iterator[int]:
    """The numbers of all networks, from a seed on."""
    for seed in count(first):
        yield from range(seed * BATCH, seed * BATCH + len(cases(seed)))


def rows(log: Path) -> list[dict[str, Any]]:
    return (
        [json.loads(line) for line in log.read_text("utf-8").splitlines()] if log.exists() else []
    )


def report(found: list[dict[str, Any]]) -> str:
    """Counts of outcomes by kind of network."""
    outcomes = ["equal", "rounding", "wrong", "refused", "failed"]
    counted: Counter[tuple[str, str]] = Counter(
        (name, row["outcome"]) for row in found for name in (row["kind"], "all")
    )
    distinct: defaultdict[str, set[str]] = defaultdict(set)
    for row in found:
        for name in (row["kind"], "all"):
            distinct[name].add(row["network"])
    table = [["kind", "runs", "distinct networks", *outcomes]]
    for kind in (*KINDS, "all"):
        counts = [counted[kind, outcome] for outcome in outcomes]
        table.append([kind, *map(str, (sum(counts), len(distinct[kind]), *counts))])
    return "\n".join("| " + " | ".join(row) + " |" for row in table)


if __name__ == "__main__":
    main()
