"""Tests cache files: seals against damage, permissions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from popgraph.support.cache_files import is_sealed, read_sealed, write_cache_file, write_sealed
from tests.damages import DAMAGES


@pytest.mark.parametrize("content", [b"", b"content", bytes(1000)])
def test_sealed_files_can_be_read(tmp_path: Path, content: bytes) -> None:
    write_sealed(tmp_path / "a/b", content)
    assert is_sealed(tmp_path / "a/b") and read_sealed(tmp_path / "a/b") == content
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_reported_and_repaired(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "file"
    write_sealed(file, b"content")
    DAMAGES[damage](file)
    assert not is_sealed(file)
    write_sealed(file, b"content")
    assert read_sealed(file) == b"content"


def test_the_seal_covers_every_byte(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_sealed(file, b"content")
    whole = file.read_bytes()
    for place in range(len(whole)):
        file.write_bytes(whole[:place])
        assert not is_sealed(file)
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert not is_sealed(file)
    assert not is_sealed(tmp_path / "nowhere")


def test_cache_files_follow_the_umask(tmp_path: Path) -> None:
    """One user may fill a cache for others."""
    before = os.umask(0o022)
    try:
        write_cache_file(tmp_path / "file", [b"content"])
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644
