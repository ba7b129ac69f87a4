"""
Runs a PopART program unchanged, as Python itself would run it.

    python -m popgraph.compat script.py [arguments]
    python -m popgraph.compat -m module [arguments]
    python -m popgraph.compat -c "code" [arguments]
"""

from __future__ import annotations

import os
import runpy
import sys
from importlib.util import find_spec
from pathlib import Path

from popgraph.compat import enable

USAGE = (__doc__ or "").strip()


def main() -> None:
    match sys.argv[1:]:
        case ["-h" | "--help", *_]:
            print(USAGE)
        case ["-m", module, *arguments]:
            _begin(module, arguments, os.getcwd())
            if find_spec(module) is None:
                sys.exit(f"there is no module {module}")
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case ["-c", code, *arguments]:
            _begin("-c", arguments, "")
            exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
        case [script, *arguments] if not script.startswith("-"):
            if not Path(script).is_file():
                sys.exit(f"there is no file {script}")
            _begin(script, arguments, str(Path(script).resolve().parent))
            runpy.run_path(script, run_name="__main__")
        case _:
            sys.exit(USAGE)


def _begin(program: str, arguments: list[str], folder: str) -> None:
    """What a program sees: its arguments, the modules beside it, and PopART."""
    sys.argv = [program, *arguments]
    sys.path.insert(0, folder)
    enable()


if __name__ == "__main__":
    main()
