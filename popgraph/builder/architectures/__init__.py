"""Language models as `.pgraph` texts: architectures, their configurations and weights."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from popgraph.builder.architectures.model import LanguageModel as LanguageModel
    from popgraph.builder.architectures.model import open_language_model as open_language_model
    from popgraph.builder.architectures.texts import model_text as model_text

_HOMES = {
    "LanguageModel": "model",
    "open_language_model": "model",
    "model_text": "texts",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    """Imports a name on first use: other models need no parser."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
