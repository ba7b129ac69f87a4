"""Tests MPI jobs, one start each: replicas, messages, and how jobs end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.ranks.jobs import sessions
from tests.ranks.jobs.trainers import SUM, trained
from tests.ranks.launch import JOBS, mpirun, output_of


def test_two_ranks_train_as_one_process_does() -> None:
    """The last sessions of the job fit neither the number of ranks nor other sessions."""
    printed = output_of(2, JOBS / "sessions.py")
    names = [line.split()[0] for line in printed.splitlines() if line.endswith("on rank 0")]
    assert names == [name for name in vars(sessions) if name.startswith("test_")]
    for text in (
        "the step is planned for rank 0 of 4; this process is rank 0 of 2",
        "the programs of ranks 0 and 1 do not communicate the same tensors",
    ):
        assert printed.count(text) == 2, printed


def test_a_failing_rank_ends_the_job_with_a_message() -> None:
    done = mpirun(2, JOBS / "failing.py")
    assert done.returncode != 0
    assert "rank 1 of 2 failed and ends the job: no more of this" in done.stderr
    assert "came to the end" not in done.stdout


# Trainers


def assert_same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name, weight in wanted["weights"].items():
        np.testing.assert_allclose(found["weights"][name], weight, rtol=1e-4, atol=1e-5)
    assert found["steps"] == wanted["steps"]
    for row, other in zip(found["rows"], wanted["rows"], strict=True):
        assert row.keys() == other.keys()
        np.testing.assert_allclose(list(row.values()), list(other.values()), rtol=1e-4)


@pytest.mark.budget
def test_trainers_partition_the_data(tmp_path: Path) -> None:
    """
    Two ranks train the weights and the history that one process trains.

    A rank that dies loses the steps after the last checkpoint. Gradients of a Sum loss are added
    up. Each rank splits its own rows into micro-batches.
    """
    alone = trained()
    assert alone["steps"] == list(range(1, 13))
    checkpoint = tmp_path / "run.ckpt"
    sums, dies = {"loss": SUM, "epochs": 1}, {"checkpoint": str(checkpoint), "dies": 7}
    split = {"epochs": 1, "accumulate": 3, "clip": 0.05}
    tasks = [json.dumps(one) for one in (sums, split, dies)]
    died = mpirun(2, JOBS / "trainers.py", *tasks)
    assert died.returncode != 0
    assert "rank 1" in died.stderr and "signal 9" in died.stderr
    assert checkpoint.exists()
    first, second, *rest = (line for line in died.stdout.splitlines() if line.startswith("{"))
    assert not rest, "the first rank continued alone"
    assert_same(json.loads(first), trained(loss=SUM, epochs=1))
    assert_same(json.loads(second), trained(epochs=1, clip=0.05))
    once = trained(checkpoint=str(checkpoint), epochs=2)
    assert once["steps"] == list(range(1, 9))
    again = output_of(3, JOBS / "trainers.py", json.dumps({"checkpoint": str(checkpoint)}))
    assert_same(json.loads(again.splitlines()[-1]), alone)


# Programs of PopART


def test_an_unchanged_script_distributes_its_pipeline(tmp_path: Path) -> None:
    script = JOBS / "pipelined.py"
    variables = {"folder": tmp_path, "POPGRAPH_BACKEND": "c"}
    alone = output_of(1, "-m", "popgraph.compat", script, **variables)
    (tmp_path / "trained.onnx").unlink()
    assert output_of(2, "-m", "popgraph.compat", "--mpi", script, **variables) == alone
    assert (tmp_path / "trained.onnx").exists()
    more = mpirun(4, "-m", "popgraph.compat", "--mpi", script, **variables)
    assert more.returncode != 0
    assert "3 devices of a pipeline cannot be divided among 4 ranks" in more.stderr


def test_an_unchanged_script_distributes_its_replicas(tmp_path: Path) -> None:
    script = JOBS / "script.py"
    variables = {"folder": tmp_path, "POPGRAPH_BACKEND": "reference"}
    alone = output_of(1, "-m", "popgraph.compat", script, **variables)
    (tmp_path / "trained.onnx").unlink()
    split = output_of(2, "-m", "popgraph.compat", "--mpi", script, **variables)
    assert split == alone
    assert (tmp_path / "trained.onnx").exists()
