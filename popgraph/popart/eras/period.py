"""The names of an era's module, each imported when it is first used."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType

from popgraph import popart
from popgraph.popart.about import versionString
from popgraph.popart.eras.era import Era, of_era

_MODULES = {
    "api.dataflow": "EarlyInfo=InputShapeInfo",
    "api.debugging": "PrepareDeviceError=OutOfMemoryError",
    "api.tensorinfo": "TensorInfoCore=TensorInfo",
    "eras.steps": "AnchorReturnType DataFlow",
    "eras.settings": "DeviceManager PatternType PreAliasPatternType=PatternType",
    "eras.enums": """
        AnchorReturnTypeId CacheType DeviceConnectionType DotCheck PatternsLevel RecomputationType
        ReductionType SyncPattern VirtualGraphMode
    """,
    "eras.training": "BaseSGD L1Loss NllLoss",
    "exceptions": "PrepareDeviceException=OutOfMemoryException poponnx_exception=popart_exception",
}
"""By the module, what all eras have alike; `old=new` is another name of the module's `new`."""
_MODULES_OF_ERAS = {
    "eras.builder": "Builder",
    "eras.training": "ConstSGD SGD",
    "eras.settings": "Patterns SessionOptions SessionOptionsCore=SessionOptions",
    "eras.sessions": "InferenceSession Session TrainingSession",
    "eras.steps": "PyStepIO",
}
"""By the module, the classes that depend on the era."""


def _homes(modules: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """The module of each name, and the name there."""
    return {
        name: (f"popgraph.popart.{module}", today or name)
        for module, names in modules.items()
        for name, _, today in (one.partition("=") for one in names.split())
    }


_ALIKE, _BOUND = _homes(_MODULES), _homes(_MODULES_OF_ERAS)
_PREFIXES = ("reservedGradientPrefix", "reservedAccumulationPrefix")
OWN = frozenset([*_ALIKE, *_BOUND, *_PREFIXES])
"""What an old era's module has that `popgraph.popart` has not, or has otherwise."""


def own_value(name: str, era: Era) -> object:
    """One of these, as it was in an era."""
    if name == "reservedGradientPrefix":
        return lambda: era.gradient
    if name == "reservedAccumulationPrefix":
        return popart.reservedAccumPrefix
    module, today = (_BOUND if name in _BOUND else _ALIKE)[name]
    found = getattr(import_module(module), today)
    return of_era(found, era) if name in _BOUND else found


class EraModule(ModuleType):
    """`poponnx` or `popart` as it was in an era."""

    def __init__(self, era: Era) -> None:
        super().__init__(era.module, f"{era.module} as it was in {era.name}.")
        self._era, self.__era__ = era, era.name
        self.__path__ = import_module(f"popgraph.compat.{era.module}").__path__
        self.__version__ = versionString()
        self.__all__ = sorted({*dir(popart), *OWN})

    def __getattr__(self, name: str) -> object:
        if name not in self.__all__:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = own_value(name, self._era) if name in OWN else getattr(popart, name)
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return list(self.__all__)
