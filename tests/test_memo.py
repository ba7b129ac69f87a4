"""Tests of functions that remember objects by their identity."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import VectorType, f32

from popgraph.support import memo


def test_an_object_is_asked_about_once() -> None:
    """An equal object is another one: to find that they are equal is what takes time."""
    asked: list[VectorType] = []

    def lanes(type_: VectorType) -> int:
        asked.append(type_)
        count: int = type_.get_shape()[0]
        return count

    remembering = memo.by_identity(lanes)
    one, equal = VectorType(f32, [8]), VectorType(f32, [8])
    assert [remembering(each) for each in (one, one, equal)] == [8, 8, 8]
    assert [id(each) for each in asked] == [id(one), id(equal)]


def test_memory_is_bounded_and_answers_stay_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """An object that is gone leaves its place in memory to others, but not its answer."""
    monkeypatch.setattr(memo, "MAX_ENTRIES", 4)
    remembering = memo.by_identity(lambda given: given[0])
    assert [remembering([number]) for number in range(100)] == list(range(100))
