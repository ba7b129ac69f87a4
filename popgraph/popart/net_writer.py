"""
PopART's `NetWriter`: the base of classes that train and export a network of another framework.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from popgraph.support.arrays import Array


class NetWriter:
    """
    The base class of framework-specific writers.

    `NetWriter(inNames, outNames, losses, optimizer, dataFeed, inputShapeInfo)` as in PopONNX, or
    without losses as in PopART since losses are operators. `dataFlow` is an alias of `dataFeed`.
    """

    _NAMES: ClassVar[tuple[str, ...]] = ("optimizer", "dataFeed", "inputShapeInfo")

    def __init__(
        self, inNames: Sequence[str], outNames: Sequence[str], *args: Any, **named: Any
    ) -> None:
        self.inNames, self.outNames = list(inNames), list(outNames)
        given = list(args)
        self.losses: list[Any] = list(named.pop("losses", None) or ())
        if given and isinstance(given[0], list | tuple):
            self.losses = list(given.pop(0))
        if "dataFlow" in named:
            named["dataFeed"] = named.pop("dataFlow")
        for name in self._NAMES:
            if given and name in named:
                raise TypeError(f"{type(self).__name__}() got several values for {name}")
            if not given and name not in named and name not in _OPTIONAL:
                raise TypeError(f"{type(self).__name__}() needs {name}")
            setattr(self, name, given.pop(0) if given else named.pop(name, None))
        if given or named:
            extra = ", ".join(named) or f"{len(given)} values"
            raise TypeError(f"{type(self).__name__}() takes no {extra}")
        self.dataFlow = self.dataFeed
        self.trainMode = self.optimizer is not None
        print(self.dataFlow.nAnchors())

    optimizer: Any
    dataFeed: Any
    inputShapeInfo: Any

    def saveModel(self, filename: str) -> None:
        """Writes the network as ONNX."""
        raise NotImplementedError

    def train(self, inputsMap: Mapping[str, Array]) -> Any:
        """Runs `batchesPerStep` training iterations."""
        raise NotImplementedError

    def evaluate(self, inputsMap: Mapping[str, Array]) -> Any:
        """Computes the losses of a step."""
        raise NotImplementedError

    def infer(self, inputsMap: Mapping[str, Array]) -> Any:
        """Computes the outputs of a step."""
        raise NotImplementedError


_OPTIONAL = ("samplesPerBatch",)
"""Arguments that some eras omit."""
