"""Tests functions memoized by the identity of their argument."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import VectorType, f32

from popgraph.support import memo


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
