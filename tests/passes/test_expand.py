"""Tests `expand`: composites equal their expansion, and kept ones stay whole."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp, NameLoc, NoneAttr, StringAttr

from popgraph.backends.reference import evaluate
from popgraph.dialects import graphcore as gc
from popgraph.passes.analysis.graph import expanded
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore import expand
from popgraph.passes.graphcore.expand import Expand
from popgraph.passes.graphcore.to_structured import GraphcoreToStructured
from popgraph.support import dtypes
from popgraph.support.errors import PassError
from tests.checking import check_ir
from tests.dialects.graphcore_run import Sample, build, twins
from tests.dialects.graphcore_samples import SAMPLES

COMPOSITE = [sample for sample in SAMPLES if issubclass(sample.op, gc.Composite)]
ALL = [*COMPOSITE, *(sample.with_floats("f64") for sample in COMPOSITE)]
TOLERANCE = {"f64": 1e-12, "f32": 1e-5}


def composites(module: ModuleOp) -> list[str]:
    return [op.title for op in module.walk() if isinstance(op, gc.Composite)]


@pytest.mark.parametrize("sample", ALL, ids=[f"{n}-{each}"[:100] for n, each in enumerate(ALL)])
def test_composite_means_its_expansion(sample: Sample) -> None:
    """Expanded to graphcore operations, then lowered to structured ones."""
    built = build(sample)
    expected = built.op.evaluate(*built.arrays)
    module, compilation = built.module(), Compilation()
    inputs = {f"x{at}": array for at, array in enumerate(built.arrays)}
    for lowering in (Expand(), GraphcoreToStructured()):
        lowering.run(compilation, module)
        check_ir(module)
        assert not composites(module)
        outputs, _ = evaluate(module, inputs, compilation.weights)
        for at, wanted in enumerate(expected):
            actual = outputs[f"y{at}"]
            assert actual.shape == wanted.shape and actual.dtype == wanted.dtype
            tolerance = TOLERANCE.get(dtypes.from_numpy(wanted.dtype).name, 0)
            finite = np.abs(wanted[np.isfinite(wanted)]) if wanted.dtype.kind == "f" else wanted
            scale = float(finite.max()) if tolerance and finite.size else 0.0
            np.testing.assert_allclose(
                actual.astype(np.float64),
                wanted.astype(np.float64),
                rtol=tolerance,
                atol=tolerance * scale,
            )


def test_kept_composites_are_not_expanded() -> None:
    sample = next(each for each in COMPOSITE if each.op is gc.SoftmaxOp)
    module = build(sample).module()
    Expand(keep=("softmax",)).run(Compilation(), module)
    assert composites(module) == ["softmax"]
    Expand().run(Compilation(), module)
    assert composites(module) == []


def test_expansions_have_the_location_of_the_composite() -> None:
    built = build(next(each for each in COMPOSITE if each.op is gc.LayerNormOp))
    location = NameLoc(StringAttr("norm"), NoneAttr())
    built.op.location = location
    module = built.module()
    Expand().run(Compilation(), module)
    made = [op for op in module.walk() if op.name.startswith("graphcore.")]
    assert made and {op.location for op in made} == {location}


def test_unknown_composites_to_keep_are_refused() -> None:
    with pytest.raises(PassError, match="unknown composites to keep: softmaxx") as caught:
        Expand(keep=("softmaxx",)).run(Compilation(), ModuleOp([]))
    assert "softmax" in caught.value.hint


def test_copies_are_what_equal_composites_expand_to() -> None:
    samples = [sample for sample in COMPOSITE if issubclass(sample.op, expand.REPEATED)]
    assert {sample.op for sample in samples} == {*expand.REPEATED}

    for sample in samples:
        copied, written = twins(sample), twins(sample)
        Expand().run(Compilation(), copied)
        while found := [op for op in written.walk() if isinstance(op, gc.Composite)]:
            for op in found:
                expanded(op)
        assert copied.is_structurally_equivalent(written), f"{sample}"
