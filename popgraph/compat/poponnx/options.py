"""PopONNX's session options: names that later times gave up."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from popgraph.builder.opset.enums import (
    RecomputationType,
    SyntheticDataMode,
    VirtualGraphMode,
)
from popgraph.session import options as modern
from popgraph.session.logger import getLogger


def _log_levels(levels: Mapping[str, str]) -> None:
    for name, level in levels.items():
        getLogger(name).setLevel(level)


_MEANING: dict[str, tuple[str, Callable[[object], object]]] = {
    "enableVirtualGraphs": (
        "virtualGraphMode",
        lambda on: VirtualGraphMode.Manual if on else VirtualGraphMode.Off,
    ),
    "autoVirtualGraph": (
        "virtualGraphMode",
        lambda on: VirtualGraphMode.Auto if on else VirtualGraphMode.Off,
    ),
    "ignoreData": (
        "syntheticDataMode",
        lambda on: SyntheticDataMode.Zeros if on else SyntheticDataMode.Off,
    ),
    **dict.fromkeys(
        ["enableRecomputation", "enableAutoRecomputation"],
        (
            "autoRecomputation",
            lambda on: RecomputationType.Standard if on else RecomputationType.NoRecompute,
        ),
    ),
}
"""Old options, the option that each became, and its value there."""

_GONE: dict[str, object] = {
    "exportDot": False,
    "enableConvolutionGraphCaching": True,
    "minimumVirtualGraphCount": 1,
    "dotSubgraphAnnotation": False,
    "maxDotOps": 10000,
    "enableGroupedMatmuls": True,
    "pingPongPhases": 0,
    "ipuSystemType": "",
}
"""Old options that change no result, and their defaults."""


class SessionOptions(modern.SessionOptions):
    """PopART's options, and the old names of some; an unknown name is an AttributeError."""

    __slots__ = ("_old",)
    _old: dict[str, object]

    def __init__(self) -> None:
        object.__setattr__(self, "_old", {**_GONE, "logging": {}, **dict.fromkeys(_MEANING, False)})
        super().__init__()

    def __getattr__(self, name: str) -> object:
        if name != "_old" and name in self._old:
            return self._old[name]
        raise AttributeError(f"'SessionOptions' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: object) -> None:
        if name not in self._old:
            super().__setattr__(name, value)
            return
        self._old[name] = value
        if name in _MEANING:
            today, meaning = _MEANING[name]
            super().__setattr__(today, meaning(value))
        elif name == "logging":
            assert isinstance(value, Mapping)
            _log_levels(value)
