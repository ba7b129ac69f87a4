"""Checkpoints: one file with everything that training needs to resume bit for bit."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from popgraph.support.arrays import Array
from popgraph.support.errors import RunError
from popgraph.support.reading import Missing, Unreadable, reading
from popgraph.support.safetensors import as_type, read_all, safetensors
from popgraph.support.writing import remove_orphans_of, write_file
from popgraph.training.best import BestEpoch
from popgraph.training.diagnosis import non_finite
from popgraph.training.history import History, Row
from popgraph.training.programs import TrainingSteps
from popgraph.training.progress import Progress
from popgraph.training.samples import Batch
from popgraph.training.totals import Totals

FORMAT = 1
KEY = "popgraph.training"
"""Metadata key of the JSON that holds everything except arrays."""
INTEGER_COLUMNS = frozenset(["epoch", "step"])
"""Columns of integers."""

Facts = Mapping[str, str]
"""Settings that must match for training to resume: user-visible name -> description."""


@dataclass
class TrainingState:
    """The state of training between two steps."""

    steps: TrainingSteps
    progress: Progress
    totals: Totals
    best: BestEpoch | None
    facts: Facts
    """Descriptions of the optimizer and the data."""
    weights: Callable[[], Mapping[str, Array]]
    """Reads the current weights of the model."""
    batch: Batch = field(default_factory=dict)
    """The inputs of the last step."""


def save(path: Path, state: TrainingState) -> None:
    """Writes a checkpoint atomically."""
    progress, totals, best = state.progress, state.totals, state.best
    variables = state.steps.read()
    _check_finite(variables, state)
    arrays = {f"variable/{name}": array for name, array in variables.items()}
    arrays |= {f"count/{name}": array for name, array in totals.counts.items()}
    arrays |= {f"step/{name}": array for name, array in _columns(progress.history.steps).items()}
    metadata: dict[str, Any] = {
        "format": FORMAT,
        "facts": dict(state.facts),
        "step": state.steps.driver.steps,
        "epochs": progress.history.epochs,
        "samples": totals.samples,
        "sums": totals.sums,
        "best": None,
    }
    numbers = {name: value for name, value in asdict(progress).items() if name != "history"}
    metadata["progress"] = numbers
    if best is not None:
        arrays |= {f"best/{name}": array for name, array in best.weights.items()}
        metadata["best"] = {"value": best.value, "epoch": best.epoch, "waited": best.waited}
    write_file(path, safetensors(arrays, {KEY: json.dumps(metadata)}))


def _check_finite(variables: Mapping[str, Array], state: TrainingState) -> None:
    """Keeps the previous checkpoint if training could not continue from this one."""
    for name in non_finite(variables):
        raise RunError(
            f"{name!r} is not finite after step {state.steps.driver.steps}",
            "training",
            "reduce the learning rate or check the data; the previous checkpoint is unaffected",
        )


def load(path: Path, state: TrainingState) -> None:
    """Restores training from a checkpoint; RunError if the checkpoint does not fit."""
    remove_orphans_of(path)
    try:
        metadata, arrays = _read(path)
        _check_facts(path, metadata["facts"], state.facts)
        variables = _checked_variables(path, arrays.get("variable", {}), state.steps)
        with reading("it is damaged"):
            _restore(metadata, arrays, state)
        state.steps.write(variables)
    except Unreadable as error:
        hint = "the first run has none" if isinstance(error, Missing) else "an earlier checkpoint"
        raise RunError(f"the checkpoint cannot be read: {error}", str(path), hint) from error


def _read(path: Path) -> tuple[dict[str, Any], dict[str, dict[str, Array]]]:
    """The JSON part of a checkpoint, and its arrays by kind and name."""
    kept, metadata = read_all(path)
    with reading("it is not a training checkpoint"):
        found: dict[str, Any] = json.loads(metadata[KEY])
        is_ours = isinstance(found["facts"], dict)
    if found.get("format") != FORMAT or not is_ours:
        raise Unreadable(f"it has format {found.get('format')}, and this version reads {FORMAT}")
    arrays: dict[str, dict[str, Array]] = {}
    for key, array in kept.items():
        kind, _, name = key.partition("/")
        arrays.setdefault(kind, {})[name] = np.array(array)
    return found, arrays


def _restore(
    metadata: dict[str, Any], arrays: dict[str, dict[str, Array]], state: TrainingState
) -> None:
    steps, totals, progress = state.steps, state.totals, state.progress
    steps.driver.steps = metadata["step"]
    totals.samples, totals.sums = metadata["samples"], dict(metadata["sums"])
    totals.counts = {name: np.array(array) for name, array in arrays.get("count", {}).items()}
    for name, number in metadata["progress"].items():
        setattr(progress, name, number)
    progress.history = History(metadata["epochs"], _rows(arrays.get("step", {})))
    if state.best is not None and metadata["best"] is not None:
        state.best.value = metadata["best"]["value"]
        state.best.epoch, state.best.waited = metadata["best"]["epoch"], metadata["best"]["waited"]
        state.best.weights = {
            name: typed
            for name, array in arrays.get("best", {}).items()
            if (typed := _typed(array, steps.executable.variables[name])) is not None
        }


def _check_facts(path: Path, then: Facts, now: Facts) -> None:
    for name, text in now.items():
        if then.get(name) != text:
            raise RunError(
                f"the checkpoint differs in {name}: {then.get(name)}, not {text}",
                str(path),
                "use the original value, or start without `resume` and with another file",
            )


def _checked_variables(
    path: Path, found: Mapping[str, Array], steps: TrainingSteps
) -> dict[str, Array]:
    """Converts the variables to the program's types; RunError if they are of another model."""
    wanted = steps.executable.variables
    fitting = {
        name: typed
        for name, signature in wanted.items()
        if name in found and (typed := _typed(found[name], signature)) is not None
    }
    unexpected = sorted(wanted.keys() - fitting.keys()) + sorted(found.keys() - wanted.keys())
    if unexpected:
        raise RunError(
            f"the checkpoint is of another model or optimizer: {unexpected[0]!r} differs",
            str(path),
            "use the original model and optimizer",
        )
    return fitting


