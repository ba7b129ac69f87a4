"""The eras of PopONNX and PopART: what each differs in from the last, and its module."""

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
    """What programs of a time meant by the names that later times use otherwise."""

    name: str
    """When it was, as `--era` takes it."""
    module: str
    """What its programs import."""
    opset: int = 10
    """The version of ai.onnx behind `builder.aiOnnx`."""
    gradient: str = GRADIENT
    """What the names of gradients begin with; today's prefix is understood as well."""
    numbered: bool = False
    """Tensors are called "1", "2", ..., not after their operators."""
    mandatory: bool = False
    """A session insists on the patterns that PopART cannot do without."""
    checked: bool = True
    """
    Steps insist on the model's inputs, on arrays of the right size and, in training, on weights
    that were sent; optimizers insist on a learning rate.
    """
    anchored: bool = True
    """A session that does not train insists on an anchor."""
    constant_weights: bool = True
    """Weights do not change in sessions that do not train, unless an option says so."""
    strided_groups: bool = True
    """
    Group normalization has channel c in group c % groups, not in c // (channels / groups): until
    May 2021, when an option was added.
    """
    group_variances: bool = False
    """Its third result is the variance, not the inverse standard deviation: until May 2019."""
    replicas_first: bool = False
    """
    Inputs and anchors of a step are [replicas, batches, ...], not [batches, replicas, ...]: until
    October 2019.
    """
    unreadable: str = ""
    """What is said of what is no model, where it is not what is said today."""
    inference: tuple[str, ...] = ()
    """The arguments of `InferenceSession` by position, behind the model."""
    training: tuple[str, ...] = ()
    """The arguments of `TrainingSession` by position, behind the model."""
    signs: frozenset[str] = frozenset()
    """Names that a program uses in this era and in no later one that it might be from."""


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
"""What `import poponnx` is where nobody says more."""
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
"""All eras, oldest first; the last is what `popgraph.popart` is."""

LAST = ERAS[-1]


def gradient_prefixes(era: Era) -> tuple[str, ...]:
    """What the names of gradients may begin with; a module's own prefixes, and today's."""
    own = (one.gradient for one in ERAS if one.module == era.module)
    return tuple(dict.fromkeys([era.gradient, *own, GRADIENT]))


def era_named(name: str) -> Era:
    found = next((era for era in ERAS if era.name == name), None)
    if found is None:
        raise popart_exception(
            f"there is no era {name!r}", "--era", f"one of {', '.join(one.name for one in ERAS)}"
        )
    return found


def era_of_program(text: str) -> Era | None:
    """The era whose names a program uses; None where nothing tells."""
    try:
        used = set(_names(ast.parse(text)))
    except SyntaxError:
        return None
    return next((era for era in ERAS if era.module in used and era.signs & used), None)


def _names(program: ast.Module) -> Iterator[str]:
    """What a program imports, takes from other things, and gives by keyword."""
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
    """A class of old programs as it was in an era."""
    found: type[Kind] = _bound(cast("Hashable", kind), era)
    return found


@cache
def _bound(kind: Any, era: Era) -> Any:
    return type(kind.__name__, (kind,), {"ERA": era, "__doc__": kind.__doc__, "__slots__": ()})


@contextmanager
def in_words_of(era: Era) -> Iterator[None]:
    """Within it, a model is read; the era says of what is none what it said."""
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
