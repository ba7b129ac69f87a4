"""Makes `import popart` resolve to PopGraph in child processes, too."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from popgraph.compat import enable, found, libraries
from popgraph.compat.sources import roots_of_tests, texts_of
from popgraph.popart.eras.era import Era, era_of_program
from popgraph.support.errors import ExtensionError

ERA_VARIABLE = "POPGRAPH_COMPAT_ERA"
"""Environment variable with the era of `--era`."""
PASSED_ERA_VARIABLE = "POPGRAPH_COMPAT_TOLD"
"""Environment variable with the era of the first program, the default of its children."""
LOAD_VARIABLE = "POPGRAPH_COMPAT_LOAD"
"""Environment variable with the files of `--load`."""


def announce(era: str | None, passed_era: str | None) -> None:
    """Configures Python processes started later like this one."""
    folder = str(Path(found.__file__).parent)
    held = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    others = [one for one in held if one and one != folder]
    os.environ["PYTHONPATH"] = os.pathsep.join([*others, folder])
    if folder not in sys.path:  # multiprocessing hands this list to the processes that it spawns
        sys.path.append(folder)
    variables = {
        ERA_VARIABLE: era,
        PASSED_ERA_VARIABLE: passed_era,
        LOAD_VARIABLE: "\n".join(libraries.LOADED),
    }
    for variable, value in variables.items():
        os.environ.pop(variable, None)
        if value:
            os.environ[variable] = value


def enable_here(module: str) -> None:
    """Replaces the stub module that was imported by PopGraph's."""
    sys.modules.pop(module)
    for asked in os.environ.get(LOAD_VARIABLE, "").splitlines():
        try:
            libraries.load_operators(asked)
        except ExtensionError as error:
            sys.exit(str(error))
    enable(os.environ.get(ERA_VARIABLE) or _era_here())


def era_in_texts(texts: Iterable[str]) -> str | None:
    """The era of the first text that determines one."""
    passed_era: Era | None = next(filter(None, map(era_of_program, texts)), None)
    return None if passed_era is None else passed_era.name


def texts_of_module(origin: str, arguments: list[str]) -> Iterable[str]:
    """The texts of `python -m module arguments`; for pytest, those of tests and their fixtures."""
    given = [Path(origin), *map(Path, arguments)]
    if "pytest" in Path(origin).parts[-2:]:
        given = [one for path in given for one in roots_of_tests(path, Path.cwd())]
    return texts_of(given, [Path.cwd()])


def _era_here() -> str | None:
    """The era of this process's program, otherwise that of the first program."""
    return era_in_texts(_texts_here()) or os.environ.get(PASSED_ERA_VARIABLE)


def _texts_here() -> Iterable[str]:
    """The program of this process: a script, a module with its arguments, or `-c code`."""
    main = sys.modules.get("__mp_main__") or sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    if file is None:
        return sys.orig_argv[2:3] if sys.orig_argv[1:2] == ["-c"] else []
    is_script = getattr(main, "__spec__", None) is None
    if is_script and Path(file).name != "pytest":
        return texts_of([Path(file)], [])
    return texts_of_module(file, sys.argv[1:])
