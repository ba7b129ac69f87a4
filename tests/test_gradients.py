"""Tests gradients: every differentiable operator has a case, and every case is right."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from popgraph.backends.reference import evaluate
from popgraph.compiler import BuildRequest
from popgraph.passes.analysis.graph import only_graph
from popgraph.passes.graphcore.jacobian_products import add_jvp, add_vjp
from popgraph.passes.onnx.operator_ways import rows
from popgraph.passes.onnx.without_gradient import reason
from popgraph.passes.options import CONSTANT, GRADIENT, VARIABLE, Options
from popgraph.support.arrays import Array
from popgraph.support.derivatives import TANGENT
from tests.gradient_cases import all_samples
from tests.gradients import LOSS, Sample, Slope, formal_names, lowered
from tests.one_node import close
from tests.sampling import WHOLE, share

RECORD = Path(__file__).parents[1] / "docs" / "operators.json"
ELSEWHERE = {
    "ai.onnx.preview.training.Gradient": "passes/test_derivatives.py",
    "ai.graphcore.PackedDataBlock": "popart/test_popart_sequences.py",
    "Optional": "test_sequences.py",
    **dict.fromkeys(
        (f"Sequence{name}" for name in ("At", "Construct", "Erase", "Insert", "Map")),
        "test_sequences.py",
    ),
    **dict.fromkeys(("ConcatFromSequence", "SplitToSequence"), "test_sequences.py"),
    **dict.fromkeys(
        (f"ai.graphcore.Replicated{name}" for name in ("AllGather", "AllReduce", "ReduceScatter")),
        "passes/test_spread_replicas.py",
    ),
}
"""Operators that need more than one node, and the files with tests of their gradients."""
SHARE = 60
"""One case in this many is tested a day."""
IN_C = 15
"""One of these in this many is tested in C, too."""


FORWARD = 20
"""One of these in this many is differentiated in forward mode, too."""


def recorded() -> Mapping[str, Mapping[str, str]]:
    """The outcomes of `make operators`, by operator and input."""
    operators = json.loads(RECORD.read_text())["operators"]
    return {name: gradient or {} for name, (_, gradient) in operators.items()}


def todays() -> list[Sample]:
    return list(share("gradients of operators", all_samples(), SHARE))


def test_gradients_of_operators_are_slopes() -> None:
    """Tests gradients by inputs and by weights, and compares with the record for docs/ops.md."""
    wrong, known = list[str](), recorded()
    for sample in todays():
        try:
            found = sample.wide.slopes(CONSTANT)
            trained = sample.wide.slopes(VARIABLE)
        except AssertionError as error:
            wrong.append(f"{sample.operator}, {sample.name}: {error}")
            continue
        assert {name: found[name] for name in trained} == trained, sample.name
        for name, slope in zip(formal_names(sample, found), found.values(), strict=True):
            if slope is Slope.YES and known.get(sample.operator, {}).get(name) != slope:
                wrong.append(f"docs/operators.json does not know {name} of {sample.operator}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("operator", ["Pad", "BatchNormalization", "STFT"])
def test_gradients_that_were_wrong_once(operator: str) -> None:
    """Regressions: Pad ignored a weight as its fill value; fed statistics had no gradient."""
    samples = [one for one in all_samples() if one.operator == operator]
    found = [one.wide.slopes(kind) for one in samples for kind in (CONSTANT, VARIABLE)]
    assert any(Slope.YES in slopes.values() for slopes in found)


def test_every_operator_has_a_gradient_or_a_reason() -> None:
    known = recorded()
    without = {name for name, slopes in known.items() if Slope.YES not in slopes.values()}
    operators = {row.title: row for row in rows()}
    mute = [
        name
        for name, row in operators.items()
        if (name in without or name not in known) and not reason(row) and name not in ELSEWHERE
    ]
    assert all((RECORD.parents[1] / "tests" / path).exists() for path in ELSEWHERE.values())
    assert not mute, "they have neither a case with a slope nor a reason to have no gradient"
    contradicted = [
        name
        for name, row in operators.items()
        if row.way.is_compiled and name in known and name not in without and reason(row)
    ]
    assert not contradicted, "they are said to have no gradient, and have one"


def test_every_differentiable_operator_has_a_case() -> None:
    tried = {sample.operator for sample in all_samples()}
    have = {name for name, slopes in recorded().items() if Slope.YES in slopes.values()}
    assert have <= tried


def test_gradients_in_c_are_those_of_the_reference() -> None:
    chosen = [one for one in todays() if "Attention" not in one.operator]
    for sample in chosen if WHOLE else chosen[::IN_C]:
        wide = sample.wide
        if not wide.has_loss:
            continue
        module, compilation = wide.backward(CONSTANT)
        wanted = wide.gradients((module, compilation), CONSTANT)
        found = BuildRequest(module, compilation, Options(), "c", 1).runner()(wide.arrays)
        gradients = [name for name in wanted if name.startswith(GRADIENT)]
        for name in gradients:
            close(found[name], wanted[name])


def test_forward_mode_is_the_transpose_of_reverse_mode() -> None:
    """u^T (J v) = (J^T u)^T v, for the loss of each case and u = 1."""
    generator = np.random.default_rng(0)
    for sample in share("forward mode", todays(), FORWARD, lambda _: None):
        wide = sample.wide
        if not wide.has_loss:
            continue
        outputs = only_graph(wide.backward(CONSTANT)[0]).outputs
        wrt = tuple(name for name in wide.arrays if GRADIENT + name in outputs)
        if not wrt:
            continue
        values = dict[str, Array]()
        directions = {name: generator.normal(size=wide.arrays[name].shape) for name in wrt}
        for add in (add_vjp, add_jvp):
            module, compilation = lowered(wide.model, wrt, CONSTANT)
            add(module, compilation, wrt, [LOSS])
            given = {**wide.arrays, GRADIENT + LOSS: np.ones(())}
            given |= {
                TANGENT + name: one.astype(wide.arrays[name].dtype)
                for name, one in directions.items()
            }
            inputs = {name: given[name] for name in only_graph(module).inputs}
            values |= evaluate(module, inputs, compilation.weights, None)[0]
        expected = sum((values[GRADIENT + name] * directions[name]).sum() for name in wrt)
        np.testing.assert_allclose(
            values[TANGENT + LOSS], expected, 1e-4, 1e-6, err_msg=sample.name
        )


def test_a_wrong_gradient_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = next(one for one in all_samples() if one.operator == "PRelu")
    right = type(sample.wide).gradients

    def wrong(*arguments: object) -> dict[str, np.ndarray]:
        return {name: array * 1.01 for name, array in right(*arguments).items()}  # type: ignore[arg-type]

    monkeypatch.setattr(type(sample.wide), "gradients", wrong)
    with pytest.raises(AssertionError, match="the gradient of x0"):
        sample.wide.slopes(CONSTANT)
