"""PopART's patterns, and the passes that they enable or disable."""

from __future__ import annotations

from collections.abc import Sequence

from popgraph.builder.opset.arguments import typed
from popgraph.builder.opset.enums import PatternsLevel
from popgraph.popart.exceptions import popart_exception
from popgraph.support.logs import log_of

_LOG = log_of("pattern")

_NAMES = {
    "mandatory": """
        AbsGradOp AllReduceToIdentity Atan2Arg0GradOp Atan2Arg1GradOp ConvDataGrad
        ConvFlipWeightsGradOp ConvTranspose CosGradOp CoshOp DivArg0GradOp DivArg1GradOp ExpGradOp
        Expm1GradOp FmodArg0GradOp Log1pGradOp LogGradOp LoopScanOut MatMulLhsGradOp MatMulOp
        MatMulRhsGradOp MulArgGradOp PowArg0GradOp PowArg1GradOp RandomNormalLikeOpPattern
        RandomUniformLikeOpPattern ReciprocalGradOp ScanToLoop SinGradOp SqrtGradOp
        SubtractArg1GradOp ZerosLikeOpPattern
    """,
    "default": """
        ConvFlipWeightsDoubleFlip DecomposeBinaryConstScalar ExpandCast InitAccumulate
        LambSerialisedWeight NegativeOneScale NlllWithSoftmaxGradDirect OpToIdentity
        PackedDataBlock PadSum PostNRepl PreUniRepl RemoveUnnecessaryLossGradCast SoftmaxGradDirect
        SplitGradOpToConcat SplitOp SumToAdd TransposeToIdentityOrReshapePattern UpsampleToResize
    """,
    "optional": "LSTMOp Slice2SliceSubsample SplitGather TiedGather TiedGatherAccumulate",
}
MANDATORY, DEFAULT, OPTIONAL = (frozenset(names.split()) for names in _NAMES.values())
PRE_ALIAS = MANDATORY | DEFAULT | OPTIONAL
PATTERNS = PRE_ALIAS | {"InPlace", "UpdateInplacePrioritiesForIpu"}
"""PopART's patterns: always on, on by default, or off by default."""

FUSING = frozenset(("NlllWithSoftmaxGradDirect", "SoftmaxGradDirect"))
"""Patterns implemented by one of our passes, which is disabled if all are off."""
FUSING_PASS = "fuse-softmax-loss"

_LEVELS = {
    PatternsLevel.All: PRE_ALIAS | {"InPlace"},
    PatternsLevel.Default: MANDATORY | DEFAULT | {"InPlace"},
    PatternsLevel.Minimal: MANDATORY,
    PatternsLevel.NoPatterns: frozenset[str](),
}

_ADDED: dict[str, bool] = {}
"""Patterns of libraries, with their defaults."""


def add_pattern(name: str, enabled: bool = True) -> None:
    """Registers a pattern of a library, with its default; it does not change results."""
    if name in PATTERNS:
        raise popart_exception(f"PopART has a pattern {name}", "add_pattern")
    _ADDED[name] = enabled


def _known_patterns() -> frozenset[str]:
    return PATTERNS | _ADDED.keys()


