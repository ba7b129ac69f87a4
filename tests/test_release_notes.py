"""Tests the fragments of changes/ and their collection into release notes."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from tests.release_notes import KINDS, ROOT, fragments, notes, problems, with_notes

CHANGELOG = """# Changelog

## 0.2.0 (unreleased)

### Added

- A line.

### Removed

- An old line.

## 0.1.0 (2026-01-01)

### Added

- The beginning.
"""


def test_every_fragment_is_well_formed() -> None:
    assert not [problem for path in fragments(ROOT / "changes") for problem in problems(path)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("slug.md", "A sentence."),
        ("slug.improved.md", "A sentence."),
        ("Slug_name.added.md", "A sentence."),
        ("slug.added.txt", "A sentence."),
        ("slug.added.md", ""),
        ("slug.added.md", "No full stop"),
        ("slug.added.md", "# A heading\n\nA sentence."),
        ("slug.added.md", "- A line of a list."),
        ("slug.added.md", "Two paragraphs.\n\nOf prose."),
        ("slug.added.md", "long " * 100 + "."),
    ],
)
def test_malformed_fragments_are_found(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert problems(path)


def test_fragments_join_their_sections(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# About")
    (tmp_path / "one.added.md").write_text("A sentence\nof two lines.\n")
    (tmp_path / "two.fixed.md").write_text("A mistake.\n")
    day = date(2026, 2, 3)
    found = notes(fragments(tmp_path))
    joined = with_notes(CHANGELOG, "0.2.0", day, found)
    assert joined == CHANGELOG.replace("unreleased", "2026-02-03").replace(
        "- A line.\n", "- A line.\n- A sentence of two lines.\n\n### Fixed\n\n- A mistake.\n"
    )
    begun = with_notes(CHANGELOG, "0.3.0", day, found)
    section = (
        "## 0.3.0 (2026-02-03)\n\n### Added\n\n- A sentence of two lines.\n\n"
        "### Fixed\n\n- A mistake.\n\n"
    )
    assert begun == CHANGELOG.replace("## 0.2.0", f"{section}## 0.2.0")


def test_the_changelog_has_the_sections_of_release_notes() -> None:
    """Collecting no fragments changes only the date, so every section is a known one."""
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    first = text.partition("\n## ")[2].partition("\n")[0]
    release = first.split()[0]
    again = with_notes(text, release, date(2026, 2, 3), {kind: [] for kind in KINDS})
    assert again == text.replace(first, f"{release} (2026-02-03)", 1)
