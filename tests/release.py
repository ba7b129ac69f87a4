"""
Makes a release: checks tree and notes, builds both distributions, and installs each of them.

`python -m tests.release [TAG]`, or `make release`. The files are in `dist`; a second run makes them
again. It neither tags nor uploads: the workflow `release` does both checks and upload, for a tag.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests import wheels

ROOT = Path(__file__).parent.parent
VERSION = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)
MOST = 5
"""Changed files that a message names."""


def version_of(root: Path) -> str:
    """The version of a checkout, from its text."""
    found = VERSION.search((root / "popgraph/__init__.py").read_text("utf-8"))
    assert found is not None, "popgraph/__init__.py defines the version"
    return found[1]


def problems(root: Path, tag: str = "") -> Iterator[str]:
    """The reasons why a checkout is not ready for a release; `tag` is the tag to be released."""
    version = version_of(root)
    if not git(root, "rev-parse", "HEAD"):
        yield f"{root} is no checkout of git: clone the repository"
        return
    yield from _changed_files(root)
    yield from _problems_of_notes(root, version)
    if tag and tag != f"v{version}":
        yield f"the tag is {tag}, but popgraph.__version__ is {version}: tag it v{version}"
    tagged = git(root, "rev-list", "-n", "1", f"v{version}", "--").strip()
    if tagged and tagged != git(root, "rev-parse", "HEAD").strip():
        yield (
            f"the tag v{version} is at another commit ({tagged[:8]}): check that out, or raise "
            "popgraph.__version__"
        )


def _changed_files(root: Path) -> Iterator[str]:
    lines = git(root, "status", "--porcelain").splitlines()
    if lines:
        named = ", ".join(line[3:] for line in lines[:MOST]) + (", ..." if lines[MOST:] else "")
        yield f"the tree is not clean: {named}; commit, stash or remove these changes"


def _problems_of_notes(root: Path, version: str) -> Iterator[str]:
    waiting = sorted(path.name for path in (root / "changes").glob("*.*.md"))
    if waiting:
        named = ", ".join(waiting[:MOST]) + (", ..." if waiting[MOST:] else "")
        yield f"changes/ has notes of no release: {named}; run `make release-notes`"
    notes = (root / "CHANGELOG.md").read_text("utf-8")
    first, *_ = re.findall(r"^## (.+)\n\n(.*)$", notes, re.MULTILINE) or [("", "")]
    if first[0] != version:
        yield (
            f"the first section of CHANGELOG.md is {first[0] or 'missing'}, but "
            f"popgraph.__version__ is {version}: run `make release-notes`"
        )
    elif not re.match(r"Released on \d{4}-\d\d-\d\d\.", first[1]):
        yield (
            f"CHANGELOG.md does not say when {version} was released: write `Released on DATE.`, or "
            "raise popgraph.__version__ and run `make release-notes`"
        )


def git(root: Path, *arguments: str) -> str:
    """The output of git; empty if it fails."""
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def release(root: Path, tag: str) -> int:
    """Checks, builds and installs; returns the exit code."""
    if found := list(problems(root, tag)):
        print("not released:", *(f"- {one}" for one in found), sep="\n", file=sys.stderr)
        return 1
    folder = root / "dist"
    shutil.rmtree(folder, ignore_errors=True)
    # The time of the commit instead of now: the same commit makes the same wheel.
    os.environ["SOURCE_DATE_EPOCH"] = git(root, "log", "-1", "--format=%ct").strip()
    files = wheels.build(folder)
    pythons = {version: wheels.interpreter(version) for version in wheels.promised()}
    if not any(pythons.values()):
        pythons[wheels.THIS] = sys.executable
    missing = wheels.check_all(files, pythons)
    for file in files:
        print(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.relative_to(root)}")
    if missing:
        print(f"not checked here: Python {', '.join(missing)}; the workflow `release` does")
    version = version_of(root)
    print(f"ready: `git tag v{version}` and `git push origin v{version}` publish it")
    return 0


def main(arguments: Sequence[str]) -> int:
    return release(ROOT, arguments[0] if arguments else "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
