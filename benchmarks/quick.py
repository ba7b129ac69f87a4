"""
Reports in ten minutes whether a change makes a network or a training step 3 % slower.

The programs of this tree are compared with those of another revision. Programs that are equal to
the last byte, flags of the C compiler included, are equally fast: nothing is run. Of the others,
valgrind counts the instructions for AVX2, and processes of both revisions alternate to be timed on
this machine; the fastest of all rounds counts.

Short calls and training steps, which are mostly Python, are always timed (`calls.py`). The time of
compiling is not measured.

    python benchmarks/quick.py                 compares with HEAD, or HEAD~1 if nothing is changed
    python benchmarks/quick.py --base main     compares with another revision
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import instructions
from calls import CALLS, fastest
from chosen import one_of
from hashes import DIGITS, NETWORKS, QUICK, obstacle, task_of
from rounds import Contestant, answer_rounds
from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.c.build.compiling import library_key
from popgraph.backends.c.build_program import units_of
from popgraph.backends.c.emit import emit
from popgraph.backends.c.print.module import print_kernels
from popgraph.backends.registry import DEFAULT, backend_named
from popgraph.compiler import build, lower
from popgraph.dialects.program import WeightStore
from popgraph.measure import timing
from popgraph.passes.base import Compilation
from popgraph.passes.options import Options
from popgraph.support.garbage import without_collection
from popgraph.support.machine import TARGETS
from popgraph.support.tables import markdown_row, markdown_table
from popgraph.support.writing import write_files

ROOT = Path(__file__).parent.parent
LIMIT = 1.03
ROUNDS, MOST_ROUNDS = 5, 20
"""Rounds that are always run, and at most, while a network looks slower than it was."""
SECONDS = 0.3
"""Seconds of a network in a round."""
COUNTED, TIMED = "avx2", "here"
"""The machines of a program: instructions are counted for one, and times are of the other."""
HASH, COUNT, RACE = "hash", "count", "race"


@dataclass(frozen=True)
class Row:
    """A network: whether its programs changed, and ratios of this tree to the base."""

    network: str
    changed: tuple[str, ...]
    """The machines whose programs differ."""
    instructions: float | None = None
    time: float | None = None
    skipped: str = ""

    @property
    def is_slower(self) -> bool:
        return any(one is not None and one > LIMIT for one in (self.instructions, self.time))

    @property
    def cells(self) -> list[str]:
        if self.skipped:
            return [self.network, f"skipped: {self.skipped}", "", "", ""]
        ratios = ["-" if one is None else f"{one:.3f}" for one in (self.instructions, self.time)]
        changed = ", ".join(self.changed) or "-"
        return [self.network, changed, *ratios, "**slower**" if self.is_slower else ""]


HEADING = ("network", "program changed", "instructions / base", "time / base", "")


def lowered(network: str, machine: str) -> tuple[ModuleOp, Compilation]:
    """The program of a network for one thread, and its weights."""
    module, compilation, options = task_of(network)
    own = Compilation(WeightStore(compilation.weights))
    return lower(module, own, options_for(options, machine)), own


def options_for(options: Options, machine: str) -> Options:
    """The options for a machine, whatever was measured on this one."""
    target = TARGETS[COUNTED] if machine == COUNTED else backend_named(DEFAULT).machine()
    return replace(options, machine=target, threads=1, measured=())


def key_of(network: str, machine: str) -> str:
    """A hash of the program of a network, and of all that its compilation depends on."""
    with without_collection():
        module, _ = lowered(network, machine)
        units, _ = units_of(module, "main", print_kernels(module, shared=True), "")
    return library_key(units)[:DIGITS]


def count_of(network: str) -> int:
    """The processor's instructions in a run of a network."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / instructions.C).mkdir()
        module, compilation = lowered(network, COUNTED)
        files = emit(module, compilation.weights, threads=1)
        write_files([(folder / instructions.C / name, parts) for name, parts in files.items()])
        return instructions.counted(folder)


def contestant(network: str) -> timing.Contestant:
    """A run of a network, with random inputs."""
    module, compilation, options = task_of(network)
    program = build(module, compilation, options_for(options, TIMED))
    inputs = timing.random_model_inputs(program.inputs)
    return timing.Contestant(network, lambda: program.run(inputs))


def race(networks: Sequence[str], folder: Path) -> None:
    """The process of a revision: times all networks in each round."""
    timing.pin(1)
    measured = {one: CALLS[one]() if one in CALLS else fastest(contestant(one)) for one in networks}

    def work() -> dict[str, Any]:
        return {name: measure(SECONDS) for name, measure in measured.items()}

    answer_rounds(folder, True, {}, work)


def command(task: str, networks: Sequence[str]) -> list[str]:
    return [sys.executable, __file__, "--task", task, "--networks", *networks]


def environment(tree: Path, target: str = "") -> dict[str, str]:
    """The environment of a process with the package of a tree."""
    own = {**os.environ, "PYTHONPATH": str(tree)}
    return {**own, "POPGRAPH_TARGET": target} if target else own


