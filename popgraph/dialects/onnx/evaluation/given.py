"""The view of a node that NumPy functions of operators get: its attributes as Python values."""

from __future__ import annotations

from typing import Any

import numpy as np

from popgraph.dialects.onnx.op import OnnxOp
from popgraph.dialects.program import WeightStore
from popgraph.support.arrays import Array
from popgraph.support.errors import RunError


class Given:
    """A node's attributes as Python values."""

    def __init__(self, op: OnnxOp, store: WeightStore) -> None:
        self.op = op
        self._values = op.attribute_values(store)

    def __getitem__(self, name: str) -> Any:
        return plain(self._values[name])

    def get(self, name: str, default: object = None) -> Any:
        return plain(self._values.get(name, default))

    def many(self, name: str) -> list[Any]:
        """A list, empty if the node gives none; of a tensor its elements."""
        found: Any = plain(self._values.get(name, []))
        return list(found.reshape(-1)) if isinstance(found, np.ndarray) else list(found)

    def first(self, *names: str) -> tuple[str, list[Any]]:
        """The first of some lists that the node gives."""
        for name in names:
            if found := self.many(name):
                return name, found
        return names[-1], []

    def fail(self, what: str, hint: str) -> RunError:
        return RunError(what, self.op.where(), hint)


def plain(value: object) -> object:
    """Strings are texts, not bytes."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, np.ndarray) and value.dtype.kind in "OSU":
        return objects(map(plain, value.reshape(-1)), value.shape)
    return value


def objects(elements: Any, shape: tuple[int, ...]) -> Array:
    """An array of Python's own values, which NumPy does not look into."""
    held = list(elements)
    made = np.empty(len(held), object)
    made[:] = held
    return made.reshape(shape)


def holds_text(value: object) -> bool:
    return isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "OSU"


def texts(value: Any) -> Array:
    """The strings of a tensor as Python's own."""
    found = plain(np.asarray(value))
    assert isinstance(found, np.ndarray)
    return found
