"""PopART's version numbers, and the versions of its operator sets."""

from __future__ import annotations

import hashlib
from importlib.metadata import PackageNotFoundError, version

from popgraph.builder.opset.arguments import typed

POPART = (3, 4, 0)
"""The PopART version whose API this is."""

defaultAiOnnxOpset = 10
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
