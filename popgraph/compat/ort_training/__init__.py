"""onnxruntime-training's on-device API: `from popgraph.compat.ort_training import artifacts`."""

from __future__ import annotations

from importlib import import_module as _import_module

from popgraph.support.names import closest as _closest

__all__ = ["api", "artifacts", "onnxblock"]

_ELSEWHERE = {
    "ORTModule": "export the model with torch.onnx.export, then popgraph.Trainer",
    "ortmodule": "export the model with torch.onnx.export, then popgraph.Trainer",
    "optim": "onnxblock.optim for artifacts, or an optimizer of popgraph.Trainer",
    "amp": "popgraph.Trainer with f16 or bf16 weights",
    "experimental": "popgraph.onnx_gradient",
    "utils": "popgraph.Trainer",
}
"""onnxruntime-training's name -> PopGraph's way, for names that this package does not have."""


def __getattr__(name: str) -> object:
    """Imports a module on first use, as `import onnxruntime.training` does."""
    if name in __all__:
        return _import_module(f"{__name__}.{name}")
    if name.startswith("__"):
        raise AttributeError(name)
    way = _ELSEWHERE.get(name) or _closest(name, __all__)
    hint = f"\n  try: {way}" if way else ""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    return list(__all__)
