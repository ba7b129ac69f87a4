"""Tests the extension of editors/vscode without the editor."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from popgraph.builder.pgraph import parse

FOLDER = Path(__file__).parents[1] / "editors" / "vscode"
MANIFEST: dict[str, Any] = json.loads((FOLDER / "package.json").read_text())
SNIPPETS: dict[str, Any] = json.loads((FOLDER / "snippets.json").read_text())
AROUND = {
    "graph": "{}",
    "def": "{}\n",
    "train": "graph net(x: f32[N, 4]) -> (y: f32[N, 4]) {{\n    y = Softmax(x)\n}}\n{}",
    "loop": "graph net(x: f32[4]) -> (y) {{\n    {}\n    y = h\n}}",
}
"""The context in which a snippet is valid."""


def expanded(body: list[str]) -> str:
    """The text of a snippet with its default values."""
    text = "\n".join(body)
    known: dict[str, str] = {}

    def chosen(match: re.Match[str]) -> str:
        number, choices, default = match["number"], match["choices"], match["default"]
        if choices or default is not None:
            known[number] = (
                choices.split(",")[0]
                if choices
                else re.sub(r"\$(\d+)", lambda one: known[one[1]], default)
            )
        return known.get(number, "")

    place = r"\$\{(?P<number>\d+)(?:\|(?P<choices>[^|]*)\||:(?P<default>[^}]*))\}"
    text = re.sub(place, chosen, text)
    return re.sub(r"\$(\d+)", lambda one: known.get(one[1], "y = x" if one[1] == "0" else ""), text)


@pytest.mark.parametrize("name", SNIPPETS)
def test_snippets_with_defaults_are_valid(name: str) -> None:
    parse(AROUND[name].format(expanded(SNIPPETS[name]["body"])))


def test_files_of_the_manifest_exist() -> None:
    contributes = MANIFEST["contributes"]
    files = [MANIFEST["main"], contributes["languages"][0]["configuration"]]
    files += [one["path"] for one in contributes["snippets"]]
    assert all((FOLDER / file).exists() for file in files)
    grammar = Path(contributes["grammars"][0]["path"]).name
    (source,) = re.findall(rf'"(popgraph/[\w/]+/{grammar})"', (FOLDER / "prepare.js").read_text())
    scope = json.loads((FOLDER.parents[1] / source).read_text())["scopeName"]
    assert scope == contributes["grammars"][0]["scopeName"]


def test_settings_of_the_extension_are_in_the_manifest() -> None:
    code = (FOLDER / "extension.js").read_text()
    settings = {f"popgraph.{one}" for one in re.findall(r'settings\.get\("(\w+)"\)', code)}
    assert settings == set(MANIFEST["contributes"]["configuration"]["properties"])
    commands = set(re.findall(r'registerCommand\("([\w.]+)"', code))
    assert commands == {one["command"] for one in MANIFEST["contributes"]["commands"]}
    if node := shutil.which("node"):
        for file in FOLDER.glob("*.js"):
            subprocess.run([node, "--check", str(file)], check=True)
