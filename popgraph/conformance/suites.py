"""Test suites of other ONNX releases: folders, or wheels unpacked temporarily."""

from __future__ import annotations

import hashlib
import json
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from onnx.backend.test.case.test_case import TestCase

from popgraph.conformance.cases import MODELS, Bounds, Case
from popgraph.support.errors import ModelError

MODEL, DESCRIPTION = "model.onnx", "data.json"
"""Files of a test: its model, or a description with the URL of the model."""
PREFIX = "test_"
RTOL, ATOL = 1e-3, 1e-7
"""Default tolerances of ONNX's runner."""
MAX_BYTES = 2**32
"""Limit of unpacked bytes, above the size of any release's tests."""


@contextmanager
def opened(paths: Iterable[Path]) -> Iterator[list[Case]]:
    """
    Opens the tests of folders and wheels for the duration of a block.

    Byte-identical tests of several suites are merged.
    """
    with ExitStack() as stack:
        yield _distinct(case for path in paths for case in _suite(path, stack))


def _distinct(cases: Iterable[Case]) -> list[Case]:
    found: dict[tuple[str, str, str], list[Case]] = {}
    for case in cases:
        found.setdefault((case.kind, case.name, _fingerprint(case)), []).append(case)
    return [
        replace(same[0], suites=tuple(name for case in same for name in case.suites))
        for same in found.values()
    ]


def _suite(path: Path, stack: ExitStack) -> list[Case]:
    if path.is_dir():
        folder, name = path, path.resolve().name
    elif path.is_file():
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="popgraph-suite-")))
        name = _release(path)
        _unpack(path, folder)
    else:
        raise ModelError("no such file or folder", str(path))
    cases = [replace(case, suites=(name,)) for case in _cases(folder)]
    if not cases:
        raise ModelError(
            "it contains no model tests",
            str(path),
            f"give a wheel of onnx, or a folder that holds KIND/{PREFIX}NAME/{MODEL}",
        )
    return cases


def _release(wheel: Path) -> str:
    """Name and version from the file name of a wheel: `onnx-1.12.0`."""
    return "-".join(wheel.stem.split("-")[:2])


def _unpack(file: Path, folder: Path) -> None:
    """Unpacks the files of tests. `extractall` keeps every path inside the folder."""
    try:
        with zipfile.ZipFile(file) as archive:
            members = [each for each in archive.infolist() if _is_of_a_test(each.filename)]
            if sum(each.file_size for each in members) > MAX_BYTES:
                raise ModelError(f"its tests are larger than {MAX_BYTES} bytes", str(file))
            archive.extractall(folder, members)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        raise ModelError(
            f"it cannot be unpacked: {error}", str(file), "give a wheel of onnx as PyPI has it"
        ) from None


def _is_of_a_test(name: str) -> bool:
    folders = PurePosixPath(name).parts[:-1]
    return any(each.startswith(PREFIX) or each == MODELS for each in folders)


def _cases(folder: Path) -> list[Case]:
    """All tests below a folder; a test without a model has the URL of its model."""
    files = [*folder.rglob(f"{PREFIX}*/{MODEL}"), *folder.rglob(f"{PREFIX}*/{DESCRIPTION}")]
    return [_case(each) for each in sorted({file.parent for file in files})]


def _case(folder: Path) -> Case:
    kind, has_model = folder.parent.name, (folder / MODEL).is_file()
    said = _description(folder / DESCRIPTION)
    rtol, atol, bounds = _tolerances(said, str(folder / DESCRIPTION))
    test = TestCase(
        name=folder.name,
        model_name=str(said.get("model_name", folder.name.removeprefix(PREFIX))),
        url=None if has_model else str(said.get("url", "")),
        model_dir=str(folder) if has_model else None,
        model=None,
        data_sets=None,
        kind=kind,
        rtol=rtol,
        atol=atol,
    )
    return Case(kind, test, folder.parent.parent, bounds=bounds)


def _tolerances(said: dict[str, Any], where: str) -> tuple[float, float, Bounds]:
    """The tolerances of all outputs, and the bounds of each one if `atol` is a list."""
    try:
        rtol, atol = float(said.get("rtol", RTOL)), said.get("atol", ATOL)
        if isinstance(atol, list):
            bounds = tuple(None if each is None else float(each) for each in atol)
            return rtol, ATOL, bounds
        return rtol, float(atol), ()
    except (TypeError, ValueError):
        raise ModelError(
            "a tolerance that is not a number",
            where,
            "atol may also be a list: a number, or null, for each output",
        ) from None


def _description(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        said = json.loads(file.read_text("utf-8"))
        if isinstance(said, dict):
            return said
    except ValueError:
        pass
    raise ModelError("not a JSON object", str(file), "it says where the model of a test is")


def _fingerprint(case: Case) -> str:
    """SHA-256 of all files and tolerances of a test."""
    found = hashlib.sha256(f"{case.found.rtol} {case.found.atol}".encode())
    for file in case.files():
        found.update(f"{file.name} {file.parent.name} {file.stat().st_size} ".encode())
        found.update(file.read_bytes())
    return found.hexdigest()
