"""Functions whose modules are imported on the first call."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


class Page:
    """A stub for a function of a higher layer, which imports its module when called."""

    def __init__(self, module: str) -> None:
        self.page = module
        self.function: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        if self.function is None:
            import_module(self.page)
        assert self.function is not None, f"{self.page} does not fill in its function"
        return self.function(*arguments)
