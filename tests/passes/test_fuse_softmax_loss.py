"""Tests `fuse-softmax-loss` for every kind of loss."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.builder import ImplicitBuilder
from xdsl.dialects.builtin import ModuleOp, TensorType

from popgraph.backends.reference import evaluate
from popgraph.dialects import element_types
from popgraph.dialects import graphcore as gc
from popgraph.dialects.check import check_ir
from popgraph.dialects.graphcore.base import Operand
from popgraph.dialects.program import GraphOp, ReturnOp
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore.fuse_softmax_loss import FuseSoftmaxLoss, SubtractLabels
from popgraph.support import dtypes
from popgraph.support.arrays import Array

GENERATOR = np.random.default_rng(11)
LABELS = np.array([[2, 0, 3], [1, 2, 2]], np.int32)
LOGITS = GENERATOR.normal(size=(2, 3, 4))


def program(
    reduction: str, ignore: int | None, log: bool, dtype: type[np.floating], *, shared: bool = False
) -> tuple[ModuleOp, Compilation]:
    """A softmax and a loss, with the gradient of the logits."""
    element = element_types.to_ir(dtypes.from_numpy(dtype))
    dloss = LABELS.shape if reduction == "none" else ()
    types = [
        TensorType(element, LOGITS.shape),
        TensorType(element_types.BY_NAME["i32"], LABELS.shape),
        TensorType(element, dloss),
    ]
    graph = GraphOp("main", ["logits", "labels", "d"], types)
    logits, labels, d = graph.block.args
    with ImplicitBuilder(graph.block):
        y: Operand
        y = gc.LogSoftmaxOp(logits, axis=2) if log else gc.SoftmaxOp(logits, axis=2)
        slope = gc.NllLossGradOp(
            y, labels, d, reduction=reduction, ignore_index=ignore, log_probabilities=log
        )
        made = (gc.LogSoftmaxGradOp if log else gc.SoftmaxGradOp)(y, slope, axis=2)
        outputs = [made.result, *([slope.result] if shared else [])]
        ReturnOp(outputs, ["g", "s"][: len(outputs)])
    return ModuleOp([graph]), Compilation()


def names(module: ModuleOp) -> set[str]:
    return {op.name.removeprefix("graphcore.") for op in module.walk()}


def inputs(reduction: str, dtype: type[np.floating], labels: Array = LABELS) -> dict[str, Array]:
    shape = LABELS.shape if reduction == "none" else ()
    d = np.asarray(GENERATOR.normal(size=shape))
    return {"logits": LOGITS.astype(dtype), "labels": labels, "d": d.astype(dtype)}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("ignore", [None, 2, 9])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_fused_softmax_loss_gradient(
    reduction: str, ignore: int | None, log: bool, dtype: type[np.floating]
) -> None:
    module, compilation = program(reduction, ignore, log, dtype)
    given = inputs(reduction, dtype)
    before, _ = evaluate(module, given, compilation.weights)
    FuseSoftmaxLoss().run(compilation, module)
    check_ir(module)
    assert not names(module) & {"softmax_grad", "log_softmax_grad", "nll_loss_grad"}
    after, _ = evaluate(module, given, compilation.weights)
    tolerance = 1e-12 if dtype is np.float64 else 1e-6
    np.testing.assert_allclose(after["g"], before["g"], rtol=tolerance, atol=tolerance)
    expected = np.exp(LOGITS) / np.exp(LOGITS).sum(-1, keepdims=True) - np.eye(4)[LABELS]
    counted = np.not_equal(-1 if ignore is None else ignore, LABELS)
    share = given["d"] / max(counted.sum(), 1) if reduction == "mean" else given["d"]
    expected = expected * np.where(counted, share, 0)[..., None]
    np.testing.assert_allclose(after["g"], expected, rtol=1e-5, atol=1e-6)


def test_labels_out_of_range_have_no_gradient() -> None:
    module, compilation = program("sum", None, False, np.float64)
    given = inputs("sum", np.float64, np.array([[4, -1, 0], [100, 3, 2]], np.int32))
    before, _ = evaluate(module, given, compilation.weights)
    FuseSoftmaxLoss().run(compilation, module)
    after, _ = evaluate(module, given, compilation.weights)
    assert not after["g"][0, 0].any() and after["g"][0, 2].any()
    np.testing.assert_allclose(after["g"], before["g"], rtol=1e-12, atol=1e-12)


def test_a_label_of_zero_probability_has_a_gradient() -> None:
    """The two separate gradients would give 0 where the label's probability underflows."""
    module, compilation = program("sum", None, False, np.float32)
    logits = np.zeros((2, 3, 4), np.float32)
    logits[..., 3] = 200
    given = inputs("sum", np.float32, np.zeros((2, 3), np.int32))
    given["logits"] = logits
    FuseSoftmaxLoss().run(compilation, module)
    after, _ = evaluate(module, given, compilation.weights)
    np.testing.assert_allclose(after["g"][0, 0], np.array([-1, 0, 0, 1]) * given["d"], atol=1e-6)


def test_a_gradient_with_other_readers_is_not_fused() -> None:
    module, compilation = program("mean", None, False, np.float64, shared=True)
    before = str(module)
    FuseSoftmaxLoss().run(compilation, module)
    assert str(module) == before


@pytest.mark.parametrize("kind", ["other probabilities", "other axis", "probabilities as logs"])
def test_gradients_that_do_not_match_are_not_fused(kind: str) -> None:
    types = [TensorType(element_types.BY_NAME["f64"], (4, 4)) for _ in range(2)]
    labels = TensorType(element_types.BY_NAME["i32"], (4,))
    graph = GraphOp(
        "main", ["p", "q", "labels", "d"], [*types, labels, TensorType(types[0].element_type, ())]
    )
    p, q, index, d = graph.block.args
    with ImplicitBuilder(graph.block):
        slope = gc.NllLossGradOp(
            p, index, d, reduction="sum", log_probabilities=kind == "probabilities as logs"
        )
        other = q if kind == "other probabilities" else p
        made = gc.SoftmaxGradOp(other, slope, axis=0 if kind == "other axis" else 1)
        ReturnOp([made.result], ["g"])
    module = ModuleOp([graph])
    before = str(module)
    FuseSoftmaxLoss().run(Compilation(), module)
    assert str(module) == before


def test_a_wrong_fused_gradient_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that the comparison can fail: ignored rows that count."""
    monkeypatch.setattr(
        SubtractLabels, "counts", lambda self, loss: self.literal(np.ones((2, 3), bool))
    )
    with pytest.raises(AssertionError):
        test_fused_softmax_loss_gradient("mean", 2, False, np.float64)
