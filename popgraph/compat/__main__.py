"""Runs a PopART script unchanged: `python -m popgraph.compat script.py [arguments]`."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from popgraph.compat import enable


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit("usage: python -m popgraph.compat script.py [arguments]")
    script = sys.argv[1]
    if not Path(script).is_file():
        sys.exit(f"there is no file {script}")
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(Path(script).resolve().parent))
    enable()
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
