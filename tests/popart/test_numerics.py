"""Tests PopART's report on two trainings of the same weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from popgraph.popart.api.builder import Builder
from popgraph.popart.exceptions import popart_exception
from popgraph.popart.numerics import NumericsReport
from popgraph.support.arrays import Array


def saved(path: Path, **weights: Array) -> str:
    builder = Builder()
    for name, value in weights.items():
        builder.addOutputTensor(
            builder.aiOnnx.identity([builder.addInitializedInputTensor(value, name)])
        )
    builder.saveModelProto(path)
    return str(path)


def test_the_error_compares_weight_changes(tmp_path: Path) -> None:
    start = np.array([1, 2], np.float32)
    count = np.array([1])
    a0 = saved(tmp_path / "a0", w=start, count=count)
    a1 = saved(tmp_path / "a1", w=start + np.array([3, 0], np.float32), count=count)
    b1 = saved(tmp_path / "b1", w=start + np.array([3, 4], np.float32), count=count)
    report = NumericsReport(a0, a1, a0, b1)
    assert report.getRelativeErrors() == {"w": pytest.approx(16 / (3 * 5))}
    assert "|dA| = 3  and  |dB| = 5" in report.report("w")
    assert report.fullReport() == f"\nw : \n{report.report('w')}"
    with pytest.raises(popart_exception, match="No report available for count"):
        report.report("count")


def test_equal_changes_have_no_error(tmp_path: Path) -> None:
    path = saved(tmp_path / "a", w=np.ones(3, np.float32))
    assert NumericsReport(path, path, path, path).getRelativeErrors() == {"w": 0.0}


def test_models_of_other_weights_are_refused(tmp_path: Path) -> None:
    one = saved(tmp_path / "one", w=np.ones(3, np.float32))
    two = saved(tmp_path / "two", w=np.ones(3, np.float32), v=np.ones(1, np.float32))
    named = saved(tmp_path / "named", v=np.ones(3, np.float32))
    large = saved(tmp_path / "large", w=np.ones(4, np.float32))
    for other, message in (
        (two, "different number of initializers"),
        (named, "names do not correspond"),
        (large, "infos differ"),
    ):
        with pytest.raises(popart_exception, match=message):
            NumericsReport(one, one, other, other)
