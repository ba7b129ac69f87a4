"""Tests the fragments of changes/ and the release notes that towncrier builds."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import popgraph

ROOT = Path(__file__).parent.parent
KINDS = ("Added", "Changed", "Fixed", "Removed")
CHARACTERS = 400
"""Two long sentences; a longer history belongs in the commit."""


def fragments(folder: Path) -> list[Path]:
    files = {"README.md", "template.md"}
    return sorted(path for path in folder.iterdir() if path.name not in files)


def problems(path: Path) -> list[str]:
    """Defects of a fragment that towncrier lets pass; it checks the slug and the kind itself."""
    text = path.read_text("utf-8").strip()
    found = []
    if not path.name.endswith(".md"):
        found.append(f"{path.name}: name it SLUG.KIND.md")
    if not text.endswith("."):
        found.append(f"{path.name}: end the sentence with a full stop")
    if re.search(r"^\s*$|^(#|[-*] )", text, re.MULTILINE):
        found.append(f"{path.name}: write one paragraph without headings and lists")
    if len(text) > CHARACTERS:
        found.append(f"{path.name}: {len(text)} characters, of {CHARACTERS} at most")
    return found


def test_every_fragment_is_well_formed() -> None:
    assert not [problem for path in fragments(ROOT / "changes") for problem in problems(path)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
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


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with our configuration and changelog, and without fragments."""
    pytest.importorskip("towncrier", reason="the extra `dev` brings it")
    (tmp_path / "changes").mkdir()
    for name in ("pyproject.toml", "CHANGELOG.md", "changes/README.md", "changes/template.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def build(project: Path, version: str) -> subprocess.CompletedProcess[str]:
    arguments = ["build", "--yes", "--version", version, "--date", "2026-02-03"]
    command = [sys.executable, "-m", "towncrier", *arguments]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)


def test_fragments_become_a_section_above_the_older_ones(project: Path) -> None:
    """The folder is left with its README and its template."""
    before = (project / "CHANGELOG.md").read_text("utf-8")
    (project / "changes/one.added.md").write_text("A sentence\nof two lines.\n")
    (project / "changes/two-words.added.md").write_text("Another one.\n")
    (project / "changes/three.fixed.md").write_text("A mistake.\n")
    done = build(project, "9.0.0")
    assert done.returncode == 0, done.stderr
    section = (
        "## 9.0.0\n\nReleased on 2026-02-03.\n\n"
        "### Added\n\n- A sentence of two lines.\n- Another one.\n\n"
        "### Fixed\n\n- A mistake.\n\n"
    )
    first = f"## {popgraph.__version__}\n"
    after = (project / "CHANGELOG.md").read_text("utf-8")
    assert after == before.replace(first, f"{section}{first}", 1)
    assert not fragments(project / "changes")


@pytest.mark.parametrize("name", ["slug.md", "slug.improved.md", "Slug_name.added.md", "a.txt"])
def test_a_fragment_without_a_slug_or_a_kind_is_refused(project: Path, name: str) -> None:
    (project / "changes" / name).write_text("A sentence.\n")
    assert build(project, "9.0.0").returncode
    assert (project / "changes" / name).exists()


def test_a_version_gets_one_section(project: Path) -> None:
    (project / "changes/one.added.md").write_text("A sentence.\n")
    done = build(project, popgraph.__version__)
    assert done.returncode and "already produced" in done.stderr


def test_the_changelog_has_the_sections_of_release_notes() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    release = text.partition("\n## ")[2].partition("\n## ")[0]
    assert release.split()[0] == popgraph.__version__
    sections = re.findall(r"^### (.*)$", release, re.MULTILINE)
    assert sections == [kind for kind in KINDS if kind in sections]
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["towncrier"]
    assert tuple(kind["name"] for kind in settings["type"]) == KINDS
