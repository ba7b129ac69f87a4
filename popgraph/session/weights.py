"""The host copies of a session's weights and optimizer state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from popgraph.backends.base import Executable
from popgraph.builder.opset.exceptions import popart_exception, popart_runtime_error
from popgraph.support.arrays import Array


class HostWeights:
    """
    Weights and optimizer state, twice: what will be sent, and what was fetched last.

    PopART keeps them apart: reading never fetches, writing never sends.
    """

    def __init__(self, first: Mapping[str, Array]) -> None:
        self._values = {id: array.copy() for id, array in first.items()}
        self._fetched: Mapping[str, Array] | None = None
        self.in_sync = False
        """They are those of the device."""

    def __contains__(self, id: str) -> bool:
        return id in self._values

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def values(self) -> Mapping[str, Array]:
        """What will be sent."""
        return self._values

    def send(self, executable: Executable) -> None:
        for id in executable.variables:
            if id in self._values:
                executable.write(id, self._values[id])
        self.in_sync = True

    def fetch(self, executable: Executable) -> None:
        self._fetched = {
            id: executable.read(id) if id in executable.variables else array
            for id, array in self._values.items()
        }

    def keep_fetched(self) -> None:
        """What was fetched is what will be sent."""
        self._values = {id: array.copy() for id, array in self.fetched().items()}
        self.in_sync = True

    def fetched(self) -> Mapping[str, Array]:
        return self._values if self._fetched is None else self._fetched

    def read(self, targets: Mapping[str, Array]) -> None:
        """Copies what was fetched into arrays; ids that are no weights are passed over."""
        for id, target in targets.items():
            if id not in self:
                continue
            source = self.fetched()[id]
            if source.nbytes != target.nbytes:
                raise popart_runtime_error(
                    f"sizes (in bytes) of src ({source.nbytes}) and dst ({target.nbytes}) differ "
                    f"in hostStreamToHost for {id}"
                )
            target.reshape(-1)[...] = source.reshape(-1)

    def write(self, sources: Mapping[str, Array]) -> None:
        """Takes new values; only the number of elements has to fit."""
        for id, source in sources.items():
            if id in self:
                self._replace(id, source, source.size == self._values[id].size)

    def reset(self, sources: Mapping[str, Array], ignore_unknown: bool) -> None:
        """Takes the values of another model, whose tensors must be like these."""
        for id, source in sources.items():
            if id in self:
                self._replace(id, source, source.shape == self._values[id].shape)
            elif not ignore_unknown:
                raise popart_exception(f"resetWeights, no tensor '{id}' in tensors")

    def _replace(self, id: str, array: Array, fits: bool) -> None:
        held = self._values[id]
        if not fits or array.dtype != held.dtype:
            raise popart_exception(
                "Trying to reset weights using tensor with non matching tensor info. "
                f"Tensor ID: {id}"
            )
        self._values[id] = array.reshape(held.shape).copy()
        self.in_sync = False