@typed
class Patterns:
    """
    `Patterns()`, `Patterns(PatternsLevel.Minimal)` or `Patterns(["OpToIdentity", ...])`.

    Results do not depend on patterns. Most of them rewrite gradients for IPUs and have no
    counterpart here; the others enable a pass. PopART requires some: operators that need one are
    rejected if it is off (`refusals.operators`).
    """

    def __init__(
        self,
        patterns: PatternsLevel | Sequence[str] | None = None,
        *,
        level: PatternsLevel = PatternsLevel.Default,
    ) -> None:
        self._asserts = True
        if patterns is None:
            patterns = level
        if isinstance(patterns, str):
            raise TypeError(
                f"Patterns(): incompatible constructor arguments: {patterns!r} is one name; "
                f"Patterns([{patterns!r}]) enables it alone"
            )
        if isinstance(patterns, PatternsLevel):
            self._enabled = set(_LEVELS[patterns])
            if patterns in (PatternsLevel.All, PatternsLevel.Default):
                self._enabled |= {name for name, enabled in _ADDED.items() if enabled}
        else:
            self._enabled = {_known(name) for name in patterns}

    def isPatternEnabled(self, name: str) -> bool:
        self._check_known(name)
        return name in self._enabled

    def enabled(self) -> frozenset[str]:
        """The names of enabled patterns."""
        return frozenset(self._enabled)

    def enablePattern(self, name: str, enabled: bool) -> Patterns:
        """Enables a pattern, or disables one that PopART does not require."""
        self._check_known(name)
        if not enabled and name in MANDATORY and self.insists_on_needed():
            raise popart_exception(
                f"Pattern '{name}' is mandatory and cannot be disabled",
                "Patterns",
                "Patterns([...]) with a list of names leaves out all others",
            )
        _LOG.info("Pattern %s %s", name, str(enabled).lower())
        (self._enabled.add if enabled else self._enabled.discard)(name)
        return self

    @staticmethod
    def _check_known(name: str) -> None:
        if name not in _known_patterns():
            raise popart_exception(f"Unknown pattern {name}.", "Patterns", _close(name))

    def enableRuntimeAsserts(self, enabled: bool) -> Patterns:
        """Sets whether a session checks the patterns that PopART requires."""
        self._asserts = enabled
        return self

    def insists_on_needed(self) -> bool:
        """Whether a model is rejected if it needs a disabled pattern."""
        return True

    def check(self) -> None:
        missing = sorted(MANDATORY - self._enabled)
        if self._asserts and missing:
            more = f"; so must {', '.join(missing[1:])}" if missing[1:] else ""
            raise popart_exception(
                f"Pattern '{missing[0]}' must be enabled",
                "Patterns",
                f"enablePattern it, or call enableRuntimeAsserts(False){more}",
            )

    def disabled_passes(self) -> frozenset[str]:
        """The names of our disabled passes."""
        return frozenset() if FUSING & self._enabled else frozenset([FUSING_PASS])

    def __getattr__(self, name: str) -> bool:
        if name in _PROPERTIES:
            return _PROPERTIES[name] in self._enabled
        raise AttributeError(f"'Patterns' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: object) -> None:
        if name in _PROPERTIES:
            self.enablePattern(_PROPERTIES[name], bool(value))
        elif name in ("_enabled", "_asserts"):
            object.__setattr__(self, name, value)
        else:
            raise AttributeError(f"'Patterns' object has no attribute '{name}'")

    def __repr__(self) -> str:
        names = sorted(_known_patterns())
        return "\n".join(f"{name}: {'On' if name in self._enabled else 'Off'}" for name in names)


_PLAIN = """
    PreUniRepl PostNRepl OpToIdentity SubtractArg1GradOp MulArgGradOp MatMulOp MatMulLhsGradOp
    MatMulRhsGradOp InPlace
"""
_PROPERTIES = {
    **{name: name for name in _PLAIN.split()},
    "SoftMaxGradDirect": "SoftmaxGradDirect",
    "NlllWithSoftMaxGradDirect": "NlllWithSoftmaxGradDirect",
}


def spelt(name: str) -> str:
    """A pattern's name in PopART's spelling; other names unchanged."""
    return {known.lower(): known for known in _known_patterns()}.get(name.lower(), name)


def _known(name: str) -> str:
    """Checks a name in a list of patterns."""
    if name in _known_patterns():
        return name
    inplace = ", did you mean InPlace?" if name == "Inplace" else ""
    raise popart_exception(f"Unknown pattern {name}{inplace}", "Patterns", _close(name))


def _close(name: str) -> str:
    close = spelt(name)
    return "" if close == name else f"did you mean {close}?"
