"""Tests that `make release` refuses unfinished trees, and finds the README's first commands."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import wheels
from tests.release import problems, release

NOTES = "# Changes\n\n## 1.2.0\n\nReleased on 2026-02-03.\n\n### Added\n\n- A line.\n"


def commit(root: Path) -> None:
    git = ["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=b"]
    for words in (["add", "--all"], ["commit", "--quiet", "--message", "A change."]):
        subprocess.run([*git, *words], check=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout that is ready for version 1.2.0."""
    for folder in ("popgraph", "changes"):
        (tmp_path / folder).mkdir()
    (tmp_path / "popgraph/__init__.py").write_text('__version__ = "1.2.0"\n')
    (tmp_path / "changes/README.md").write_text("Fragments.\n")
    (tmp_path / "changes/template.md").write_text("{{ text }}\n")
    (tmp_path / "CHANGELOG.md").write_text(NOTES)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    commit(tmp_path)
    return tmp_path


def test_a_clean_tree_with_notes_is_ready(project: Path) -> None:
    assert not list(problems(project))
    assert not list(problems(project, "v1.2.0"))


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("changes/new.added.md", "A line.\n", "notes of no release: new.added.md"),
        ("CHANGELOG.md", NOTES.replace("1.2.0", "1.1.0"), "is 1.1.0, but popgraph.__version__ is"),
        ("CHANGELOG.md", "# Changes\n", "is missing, but popgraph.__version__ is 1.2.0"),
        ("CHANGELOG.md", NOTES.replace("Released on", "Not before"), "write `Released on DATE.`"),
    ],
)
def test_unfinished_notes_are_refused(project: Path, file: str, text: str, message: str) -> None:
    (project / file).write_text(text)
    commit(project)
    (found,) = problems(project)
    assert message in found


def test_a_tree_that_is_not_clean_is_refused(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is built, and earlier files stay."""
    (project / "stray.txt").write_text("")
    (project / "CHANGELOG.md").write_text(NOTES + "- More.\n")
    (project / "dist").mkdir()
    (project / "dist/earlier.whl").write_text("")
    assert release(project, "") == 1
    said = capsys.readouterr().err
    assert "the tree is not clean: CHANGELOG.md, dist/, stray.txt; commit, stash or remove" in said
    assert (project / "dist/earlier.whl").exists()


def test_the_tag_is_the_version_at_this_commit(project: Path) -> None:
    (found,) = problems(project, "v1.3.0")
    assert found == "the tag is v1.3.0, but popgraph.__version__ is 1.2.0: tag it v1.2.0"
    subprocess.run(["git", "-C", str(project), "tag", "v1.2.0"], check=True)
    assert not list(problems(project, "v1.2.0"))
    (project / "later.txt").write_text("")
    commit(project)
    (found,) = problems(project)
    assert "the tag v1.2.0 is at another commit" in found and "raise popgraph.__version__" in found


def test_a_folder_without_git_is_refused(tmp_path: Path) -> None:
    (tmp_path / "popgraph").mkdir()
    (tmp_path / "popgraph/__init__.py").write_text('__version__ = "1.2.0"\n')
    (found,) = problems(tmp_path)
    assert "is no checkout of git" in found


def test_the_first_commands_of_the_readme_are_found() -> None:
    """The commands use files that the first program writes."""
    assert "popgraph.train" in wheels.first_program()
    assert [words[0] for words in wheels.first_commands()] == ["view", "export", "info"]
    assert all("net.onnx" in words for words in wheels.first_commands())
