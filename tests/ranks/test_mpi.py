"""Tests ranks of MPI, each job of which is started once: replicas, messages, and how jobs end."""

from __future__ import annotations

from tests.ranks.launch import JOBS, mpirun, succeeds


def test_two_ranks_train_as_one_process_does() -> None:
    told = succeeds(2, JOBS / "sessions.py")
    names = [line.split()[0] for line in told.splitlines() if line.endswith("on rank 0")]
    assert len(names) >= 7, told


def test_ranks_that_a_session_does_not_fit() -> None:
    done = mpirun(2, JOBS / "misfits.py")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    for text in (
        "the session wants to be rank 0 of 4; this process is rank 0 of 2",
        "ranks 0 and 1 have programs that tell each other different things",
    ):
        assert done.stdout.count(text) == 2, done.stdout


def test_a_rank_that_fails_ends_the_job_with_a_sentence() -> None:
    done = mpirun(2, JOBS / "failing.py")
    assert done.returncode != 0
    assert "rank 1 of 2 failed, and with it the job: no more of this" in done.stderr
    assert "came to the end" not in done.stdout
