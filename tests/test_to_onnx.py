"""Tests the conversion of graphcore to ONNX on every operation and on random networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from onnx.reference import ReferenceEvaluator
from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.reference import evaluate, signature
from popgraph.backends.reference.meaning import random_inputs
from popgraph.builder.onnx.read import import_model
from popgraph.builder.onnx.write import export_model
from popgraph.compiler import lower
from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Array, Composite
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore.to_onnx import (
    FORMS,
    REASONS,
    UPDATED,
    expansion,
    graphcore_to_onnx,
    listed_forms,
)
from popgraph.passes.optimizer_spec import SGD, Scalar
from popgraph.passes.options import Options, Training
from popgraph.support.errors import UnsupportedError
from popgraph.testing import (
    Network,
    build_network,
    controlled,
    learning_convolutions,
    lookups,
    networks,
    training_controlled,
    training_networks,
)
from tests.dialects.graphcore_run import Sample, build
from tests.dialects.graphcore_samples import SAMPLES
from tests.sampling import examples, share

runtime = pytest.importorskip("onnxruntime")
runtime.set_default_logger_severity(4)  # It warns of every weight that an input can override.

TOLERANCE = 1e-5
"""Relative to the largest element, or 1: results are f32, and runtimes sum in other orders."""
UNLIKE = {
    gc.Atan2Op: "signed zeros count as 0",
    gc.MaxPoolOp: "runtimes drop NaN in windows",
    gc.PowOp: "runtimes disagree on negative exponents of integers and on overflow",
}
"""Operations whose results differ for special numbers."""


@dataclass
class Exported:
    """A module of graphcore, its ONNX model, and what the reference computes."""

    model: onnx.ModelProto
    inputs: Mapping[str, Array]
    wanted: Mapping[str, Array]

    @classmethod
    def of(cls, module: ModuleOp, compilation: Compilation, inputs: Mapping[str, Any]) -> Exported:
        expansion().run(compilation, module)
        given = {name: np.asarray(array) for name, array in inputs.items()}
        with np.errstate(all="ignore"):
            outputs, state = evaluate(module, given, compilation.weights)
        wanted = {**outputs, **{UPDATED + name: array for name, array in state.items()}}
        model = export_model(graphcore_to_onnx(module, compilation.weights), compilation.weights)
        onnx.checker.check_model(model, full_check=True)
        assert not any(node.domain for node in model.graph.node)
        return cls(model, given, wanted)

    def by_onnxruntime(self) -> dict[str, Array]:
        session = runtime.InferenceSession(
            self.model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        return self._named(session.run(None, dict(self.inputs)))

    def by_onnx(self) -> dict[str, Array]:
        with np.errstate(all="ignore"):
            return self._named(ReferenceEvaluator(self.model).run(None, dict(self.inputs)))

    def by_popgraph(self) -> dict[str, Array]:
        """Imported again."""
        compilation = Compilation()
        module = import_model(self.model.SerializeToString(), compilation.weights)
        lower(module, compilation, level="graphcore", until="onnx-to-graphcore")
        with np.errstate(all="ignore"):
            return evaluate(module, self.inputs, compilation.weights)[0]

    def _named(self, arrays: Sequence[Any]) -> dict[str, Array]:
        names = [info.name for info in self.model.graph.output]
        return {name: np.asarray(one) for name, one in zip(names, arrays, strict=True)}

    def check(self, found: Mapping[str, Array], *, nans: bool = True) -> None:
        """
        Every output has the type of the reference and its numbers.

        Without `nans`, outputs with NaN are skipped: ReduceMax of onnxruntime drops NaN.
        """
        assert set(found) <= set(self.wanted)
        for name, array in found.items():
            wanted = self.wanted[name]
            if nans or not (wanted.dtype.kind == "f" and np.isnan(wanted).any()):
                assert_alike(array, wanted, name)


def assert_alike(found: Array, wanted: Array, name: str) -> None:
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), name
    if wanted.dtype.kind in "biu":
        np.testing.assert_array_equal(found, wanted, name)
        return
    own, other = found.astype(np.float64), wanted.astype(np.float64)
    scale = max(1.0, np.abs(other[np.isfinite(other)]).max(initial=0))
    np.testing.assert_allclose(own, other, TOLERANCE, TOLERANCE * scale, err_msg=name)


def of_sample(sample: Sample) -> Exported:
    built = build(sample)
    module = built.module()
    return Exported.of(
        module, Compilation(), dict(zip(signature(module), built.arrays, strict=True))
    )


def check_sample(sample: Sample) -> None:
    """One of the runtimes computes what the reference does: each lacks types of some operators."""
    exported, failures = of_sample(sample), list[Exception]()
    for run in (exported.by_onnxruntime, exported.by_onnx):
        try:
            exported.check(run())
            return
        except Exception as error:  # Runtimes raise errors of many kinds.
            failures.append(error)
    raise ExceptionGroup(str(sample), failures)


def with_a_form() -> list[Sample]:
    return [
        one
        for one in SAMPLES
        if (one.op in FORMS or issubclass(one.op, Composite))
        and not (one.op in UNLIKE and (not one.smooth or one.arrays[0].dtype.kind in "iu"))
        and not (one.op is gc.ConvOp and one.arrays[0].dtype.kind in "iu")
    ]


def test_every_operation_has_a_form_or_a_reason() -> None:
    for op in gc.GRAPHCORE.operations:
        found = [op in FORMS, op in REASONS, issubclass(op, Composite) and op not in FORMS]
        assert sum(found) == 1, op.name
    assert len(listed_forms()) == len(list(gc.GRAPHCORE.operations))


def test_operations_mean_the_same() -> None:
    for sample in share("operations in ONNX", with_a_form(), 12, kind=lambda one: one.op):
        check_sample(sample)


def trained(network: Network, until: str) -> tuple[ModuleOp, Compilation]:
    """A network with its gradients, or a whole training step."""
    compilation = Compilation()
    module = build_network(network, compilation.weights, "loss")
    rule = SGD(learning_rate=Scalar(0.125), momentum=Scalar(0.75), weight_decay=Scalar(0.25))
    names = tuple(network.name(number, "loss") for number in network.gradients)
    options = Options(training=Training("loss", rule, gradients=names), extra_outputs=names)
    lower(module, compilation, options, level="graphcore", until=until)
    return module, compilation


def check_both_ways(module: ModuleOp, compilation: Compilation) -> None:
    exported = Exported.of(module, compilation, random_inputs(signature(module)))
    exported.check(exported.by_onnxruntime(), nans=False)
    exported.check(exported.by_popgraph())


@settings(max_examples=examples(60))
@given(networks() | controlled() | lookups())
def test_networks_mean_the_same(network: Network) -> None:
    compilation = Compilation()
    module = build_network(network, compilation.weights)
    lower(module, compilation, level="graphcore", until="onnx-to-graphcore")
    exported = Exported.of(module, compilation, random_inputs(signature(module)))
    try:
        found = exported.by_onnxruntime()
    except runtime.capi.onnxruntime_pybind11_state.InvalidArgument as error:
        assert "out of data bounds" in str(error)  # Drawn indices may be out of range.
        return
    exported.check(found, nans=False)
    exported.check(exported.by_popgraph())


@pytest.mark.filterwarnings("ignore::popgraph.support.warnings.UntrainedWeightsWarning")
@settings(max_examples=examples(60))
@given(training_networks() | training_controlled() | learning_convolutions())
def test_gradients_mean_the_same(network: Network) -> None:
    check_both_ways(*trained(network, "autodiff"))


@pytest.mark.filterwarnings("ignore::popgraph.support.warnings.UntrainedWeightsWarning")
@settings(max_examples=examples(20))
@given(training_networks())
def test_training_steps_mean_the_same(network: Network) -> None:
    check_both_ways(*trained(network, "add-optimizer"))


def test_a_wrong_form_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMS, gc.ConvInputGradOp, lambda to, op: to.node("Neg", right(to, op)))
    samples = [one for one in SAMPLES if one.op is gc.ConvInputGradOp]
    with pytest.raises(ExceptionGroup):
        for sample in samples:
            check_sample(sample)


right = FORMS[gc.ConvInputGradOp]


def test_an_operation_without_a_form_is_named() -> None:
    sample = next(one for one in SAMPLES if one.op is gc.SuppressOp)
    with pytest.raises(UnsupportedError, match="suppress cannot be exported to ONNX: boxes"):
        of_sample(sample)
