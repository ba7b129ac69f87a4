"""Fuzzes models with data-dependent structure against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
from hypothesis import example, given, settings
from hypothesis import strategies as st

import popgraph
from tests.host_structures import blocks, model

SEEDS = st.integers(0, 1000)


def agree(block: list[Any], seeds: list[int], backend: str) -> None:
    """Checks that PopGraph and onnxruntime agree on several inputs."""
    made = model(block)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        made.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    run = popgraph.compile(made, backend=backend)
    names = [output.name for output in session.get_outputs()]
    for seed in seeds:
        d = np.random.default_rng(seed).integers(-3, 4, 300).astype(np.float32)
        found = run(d=d)
        for name, wanted in zip(names, session.run(names, {"d": d}), strict=True):
            np.testing.assert_array_equal(found[name], wanted, err_msg=name, strict=True)


@given(blocks(2), st.lists(SEEDS, min_size=2, max_size=4))
def test_fuzz_data_decide_structure(block: list[Any], seeds: list[int]) -> None:
    agree(block, seeds, "reference")


WITHOUT_RANK = [
    ("negate", 0, 0),
    ("loop", 0, [("filter", 0, 0)], False, False, False),
    ("if", 3, [("negate", 0, 0)], [("drop", 0, 0)]),
]
"""Regression: a structural condition from a loop has no known rank before the loop has run."""


@settings(max_examples=max(4, settings.default.max_examples // 5))
@example(WITHOUT_RANK, [79, 0])
@given(blocks(1), st.lists(SEEDS, min_size=2, max_size=3))
def test_fuzz_data_decide_structure_in_c(block: list[Any], seeds: list[int]) -> None:
    agree(block, seeds, "c")
