"""Tests that the state of a session's random generator can be saved and restored."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import popgraph.popart as popart
from popgraph.support.arrays import Array


def drawing(
    *, kept: bool = True, draws: bool = True
) -> tuple[popart.InferenceSession, Callable[[], Array]]:
    """A session, and a function that runs one step of it."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [64], "x")
    y = builder.aiOnnx.add([x, builder.aiOnnx.randomuniformlike([x])] if draws else [x, x])
    options = popart.SessionOptions()
    options.enableLoadAndOffloadRNGState = kept
    session = popart.InferenceSession(
        builder.getModelProto(), popart.DataFlow(1, [y]), userOptions=options
    )

    def step() -> Array:
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({x: np.zeros(64, np.float32)}, anchors))
        return anchors[y]

    return session, step


def test_a_restored_state_continues_the_sequence() -> None:
    session, step = drawing()
    session.prepareDevice()
    session.setRandomSeed(2**64 - 7)
    step()
    state = session.getRNGState()
    following = [step(), step()]
    assert session.getRNGState() != state
    other, other_step = drawing()
    other.prepareDevice()
    for one, again in ((session, step), (other, other_step)):
        one.setRNGState(state)
        assert one.getRNGState() == state
        np.testing.assert_array_equal([again(), again()], following)


def test_a_program_that_draws_nothing_keeps_the_state() -> None:
    session, _ = drawing(draws=False)
    session.prepareDevice()
    state = session.getRNGState()
    assert state == [0] * len(state)
    session.setRNGState([one + 1 for one in state])
    assert session.getRNGState() == [1] * len(state)


def test_a_session_of_synthetic_data_has_no_state() -> None:
    builder, options = popart.Builder(), popart.SessionOptions()
    options.enableLoadAndOffloadRNGState = True
    options.syntheticDataMode = popart.SyntheticDataMode.Zeros
    drawn = builder.aiOnnx.randomuniform([2])
    session = popart.InferenceSession(
        builder.getModelProto(), popart.DataFlow(1, [drawn]), userOptions=options
    )
    session.prepareDevice()
    assert session.getRNGState() == []


def test_an_invalid_state_has_popart_s_message() -> None:
    session, _ = drawing(kept=False)
    words = "the RNG state, but the session option enableLoadAndOffloadRNGState must be set"
    with pytest.raises(popart.popart_runtime_error, match=f"Trying to get {words}"):
        session.getRNGState()
    with pytest.raises(popart.popart_runtime_error, match=f"Trying to set {words}"):
        session.setRNGState([1, 2])
    session, _ = drawing()
    with pytest.raises(popart.popart_runtime_error, match="prepare\\(\\) must be called before"):
        session.getRNGState()
    session.prepareDevice()
    with pytest.raises(popart.popart_runtime_error, match="received rngState of size 2"):
        session.setRNGState([1, 2])


@pytest.mark.parametrize("draws", [True, False])
def test_a_state_has_the_size_that_it_has_on_the_device(draws: bool) -> None:
    """Two states of four words per worker, six workers per tile; any words are read back."""
    session, step = drawing(draws=draws)
    session.setDevice(popart.DeviceManager().createIpuModelDevice({"numIPUs": 2, "tilesPerIPU": 4}))
    session.prepareDevice()
    size = 2 * 4 * 6 * 4 * 2
    assert len(session.getRNGState()) == size
    words = np.random.default_rng(1).integers(0, 2**32, size).tolist()
    session.setRNGState(words)
    assert session.getRNGState() == words
    step()
    assert (session.getRNGState() != words) == draws
