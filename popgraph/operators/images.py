"""Evaluates ImageDecoder with Pillow."""

from __future__ import annotations

import io
from importlib import import_module
from typing import Any

import numpy as np

from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.record import chooses, computes
from popgraph.support.arrays import Array
from popgraph.support.errors import RunError


@computes("ImageDecoder")
def image_decoder(node: NodeView, encoded: Array) -> Array:
    """
    Pixels in the format that the node names, whatever format they have in the file.

    Bytes that cannot be decoded are an empty image, as ONNX says; its reference raises. The
    reference also leaves grey, transparent and palette images in the format of the file.
    """
    library = _pillow()
    pixel_format = node.attribute("pixel_format")
    mode = "L" if pixel_format == "Grayscale" else "RGB"
    try:
        with library.open(io.BytesIO(encoded.tobytes())) as image:
            pixels = np.array(image.convert(mode))
    except Exception:  # ONNX: "if it can't decode for any reason"
        pixels = np.zeros((0, 0, len(mode)), np.uint8)
    pixels = pixels.reshape(*pixels.shape[:2], len(mode))
    return np.ascontiguousarray(pixels[..., ::-1]) if pixel_format == "BGR" else pixels


def _pillow() -> Any:
    try:
        return import_module("PIL.Image")
    except ImportError as error:
        raise RunError(
            "ImageDecoder needs the package Pillow", hint='pip install "popgraph[images]"'
        ) from error


chooses("ImageDecoder", pixel_format=("RGB", "BGR", "Grayscale"))
