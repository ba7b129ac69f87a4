"""Tests that the gradient of every operator is exported to ONNX, and computed there alike."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from popgraph.builder.onnx.write import export_model
from popgraph.passes.graphcore.to_onnx import graphcore_to_onnx
from popgraph.passes.options import CONSTANT, GRADIENT, Options
from popgraph.support.arrays import Array
from popgraph.training.gradient_model import simplify
from tests.gradient_cases import all_samples
from tests.gradients import Sample
from tests.sampling import share

runtime = pytest.importorskip("onnxruntime")

WITHOUT_FORM = {"NonMaxSuppression"}
"""Operators whose forward pass has no ONNX form; gradients flow past them."""
SHARE = 60
"""A run tries one in this many cases of each operator."""
TOLERANCE = {"float64": 1e-6, "float32": 2e-3}


def exported(sample: Sample) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The ONNX model of a node's gradients, and the gradients that the reference computes."""
    module, compilation = sample.wide.backward(CONSTANT)
    wanted = sample.wide.gradients((module, compilation), CONSTANT)
    simplify(module, compilation, Options())
    model = export_model(graphcore_to_onnx(module, compilation.weights), compilation.weights)
    onnx.checker.check_model(model, full_check=True)
    return model, {name: one for name, one in wanted.items() if name.startswith(GRADIENT)}


def computed(model: onnx.ModelProto, sample: Sample) -> dict[str, Array]:
    """By onnxruntime; by ONNX's own evaluator if it has no kernel for f64."""
    names = {info.name for info in model.graph.input}
    given = {name: one for name, one in sample.wide.arrays.items() if name in names}
    try:
        session = runtime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        found = session.run(None, given)
    except runtime.capi.onnxruntime_pybind11_state.NotImplemented:
        found = ReferenceEvaluator(model).run(None, given)
    outputs = [info.name for info in model.graph.output]
    return {name: np.asarray(one) for name, one in zip(outputs, found, strict=True)}


def is_grouped(model: onnx.ModelProto) -> bool:
    """Whether ONNX's evaluator computes it wrongly: it reshapes weights of groups."""
    return any(
        attribute.name == "group" and attribute.i > 1
        for node in model.graph.node
        if node.op_type == "ConvTranspose"
        for attribute in node.attribute
    )


def test_gradients_of_operators_in_onnx_are_those_of_the_reference() -> None:
    for sample in share("gradients of operators in ONNX", all_samples(), SHARE):
        if sample.operator in WITHOUT_FORM or not sample.wide.has_loss:
            continue
        model, wanted = exported(sample)
        if is_grouped(model):
            continue
        found = computed(model, sample)
        for name, gradient in wanted.items():
            tolerance = TOLERANCE[sample.wide.precision.dtype.__name__]
            scale = max(1.0, np.abs(gradient).max(initial=0))
            np.testing.assert_allclose(
                found[name], gradient, tolerance, tolerance * scale, err_msg=sample.name
            )
