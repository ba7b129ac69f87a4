"""Sessions under the module name that onnxruntime has for them."""

from __future__ import annotations

from popgraph.ort.binding import IOBinding
from popgraph.ort.providers import check_and_normalize_provider_args
from popgraph.ort.session import InferenceSession
from popgraph.ort.values import OrtDevice, OrtValue

__all__ = [
    "IOBinding",
    "InferenceSession",
    "OrtDevice",
    "OrtValue",
    "check_and_normalize_provider_args",
]
