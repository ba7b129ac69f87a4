"""The names of an era's module."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from popgraph import popart
from popgraph.popart.about import PREFIX_FUNCTIONS, versionString
from popgraph.popart.api.dataflow import InputShapeInfo
from popgraph.popart.api.debugging import OutOfMemoryError
from popgraph.popart.api.losses import IdentityLoss
from popgraph.popart.api.tensorinfo import TensorInfo
from popgraph.popart.eras.builder import Builder
from popgraph.popart.eras.dataflow import AnchorReturnType, DataFlow
from popgraph.popart.eras.devices import DeviceManager
from popgraph.popart.eras.enums import CACHE_TYPE, DOT_CHECK, PATTERN_TYPE, old_enums
from popgraph.popart.eras.era import Era, of_era
from popgraph.popart.eras.losses import L1Loss, NllLoss
from popgraph.popart.eras.optimizers import SGD, BaseSGD, ConstSGD
from popgraph.popart.eras.options import SessionOptions
from popgraph.popart.eras.patterns import Patterns
from popgraph.popart.eras.session import Session
from popgraph.popart.eras.sessions import InferenceSession, TrainingSession
from popgraph.popart.eras.step_io import PyStepIO
from popgraph.popart.exceptions import OutOfMemoryException, popart_exception

_OF_ALL = {
    kind.__name__: kind
    for kind in (
        *(AnchorReturnType, BaseSGD, DataFlow, DeviceManager, IdentityLoss, L1Loss, NllLoss),
    )
} | {
    "CacheType": CACHE_TYPE,
    "DotCheck": DOT_CHECK,
    "EarlyInfo": InputShapeInfo,
    "PatternType": PATTERN_TYPE,
    "PreAliasPatternType": PATTERN_TYPE,
    "PrepareDeviceError": OutOfMemoryError,
    "PrepareDeviceException": OutOfMemoryException,
    "TensorInfoCore": TensorInfo,
    "poponnx_exception": popart_exception,
    "reservedAccumulationPrefix": PREFIX_FUNCTIONS["reservedAccumPrefix"],
}
_BOUND: tuple[type, ...] = (
    *(Builder, ConstSGD, InferenceSession, Patterns, PyStepIO, SGD, Session),
    *(SessionOptions, TrainingSession),
)


def names_of(era: Era) -> dict[str, object]:
    """What an old era's module has that `popgraph.popart` has not, or has otherwise."""
    bound: dict[str, object] = {kind.__name__: of_era(kind, era) for kind in _BOUND}
    bound["SessionOptionsCore"] = bound["SessionOptions"]
    return {**_OF_ALL, **old_enums(), **bound, "reservedGradientPrefix": lambda: era.gradient}


class EraModule(ModuleType):
    """`poponnx` or `popart` as it was in an era."""

    def __init__(self, era: Era) -> None:
        super().__init__(era.module, f"{era.module} as it was in {era.name}.")
        self.__dict__.update(names_of(era))
        self.__era__ = era.name
        self.__path__ = import_module(f"popgraph.compat.{era.module}").__path__
        self.__version__ = versionString()
        self.__all__ = sorted({*dir(popart), *names_of(era)})

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") or name not in dir(popart):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(popart, name)

    def __dir__(self) -> list[str]:
        return list(self.__all__)
