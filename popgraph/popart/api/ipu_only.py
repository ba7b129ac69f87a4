"""Session methods for executables and streams that only exist on IPUs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from popgraph.builder.opset.arguments import typed
from popgraph.popart.api.devices import DeviceInfo
from popgraph.popart.exceptions import popart_exception, poplar_exception


@typed
class IpuOnly(ABC):
    """Session methods that are rejected here, with the messages of PopART."""

    @property
    @abstractmethod
    def _device(self) -> DeviceInfo: ...

    def _not_saved(self) -> NoReturn:
        raise popart_exception(
            f"Executables for device type {self._device.type} cannot be saved",
            "Session",
            "kernels are cached by themselves; `popgraph emit` writes a model as C",
        )

    def saveExecutable(
        self, path: str, savePopartMetadata: bool = True, saveVariables: bool = True
    ) -> None:
        self._not_saved()

    def saveVariables(self, path: str) -> None:
        self._not_saved()

    def compileAndExport(self, filename: str, err: object = None) -> None:
        self._not_saved()

    def loadExecutable(self, filename: str) -> None:
        if not Path(filename).is_file():
            raise popart_exception(f"Could not open file {filename}", "loadExecutable")
        raise popart_exception(
            f"Failed to load serialized PopART executable from {filename}",
            "loadExecutable",
            "there are no executables of PopEF here; prepareDevice finds cached kernels itself",
        )


@typed
class TrainingOnly:
    """The same for training sessions."""

    def updateEngineCache(self) -> None:
        """No effect: cached kernels are looked up on demand."""

    def connectStreamToCallback(
        self, streamHandle: str, callback: Callable[[object], None], index: int = 0
    ) -> None:
        raise poplar_exception(
            f"There is no stream '{streamHandle}'",
            "connectStreamToCallback",
            "PyStepIOCallback hands inputs and anchors to functions",
        )
