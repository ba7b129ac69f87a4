"""Tests tasks that a thread completes after their caller has returned."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from threading import Event, get_ident

import pytest

from popgraph.support.forked import Child, can_fork
from popgraph.support.locks import Lock
from popgraph.support.tasks import Tasks

SECONDS = 60
forks = pytest.mark.skipif(not can_fork(), reason="this system cannot fork")


def test_the_caller_does_not_wait_for_its_task() -> None:
    tasks, go, found = Tasks(), Event(), list[int]()

    def task() -> None:
        assert go.wait(SECONDS)
        found.append(get_ident())

    tasks.begin("one", task)
    tasks.wait("another")
    assert not found
    go.set()
    tasks.wait("one")
    assert len(found) == 1 and found[0] != get_ident()
    tasks.wait()


def test_tasks_run_one_after_the_other() -> None:
    tasks, running, ended = Tasks(), list[int](), list[int]()

    def task(number: int) -> Callable[[], None]:
        def run() -> None:
            running.append(number)
            assert running == [number]
            running.remove(number)
            ended.append(number)

        return run

    for number in range(5):
        tasks.begin(str(number), task(number))
    tasks.wait()
    assert ended == [0, 1, 2, 3, 4]


def test_a_task_may_wait_for_itself() -> None:
    tasks, found = Tasks(), list[int]()

    def task() -> None:
        tasks.wait()
        found.append(1)

    tasks.begin("one", task)
    tasks.wait()
    assert found == [1]


@forks
def test_a_fork_waits_for_the_task() -> None:
    tasks, done = Tasks(), list[int]()

    def task() -> None:
        done.append(os.getpid())

    def work() -> None:
        assert done == [os.getppid()]
        tasks.wait()
        tasks.begin("two", task)
        assert done == [os.getppid(), os.getpid()], "a `Child` runs its tasks itself"

    tasks.begin("one", task)
    assert Child(work, Lock()).outcome() == ""
    assert done == [os.getpid()]


def test_without_threads_the_caller_runs_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", refuse)
    tasks, found = Tasks(), list[int]()
    tasks.begin("one", lambda: found.append(get_ident()))
    assert found == [get_ident()]


def test_a_process_exits_after_its_task() -> None:
    code = (
        "from threading import main_thread\n"
        "from popgraph.support.tasks import Tasks\n"
        "Tasks().begin('one', lambda: (main_thread().join(), print('done')))\n"
        "print('returned')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "returned\ndone\n"
