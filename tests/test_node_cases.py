"""Tests ONNX's own node tests in C, many of them batched into one model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import onnx
import pytest
from onnx import compose, helper

import popgraph
from popgraph.runner import Runner
from popgraph.support.arrays import Array
from popgraph.support.errors import UnsupportedError
from tests.passes.test_onnx_to_graphcore import (
    AT_LEAST,
    all_operators,
    compare,
    node_cases,
    settled,
    todays_node_cases,
)
from tests.sampling import WHOLE

TOGETHER = 40
"""Cases per model: enough to share a compilation, few enough to read."""
SHARES = 16
"""A run takes every sixteenth case of each operator, `make test-all` all of them."""
RUNS = 2
"""Runs of each model; the second one uses the memory of the first."""


class Part(NamedTuple):
    """A case that becomes part of a model."""

    case: Any
    outputs: Sequence[Any]
    model: onnx.ModelProto
    given: dict[str, Array]

    @property
    def prefix(self) -> str:
        return f"{self.case.name}/"

    @property
    def operators(self) -> tuple[tuple[str, int], ...]:
        """The opset versions of the case."""
        return tuple(sorted((found.domain, found.version) for found in self.model.opset_import))


def parts(cases: Sequence[Any], refused: Counter[str]) -> Iterator[Part]:
    """The cases that the compiler accepts; counts the errors of the others."""
    for case in cases:
        for inputs, outputs in case.data_sets:
            try:
                model, given, *_ = settled(case.model, inputs)
            except UnsupportedError as error:
                refused[error.what] += 1
                continue
            yield Part(case, outputs, model, given)


def batches(found: Sequence[Part]) -> Iterator[Sequence[Part]]:
    """Groups of parts with the same opset versions, which can be one model."""
    for operators in dict.fromkeys(part.operators for part in found):
        alike = [part for part in found if part.operators == operators]
        yield from (alike[at : at + TOGETHER] for at in range(0, len(alike), TOGETHER))


def together(batch: Sequence[Part]) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """One model of all parts, with names prefixed by case, and its inputs."""
    graph, functions = onnx.GraphProto(name="cases"), []
    for part in batch:
        named = compose.add_prefix(part.model, part.prefix)
        functions += named.functions
        for field in ("node", "input", "output", "initializer", "sparse_initializer"):
            getattr(graph, field).extend(getattr(named.graph, field))
    given = {part.prefix + name: array for part in batch for name, array in part.given.items()}
    newest = max(part.model.ir_version for part in batch)
    domains = batch[0].model.opset_import
    made = helper.make_model(graph, functions=functions, opset_imports=domains, ir_version=newest)
    return made, given


def differences(batch: Sequence[Part], run: Runner, given: dict[str, Array]) -> Iterator[str]:
    """The differences of one run, by case."""
    found = run(given)
    for part in batch:
        start = len(part.prefix)
        own = {name[start:]: array for name, array in found.items() if name[:start] == part.prefix}
        difference = compare(part.case, own, part.outputs)
        if difference:
            yield f"{part.case.name}: {difference}"


def wrong_in(batch: Sequence[Part]) -> list[str]:
    model, given = together(batch)
    run = popgraph.compile(model, threads=2)
    return [
        f"run {turn} of {found}"
        for turn in range(1, RUNS + 1)
        for found in differences(batch, run, given)
    ]


@pytest.mark.budget
def test_node_cases_of_onnx_in_c() -> None:
    refused: Counter[str] = Counter()
    found = list(parts(todays_node_cases("ONNX's node cases in C", SHARES), refused))
    wrong = [text for batch in batches(found) for text in wrong_in(batch)]
    print(f"{len(found)} cases in C, {refused.total()} refused:")
    print("\n".join(f"{count:4} {reason}" for reason, count in refused.most_common()))
    assert not wrong, "\n".join(wrong)
    assert len(found) >= (AT_LEAST if WHOLE else len(all_operators()) // 2)


def test_unzeroed_memory_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cases can fail in both runs: plants a window whose padding is not zeroed."""
    monkeypatch.setattr(
        "popgraph.passes.structured.to_loops.emit.zero_padding.clear_box", lambda *_: None
    )
    cases = [case for case in node_cases() if case.name.startswith("test_cumsum_1d")]
    wrong = wrong_in(list(parts(cases, Counter())))
    assert len(wrong) == RUNS * len(cases), wrong
