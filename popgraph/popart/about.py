"""PopART's version numbers and operator lists."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version

from popgraph.builder.opset.arguments import typed
from popgraph.builder.opset.graphcore_operator import DOMAIN
from popgraph.dialects.onnx import SCHEMAS, is_removed
from popgraph.dialects.onnx.functions import DEFINITIONS
from popgraph.passes.onnx.to_graphcore.registry import supported_operators
from popgraph.popart.api.names import RESERVED_PREFIXES
from popgraph.popart.builder import Builder
from popgraph.popart.ir import gradient_types
from popgraph.popart.model.aborts import ABORT

POPART = (3, 4, 0)
"""The PopART whose API this is."""

defaultAiOnnxOpset = Builder.DEFAULT_OPSET
defaultAiOnnxMlOpset = 1
defaultAiGraphcoreOpset = 1


@typed
def versionNumber() -> tuple[int, int, int]:
    return POPART


@typed
def versionString() -> str:
    try:
        own = version("popgraph")
    except PackageNotFoundError:
        own = "0"
    return f"{'.'.join(map(str, POPART))}+popgraph-{own}"


@typed
def packageHash() -> str:
    return hashlib.sha256(versionString().encode()).hexdigest()[:10]


@typed
@dataclass(frozen=True)
class OperatorIdentifier:
    """One version of an operator."""

    domain: str
    type: str
    version: int


@typed
def getSupportedOperations(includeInternal: bool = False) -> list[OperatorIdentifier]:
    """
    Every version of every operator that can be compiled.

    What is internal occurs in no model, only in `getIr`: operators of gradients.
    """
    public = [
        OperatorIdentifier(domain or "ai.onnx", name, number)
        for (domain, name), versions in supported_operators().items()
        for number in versions
    ]
    public += [
        OperatorIdentifier(*key, 1) for key in (ABORT, *sorted(DEFINITIONS)) if key[0] == DOMAIN
    ]
    internal = sorted(gradient_types()) if includeInternal else []
    return public + [OperatorIdentifier("ai.graphcore", name, 1) for name in internal]


@typed
def getUnsupportedOperations(opsetVersion: int) -> list[OperatorIdentifier]:
    """The operators of an ai.onnx version that cannot be compiled."""
    known = set(supported_operators())
    newest: dict[str, int] = {}
    for schema in SCHEMAS:
        if schema.domain or is_removed(schema) or schema.since_version > opsetVersion:
            continue
        newest[schema.name] = max(newest.get(schema.name, 0), schema.since_version)
    return [
        OperatorIdentifier("ai.onnx", name, number)
        for name, number in sorted(newest.items())
        if ("", name) not in known
    ]


PREFIX_FUNCTIONS = {
    function: partial(str, prefix) for function, prefix in RESERVED_PREFIXES.items()
}
"""`reservedGradientPrefix()` and its like."""
