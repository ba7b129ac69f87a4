"""Tests when sums of products of small integers are made in words, by machine and size."""

from __future__ import annotations

import numpy as np
import pytest

from popgraph.compiler import load, lower
from popgraph.dialects.graphcore import DotConvOp
from popgraph.passes.options import Options
from popgraph.support.machine import PRESETS
from tests.one_node import model, of_both


def words_of(channels: int, machine: str) -> list[str]:
    """The words of a convolution of so many channels, where there are any."""
    inputs = {
        "x": np.zeros((1, channels, 6, 6), np.uint8),
        "w": np.zeros((4, channels, 3, 3), np.int8),
    }
    module, compilation = load(model("ConvInteger", inputs))
    lower(module, compilation, Options(machine=PRESETS[machine]), level="graphcore")
    return [op.words.data for op in module.walk() if isinstance(op, DotConvOp)]


@pytest.mark.parametrize(
    ("channels", "machine", "words"),
    [
        (3, "zen4", ["u8i8"]),
        (2, "zen4", []),
        (3, "zen3", []),
        (9, "zen3", ["i16"]),
    ],
)
def test_words_pay_for_free_places_where_one_instruction_takes_them(
    channels: int, machine: str, words: list[str]
) -> None:
    assert words_of(channels, machine) == words


def test_three_channels_of_bytes() -> None:
    """The fourth place of a word is free, and what pads stands for the zero of the image."""
    random = np.random.default_rng(7)
    image = random.integers(0, 256, (2, 3, 9, 7), np.uint8)
    weights = random.integers(-128, 128, (5, 3, 7, 7), np.int8)
    inputs = {"x": image, "w": weights, "x_zero": np.array(131, np.uint8)}
    proto = model("ConvInteger", inputs, pads=[3, 3, 3, 3], strides=[2, 2], constants=["w"])
    wide = np.pad(image.astype(np.int64) - 131, ((0, 0), (0, 0), (3, 3), (3, 3)))
    places = np.lib.stride_tricks.sliding_window_view(wide, (7, 7), (2, 3))[:, :, ::2, ::2]
    wanted = np.einsum("nchwij,ocij->nohw", places, weights.astype(np.int64))
    assert np.array_equal(of_both(proto, inputs)["y"], wanted)
