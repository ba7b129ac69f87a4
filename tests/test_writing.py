"""Tests that files are written atomically, even if the writer is killed."""

from __future__ import annotations

import ast
import errno
import fcntl
import os
import re
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import popgraph
from popgraph.builder.pgraph import load
from popgraph.cli import app
from popgraph.popart.exceptions import popart_exception
from popgraph.support import writing
from popgraph.support.cache_files import trim
from popgraph.support.errors import PopgraphError, RunError, WriteError
from popgraph.support.writing import append_to, write_file, write_files, write_text
from popgraph.training import checkpoints
from tests.killed_writers import NEW, OLD

ROOT = Path(__file__).parents[1]
MLP = str(ROOT / "examples" / "mlp.pgraph")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# Killed writers


def run_killed_writers(check: str, folder: Path) -> None:
    command = [sys.executable, "-m", "tests.killed_writers", check, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_killed_writer_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    run_killed_writers("check_file", tmp_path)


def left_behind(file: Path) -> Path:
    """The partial file of a process that is killed while it writes a file."""
    before = names(file.parent)
    read, write = os.pipe()

    def endless() -> Iterator[bytes]:
        yield NEW
        os.write(write, b"begun")
        signal.pause()

    child = os.fork()
    if child == 0:
        write_file(file, endless())
    os.read(read, 5)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(read)
    os.close(write)
    (part,) = names(file.parent) - before
    return file.parent / part


def test_partial_files_of_running_writers_are_kept(tmp_path: Path) -> None:
    """Writers of one file may overlap in threads or processes; the last one wins."""
    file = tmp_path / "file"

    def interrupted() -> Iterator[bytes]:
        yield NEW
        write_file(file, [OLD])
        child = os.fork()
        if child == 0:
            write_file(file, [OLD])
            writing.remove_orphans(tmp_path)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert file.read_bytes() == OLD and len(names(tmp_path)) == 2

    write_file(file, interrupted())
    assert file.read_bytes() == NEW and names(tmp_path) == {"file"}


def test_partial_files_of_other_files_or_machines_are_kept(tmp_path: Path) -> None:
    mine, other = tmp_path / "file", left_behind(tmp_path / "other")
    _, key, kernel, number, end = left_behind(mine).name.split(".")
    foreign = tmp_path / f".{key}.{int(kernel, 16) ^ 1:08x}.{number}.{end}"
    left_behind(mine).rename(foreign)
    write_file(mine, [NEW])
    assert names(tmp_path) == {"file", other.name, foreign.name}
    os.utime(foreign, (0, 0))
    write_file(mine, [NEW])
    assert names(tmp_path) == {"file", other.name}, "no machine writes for years"


def test_a_writer_restarts_if_its_unlocked_file_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new partial file is not locked yet; if another process removes it, the writer restarts."""
    flock = fcntl.flock
    calls: list[int] = []

    def late(descriptor: int, how: int) -> None:
        if not calls:
            calls.append(how)
            writing.remove_orphans(tmp_path)
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    write_file(tmp_path / "file", [NEW])
    assert calls and names(tmp_path) == {"file"}


def test_a_file_system_without_locks_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    left = left_behind(tmp_path / "file")
    monkeypatch.setattr(fcntl, "flock", none)
    write_file(tmp_path / "file", [NEW])
    assert names(tmp_path) == {"file", left.name}, "its writer is unknown"


def test_resuming_a_training_removes_partial_files(tmp_path: Path) -> None:
    file = tmp_path / "run.ckpt"
    left_behind(file)
    with pytest.raises(RunError, match="the checkpoint cannot be read"):
        checkpoints.load(file, None)  # type: ignore[arg-type]
    assert names(tmp_path) == set()


def test_caches_remove_partial_files(tmp_path: Path) -> None:
    (tmp_path / "ab").mkdir()
    left_behind(tmp_path / "ab" / "kernel.so")
    trim(tmp_path, 1 << 30)
    assert names(tmp_path / "ab") == set()


def test_a_killed_writer_leaves_a_consistent_pair(tmp_path: Path) -> None:
    run_killed_writers("check_pair", tmp_path)


def test_a_failure_leaves_all_of_several_files_unchanged(tmp_path: Path) -> None:
    good = tmp_path / "good"
    good.write_bytes(OLD)
    with pytest.raises(WriteError) as caught:
        write_files([(good, [NEW]), (tmp_path / "nowhere" / "file", [NEW])])
    assert caught.value.where == str(tmp_path / "nowhere" / "file")
    assert good.read_bytes() == OLD and names(tmp_path) == {"good"}


def test_a_failing_iterator_leaves_the_old_file(tmp_path: Path) -> None:
    def failing() -> Iterator[bytes]:
        yield NEW
        raise PopgraphError("no more")

    file = tmp_path / "file"
    file.write_bytes(OLD)
    with pytest.raises(PopgraphError, match="no more"):
        write_file(file, failing())
    assert file.read_bytes() == OLD and names(tmp_path) == {"file"}


# Modes, links, owners, pipes


def test_mode_and_link_are_kept(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "target", tmp_path / "link"
    target.write_bytes(OLD)
    target.chmod(0o640)
    link.symlink_to("folder/target")
    write_file(link, [NEW])
    assert link.is_symlink() and os.readlink(link) == "folder/target"
    assert target.read_bytes() == NEW and stat.S_IMODE(target.stat().st_mode) == 0o640
    dangling = tmp_path / "dangling"
    dangling.symlink_to("folder/not_yet")
    write_file(dangling, [NEW])
    assert dangling.is_symlink() and (tmp_path / "folder" / "not_yet").read_bytes() == NEW
    assert names(tmp_path / "folder") == {"target", "not_yet"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_the_owner_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(OLD)
    os.chown(file, 1234, 4321)
    write_file(file, [NEW])
    assert (file.stat().st_uid, file.stat().st_gid) == (1234, 4321)


def test_new_files_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_file(tmp_path / "file", [NEW])
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_pipes_and_devices_are_written_to_directly(tmp_path: Path) -> None:
    """Devices such as /dev/null must not be replaced by files, even for root."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_text(pipe, "text")
    assert os.read(reader, 100) == b"text" and stat.S_ISFIFO(pipe.stat().st_mode)
    os.close(reader)
    write_text(Path(os.devnull), "text")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_the_file_that_a_descriptor_is_open_on_is_written_to(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w+b") as file:
        write_text(f"/dev/fd/{file.fileno()}", "text")
        assert file.read() == b"text"


@pytest.mark.parametrize("place", ["nowhere/file", ".", "file/below", "a\0b"])
def test_unwritable_files_have_errors(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_bytes(OLD)
    with pytest.raises(WriteError, match="the file cannot be written: ") as caught:
        write_file(tmp_path / place, [NEW])
    assert caught.value.where == str(tmp_path / place)
    assert names(tmp_path) == {"file"}


# Every door


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulates a full disk by a limit of the file size, from the first user file on."""
    stage = writing.stage
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limited(*arguments: Any, durable: bool, **named: Any) -> Any:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100 if durable else before[0], before[1]))
        try:
            return stage(*arguments, durable=durable, **named)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    monkeypatch.setattr(writing, "stage", limited)


def session() -> popgraph.InferenceSession:
    builder = popgraph.Builder()
    x = builder.addInputTensor("FLOAT", [4, 4], "x")
    w = builder.addInitializedInputTensor(np.ones((4, 4), np.float32), "w")
    y = builder.aiOnnx.matmul([x, w])
    made = popgraph.InferenceSession(
        builder.getModelProto(),
        dataFlow=popgraph.DataFlow(1, {y: popgraph.AnchorReturnType("All")}),
        deviceInfo=popgraph.DeviceManager().createCpuDevice(),
    )
    made.prepareDevice()
    return made


def builder() -> popgraph.Builder:
    made = popgraph.Builder()
    x = made.addInputTensor("FLOAT", [400, 400], "x")
    w = made.addInitializedInputTensor(np.ones((400, 400), np.float32), "w")
    made.addOutputTensor(made.aiOnnx.matmul([x, w]))
    return made


def command(*arguments: object) -> None:
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert result.exit_code == 1, result.output
    assert "cannot be written: File too large" in result.output
    raise WriteError("as reported")


def trained(file: Path) -> None:
    np.save(file.parent / "x.npy", np.ones((8, 64), np.float32))
    np.save(file.parent / "labels.npy", np.ones(8, np.int64))
    arrays = [f"{name}={file.parent / name}.npy" for name in ("x", "labels")]
    try:
        command("train", MLP, "--data", *arrays, "--epochs", 1, "-o", file)
    finally:
        for name in ("x", "labels"):
            (file.parent / f"{name}.npy").unlink()


DOORS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "modelToHost": ("model.onnx", lambda file: session().modelToHost(file)),
    "saveModelProto": ("model.onnx", lambda file: builder().saveModelProto(file)),
    "convert to onnx": ("model.onnx", lambda file: command("convert", MLP, file)),
    "convert to pgraph": ("model.pgraph", lambda file: command("convert", MLP, file)),
    "convert to mlir": ("model.mlir", lambda file: command("convert", MLP, file)),
    "train": ("model.onnx", trained),
    "run": (
        "y.npy",
        lambda file: command("run", MLP, "--random", "--dim", "N=64", "-o", f"y={file}"),
    ),
    "schedules": (
        "made.json",
        lambda file: command("schedules", MLP, "--dim", "N=2", "-o", file),
    ),
    "profile --json": (
        "made.json",
        lambda file: command("profile", MLP, "--dim", "N=2", "--rounds", 1, "--json", file),
    ),
    "profile --html": (
        "made.html",
        lambda file: command("profile", MLP, "--dim", "N=2", "--rounds", 1, "--html", file),
    ),
    "emit": ("program.c", lambda file: command("emit", MLP, "--dim", "N=2", "-o", file.parent)),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_full_disk_keeps_the_old_file(tmp_path: Path, full_disk: None, door: str) -> None:
    name, write = DOORS[door]
    (tmp_path / name).write_bytes(OLD)
    with pytest.raises((WriteError, popart_exception)):
        write(tmp_path / name)
    assert (tmp_path / name).read_bytes() == OLD
    assert names(tmp_path) == {name}, "no partial file remains"


def test_a_full_disk_keeps_a_growing_file(tmp_path: Path) -> None:
    file = tmp_path / "weights.bin"
    file.write_bytes(OLD)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(OLD) + 10, before[1]))
    try:
        with pytest.raises(WriteError):
            append_to(file, b"x" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert file.read_bytes() == OLD


def test_a_full_disk_keeps_the_text_that_fmt_formats(tmp_path: Path, full_disk: None) -> None:
    file = tmp_path / "net.pgraph"
    content = Path(MLP).read_text().replace("    ", "  ") + "\n\n"
    file.write_text(content)
    with pytest.raises(WriteError):
        command("fmt", file)
    assert file.read_text() == content and names(tmp_path) == {file.name}


def test_a_text_and_its_weights_are_replaced_together(tmp_path: Path) -> None:
    """Repeated conversions keep the name of the weight file."""
    model, text = tmp_path / "model.onnx", tmp_path / "model.pgraph"
    for value in (1, 2):
        made = popgraph.Builder()
        weights = np.full((100, 100), value, np.float32)
        weights[0, 0] = 7
        x = made.addInputTensor("FLOAT", [100, 100], "x")
        made.addOutputTensor(made.aiOnnx.add([x, made.addInitializedInputTensor(weights, "w")]))
        made.saveModelProto(model)
        result = CliRunner().invoke(app, ["convert", str(model), str(text)])
        assert result.exit_code == 0, result.output
        assert names(tmp_path) == {"model.onnx", "model.pgraph", "model.safetensors"}
        document = load(text)
        (key,) = document.weights
        assert document.weights.held(key, "w")[1, 1] == value


def test_saved_models_can_be_read(tmp_path: Path) -> None:
    builder().saveModelProto(tmp_path / "model.onnx")
    onnx.checker.check_model(str(tmp_path / "model.onnx"))


# All writers

PLACE = "support/writing.py"
WRITERS = {
    "write_bytes", "tofile", "savez", "savez_compressed", "savetxt", "open_memmap", "touch",
    "mkstemp", "NamedTemporaryFile", "fdopen", "truncate", "rename", "renames", "move",
    "copyfile", "copy2", "hardlink_to", "symlink_to", "save_model", "write_image",
}  # fmt: skip
"""Methods that write or move files."""
UNLESS: dict[str, Callable[[ast.Call], bool]] = {
    "write_text": lambda call: False,
    "save": lambda call: _base(call) not in ("np", "onnx") or ast.unparse(call.args[0]) == "file",
    "dump": lambda call: _base(call) != "json",
    "replace": lambda call: (
        _base(call) != "os" and (len(call.args) != 1 or _base(call) in ("candidate", "dataclasses"))
    ),
    "memmap": lambda call: "'r'" in map(ast.unparse, call.args),
    "open": lambda call: not any(map(_is_mode, _given(call))) or "os.devnull" in ast.unparse(call),
}
"""
Methods that may write files, with a test for calls that do not.

`replace` also applies to strings and operations, and `np.save` may write to memory.
"""


def _given(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _is_mode(argument: ast.expr) -> bool:
    """Whether an argument is an open mode for writing."""
    if isinstance(argument, ast.Constant):
        letters = set(str(argument.value))
        return letters <= set("rwaxbt+") and bool(letters & set("wax+"))
    return re.search(r"os\.O_(?!RDONLY|DIRECTORY)", ast.unparse(argument)) is not None


def _base(call: ast.Call) -> str:
    return ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""


def writes(text: str) -> Iterator[tuple[int, str]]:
    """The calls in a Python source that may write a file, with their lines."""
    for call in ast.walk(ast.parse(text)):
        if not isinstance(call, ast.Call):
            continue
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if isinstance(call.func, ast.Name) and call.func.id == "open":
            name = "open"
        if name in WRITERS or (name in UNLESS and not UNLESS[name](call)):
            yield call.lineno, ast.unparse(call.func)


def test_files_are_written_in_one_module() -> None:
    package = ROOT / "popgraph"
    found = [
        f"{path.relative_to(package)}:{line}: {what}"
        for path in sorted(package.rglob("*.py"))
        if path.relative_to(package).as_posix() != PLACE
        for line, what in writes(path.read_text())
    ]
    assert not found, f"popgraph/{PLACE} writes files: {found}"


@pytest.mark.parametrize(
    "text",
    [
        "open(path, 'w')",
        "path.open('wb')",
        "io.open(path, mode='a')",
        "path.write_bytes(content)",
        "np.savez(path, **arrays)",
        "np.save(path, array)",
        "onnx.save(model, path)",
        "os.replace(part, path)",
        "part.replace(path)",
        "shutil.move(part, path)",
        "json.dump(rows, opened)",
        "os.open(path, os.O_WRONLY | os.O_CREAT)",
        "np.memmap(path, np.uint8, 'w+')",
        "array.tofile(path)",
    ],
)
def test_other_writers_are_detected(text: str) -> None:
    assert list(writes(text))
