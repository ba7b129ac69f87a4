"""Tests that loss objects of sessions equal the loss operators of the same name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

import popgraph.popart as popart
from popgraph.popart.api.losses import IdentityLoss, L1Loss, Loss, NllLoss
from popgraph.support.arrays import Array
from tests.popart.stepping import one_step

REDUCTIONS = (popart.ReductionType.Mean, popart.ReductionType.Sum)
Reduction = popart.ReductionType


def trained(
    logits: Array, labels: Array, add: Callable[[popart.Builder, str, str], str | Loss]
) -> tuple[float, Array]:
    """The loss, possibly per sample, and the gradient of the logits."""
    builder = popart.Builder()
    weight = builder.addInitializedInputTensor(logits, "w")
    given_labels = builder.addInputTensor(popart.TensorInfo(labels), "labels")
    out = builder.aiOnnx.softmax([weight], axis=1)
    loss = add(builder, out, given_labels)
    name = loss.output() if isinstance(loss, Loss) else loss
    wanted = [popart.reservedGradientPrefix() + weight, name]
    anchors = one_step(builder, loss, wanted, {given_labels: labels})
    return float(anchors[name].sum()), anchors[wanted[0]]


@st.composite
def classifications(draw: DrawFn) -> tuple[Array, Array, int | None]:
    """Logits, labels, and the label that is ignored, if any."""
    samples, classes = draw(st.integers(1, 5)), draw(st.integers(2, 4))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    ignored = draw(st.none() | st.integers(0, classes))
    legal = st.integers(0, classes - 1)
    if ignored is not None:
        legal |= st.just(ignored)
    labels = draw(st.lists(legal, min_size=samples, max_size=samples))
    logits = np.random.default_rng(0).normal(size=(samples, classes)).astype(dtype)
    return logits, np.array(labels, draw(st.sampled_from([np.int32, np.int64]))), ignored


@pytest.mark.parametrize("reduction", REDUCTIONS, ids=str)
def test_fuzz_old_and_new_nll_losses_agree(reduction: Reduction) -> None:
    @given(classifications())
    def agree(case: tuple[Array, Array, int | None]) -> None:
        logits, labels, ignored = case

        def old(builder: popart.Builder, out: str, labels: str) -> Loss:
            return NllLoss(out, labels, "loss", ignored, reduction)

        def new(builder: popart.Builder, out: str, labels: str) -> str:
            return builder.aiGraphcore.nllloss([out, labels], reduction, ignored)

        found, expected = trained(logits, labels, old), trained(logits, labels, new)
        np.testing.assert_allclose(found[0], expected[0], 1e-5)
        np.testing.assert_allclose(found[1], expected[1], 1e-5, 1e-7)

    agree()


@pytest.mark.parametrize("reduction", REDUCTIONS, ids=str)
def test_old_and_new_l1_and_identity_losses_agree(reduction: Reduction) -> None:
    logits = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
    labels = np.zeros(3, np.int32)

    def old(builder: popart.Builder, out: str, _: str) -> Loss:
        return IdentityLoss(out, "loss", reduction)

    def new(builder: popart.Builder, out: str, _: str) -> str:
        return builder.aiGraphcore.identityloss([out], reduction)

    found, expected = trained(logits, labels, old), trained(logits, labels, new)
    np.testing.assert_allclose(found[0], expected[0], 1e-6)
    np.testing.assert_allclose(found[1], expected[1], 1e-6, 1e-8)


def test_the_l1_loss_of_poponnx_averages_over_samples() -> None:
    """PopONNX's L1 loss averages over samples, PopART's over elements."""
    logits = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
    loss, _ = trained(
        logits,
        np.zeros(3, np.int32),
        lambda builder, out, _: L1Loss(out, "loss", 0.5, Reduction.Mean),
    )
    np.testing.assert_allclose(loss, 0.5, 1e-6)
