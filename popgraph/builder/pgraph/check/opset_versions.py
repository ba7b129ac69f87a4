"""The opset versions of a text, from its declarations or the newest known."""

from __future__ import annotations

from collections.abc import Mapping

from popgraph.builder.pgraph.check.operators import newest
from popgraph.builder.pgraph.syntax.source import Source
from popgraph.builder.pgraph.syntax.tree import Import, Opset


def declared_opsets(source: Source, opsets: tuple[Opset, ...]) -> dict[str, int]:
    """The versions that a text declares."""
    versions: dict[str, int] = {}
    for opset in opsets:
        domain = "" if opset.domain == "ai.onnx" else opset.domain
        if domain in versions:
            source.parse_error(opset.span, f"the opset of `{domain or 'ai.onnx'}` is given twice")
        latest = newest().get(domain)
        if latest is not None and not 1 <= opset.version <= latest:
            source.parse_error(
                opset.span,
                f"`{domain or 'ai.onnx'}` has no opset {opset.version}",
                f"the installed onnx package knows 1 to {latest}",
            )
        versions[domain] = opset.version
    return versions


def opset_versions(source: Source, opsets: tuple[Opset, ...]) -> dict[str, int]:
    """The declared versions; by default, the newest version of the standard operators."""
    return declared_opsets(source, opsets) or {"": newest()[""]}


def check_opsets(
    source: Source, item: Import, mine: dict[str, int], theirs: Mapping[str, int]
) -> None:
    """
    Reports an imported text with other opset versions than the importing one.

    Versions of further domains are added to the importing text.
    """
    for domain, version in theirs.items():
        own = mine.setdefault(domain, version)
        if own != version:
            shown = domain or "ai.onnx"
            source.parse_error(
                item.file.span,
                f"{item.file.value!r} is written in opset {version} of `{shown}`, "
                f"this text in {own}",
                "a text for any opset omits the line",
            )
