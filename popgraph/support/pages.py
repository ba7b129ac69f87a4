"""Functions whose modules are imported when they are first called."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


class Page:
    """Takes the place of a function until its module, in a room above, is imported."""

    def __init__(self, module: str) -> None:
        self.page = module
        self.function: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        if self.function is None:
            import_module(self.page)
        assert self.function is not None, f"{self.page} does not fill in its function"
        return self.function(*arguments)
