"""The names of an era's module."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from popgraph.builder.opset.exceptions import OutOfMemoryException, popart_exception
from popgraph.builder.opset.tensorinfo import TensorInfo
from popgraph.compat import popart
from popgraph.compat.eras import Era, of_era
from popgraph.compat.poponnx.builder import Builder
from popgraph.compat.poponnx.dataflow import AnchorReturnType, DataFlow
from popgraph.compat.poponnx.devices import DeviceManager
from popgraph.compat.poponnx.enums import CACHE_TYPE, DOT_CHECK, PATTERN_TYPE, old_enums
from popgraph.compat.poponnx.losses import L1Loss, NllLoss
from popgraph.compat.poponnx.optimizers import SGD, BaseSGD, ConstSGD
from popgraph.compat.poponnx.options import SessionOptions
from popgraph.compat.poponnx.patterns import Patterns
from popgraph.compat.poponnx.session import Session
from popgraph.compat.poponnx.sessions import InferenceSession, TrainingSession
from popgraph.compat.poponnx.step_io import PyStepIO
from popgraph.session.about import PREFIX_FUNCTIONS
from popgraph.session.dataflow import InputShapeInfo
from popgraph.session.debugging import OutOfMemoryError
from popgraph.session.losses import IdentityLoss

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
    """What an old era's module has that `popgraph.session` has not, or has otherwise."""
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
        self.__version__ = popart.__version__
        self.__all__ = sorted({*popart.__all__, *names_of(era)})

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") or name not in popart.__all__:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(popart, name)

    def __dir__(self) -> list[str]:
        return list(self.__all__)
