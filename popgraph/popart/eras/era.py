"""The eras of PopONNX and PopART: their differences from the last version, and their modules."""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar, cast

from popgraph import popart
from popgraph.passes.options import GRADIENT
from popgraph.popart.about import versionString
from popgraph.popart.exceptions import popart_exception, unreadable_model

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Era:
    """The semantics of PopONNX or PopART at a certain time."""

    name: str
    """The time, as accepted by `--era`."""
    module: str
    """The module that its programs import."""
    opset: int = 10
    """The opset of `builder.aiOnnx`."""
    gradient: str = GRADIENT
    """Prefix of gradient names; the current prefix is accepted as well."""
    numbered: bool = False
    """Whether tensors are named "1", "2", ... instead of by operator."""
    mandatory: bool = False
    """Whether a session requires PopART's mandatory patterns."""
    checked: bool = True
    """Whether inputs, array sizes, sent weights and a learning rate are checked."""
    anchored: bool = True
    """Whether an inference session requires an anchor."""
    constant_weights: bool = True
    """Whether weights are constant in inference sessions unless an option says otherwise."""
    strided_groups: bool = True
    """
    Group of channel c in group normalization: c % groups if true, else c // (channels / groups).

    Strided until May 2021, when an option was added.
    """
    group_variances: bool = False
    """
    Whether the third result is the variance, not the inverse standard deviation: until May 2019.
    """
    replicas_first: bool = False
    """
    Whether inputs and anchors are [replicas, batches, ...], not [batches, replicas, ...].

    Until October 2019.
    """
    unreadable: str = ""
    """The message for an invalid model, if it differs from the current one."""
    inference: tuple[str, ...] = ()
    """The positional arguments of `InferenceSession` after the model."""
    training: tuple[str, ...] = ()
    """The positional arguments of `TrainingSession` after the model."""
    signs: frozenset[str] = frozenset()
    """Names that identify programs of this era among the later ones."""


_SHAPES = ("inputShapeInfo", "passes", "userOptions")
_DECEMBER_2018 = Era(
    "2018-12",
    "poponnx",
    replicas_first=True,
    checked=False,
    anchored=False,
    constant_weights=False,
    unreadable="Failed to parse ModelProto from string",
    opset=9,
    gradient="d__",
    numbered=True,
    group_variances=True,
    inference=("dataFeed", "losses", *_SHAPES),
    training=("dataFeed", "losses", "optimizer", *_SHAPES),
    signs=frozenset(["Session", "EarlyInfo", "outputdir", "cTens"]),
)
PLAIN_POPONNX = replace(
    _DECEMBER_2018,
    name="2019-03",
    anchored=True,
    numbered=False,
    signs=frozenset(["enableAutoRecomputation", "setDevice"]),
)
"""The default era of `import poponnx`."""
ERAS = (
    _DECEMBER_2018,
    PLAIN_POPONNX,
    replace(
        PLAIN_POPONNX,
        name="2019-07",
        constant_weights=True,
        opset=10,
        gradient="D___",
        group_variances=False,
        inference=("dataFeed", "deviceInfo", "losses", *_SHAPES),
        training=("dataFeed", "losses", "optimizer", "deviceInfo", *_SHAPES),
        signs=frozenset(["ReductionType", "deviceInfo", "autoRecomputation", "PyWeightsIO"]),
    ),
    Era(
        "2020-05",
        "popart",
        inference=(
            *("dataFlow", "deviceInfo", "losses", "inputShapeInfo", "patterns", "userOptions"),
        ),
        training=(
            *("dataFlow", "loss", "optimizer", "deviceInfo"),
            *("inputShapeInfo", "patterns", "userOptions"),
        ),
        signs=frozenset(
            [
                *("losses", "dataFeed", "passes", "L1Loss", "NllLoss", "IdentityLoss"),
                *("optimizerFromHost", "SessionOptionsCore", "pingPongPhase", "NONE"),
                *("accumulationReductionType", "autoVirtualGraph", "batchSerializationFactor"),
                *("enableAutomaticLossScaling", "enableGroupedMatmuls", "enableVirtualGraphs"),
                *("explicitPipelining", "hostAllReduce", "hostWeightUpdate", "ignoreData"),
                *("ipuSystemType", "pingPongPhases"),
            ]
        ),
    ),
    Era("last", "popart", mandatory=True, strided_groups=False),
)
"""All eras, oldest first; the last is `popgraph.popart`."""