def _typed(array: Array, signature: Any) -> Array | None:
    dtype, shape = signature
    return as_type(array, dtype.numpy, tuple(shape))


def _columns(rows: list[Row]) -> dict[str, Array]:
    """The history of steps as one array a column: as text, a million rows would be too large."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {name: np.array([row.get(name, np.nan) for row in rows]) for name in names}


def _rows(columns: Mapping[str, Array]) -> list[Row]:
    names = [name for name in ("step", "epoch") if name in columns]
    names += [name for name in columns if name not in names]
    values = [
        [int(one) for one in columns[name]] if name in INTEGER_COLUMNS else columns[name].tolist()
        for name in names
    ]
    return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]


_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|h)")
_SECONDS = {"s": 1, "min": 60, "h": 3600}


@dataclass
class CheckpointWriter:
    """Writes checkpoints when they are due: after some steps or seconds, or after each epoch."""

    path: Path
    steps: int | None = None
    seconds: float | None = None
    _last: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, path: str | Path, every: int | str | None) -> CheckpointWriter:
        match every:
            case None:
                return cls(Path(path))
            case int() if every > 0:
                return cls(Path(path), steps=every)
            case str() if found := _TIME.fullmatch(every.strip()):
                return cls(Path(path), seconds=float(found[1]) * _SECONDS[found[2]])
        raise RunError(
            f"invalid checkpoint interval {every!r}",
            "every",
            "a positive number of steps, or a time: 30s, 5min, 1h",
        )

    def is_due(self, steps: int) -> bool:
        """Whether a checkpoint is due after this number of steps."""
        waited = time.monotonic() - self._last
        by_steps = self.steps is not None and steps % self.steps == 0
        return by_steps or (self.seconds is not None and waited >= self.seconds)

    @property
    def is_by_epoch(self) -> bool:
        """Whether a checkpoint is due after each epoch."""
        return self.steps is None and self.seconds is None

    def write(self, state: TrainingState) -> None:
        save(self.path, state)
        self._last = time.monotonic()
