"""Functions of operators whose modules are imported when an operator is first met."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from importlib import import_module
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])
Operator = tuple[str, str]
"""Domain ("" is ai.onnx) and name."""


class Page:
    """Takes the place of a function in a registry until its module, the page, is imported."""

    def __init__(self, module: str) -> None:
        self.page = module
        self.function: Callable[..., Any] | None = None

    def loaded(self) -> Callable[..., Any]:
        if self.function is None:
            import_module(self.page)
        assert self.function is not None, f"{self.page} does not register what its table says"
        return self.function

    def __call__(self, *arguments: Any) -> Any:
        return self.loaded()(*arguments)


def pages(package: str, table: str) -> dict[Operator, Page]:
    """The pages of a package, from lines of a module, a domain and the names of operators."""
    found = {}
    for line in table.strip().splitlines():
        module, domain, *names = line.split()
        for name in names:
            key = ("" if domain == "ai.onnx" else domain, name)
            found[key] = Page(f"{package}.{module}")
    return found


def enter(registry: MutableMapping[Operator, Function], key: Operator, function: Function) -> None:
    """Puts a function into a registry, in the place of its page if there is one."""
    known = registry.get(key)
    if isinstance(known, Page):
        known.function = function
    registry[key] = function