LAST = ERAS[-1]


def gradient_prefixes(era: Era) -> tuple[str, ...]:
    """Accepted prefixes of gradient names: the era's, its module's, and the current one."""
    own = (one.gradient for one in ERAS if one.module == era.module)
    return tuple(dict.fromkeys([era.gradient, *own, GRADIENT]))


def era_named(name: str) -> Era:
    found = next((era for era in ERAS if era.name == name), None)
    if found is None:
        raise popart_exception(
            f"unknown era {name!r}", "--era", f"one of {', '.join(one.name for one in ERAS)}"
        )
    return found


def era_of_program(text: str) -> Era | None:
    """The era whose names a program uses; None if undetermined."""
    try:
        used = set(_names(ast.parse(text)))
    except SyntaxError:
        return None
    return next((era for era in ERAS if era.module in used and era.signs & used), None)


def _names(program: ast.Module) -> Iterator[str]:
    """The names that a program imports, accesses as attributes, or passes as keywords."""
    for node in ast.walk(program):
        match node:
            case ast.Import(names=names):
                yield from (one.name.partition(".")[0] for one in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield module.partition(".")[0]
                yield from (one.name for one in names)
            case ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                yield name


def of_era(kind: type[Kind], era: Era) -> type[Kind]:
    """The subclass of `kind` that behaves as in `era`."""
    found: type[Kind] = _bound(cast("Hashable", kind), era)
    return found


@cache
def _bound(kind: Any, era: Era) -> Any:
    return type(kind.__name__, (kind,), {"ERA": era, "__doc__": kind.__doc__, "__slots__": ()})


@contextmanager
def in_terms_of_era(era: Era) -> Iterator[None]:
    """Replaces the error about an unreadable model by the message of the era."""
    try:
        yield
    except unreadable_model as error:
        if not era.unreadable:
            raise
        raise popart_exception(
            era.unreadable,
            hint="give a path to an existing model, or the bytes of one",
        ) from error


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
"""{module: names} of all eras; `old=new` renames the module's `new`."""
_MODULES_OF_ERAS = {
    "eras.builder": "Builder",
    "eras.training": "ConstSGD SGD",
    "eras.settings": "Patterns SessionOptions SessionOptionsCore=SessionOptions",
    "eras.sessions": "InferenceSession Session TrainingSession",
    "eras.steps": "PyStepIO",
}
"""{module: classes that depend on the era}."""


def _homes(modules: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """{name: (module, name in that module)}."""
    return {
        name: (f"popgraph.popart.{module}", today or name)
        for module, names in modules.items()
        for name, _, today in (one.partition("=") for one in names.split())
    }


_ALIKE, _BOUND = _homes(_MODULES), _homes(_MODULES_OF_ERAS)
_PREFIXES = ("reservedGradientPrefix", "reservedAccumulationPrefix")
OWN = frozenset([*_ALIKE, *_BOUND, *_PREFIXES])
"""Names of an era's module that are absent from `popgraph.popart`, or differ there."""


def own_value(name: str, era: Era) -> object:
    """The value of a name in `OWN`, as of `era`."""
    if name == "reservedGradientPrefix":
        return lambda: era.gradient
    if name == "reservedAccumulationPrefix":
        return popart.reservedAccumPrefix
    module, today = (_BOUND if name in _BOUND else _ALIKE)[name]
    found = getattr(import_module(module), today)
    return of_era(found, era) if name in _BOUND else found


class EraModule(ModuleType):
    """`poponnx` or `popart` as of an era."""

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
