"""Starts MPI jobs for tests, and skips tests on machines without MPI."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
JOBS = Path(__file__).parent / "jobs"
SECONDS = 300


def launcher() -> str:
    """The `mpirun` beside the Python of the tests, or else the machine's."""
    if find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed: pip install 'popgraph[mpi]'")
    beside = Path(sys.executable).parent / "mpirun"
    found = str(beside) if beside.exists() else shutil.which("mpirun")
    if found is None:
        pytest.skip("there is no mpirun: pip install 'popgraph[mpi]' brings Open MPI's")
    return found


def mpirun(
    ranks: int, *arguments: str | Path, folder: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs Python with these arguments on `ranks` ranks."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        **variables,
    }
    return subprocess.run(
        [launcher(), "-n", str(ranks), sys.executable, *map(str, arguments)],
        cwd=folder or ROOT,
        env=environment,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=SECONDS,
    )


def output_of(ranks: int, *arguments: str | Path, **more: str) -> str:
    """The output of a job that must succeed."""
    done = mpirun(ranks, *arguments, **more)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout
