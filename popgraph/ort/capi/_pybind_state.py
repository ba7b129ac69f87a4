"""The names of `onnxruntime_pybind11_state` under the module that re-exports them."""

from popgraph.ort.capi.onnxruntime_pybind11_state import *  # noqa: F403
