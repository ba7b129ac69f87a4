"""scikit-learn's interface: `Classifier` and `Regressor` for pipelines and grid searches."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from popgraph.support.errors import PopgraphError
from popgraph.support.garbage import while_importing as _while_importing

if TYPE_CHECKING:
    from popgraph.sklearn.estimators import Classifier as Classifier
    from popgraph.sklearn.estimators import Regressor as Regressor

__all__ = ["Classifier", "Regressor"]


def __getattr__(name: str) -> object:
    """Imports the estimators on first use; PopgraphError if scikit-learn is not installed."""
    if name not in __all__:
        raise AttributeError(f"module 'popgraph.sklearn' has no attribute {name!r}")
    with _while_importing():
        try:
            import_module("sklearn")
        except ImportError as error:
            raise PopgraphError(
                f"popgraph.sklearn needs the package scikit-learn: {error}",
                hint='pip install "popgraph[sklearn]"',
            ) from error
        value: object = getattr(import_module("popgraph.sklearn.estimators"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
