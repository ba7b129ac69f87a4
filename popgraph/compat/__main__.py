"""
Runs a PopART program unchanged, as Python itself would run it.

    python -m popgraph.compat [--era ERA] script.py [arguments]
    python -m popgraph.compat [--era ERA] -m module [arguments]
    python -m popgraph.compat [--era ERA] -c "code" [arguments]
    mpirun -n 4 python -m popgraph.compat --mpi [--era ERA] script.py [arguments]
    python -m popgraph.compat --load [LIBRARY.so=]operators.py [--era ERA] script.py [arguments]

ERA is 2018-12, 2019-03, 2019-07 (PopONNX), 2020-05 (PopART) or last. Without it, the names tell
that the program and the modules beside it use, or the files that a module is given and what they
import: `-m pytest test_it.py`. Python processes that the program starts find PopGraph, too.

--load runs a file first, or imports a module, that says in Python what the operators of a C++
library of the program mean (docs/extend.md). With LIBRARY.so= it stands for the library of that
file name: where the program loads it (`ctypes.cdll.LoadLibrary`), nothing more is loaded.

With --mpi, ranks share out the replicas of each session of the program (replicatedGraphCount: a
multiple of the number of ranks), or the virtual graphs of a pipeline; all ranks see all anchors,
the first one prints and writes models. Sessions with neither run whole on every rank. A program
that uses popdist, or sets enableDistributedReplicatedGraphs itself, needs no --mpi: every rank has
data of its own.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from popgraph.compat import enable
from popgraph.compat.children import announce, era_told, texts_of_module
from popgraph.compat.libraries import load_operators
from popgraph.compat.sources import texts_of
from popgraph.engine.shares import split_steps
from popgraph.popart.exceptions import popart_exception
from popgraph.support.errors import ExtensionError
from popgraph.support.ranks.communicator import RankError

USAGE = (__doc__ or "").strip()


def main() -> None:
    match sys.argv[1:]:
        case ["--mpi", *rest]:
            _on_ranks(rest)
        case rest:
            _in_era(rest)


def _on_ranks(arguments: list[str]) -> None:
    """Ranks share out replicas, and the first one speaks for all."""
    from popgraph.support.ranks.world import ending_together

    try:
        split_steps()
    except RankError as error:
        sys.exit(str(error))
    with ending_together():
        _in_era(arguments)


def _in_era(arguments: list[str]) -> None:
    match arguments:
        case ["--load", asked, *rest]:
            _load(asked)
            _in_era(rest)
        case ["--era", era, *rest]:
            _run(rest, era)
        case rest:
            _run(rest, None)


def _load(asked: str) -> None:
    """A file or module that says what operators of the program mean."""
    try:
        load_operators(asked)
    except ExtensionError as error:
        sys.exit(str(error))


def _run(program: list[str], era: str | None) -> None:
    """Runs what the command line names, with PopART as it was in an era."""
    match program:
        case ["-h" | "--help", *_]:
            print(USAGE)
        case ["-m", module, *arguments]:
            _begin(module, arguments, os.getcwd())
            found = find_spec(module)
            if found is None:
                sys.exit(f"there is no module {module}")
            _enable(era, texts_of_module(found.origin or "", arguments))
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case ["-c", code, *arguments]:
            _begin("-c", arguments, "")
            _enable(era, [code])
            exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
        case [script, *arguments] if not script.startswith("-"):
            if not Path(script).is_file():
                sys.exit(f"there is no file {script}")
            _begin(script, arguments, str(Path(script).resolve().parent))
            _enable(era, texts_of([Path(script)], []))
            runpy.run_path(script, run_name="__main__")
        case _:
            sys.exit(USAGE)


def _begin(program: str, arguments: list[str], folder: str) -> None:
    """What a program sees: its arguments and the modules beside it."""
    sys.argv = [program, *arguments]
    sys.path.insert(0, folder)


def _enable(era: str | None, texts: Iterable[str]) -> None:
    """PopART as it was in the era asked for, or in the first whose names the program uses."""
    told = era_told(texts) if era is None else None
    try:
        enable(era or told)
    except popart_exception as error:
        sys.exit(str(error))
    announce(era, told)


if __name__ == "__main__":
    main()
