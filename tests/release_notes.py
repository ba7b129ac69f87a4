"""Collects the fragments of changes/ into CHANGELOG.md, for `make release-notes`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from pathlib import Path

import popgraph

ROOT = Path(__file__).parent.parent
KINDS = ("added", "changed", "fixed", "removed")
NAME = re.compile(rf"[a-z0-9]+(-[a-z0-9]+)*\.({'|'.join(KINDS)})\.md")
MOST_CHARACTERS = 400
"""Characters of a note: about two long sentences."""


def fragments(folder: Path) -> list[Path]:
    """All files of the folder except its README."""
    return sorted(path for path in folder.iterdir() if path.name != "README.md")


def problems(path: Path) -> list[str]:
    """Reasons why a fragment cannot become a line of the release notes."""
    if not NAME.fullmatch(path.name):
        return [f"{path.name}: name it SLUG.KIND.md, KIND one of {', '.join(KINDS)}"]
    text = path.read_text("utf-8").strip()
    found = []
    if not text.endswith("."):
        found.append(f"{path.name}: end the sentence with a full stop")
    if re.search(r"^\s*$|^(#|[-*] )", text, re.MULTILINE):
        found.append(f"{path.name}: write one paragraph without headings and lists")
    if len(text) > MOST_CHARACTERS:
        found.append(f"{path.name}: {len(text)} characters, of {MOST_CHARACTERS} at most")
    return found


def notes(paths: list[Path]) -> dict[str, list[str]]:
    """The lines of each kind."""
    found: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for path in paths:
        kind = path.name.split(".")[1]
        found[kind].append(f"- {' '.join(path.read_text('utf-8').split())}\n")
    return found


def with_notes(changelog: str, release: str, day: date, lines: Mapping[str, list[str]]) -> str:
    """The changelog with lines added to the sections of a release, which may be new."""
    head, *releases = re.split(r"^(?=## )", changelog, flags=re.MULTILINE)
    if not releases or not re.match(rf"## {re.escape(release)}(\s|$)", releases[0]):
        releases.insert(0, "\n")
    opening, *known = re.split(r"^(?=### )", releases[0], flags=re.MULTILINE)
    about = opening.partition("\n")[2].strip()
    sections = {part.split()[1].lower(): part.rstrip() + "\n" for part in known}
    for kind in KINDS:
        if lines[kind]:
            section = sections.setdefault(kind, f"### {kind.title()}\n\n")
            sections[kind] = section + "".join(lines[kind])
    ordered = [sections[kind] for kind in KINDS if kind in sections]
    title = f"## {release} ({day.isoformat()})\n"
    releases[0] = "\n".join([title, *([f"{about}\n"] if about else []), *ordered])
    return head + "\n".join(one.rstrip() + "\n" for one in releases)


def main() -> None:
    paths = fragments(ROOT / "changes")
    if wrong := [problem for path in paths for problem in problems(path)]:
        raise SystemExit("\n".join(wrong))
    changelog = ROOT / "CHANGELOG.md"
    release = popgraph.__version__
    text = with_notes(changelog.read_text("utf-8"), release, date.today(), notes(paths))
    changelog.write_text(text, "utf-8")
    for path in paths:
        path.unlink()
    print(f"{len(paths)} notes moved into {changelog.name} under {release}")


if __name__ == "__main__":
    main()
