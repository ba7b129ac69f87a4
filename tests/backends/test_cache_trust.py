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
    """An empty cache, in a process that has not checked any cache yet."""
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
    """Arguments of all compiler runs that linked a library."""
    seen: list[object] = []
    run = toolchain.Compiler.run

    def watched(self: toolchain.Compiler, arguments: Any, *more: Any, **named: Any) -> Any:
        seen.extend([arguments] if "-shared" in arguments else [])
        return run(self, arguments, *more, **named)

    monkeypatch.setattr(toolchain.Compiler, "run", watched)
    return seen


def compute() -> Array:
    builder = popgraph.Builder()
    x = builder.addInputTensor("FLOAT", [4], "x")
    y = builder.aiOnnx.relu([x])
    builder.addOutputTensor(y)
    found: Array = popgraph.compile(builder)(x=X)[y]
    assert np.array_equal(found, np.maximum(X, 0))
    program_cache.SAVES.wait()
    return found


def warnings_of(act: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        act()
    return [str(one.message) for one in caught if one.category is RuntimeWarning]


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_cache_folders_are_private(cache: Path, compilers: list[object]) -> None:
    before = os.umask(0)
    try:
        assert not warnings_of(compute)
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (cache, *cache.rglob("*"))}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o644}
    assert not warnings_of(compute) and len(compilers) == 1, "and are used again"


@pytest.mark.parametrize("above", [False, True])
def test_a_cache_writable_by_others_is_not_used(
    cache: Path, compilers: list[object], above: bool
) -> None:
    """Neither is a cache whose parent folder others can rename."""
    compute()
    before = content(cache)
    folder = cache.parent if above else cache
    folder.chmod(0o777)
    trust.forget()
    (message,) = warnings_of(lambda: (compute(), compute()))
    assert message.startswith(f"{cache} is not used: others may write")
    assert len(compilers) == 2 and content(cache) == before
    folder.chmod(0o1777 if above else 0o700)
    compute()
    assert len(compilers) == 2, "a sticky folder is like /tmp: others cannot rename our folder"


def test_a_cache_of_another_user_is_not_read(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compute()
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    (message,) = warnings_of(
        lambda: (cache_folder.readable_caches(), cache_folder.readable_caches())
    )
    assert message.startswith(f"{cache} is not used: it belongs to user {owner}, ")
    with warnings.catch_warnings():
        assert cache not in cache_folder.readable_caches()


@AS_ROOT
def test_a_cache_of_another_user_is_not_used(cache: Path, compilers: list[object]) -> None:
    compute()
    before = content(cache)
    os.chown(cache, 1234, 1234)
    (message,) = warnings_of(lambda: (compute(), compute()))
    assert message.startswith(f"{cache} is not used: it belongs to user 1234, ")
    assert content(cache) == before and len(compilers) == 2


@AS_ROOT
def test_a_cache_of_root_is_used_on_request(
    cache: Path, compilers: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    compute()
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    monkeypatch.setenv(trust.SHARED, "1")
    assert not warnings_of(compute) and len(compilers) == 1
    (cache / "kernels").chmod(0o777)
    trust.forget()
    assert any("others may write" in text for text in warnings_of(compute))


@AS_ROOT
def test_a_library_of_another_user_is_not_run(cache: Path, compilers: list[object]) -> None:
    """A valid seal does not help: seals detect damage, not authors."""
    compute()
    (library,) = cache.rglob("*.so")
    planted = library.read_bytes()
    os.chown(library, 65534, 65534)
    messages = warnings_of(compute)
    assert len(compilers) == 2 and len(messages) == 1
    assert messages[0].startswith(f"{library} is not used: it belongs to user 65534")
    assert library.stat().st_uid == os.geteuid(), "it was replaced"
    assert library.read_bytes()[:4] == planted[:4]
    compute()
    assert len(compilers) == 2


KINDS = ("decisions", "kernels", "kernel_texts", "objects", "programs", "targets")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ["file", "folder"])
def test_files_writable_by_others_are_not_read(cache: Path, kind: str, what: str) -> None:
    compute()
    for path in (cache / kind).rglob("*"):
        if path.is_dir() == (what == "folder"):
            path.chmod(0o777)
    trust.forget()
    for path in (cache / kind).rglob("*"):
        if path.is_file():
            assert warnings_of(lambda path=path: cache_files.is_sealed(path))  # type: ignore[misc]
            assert not cache_files.is_sealed(path)
    compute()


# Unusable caches


def test_a_plain_file_as_cache(cache: Path) -> None:
    cache.write_text("not a folder")
    (message,) = warnings_of(lambda: (compute(), compute()))
    assert message.startswith(f"{cache} cannot be written (it is not a folder): ")
    assert cache.read_text() == "not a folder"


def limited(size: int, below: Path | None) -> Any:
    """A `stage` that hits a full disk after `size` bytes, for paths below `below` or all paths."""
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


def test_a_full_cache_disk_is_reported_and_not_used(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "stage", limited(200, cache))
    (message,) = warnings_of(lambda: (compute(), compute()))
    assert message.startswith(f"{cache} cannot be written (File too large): ")


def test_a_full_temporary_disk_is_an_error(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "stage", limited(50, None))
    with (
        pytest.warns(RuntimeWarning, match="cannot be written"),
        pytest.raises(BackendError, match="there is no place for compiled code: File too large"),
    ):
        compute()


def test_a_compiler_on_a_full_disk_is_an_error(cache: Path) -> None:
    # Python 3.11 stores truncated bytecode on a full disk, and fails to read it later.
    code = (
        "import resource, sys, tests.backends.test_cache_trust as t\n"
        "sys.dont_write_bytecode = True\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))\n"
        "t.compute()"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False
    )
    assert "BackendError: there is no place for compiled code: " in done.stderr
    assert "bug in PopGraph" not in done.stderr