def asked(task: str, networks: Sequence[str], trees: Sequence[Path]) -> list[dict[str, Any]]:
    """The answers of a process for each tree; they run at the same time."""
    target = COUNTED if task == COUNT else ""
    running = [
        subprocess.Popen(
            command(task, networks), env=environment(tree, target), stdout=subprocess.PIPE
        )
        for tree in trees
    ]
    said = [one.communicate()[0] for one in running]
    if any(one.returncode for one in running):
        raise SystemExit(f"a revision cannot {task} its programs: its error is above")
    return [json.loads(one) for one in said]


def times(networks: Sequence[str], trees: Sequence[Path], folder: Path) -> dict[str, float]:
    """The ratio of the fastest runs of both trees, in alternating rounds."""
    running: list[Contestant] = []
    best: list[dict[str, float]] = [{}, {}]
    try:
        for at, tree in enumerate(trees):
            commands = [(command(RACE, networks), environment(tree))]
            running.append(Contestant(str(tree), folder / f"race-{at}", commands))
        for number in range(MOST_ROUNDS):
            for known, one in zip(best, running, strict=True):
                for name, seconds in one.round().items():
                    known[name] = min(seconds, known.get(name, seconds))
            found = ratios(*best)
            if number + 1 >= ROUNDS and all(ratio <= LIMIT for ratio in found.values()):
                break
    finally:
        for one in running:
            one.end()
    return found


def ratios(base: Mapping[str, float], own: Mapping[str, float]) -> dict[str, float]:
    return {name: own[name] / base[name] for name in own}


def compared(networks: Sequence[str], base: Path, folder: Path) -> Iterator[Row]:
    """The rows of all networks: this tree and that of the base."""
    trees = (base, ROOT)
    present = [one for one in networks if not obstacle(one)]
    before, after = asked(HASH, present, trees)
    changed = {
        one: tuple(m for m in (COUNTED, TIMED) if before[one][m] != after[one][m])
        for one in present
    }
    counting = [one for one in present if COUNTED in changed[one] and not instructions.obstacle()]
    timed = [one for one in present if TIMED in changed[one]]
    counts = ratios(*asked(COUNT, counting, trees)) if counting else {}
    taken = times(timed, trees, folder) if timed else {}
    for one in networks:
        if one in present:
            yield Row(one, changed[one], counts.get(one), taken.get(one))
        else:
            yield Row(one, (), skipped=obstacle(one))


def timed_calls(trees: Sequence[Path], folder: Path) -> Iterator[Row]:
    """The rows of short calls."""
    for name, ratio in times(list(CALLS), trees, folder).items():
        yield Row(f"call/{name}", (), time=ratio)


def git(*arguments: str) -> bytes:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"git {arguments[0]}: {done.stderr.decode().strip()}")
    return done.stdout


def default_base() -> str:
    """HEAD, or the commit before it if no tracked file is changed."""
    return "HEAD" if git("status", "--porcelain", "--untracked-files=no") else "HEAD~1"


def unpacked(revision: str, folder: Path) -> Path:
    """The package of a revision, in a folder."""
    with tarfile.open(fileobj=io.BytesIO(git("archive", revision, "popgraph"))) as archive:
        archive.extractall(folder, filter="data")
    return folder


def work(task: str, networks: Sequence[str], folder: Path) -> None:
    """A process of one revision."""
    if task == RACE:
        race(networks, folder)
    elif task == COUNT:
        print(json.dumps({one: count_of(one) for one in networks}))
    else:
        machines = (COUNTED, TIMED)
        print(json.dumps({one: {m: key_of(one, m) for m in machines} for one in networks}))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base", metavar="REVISION", help="HEAD or HEAD~1 if not given")
    known = one_of("network", NETWORKS)
    parser.add_argument("--networks", nargs="+", type=known, default=QUICK, metavar="KIND/NAME")
    parser.add_argument("--task", choices=(HASH, COUNT, RACE), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.task:
        work(arguments.task, arguments.networks, arguments.folder)
        return
    base = arguments.base or default_base()
    revision = git("rev-parse", "--verify", f"{base}^{{commit}}").decode().strip()
    if why := instructions.obstacle():
        print(f"Instructions are not counted: {why}.\n")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        tree, others = unpacked(revision, folder / "base"), folder / "calls"
        others.mkdir()
        rows = list(compared(arguments.networks, tree, folder))
        rows += timed_calls((tree, ROOT), others)
    print(f"This tree beside {base} ({revision[:10]}), 1 thread\n")
    print(markdown_table(HEADING, [], "  rr "))
    print(*(markdown_row(row.cells) for row in rows), sep="\n")
    slower = [row.network for row in rows if row.is_slower]
    sys.exit(f"\nmore than {LIMIT - 1:.0%} slower: {', '.join(slower)}" if slower else 0)


if __name__ == "__main__":
    main()
