"""Tests ImageDecoder: pixel formats, files that are not images, and a missing Pillow."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, parser
from PIL import Image

import popgraph
from popgraph.support.arrays import Array
from popgraph.support.errors import RunError, TypeMismatchError

COLOURS = np.array([[[255, 0, 0], [0, 128, 255]], [[9, 8, 7], [1, 2, 3]]], np.uint8)


def model(pixel_format: str) -> ModelProto:
    return parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 20]> g (uint8[n] file) => (uint8[h, w, c] y) '
        f'{{ y = ImageDecoder <pixel_format = "{pixel_format}"> (file) }}'
    )


def file_of(image: Image.Image) -> Array:
    held = io.BytesIO()
    image.save(held, "PNG")
    return np.frombuffer(held.getvalue(), np.uint8)


def decoded(file: Array, pixel_format: str = "RGB") -> Array:
    return popgraph.compile(model(pixel_format))(file=file)["y"]


def test_decoded_images_have_the_requested_format() -> None:
    """A decoded image has the requested format, whatever the format of the file."""
    grey = Image.fromarray(COLOURS[..., 0])
    alpha = Image.fromarray(COLOURS).convert("RGBA")
    palette = Image.fromarray(COLOURS).convert("P", palette=Image.Palette.ADAPTIVE)
    for image in (Image.fromarray(COLOURS), alpha, palette):
        np.testing.assert_array_equal(decoded(file_of(image)), COLOURS)
        np.testing.assert_array_equal(decoded(file_of(image), "BGR"), COLOURS[..., ::-1])
        assert decoded(file_of(image), "Grayscale").shape == (2, 2, 1)
    np.testing.assert_array_equal(decoded(file_of(grey), "Grayscale")[..., 0], COLOURS[..., 0])
    np.testing.assert_array_equal(decoded(file_of(grey)), COLOURS[..., :1].repeat(3, -1))


@pytest.mark.parametrize(("pixel_format", "channels"), [("RGB", 3), ("Grayscale", 1)])
def test_undecodable_files_give_empty_images(pixel_format: str, channels: int) -> None:
    for file in (np.zeros(0, np.uint8), np.arange(50, dtype=np.uint8)):
        found = decoded(file, pixel_format)
        assert found.shape == (0, 0, channels) and found.dtype == np.uint8
    assert decoded(file_of(Image.fromarray(COLOURS))[:40], pixel_format).shape == (0, 0, channels)


def test_unknown_pixel_formats_are_refused() -> None:
    with pytest.raises(TypeMismatchError, match="use one of RGB, BGR, Grayscale"):
        popgraph.compile(model("CMYK"))


def test_without_pillow_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(RunError, match="needs the package Pillow") as caught:
        decoded(np.zeros(1, np.uint8))
    assert "ImageDecoder" in caught.value.where
    assert caught.value.hint == 'pip install "popgraph[images]"'
    assert "images = [" in (Path(popgraph.__file__).parents[1] / "pyproject.toml").read_text()
