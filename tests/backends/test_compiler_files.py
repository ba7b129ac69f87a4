"""Tests that the identity of a compiler changes with the files of its command."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from popgraph.backends.c.build.toolchain import identity


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n# {text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A search path with a compiler, a wrapper, and a link to the wrapper."""
    program(tmp_path / "bin" / "gcc", "version 1")
    program(tmp_path / "bin" / "ccache", "a wrapper")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "gcc").symlink_to(tmp_path / "bin" / "ccache")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


@pytest.mark.parametrize("command", ["gcc", "ccache gcc", "ccache gcc -m64", "gcc through a link"])
def test_a_changed_compiler_has_another_identity(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    if command == "gcc through a link":
        monkeypatch.setenv("PATH", f"{folder / 'links'}:{folder / 'bin'}")
        command = "gcc"
    first = identity(command.split())
    assert identity(command.split()) == first
    program(folder / "bin" / "gcc", "version 2, which is longer")
    second = identity(command.split())
    assert second != first
    program(folder / "bin" / "gcc", "version 2, and as long as it").touch()
    assert identity(command.split()) != second
    assert identity([*command.split(), "-O1"]) != second


def test_the_identity_of_a_module_covers_its_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(folder / "zigzag" / "zig", "version 1")
    (folder / "zigzag" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(folder))
    importlib.invalidate_caches()
    command = (sys.executable, "-m", "zigzag", "cc")
    first = identity(command)
    program(folder / "zigzag" / "zig", "version 2, which is longer")
    assert identity(command) != first


def test_missing_commands_have_an_identity(folder: Path) -> None:
    assert identity(["/nowhere/cc"]) != identity(["/nowhere/else"])
    assert identity(["python", "-m", "nowhere.at.all"])
