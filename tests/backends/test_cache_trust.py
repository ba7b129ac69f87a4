"""Tests that code is only loaded from caches that nobody else can write."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popgraph
from popgraph.backends.c.build import toolchain
from popgraph.backends.c.cache import folder as cache_folder
from popgraph.backends.c.cache import install_fingerprint, program_cache, program_key
from popgraph.support import cache_files, trust, writing
from popgraph.support.arrays import Array
from popgraph.support.errors import BackendError

X = np.arange(-2, 2, dtype=np.float32)
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache, and a process that knows nothing of caches."""
    monkeypatch.setenv("POPGRAPH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv(program_cache.SWITCH, "1")
    monkeypatch.setattr(program_key, "sources", lambda: "the same")
    monkeypatch.setattr(install_fingerprint, "states", lambda: "the same")
    trust.forget()
    cache_folder.forget()
    yield tmp_path / "cache"
    trust.forget()
    cache_folder.forget()


@pytest.fixture
def compilers(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The runs of compilers that made libraries."""
    seen: list[object] = []
    run = toolchain.Compiler.run

    def watched(self: toolchain.Compiler, arguments: Any, text: str | None = None) -> Any:
        seen.extend([arguments] if "-shared" in arguments else [])
        return run(self, arguments, text)

    monkeypatch.setattr(toolchain.Compiler, "run", watched)
    return seen


def compute() -> Array:
    builder = popgraph.Builder()
    x = builder.addInputTensor("FLOAT", [4], "x")
    y = builder.aiOnnx.relu([x])
    builder.addOutputTensor(y)
    found: Array = popgraph.compile(builder)(x=X)[y]
    assert np.array_equal(found, np.maximum(X, 0))
    return found


def told(act: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        act()
    return [str(one.message) for one in caught if one.category is RuntimeWarning]


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_folders_are_for_this_user_alone(cache: Path, compilers: list[object]) -> None:
    before = os.umask(0)
    try:
        assert not told(compute)
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (cache, *cache.rglob("*"))}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o644}
    assert not told(compute) and len(compilers) == 1, "and are used again"


@pytest.mark.parametrize("above", [False, True])
def test_a_cache_that_others_may_write_is_not_used(
    cache: Path, compilers: list[object], above: bool
) -> None:
    """Nor one whose folder others may put another one in the place of."""
    compute()
    before = content(cache)
    folder = cache.parent if above else cache
    folder.chmod(0o777)
    trust.forget()
    (message,) = told(lambda: (compute(), compute()))
    assert message.startswith(f"{cache} is not used: others may write")
    assert len(compilers) == 2 and content(cache) == before
    folder.chmod(0o1777 if above else 0o700)
    compute()
    assert len(compilers) == 2, "a sticky folder is like /tmp: others cannot rename what is ours"


def test_a_cache_of_somebody_else_is_not_looked_into(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute()
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    (message,) = told(lambda: (cache_folder.readable_caches(), cache_folder.readable_caches()))
    assert message.startswith(f"{cache} is not used: it belongs to user {owner}, ")
    with warnings.catch_warnings():
        assert cache not in cache_folder.readable_caches()


@AS_ROOT
def test_a_cache_of_somebody_else_is_not_used(cache: Path, compilers: list[object]) -> None:
    compute()
    before = content(cache)
    os.chown(cache, 1234, 1234)
    (message,) = told(lambda: (compute(), compute()))
    assert message.startswith(f"{cache} is not used: it belongs to user 1234, ")
    assert content(cache) == before and len(compilers) == 2


@AS_ROOT
def test_a_cache_of_root_is_used_by_others_if_they_say_so(
    cache: Path, compilers: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    compute()
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    monkeypatch.setenv(trust.SHARED, "1")
    assert not told(compute) and len(compilers) == 1
    (cache / "kernels").chmod(0o777)
    trust.forget()
    assert any("others may write" in text for text in told(compute))


@AS_ROOT
def test_a_file_that_somebody_else_put_there_is_not_run(
    cache: Path, compilers: list[object]
) -> None:
    """It is sealed as it should be: a seal tells damage, not who made it."""
    compute()
    (library,) = cache.rglob("*.so")
    planted = library.read_bytes()
    os.chown(library, 65534, 65534)
    messages = told(compute)
    assert len(compilers) == 2 and len(messages) == 1
    assert messages[0].startswith(f"{library} is not used: it belongs to user 65534")
    assert library.stat().st_uid == os.geteuid(), "it was replaced"
    assert library.read_bytes()[:4] == planted[:4]
    compute()
    assert len(compilers) == 2


KINDS = ("decisions", "kernels", "kernel_texts", "objects", "programs", "targets")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ["file", "folder"])
def test_nothing_is_read_that_others_may_write(cache: Path, kind: str, what: str) -> None:
    compute()
    for path in (cache / kind).rglob("*"):
        if path.is_dir() == (what == "folder"):
            path.chmod(0o777)
    trust.forget()
    for path in (cache / kind).rglob("*"):
        if path.is_file():
            assert told(lambda path=path: cache_files.is_sealed(path))  # type: ignore[misc]
            assert not cache_files.is_sealed(path)
    compute()


# Caches of no use


def test_a_cache_may_be_a_plain_file(cache: Path) -> None:
    cache.write_text("not a folder")
    (message,) = told(lambda: (compute(), compute()))
    assert message.startswith(f"{cache} cannot be written (it is not a folder): ")
    assert cache.read_text() == "not a folder"


def limited(size: int, below: Path | None) -> Any:
    """A way of writing that finds a disk full after so many bytes, if the file is below a path."""
    stage = writing.stage
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def write(path: Path, *arguments: Any, **named: Any) -> Any:
        full = below is None or path.is_relative_to(below)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size if full else before[0], before[1]))
        try:
            return stage(path, *arguments, **named)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return write


def test_where_the_cache_has_no_room_programs_are_compiled_without_one(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "stage", limited(200, cache))
    (message,) = told(lambda: (compute(), compute()))
    assert message.startswith(f"{cache} cannot be written (File too large): ")


def test_where_there_is_no_room_at_all_this_is_said(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "stage", limited(50, None))
    with (
        pytest.warns(RuntimeWarning, match="cannot be written"),
        pytest.raises(BackendError, match="there is no place for compiled code: File too large"),
    ):
        compute()


def test_a_compiler_that_finds_no_room_is_understood(cache: Path) -> None:
    code = (
        "import resource, tests.backends.test_cache_trust as t\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))\n"
        "t.compute()"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False
    )
    assert "BackendError: there is no place for compiled code: " in done.stderr
    assert "bug in PopGraph" not in done.stderr
