"""
Runs a PopART program unchanged, as Python itself would run it.

    python -m popgraph.compat [--era ERA] script.py [arguments]
    python -m popgraph.compat [--era ERA] -m module [arguments]
    python -m popgraph.compat [--era ERA] -c "code" [arguments]
    mpirun -n 4 python -m popgraph.compat --mpi [--era ERA] script.py [arguments]
    python -m popgraph.compat --load [LIBRARY.so=]operators.py [--era ERA] script.py [arguments]

ERA is 2018-12, 2019-03, 2019-07 (PopONNX), 2020-05 (PopART) or last. By default, it is the first
era that has the names used by the program and the modules beside it, or by the files that a module
gets as arguments and their imports (`-m pytest test_it.py`). Python processes that the program
starts use PopGraph, too.

--load first runs a file, or imports a module, that defines the operators of a C++ library of the
program in Python (docs/extend.md). With LIBRARY.so= it replaces the library of that file name:
when the program loads it (`ctypes.cdll.LoadLibrary`), nothing else is loaded.

With --mpi, ranks share out the replicas of each session of the program (replicatedGraphCount: a
multiple of the number of ranks), or the virtual graphs of a pipeline. All ranks see all anchors;
the first one prints and writes models. Sessions with neither run completely on every rank. A
program that uses popdist, or sets enableDistributedReplicatedGraphs itself, needs no --mpi: every
rank has data of its own.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from popgraph.compat import enable
from popgraph.compat.children import announce, era_in_texts, texts_of_module
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
    """Runs a program whose replicas are split among the ranks; the first rank prints."""
    from popgraph.support.ranks.world import ending_all_ranks

    try:
        split_steps()
    except RankError as error:
        sys.exit(str(error))
    with ending_all_ranks():
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
    """Loads a file or module that defines the operators of the program."""
    try:
        load_operators(asked)
    except ExtensionError as error:
        sys.exit(str(error))


def _run(program: list[str], era: str | None) -> None:
    """Runs the program of the command line, with PopART as of an era."""
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
    """Sets the program's arguments and module path."""
    sys.argv = [program, *arguments]
    sys.path.insert(0, folder)


def _enable(era: str | None, texts: Iterable[str]) -> None:
    """Enables PopART as of `era`, or of the first era whose names the program uses."""
    told = era_in_texts(texts) if era is None else None
    try:
        enable(era or told)
    except popart_exception as error:
        sys.exit(str(error))
    announce(era, told)


if __name__ == "__main__":
    main()
