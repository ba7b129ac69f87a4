"""
Hashes the C of the benchmark networks, to show that a redesign does not change it.

Prints a line for each network, machine and number of threads: the hash of the program and kernels.
Nothing is compiled, and the text does not depend on this machine.

    python benchmarks/hashes.py --write before.txt       all networks, hours on one core
    python benchmarks/hashes.py --quick                  a few networks and machines, two minutes
    python benchmarks/hashes.py --against before.txt     the lines that differ; fails if any does
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import architectures
import packaged
from halved_models import HALVED
from models import CNNS, FROM_TORCH, model
from quantized_models import QUANTIZED
from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.c.build_program import units_of
from popgraph.backends.c.print.module import print_kernels
from popgraph.compiler import load, lower
from popgraph.dialects.program import WeightStore
from popgraph.passes.base import Compilation
from popgraph.passes.options import Options
from popgraph.support.cache_files import digest
from popgraph.support.errors import PopgraphError
from popgraph.support.garbage import without_collection
from popgraph.support.machine import MACHINES

INFERENCE = (
    *(*CNNS, *FROM_TORCH, *QUANTIZED, *HALVED),
    *(*packaged.PACKAGED, *architectures.ARCHITECTURES),
)
TRAINING = (
    *("mlp", "lenet", "transformer", "resnet18", "alexnet"),
    *(name for name in FROM_TORCH if name.startswith(("lstm", "gru"))),
)
NETWORKS = (
    *(f"inference/{name}" for name in INFERENCE),
    *(f"training/{name}" for name in TRAINING),
)
QUICK = (
    *("inference/squeezenet", "inference/inception_v1", "inference/efficientnet_lite0"),
    *("inference/encoder_4x256_dynamic", "inference/gru_16x64x128"),
    *("training/lenet", "training/transformer"),
)
"""Networks that together reach every kernel emitter."""
QUICK_MACHINES = ("avx2", "zen4")
DIGITS = 16
"""Printed digits of a hash."""

Task = Callable[[], tuple[ModuleOp, Compilation, Options]]
"""Loads a fresh module of a network, with its weights and options."""


class Case(NamedTuple):
    """A network on a machine."""

    network: str
    machine: str
    threads: int

    def __str__(self) -> str:
        return f"{self.network} {self.machine} x{self.threads}"


def obstacle(network: str) -> str:
    """The missing package of a network; empty if it can be built here."""
    kind, _, name = network.partition("/")
    if kind == "inference" and name in packaged.PACKAGED:
        return packaged.missing(name)
    if kind == "inference" and name in architectures.ARCHITECTURES:
        return architectures.missing(name)
    wanted = ["onnxruntime"] if name in QUANTIZED else []
    wanted += ["torch"] if kind == "training" or name not in CNNS else []
    return " ".join(f"pip install {each}" for each in wanted if find_spec(each) is None)


def task_of(network: str) -> tuple[ModuleOp, Compilation, Options]:
    """The module of a network, its weights, and whether it is trained."""
    kind, _, name = network.partition("/")
    if kind == "inference":
        module, compilation = load(model(name))
        return module, compilation, Options()
    from training import Trained  # Other networks do not need PyTorch.

    return Trained(name).task()


def hash_of(task: tuple[ModuleOp, Compilation, Options], case: Case) -> str:
    """The hash of the C of a case, or the error where lowering fails."""
    module, compilation, options = task
    chosen = replace(options, machine=MACHINES[case.machine], threads=case.threads, measured=())
    try:
        own = Compilation(WeightStore(compilation.weights))
        lowered = lower(module.clone(), own, chosen)
        units, _ = units_of(lowered, "main", print_kernels(lowered, shared=True), "")
    except PopgraphError as error:
        return f"no C: {str(error).splitlines()[0]}"
    kernels = sorted({kernel.text for unit in units for _, kernel in unit.kernels})
    return digest(*(unit.text for unit in units if not unit.kernels), *kernels)[:DIGITS]


def lines_of(network: str, machines: Sequence[str], threads: Sequence[int]) -> list[str]:
    """A line for each case of a network."""
    if why := obstacle(network):
        return [f"{network}: skipped, {why}"]
    with without_collection():
        task = task_of(network)
        cases = [Case(network, *chosen) for chosen in product(machines, threads)]
        return [f"{case}: {hash_of(task, case)}" for case in cases]


def all_lines(
    networks: Sequence[str], machines: Sequence[str], threads: Sequence[int], jobs: int
) -> Iterator[str]:
    """The lines of all networks, each in a process of its own, so that memory is freed."""
    work = partial(lines_of, machines=machines, threads=threads)
    with ProcessPoolExecutor(jobs, get_context("spawn"), max_tasks_per_child=1) as pool:
        for lines in pool.map(work, networks):
            yield from lines


def differences(before: Iterable[str], after: Iterable[str]) -> Iterator[str]:
    """The cases of both whose hashes differ."""
    known = dict(line.split(": ", 1) for line in before)
    for line in after:
        case, _, found = line.partition(": ")
        if known.get(case, found) != found:
            yield f"{case}: {known[case]} -> {found}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, metavar="KIND/NAME")
    parser.add_argument("--machines", nargs="+", choices=MACHINES)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--quick", action="store_true", help="few networks and machines")
    parser.add_argument("--write", type=Path, metavar="FILE", help="records the hashes")
    parser.add_argument("--against", type=Path, metavar="FILE", help="compares with a record")
    arguments = parser.parse_args()
    networks = arguments.networks or (QUICK if arguments.quick else NETWORKS)
    machines = arguments.machines or (QUICK_MACHINES if arguments.quick else tuple(MACHINES))
    found = []
    for line in all_lines(networks, machines, arguments.threads, arguments.jobs):
        print(line, flush=True)
        found.append(line)
    if arguments.write:
        arguments.write.parent.mkdir(parents=True, exist_ok=True)
        arguments.write.write_text("".join(f"{line}\n" for line in found))
    if arguments.against:
        changed = list(differences(arguments.against.read_text().splitlines(), found))
        sys.exit("\n".join(["C differs:", *changed]) if changed else 0)


if __name__ == "__main__":
    main()
