"""ImageDecoder by Pillow, as ONNX defines it where its reference does not."""

from __future__ import annotations

import io
from importlib import import_module
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from popgraph.support.arrays import Array
from popgraph.support.errors import RunError


class ImageDecoder(OpRun):  # type: ignore[misc]
    """
    The reference's own gives grey, transparent and palette images in whatever form they have.

    What cannot be decoded is an empty image; there the reference raises.
    """

    op_domain = ""

    def _run(self, encoded: Array, pixel_format: str = "RGB") -> tuple[Array]:
        library = _pillow()
        mode = "L" if pixel_format == "Grayscale" else "RGB"
        try:
            with library.open(io.BytesIO(encoded.tobytes())) as image:
                pixels = np.array(image.convert(mode))
        except Exception:  # ONNX: "if it can't decode for any reason"
            pixels = np.zeros((0, 0, len(mode)), np.uint8)
        pixels = pixels.reshape(*pixels.shape[:2], len(mode))
        return (np.ascontiguousarray(pixels[..., ::-1]) if pixel_format == "BGR" else pixels,)


def _pillow() -> Any:
    try:
        return import_module("PIL.Image")
    except ImportError as error:
        raise RunError(
            "ImageDecoder needs the package Pillow", hint='pip install "popgraph[images]"'
        ) from error
