"""PopART's naming rules: stem, name scopes, counter."""

from __future__ import annotations

from collections.abc import Iterator

from popgraph.passes.options import GRADIENT

_PLAIN = """
    Accl Accl1 Accl2 Accl3 Accum AdamUpdater LambR1Sq LambR2Sq RemoteArg Restored Stashed Step
    UpdatedVar
"""
_OTHERS = {
    "AcclFinalOut": "AcclOutOfAcclUpdate___",
    "AcclToReduce": "AcclIntoReduce___",
    "AcclToUpdate": "AcclIntoUpdate___",
    "AutomaticLossScale": "AutomaticLossScaleProxy___",
    "FinalReducedGrad": "FinalReducedGradient___",
    "Gradient": GRADIENT,
    "LossScaling": "lossScaling_",
    "RandomSeed": "randomSeed___",
    "SeedModifier": "randomSeedModifier___",
}
_OF_OPTIMIZERS = """
    weightDecayScaleFactor0 scaledLearningRate0 scaledWeightDecay1 scaledLearningRate1
    dampeningScaleFactor1 scaledMomentum1 learningRate weightDecay lossScaling maxWeightNorm
    adamBeta1 adamBeta2 adamEps step
"""
RESERVED_PREFIXES = {
    f"reserved{name}Prefix": prefix
    for name, prefix in {**{one: f"{one}___" for one in _PLAIN.split()}, **_OTHERS}.items()
} | {
    f"reserved{which.capitalize()}{name[0].upper()}{name[1:]}Prefix": f"{name}___{which}___"
    for which in ("default", "specific")
    for name in _OF_OPTIMIZERS.split()
}
"""Functions that return reserved prefixes -> the prefix."""


class Names:
    """The names taken in a graph, its parents and its subgraphs."""

    def __init__(self, parent: Names | None = None) -> None:
        self._parent = parent
        self._children: list[Names] = []
        self._taken: set[str] = set()
        self.scopes: list[str] = [] if parent is None else list(parent.scopes)
        if parent is not None:
            parent._children.append(self)

    def take(self, name: str) -> None:
        self._taken.add(name)

    def new(self, stem: str, output: int | None = None) -> str:
        """`scope/stem`, `scope/stem:0` for an operator's output; `.../1` if taken."""
        base = self.scoped(stem) if output is None else f"{self.scoped(stem)}:{output}"
        name, count = base, 0
        while self.is_taken(name):
            count += 1
            name = f"{base}/{count}"
        self.take(name)
        return name

    def scoped(self, stem: str) -> str:
        return "/".join([*self.scopes, stem] if stem else self.scopes)

    def is_taken(self, name: str) -> bool:
        return any(name in scope._taken for scope in (*self._around(), *self._inside()))

    def _around(self) -> Iterator[Names]:
        scope: Names | None = self
        while scope is not None:
            yield scope
            scope = scope._parent

    def _inside(self) -> Iterator[Names]:
        for child in self._children:
            yield child
            yield from child._inside()
