"""Tests that recipes of CONTRIBUTING name existing paths, commands and identifiers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
RECIPES = {
    part.partition("\n")[0]: part.partition("\n")[2] for part in PAGE.split("\n## Recipe: ")[1:]
}
PLACEHOLDER = re.compile(r"\b(NAME|CLAIM|PASS|MODULE)|_NAME|verb_object")
"""Placeholders for a reader's own names."""
WORDS = {"before -> after", ".pgraph"}
"""Quoted texts that are neither paths nor names."""


def tokens(recipe: str) -> list[str]:
    return [token for token in re.findall(r"`([^`]+)`", recipe) if not PLACEHOLDER.search(token)]


def is_path(token: str) -> bool:
    return "/" in token or token.endswith((".py", ".md", ".h"))


def named(recipe: str) -> Iterator[str]:
    """The texts of the files that a recipe names, and of all files in its folders."""
    for token in filter(is_path, tokens(recipe)):
        path = ROOT / token
        for file in sorted(path.glob("*.py")) if path.is_dir() else [path]:
            yield file.read_text()


def problems(recipe: str) -> list[str]:
    """The paths, names and lines of a recipe that do not exist."""
    makefile = (ROOT / "Makefile").read_text()
    found = [token for token in tokens(recipe) if is_path(token) and not (ROOT / token).exists()]
    if found:
        return found
    text = "\n".join(named(recipe))
    for token in tokens(recipe):
        command, _, rest = token.partition(" ")
        if token in WORDS or is_path(token):
            continue
        if command == "make" and rest:
            there = f"\n{rest}:" in makefile
        elif command == "popgraph" and rest:
            there = (ROOT / "popgraph" / "cli" / f"{rest.split()[0]}.py").exists()
        else:
            there = bool(re.search(rf"(?<![\w.]){re.escape(token)}\b", text))
        if not there:
            found.append(token)
    return found + [line for line in code_of(recipe) if line not in text]


def code_of(recipe: str) -> list[str]:
    """The lines of the examples, which are excerpts of files."""
    indented = (line for line in recipe.splitlines() if re.match(r" {7}", line))
    return [line.strip() for line in indented]


def test_recipes_exist() -> None:
    assert len(RECIPES) >= 4


@pytest.mark.parametrize("title", RECIPES)
def test_names_of_recipes_exist(title: str) -> None:
    assert not problems(RECIPES[title])


@pytest.mark.parametrize(
    "wrong",
    [
        "`popgraph/passes/nowhere.py`",
        "`NoSuchOp` in `popgraph/dialects/graphcore/functions.py`",
        "`make nothing`",
        "`popgraph nothing`",
        "`popgraph/dialects/graphcore/functions.py`:\n\n       class NoSuchOp(FloatUnary):\n",
    ],
)
def test_missing_names_are_found(wrong: str) -> None:
    assert problems(wrong)
