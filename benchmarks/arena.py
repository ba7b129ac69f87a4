"""
Benchmarks SmolLM2-135M with random weights in every runtime that is installed, as JSON.

The tasks are those of the Inference Arena: a pass over 128 tokens, one more token, and a step of
training. Each contestant is a process of its own; they alternate, and sleep while another is timed.
All get the same weights, and no figure counts unless the results agree.

    python benchmarks arena --threads 1 2           the table
    python benchmarks arena --write                 and into docs/performance.md
    python benchmarks/arena.py --players popgraph JAX --tasks step    some of it, as JSON
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from arena_players import (
    CONTEXT,
    FORWARD,
    PLAYERS,
    STEP,
    TASKS,
    TOKEN,
    LlamaCpp,
    OnnxRuntime,
    Player,
)
from energy import Meter
from rounds import Contestant, answer_rounds
from smollm import Shape

from popgraph.measure.timing import at_least, pin
from popgraph.support.arrays import Array

NAME = "smollm2_135m"
PROMPT, TOKENS = 16, 32
"""Tokens of the prompt, and tokens after it that are timed."""
LOSSES = 3
"""Steps whose losses are compared."""
TOLERANCE = 1e-3
"""The largest difference from the median of all contestants, relative to the largest result."""


@dataclass(frozen=True)
class Job:
    """A task of a contestant."""

    result: Callable[[], Array]
    """Runs for the first time; the contestants' results are compared."""
    run: Callable[[], object]
    prepare: Callable[[], object] = lambda: None
    """Runs before each `run`, untimed."""
    count: int = 1
    """Tokens or steps in a run."""


def forward(player: Player) -> Job:
    run = player.forward()
    return Job(lambda: np.array(run()), run)


def token(player: Player) -> Job:
    decoder = player.decoder()
    tokens = [7 * at % player.shape.vocabulary for at in range(PROMPT + TOKENS)]

    def prepare() -> None:
        decoder.reset()
        decoder.feed(tokens[:PROMPT])

    def run() -> list[Any]:
        return [decoder.feed([one]) for one in tokens[PROMPT:]]

    def result() -> Array:
        prepare()
        return np.stack([np.array(decoder.feed([one])) for one in tokens[PROMPT:]])

    return Job(result, run, prepare, TOKENS)


def step(player: Player) -> Job:
    run = player.step()
    return Job(lambda: np.array([run() for _ in range(LOSSES)]), run)


JOBS = {FORWARD: forward, TOKEN: token, STEP: step}
assert PROMPT + TOKENS <= CONTEXT and (*JOBS,) == TASKS


def round_of(job: Job, threads: int, seconds: float) -> dict[str, float | None]:
    """The fastest run of a round in seconds, and the mean energy of a run in joules."""
    clock = time.perf_counter if threads > 1 else time.process_time
    meter = Meter()
    best, joules, runs = np.inf, 0.0, 0
    for _ in at_least(1, seconds):
        job.prepare()
        before = meter.read()
        start = clock()
        job.run()
        best = min(best, clock() - start)
        joules += meter.joules(before, meter.read())
        runs += 1
    return {
        "seconds": best / job.count,
        "joules": None if meter.obstacle else joules / runs / job.count,
    }


def work(arguments: argparse.Namespace) -> None:
    """The process of a contestant."""
    pin(arguments.threads)
    kind = next(one for one in PLAYERS if one.title == arguments.work)
    folder, start = arguments.folder, time.perf_counter()
    shape = Shape(**json.loads(arguments.shape))
    try:
        job = JOBS[arguments.tasks[0]](kind(arguments.model, shape, arguments.threads))
        np.save(folder / "result.npy", job.result())
    except Exception as error:  # A row says so; the others are measured.
        why = str(error).strip().partition("\n")[0]
        failed = {"refused": f"{type(error).__name__}: {why}"}
        answer_rounds(folder, True, failed, dict)
        return
    ready = {"first_s": time.perf_counter() - start}
    answer_rounds(
        folder, True, ready, lambda: dict(round_of(job, arguments.threads, arguments.seconds))
    )


