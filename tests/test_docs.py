"""Do the README's and the docs' code blocks run, and are generated pages current?"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(python|pgraph|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[str, str, str]]:
    """(page, language, text) of every code block that claims to run."""
    return [
        (page.relative_to(ROOT).as_posix(), language, text)
        for page in PAGES
        for language, text in BLOCK.findall(page.read_text())
    ]


def test_there_are_blocks_to_run() -> None:
    assert any(page == "README.md" for page, _, _ in blocks())


@pytest.mark.parametrize("page", sorted({page for page, _, _ in blocks()}))
def test_blocks_of_a_page_run_in_order(page: str, tmp_path: Path) -> None:
    """
    Python blocks share one program, `.pgraph` blocks are saved under the name in their first
    comment, console blocks run as they stand and must succeed.
    """
    program = ""
    for other, language, text in blocks():
        if other != page:
            continue
        if language == "pgraph":
            name = re.match(r"# (\S+\.pgraph)", text)
            assert name, f"{page}: the first line of a .pgraph block names its file"
            (tmp_path / name[1]).write_text(text)
        elif language == "python":
            program += text + "\n"
            (tmp_path / "page.py").write_text(program)
            run([sys.executable, "page.py"], tmp_path)
        else:
            for line in text.splitlines():
                if line.startswith("$ popgraph "):
                    run([sys.executable, "-m", *line[2:].split()], tmp_path)


def run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("command", ["ops", "passes"])
def test_generated_pages_are_current(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "popgraph", command, "--markdown"],
        capture_output=True,
        text=True,
        check=True,
    )
    page = ROOT / f"docs/{command}.md"
    assert page.read_text() == done.stdout, "run `make docs`"
