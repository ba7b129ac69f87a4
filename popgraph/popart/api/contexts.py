"""PopART's context managers: what a builder notes on all that is made while they are open."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

from popgraph.builder.opset.arguments import typed

_T = TypeVar("_T")


@typed
class _OnTop(AbstractContextManager[None], Generic[_T]):
    """Puts an entry on a stack for as long as it is open."""

    def __init__(self, stack: list[_T], entry: _T) -> None:
        self._stack, self._entry = stack, entry

    def __enter__(self) -> None:
        self._stack.append(self._entry)

    def __exit__(self, *error: object) -> None:
        self._stack.pop()


@typed
class AttributeContextManager(_OnTop[Mapping[str, object]]):
    """Every node gets an attribute; of several contexts, the innermost counts."""

    def __init__(self, stack: list[Mapping[str, object]], name: str, value: object) -> None:
        super().__init__(stack, {name: value})


@typed
class KeyValueContextManager(_OnTop[Mapping[str, object]]):
    """Every node gets pairs `key=value` in one attribute, beside those of the contexts around."""

    def __init__(
        self, stack: list[Mapping[str, object]], name: str, values: Mapping[str, object]
    ) -> None:
        super().__init__(stack, {name: [f"{key}={value}" for key, value in values.items()]})
        self._name = name

    def __enter__(self) -> None:
        around = next((one[self._name] for one in reversed(self._stack) if self._name in one), [])
        assert isinstance(around, list)
        own = self._entry[self._name]
        assert isinstance(own, list)
        self._stack.append({self._name: [*around, *own]})


@typed
class NameContextManager(_OnTop[str]):
    """Every name begins with `scope/`."""