def started(
    kind: type[Player], task: str, folder: Path, shape: Shape, arguments: argparse.Namespace
) -> Contestant:
    """The process of a contestant with empty caches, after its first result."""
    own = folder / f"{task}-{kind.title.replace(' ', '-')}"
    command = [sys.executable, __file__, "--work", kind.title, "--tasks", task]
    command += ["--model", str(folder / "model"), "--shape", json.dumps(asdict(shape))]
    command += ["--threads", str(arguments.threads)]
    command += ["--seconds", str(arguments.seconds / arguments.rounds)]
    caches = {
        name: str(folder / f"caches-{own.name}" / name)
        for name in ("POPGRAPH_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
    }
    threads = {"OMP_NUM_THREADS": str(arguments.threads)}
    return Contestant(kind.title, own, [(command, {**os.environ, **caches, **threads})])


def contest(
    task: str,
    kinds: Sequence[type[Player]],
    folder: Path,
    shape: Shape,
    arguments: argparse.Namespace,
) -> dict[str, dict[str, Any]]:
    """{contestant: its figures in a task, and its difference from the others}."""
    running: list[Contestant] = []
    found: dict[str, dict[str, Any]] = {}
    results: dict[str, Array] = {}
    try:
        for kind in kinds:
            running.append(started(kind, task, folder, shape, arguments))
        racing = [one for one in running if "refused" not in one.ready]
        rounds = [[one.round() for one in racing] for _ in range(arguments.rounds)]
        for at, one in enumerate(racing):
            best = min((each[at] for each in rounds), key=lambda figures: figures["seconds"])
            found[one.name] = {**one.ready, **best}
            results[one.name] = np.load(one.folder / "result.npy")
        found |= {one.name: one.ready for one in running if one not in racing}
    finally:
        for one in running:
            one.end()
    for name, difference in differences(results).items():
        found[name]["differs_by"] = difference
        found[name]["verdict"] = verdict(len(results), difference)
    return found


def verdict(results: int, difference: float) -> str:
    """The reason why figures do not count; "" if they do."""
    if results < 2:
        return "unchecked"
    return "" if difference <= TOLERANCE else "wrong"


def differences(results: Mapping[str, Array]) -> dict[str, float]:
    """
    The largest difference of each result from the median of all, relative to its largest element.

    A result with NaN differs by NaN; the others are compared without it.
    """
    if not results:
        return {}
    median = np.nanmedian(np.stack(list(results.values())), axis=0)
    largest = np.abs(median).max()
    return {name: float(np.abs(one - median).max() / largest) for name, one in results.items()}


def write_model(shape: Shape, kinds: Sequence[type[Player]], folder: Path) -> None:
    """Writes the model in the formats of the contestants."""
    # Imported here, so that the processes of contestants start without the compiler.
    from smollm_files import write_folder, write_gguf, write_onnx

    folder.mkdir()
    write_folder(shape, folder)
    if OnnxRuntime in kinds:
        write_onnx(folder)
    if LlamaCpp in kinds:
        write_gguf(shape, folder)


def measure(shape: Shape, arguments: argparse.Namespace) -> dict[str, Any]:
    """All tasks of all contestants."""
    chosen = [one for one in PLAYERS if one.title in arguments.players]
    present = [one for one in chosen if not one.missing()]
    tasks: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write_model(shape, present, folder / "model")
        for task in arguments.tasks:
            kinds = [one for one in present if task in one.tasks]
            tasks[task] = contest(task, kinds, folder, shape, arguments)
    return {
        "model": NAME,
        "threads": arguments.threads,
        "energy": Meter().obstacle,
        "rows": [
            {
                "name": one.title,
                "how": one.how,
                "version": one.version() if one in present else "",
                "skipped": one.missing(),
                "tasks": {
                    task: found[one.title] for task, found in tasks.items() if one.title in found
                },
            }
            for one in chosen
        ],
    }


def cells(found: Mapping[str, Any]) -> Iterator[str]:
    """A contestant's cells of the table; `-` for a task that it does not have."""
    tasks = found["tasks"]
    yield from (figure(tasks.get(task), "seconds", 1e3, 2) for task in TASKS)
    yield from (figure(tasks.get(task), "first_s", 1, 1) for task in (FORWARD, STEP))
    yield from (figure(tasks.get(task), "joules", 1, 2) for task in TASKS)
    yield from (difference(tasks.get(task)) for task in TASKS)


def figure(task: Mapping[str, Any] | None, key: str, scale: float, digits: int) -> str:
    """A figure of a task, or the reason why it does not count in place of the time."""
    if task is None:
        return "-"
    if why := "refused" if "refused" in task else task["verdict"]:
        return why if key == "seconds" else "-"
    return "-" if task[key] is None else f"{task[key] * scale:.{digits}f}"


def difference(task: Mapping[str, Any] | None) -> str:
    return f"{task['differs_by']:.1e}" if task and "differs_by" in task else "-"


COLUMNS = (
    *("runtime", "128 tokens ms", "a token ms", "a step ms"),
    *("first pass s", "first step s", "J for 128 tokens", "J a token", "J a step"),
    *("logits differ by", "tokens' logits", "losses differ by"),
)


def notes(found: Mapping[str, Any]) -> Iterator[str]:
    """Lines after the tables: versions, settings and refusals, and why energy is missing."""
    for row in found.get("rows", []):
        if row["skipped"]:
            continue
        yield f"- {row['name']} {row['version']}: {row['how']}."
        for task, one in row["tasks"].items():
            if "refused" in one:
                yield f"- {row['name']} refuses the task `{task}`: {one['refused']}."
    if found.get("energy"):
        yield f"- Joules are missing: {found['energy']}."


def main() -> None:
    titles = [one.title for one in PLAYERS]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="?", choices=[NAME], default=NAME)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=15, help="of a contestant in a task")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--players", nargs="+", choices=titles, default=titles, metavar="NAME")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--shape", default="{}", help="other numbers than SmolLM2's, as JSON")
    parser.add_argument("--work", choices=titles, help=argparse.SUPPRESS)
    parser.add_argument("--model", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(arguments)
    else:
        print(json.dumps(measure(Shape(**json.loads(arguments.shape)), arguments)))


if __name__ == "__main__":
    main()
