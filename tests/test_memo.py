"""Tests memoized functions and properties."""

from __future__ import annotations

import os
import signal
import threading

import pytest
from xdsl.dialects.builtin import VectorType, f32

from popgraph.support import memo
from popgraph.support.forked import can_fork


def test_a_function_runs_once_per_object() -> None:
    """Equal objects are separate keys, since comparing them takes the time to save."""
    asked: list[VectorType] = []

    def lanes(type_: VectorType) -> int:
        asked.append(type_)
        count: int = type_.get_shape()[0]
        return count

    remembering = memo.by_identity(lanes)
    one, equal = VectorType(f32, [8]), VectorType(f32, [8])
    assert [remembering(each) for each in (one, one, equal)] == [8, 8, 8]
    assert [id(each) for each in asked] == [id(one), id(equal)]


def test_the_memo_is_bounded_and_correct(monkeypatch: pytest.MonkeyPatch) -> None:
    """A freed object's address may be reused, but not its answer."""
    monkeypatch.setattr(memo, "MAX_ENTRIES", 4)
    remembering = memo.by_identity(lambda given: given[0])
    assert [remembering([number]) for number in range(100)] == list(range(100))


class Doubled:
    """A number whose double is computed once, after a wait."""

    def __init__(self, number: int, begun: threading.Event, wait: threading.Event) -> None:
        self.number, self.begun, self.wait, self.count = number, begun, wait, 0

    @memo.cached_property
    def double(self) -> int:
        """Twice the number."""
        self.count += 1
        self.begun.set()
        self.wait.wait()
        return 2 * self.number


def test_a_property_is_computed_once_per_object() -> None:
    assert Doubled.double.__doc__ == "Twice the number."
    begun, wait = threading.Event(), threading.Event()
    wait.set()
    one, two = Doubled(1, begun, wait), Doubled(2, begun, wait)
    assert [one.double, two.double, one.double] == [2, 4, 2]
    assert one.count == two.count == 1
    del one.double
    assert (one.double, one.count) == (2, 2)


@pytest.mark.skipif(not can_fork(), reason="there are no children here")
def test_a_child_computes_what_another_thread_was_computing() -> None:
    """With a lock, the child would wait for a thread that does not exist there."""
    begun, wait, now = threading.Event(), threading.Event(), threading.Event()
    now.set()
    computing = threading.Thread(target=lambda: Doubled(1, begun, wait).double)
    computing.start()
    begun.wait()
    pid = os.fork()
    if pid == 0:
        signal.alarm(5)
        os._exit(Doubled(2, begun, now).double)
    wait.set()
    computing.join()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 4
