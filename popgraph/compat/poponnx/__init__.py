"""PopONNX's module `poponnx`: `popart` by its old name, plus the names that only it had."""

from __future__ import annotations

from popgraph.compat import popart as _popart
from popgraph.popart.eras.era import OWN as _OWN
from popgraph.popart.eras.era import PLAIN_POPONNX as _ERA
from popgraph.popart.eras.era import own_value as _own_value

__version__ = _popart.__version__
__all__ = sorted({*_popart.__all__, *_OWN})


def __getattr__(name: str) -> object:
    if name in _OWN:
        return _own_value(name, _ERA)
    if name.startswith("__") or name not in _popart.__all__:
        raise AttributeError(f"module 'poponnx' has no attribute {name!r}")
    return getattr(_popart, name)


def __dir__() -> list[str]:
    return list(__all__)
