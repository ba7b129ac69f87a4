"""
Measures the first answer, or the first training step, of networks of the zoo with an empty cache.

Prints the seconds by phase: wall-clock time, and processor time here and in the C compiler. Each
case runs in two processes of its own: the first one writes Python's bytecode, as an installation
does.

    python benchmarks/cold.py                               MobileNetV2, ResNet-50 and UNet
    python benchmarks/cold.py resnet18 --inference --quick  the quick program of an answer
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spent import Spent, spent

if TYPE_CHECKING:
    from popgraph.backends.c.print.unit import Unit

NETWORKS = ("mobilenet_v2", "resnet50", "unet")
PHASES = ("import", "passes", "C compiler", "rest")


def phases(name: str, train: bool, quick: bool, size: int, rows: int) -> dict[str, Spent]:
    """The cost of each phase in this process."""
    found: dict[str, Spent] = {}

    def imported() -> None:
        from popgraph.support.garbage import while_importing

        with while_importing():  # As `popgraph.compile` and `popgraph.train` do.
            import popgraph.compiler

            if train:
                import popgraph.training.trainer  # noqa: F401

    found["import"] = spent(imported)
    from popgraph.backends.c import build_program
    from popgraph.backends.c.build import compiling

    library = compiling.library

    compiled: list[Spent] = []

    def measured(units: Sequence[Unit], more: Sequence[str] = (), **given: Any) -> Path:
        made: list[Path] = []
        compiled.append(spent(lambda: made.append(library(units, more, **given))))
        return made[0]

    vars(build_program)["library"] = measured  # `build_program` calls it by this name.
    again: list[Callable[[], object]] = []
    whole = spent(lambda: again.append(answer(name, train, quick, size, rows)))
    compiler, run = reduce(added, compiled), spent(again[0])
    passes = less(less(whole, compiler), run)
    return found | {"passes": passes, "C compiler": compiler, "rest": run}


def answer(name: str, train: bool, quick: bool, size: int, rows: int) -> Callable[[], object]:
    """Compiles a network and runs it; the result runs it again."""
    import numpy as np

    from popgraph import zoo
    from popgraph.background import Deferred
    from popgraph.start import compiled

    draw = np.random.default_rng(0)
    x = draw.standard_normal((rows, 3, size, size)).astype(np.float32)
    model = zoo.load(name)
    labels = draw.integers(0, 2, (rows, size, size) if name == "unet" else rows)

    if train:
        from popgraph.training.trainer import Trainer

        trainer = Trainer(model, "cross_entropy", "SGD(0.01)", quick=quick)

        def step() -> None:
            trainer.fit((x, labels), epochs=1, batch=rows)

        step()
        return step
    run = compiled(model, 1, "c", None, None, Deferred() if quick else None, {})
    (given,) = run.inputs
    run({given: x})
    return lambda: run({given: x})


def added(one: Spent, other: Spent) -> Spent:
    """The sum of two costs."""
    return _each(one, other, 1)


def less(one: Spent, other: Spent) -> Spent:
    """The difference of two costs."""
    return _each(one, other, -1)


def _each(one: Spent, other: Spent, sign: int) -> Spent:
    return {
        "wall": one["wall"] + sign * other["wall"],
        "own_cpu": one["own_cpu"] + sign * other["own_cpu"],
        "compiler_cpu": one["compiler_cpu"] + sign * other["compiler_cpu"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("networks", nargs="*", default=NETWORKS)
    parser.add_argument("--inference", action="store_true", help="an answer, not a training step")
    parser.add_argument("--quick", action="store_true", help="the quick program")
    parser.add_argument("--size", type=int, default=224, help="height and width of images")
    parser.add_argument("--rows", type=int, default=4, help="images in a batch")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        how = (not given.inference, given.quick, given.size, given.rows)
        print(json.dumps(phases(given.networks[0], *how)))
        return
    from popgraph import zoo  # A child measures this import.
    from popgraph.support.errors import PopgraphError

    for name in given.networks:
        try:
            zoo.entry(name)
        except PopgraphError as error:
            parser.error(str(error))
    print(f"{'network':15}{'phase':12}{'wall':>8}{'own CPU':>10}{'compiler CPU':>14}")
    for name in given.networks:
        others = [one for one in sys.argv[1:] if one not in given.networks]
        with tempfile.TemporaryDirectory() as bytecode:
            _, found = (_measured([name, *others], bytecode) for _ in range(2))
        for phase in PHASES:
            _print_row(name, phase, found[phase])
        _print_row(name, "total", reduce(added, found.values()))


def _measured(arguments: Sequence[str], bytecode: str) -> dict[str, Spent]:
    """The cost of each phase in another process with an empty cache."""
    with tempfile.TemporaryDirectory() as cache:
        folders = {"POPGRAPH_CACHE_DIR": cache, "PYTHONPYCACHEPREFIX": bytecode}
        done = subprocess.run(
            [sys.executable, __file__, *arguments, "--child"],
            # Python reads an empty variable as an absent one.
            env={**os.environ, **folders, "PYTHONDONTWRITEBYTECODE": ""},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
    if done.returncode:
        raise SystemExit(f"{arguments[0]}: no measurement; its error is above")
    found: dict[str, Spent] = json.loads(done.stdout.splitlines()[-1])
    return found


def _print_row(name: str, phase: str, cost: Spent) -> None:
    print(
        f"{name:15}{phase:12}{cost['wall']:8.2f}{cost['own_cpu']:10.2f}{cost['compiler_cpu']:14.2f}"
    )


if __name__ == "__main__":
    main()
