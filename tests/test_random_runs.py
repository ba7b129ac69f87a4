"""Tests the judges of random models and trainings, without the packages that draw many."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from popgraph.backend import ReferenceBackend
from popgraph.conformance.outcome import Status, outcome
from popgraph.conformance.suites import opened
from popgraph.support.arrays import Array
from popgraph.testing import random_inputs
from tests import nnsmith_suite, training_runs
from tests.training_runs import BATCH, Runs, cases, compared

MODEL = """
<ir_version: 8, opset_import: ["" : 14]>
graph (float[64] x, float[64] z) => ({outputs})
{{ {nodes} }}
"""
X = np.linspace(0.5, 1.5, 64, dtype=np.float32)
ZERO = np.zeros(64, np.float32)


def judged(nodes: str, outputs: str) -> list[nnsmith_suite.Judged]:
    model = onnx.parser.parse_model(MODEL.format(nodes=nodes, outputs=outputs))
    return nnsmith_suite.judge(model, [X, ZERO], 0)[1]


@pytest.mark.parametrize(
    ("nodes", "output", "reason"),
    [
        ("e = Exp (x) y = Log (e)", "float[64] y", ""),
        ("n = Sub (x, x) y = Cast <to = 7> (n)", "int64[64] y", ""),
        ("n = Log (z) y = Cast <to = 7> (n)", "int64[64] y", "outside the range of an integer"),
        ("n = Div (z, z) y = ArgMax <axis = 0> (n)", "int64[1] y", "NaN is compared"),
        ("e = Exp (x) l = Log (e) y = Equal (l, x)", "bool[64] y", "decides an integer"),
        ("e = Exp (x) l = Log (e) y = Sub (l, x)", "float[64] y", "decides most digits"),
        ("s = Sigmoid (z) h = Sub (s, s) y = Div (h, h)", "float[64] y", ""),
        ("e = Exp (x) l = Log (e) n = Sub (l, x) y = Sqrt (n)", "float[64] y", "which values are"),
    ],
)  # fmt: skip
def test_outputs_that_rounding_decides_are_not_compared(
    nodes: str, output: str, reason: str
) -> None:
    (found,) = judged(nodes, output)
    assert reason in found.reason and bool(found.reason) == bool(reason)
    assert (found.bound is None) == bool(reason)


def test_bounds_grow_with_rounding_errors() -> None:
    little, much = judged("y = Exp (x) d = Sub (y, x) e = Mul (d, d)", "float[64] y, float[64] e")
    (cancelled,) = judged(
        "a = Exp (x) n = ReduceMean <axes = [0]> (a) y = Sub (a, n)", "float[64] y"
    )
    assert little.bound and much.bound and cancelled.bound
    assert 1e-5 < little.bound < 1e-4


def test_a_written_suite_runs(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        MODEL.format(
            nodes="e = Exp (x) y = Log (e) w = Equal (y, x)", outputs="float[64] y, bool[64] w"
        )
    )
    expected, found, oracle = nnsmith_suite.judge(model, [X, ZERO], 0)
    assert oracle == "onnxruntime" and [each.bound is None for each in found] == [False, True]
    place = tmp_path / "suite" / "nnsmith" / "test_seed_000000"
    nnsmith_suite.write(place, model, [X, ZERO], expected, found)
    with opened([tmp_path / "suite"]) as tests:
        assert outcome(tests[0], ReferenceBackend).status == Status.PASSED
    expected[0][5] += 0.01
    nnsmith_suite.write(place, model, [X, ZERO], expected, found)
    with opened([tmp_path / "suite"]) as tests:
        assert outcome(tests[0], ReferenceBackend).status == Status.WRONG


def test_the_reference_evaluator_computes_missing_kernels_in_f64() -> None:
    text = MODEL.replace("float", "double").format(nodes="y = Erf (x)", outputs="double[64] y")
    x = X.astype(np.float64)
    (found,), _, oracle = nnsmith_suite.judge(onnx.parser.parse_model(text), [x, x], 0)
    assert oracle == "onnxruntime and onnx.reference"
    assert found[0] == 0.5204998778130465


def test_random_trainings_are_compared() -> None:
    """A run is equal, and a change of its results is not."""
    case = cases(2)[7]
    assert training_runs.run(case).outcome == "equal"
    runs = Runs(case)
    inputs = random_inputs(runs.types)
    expected = runs.reference(inputs)
    other: list[dict[str, Any]] = [dict(step) for step in expected]
    other[1]["loss"] = other[1]["loss"] * np.float32(1.01) + np.float32(0.01)
    assert compared(case, runs, inputs, (expected, other)).outcome == "wrong"
    del other[1]["loss"]
    assert compared(case, runs, inputs, (expected, other)).outcome == "wrong"


def test_steps_of_the_reference_may_begin_with_the_variables_of_the_other_run() -> None:
    """The gradient of `w` cancels; the sign of what is left decides whether `y` is NaN."""

    class Cancelling(Runs):
        def __init__(self) -> None:
            pass

        def reference(
            self, inputs: dict[str, Array], after: training_runs.Results = ()
        ) -> training_runs.Results:
            w = after[0]["variable w"] if after else np.full(2, 1e-12)
            return [{"variable w": w}, {"variable w": w, "y": np.sqrt(w)}]

    runs, case = Cancelling(), cases(1)[0]
    expected = runs.reference({})
    with np.errstate(invalid="ignore"):
        other = [{"variable w": np.full(2, -1e-12)}]
        found = runs.reference({}, after=other)
        assert compared(case, runs, {}, (expected, found)).outcome == "rounding"
        found[1]["y"] = np.zeros(2)
        assert compared(case, runs, {}, (expected, found)).outcome == "wrong"


def test_seeds_repeat_and_reports_count(tmp_path: Path) -> None:
    first, again = cases(1), cases.__wrapped__(1)
    assert first == again and len(first) <= BATCH
    assert {case.network.dtype for case in first} == {"f64"}
    log = tmp_path / "log.jsonl"
    row = {"kind": "network", "network": "a", "outcome": "equal"}
    log.write_text("".join(json.dumps(each) + "\n" for each in (row, row, row | {"network": "b"})))
    assert training_runs.report(training_runs.rows(log)).splitlines()[-1] == (
        "| all | 3 | 2 | 3 | 0 | 0 | 0 | 0 |"
    )
    log.write_text(
        "".join(
            json.dumps(each) + "\n"
            for each in (
                {"seed": 0, "failed": "a reason"},
                {
                    "seed": 1,
                    "operators": ["Add"],
                    "oracle": "onnxruntime",
                    "outputs": 3,
                    "not compared": ["NaN is compared"],
                },
            )
        )
    )
    text = nnsmith_suite.report(nnsmith_suite.rows(log))
    assert "1 models with 1 operators, of 2 seeds" in text
    assert "2 of 3 outputs are compared" in text
