"""Runs the tests of the IR with the oldest promised release of xDSL and with the newest one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
TESTS = (
    "tests/dialects/test_levels.py",
    "tests/dialects/test_graphcore_text.py",
    "tests/dialects/test_text_fuzz.py",
    "tests/passes/test_cases.py",
    "tests/test_extend.py",
    "tests/test_entry_points.py",
    "tests/test_nesting.py",
    "tests/test_package.py::test_stock_xdsl_opt_runs_its_own_passes_and_ours",
)
"""Tests that print and parse every level, run every pass, and compile every kind of model."""


def promised() -> tuple[str, str]:
    """The version range of the metadata: the first admitted and the first excluded release."""
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (found,) = filter(None, (re.fullmatch(r"xdsl>=([\d.]+),<([\d.]+)", one) for one in needed))
    return found[1], found[2]


def installed(requirement: str, folder: Path) -> str:
    """Installs xDSL alone into a folder; returns its version."""
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    subprocess.run([*install, str(folder), requirement], check=True)
    (found,) = folder.glob("xdsl-*.dist-info")
    return found.name.removeprefix("xdsl-").removesuffix(".dist-info")


def passes_with(folder: Path) -> bool:
    """Whether the tests pass with the xDSL of a folder."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
        "POPGRAPH_CACHE_DIR": str(folder / "cache"),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", *TESTS]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode == 0


def main() -> None:
    oldest, end = promised()
    failed = []
    for requirement in (f"xdsl=={oldest}", "xdsl"):
        with tempfile.TemporaryDirectory() as folder:
            version = installed(requirement, Path(folder))
            print(f"xDSL {version}", flush=True)
            if not passes_with(Path(folder)):
                failed.append(version)
    if failed:
        sys.exit(f"the tests fail with xDSL {', '.join(failed)}; pyproject.toml admits <{end}")


if __name__ == "__main__":
    main()
