"""The engine of a session: its program, compiled for a device, and the seed it draws from."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from popgraph.backends.base import Executable
from popgraph.background import Backlog
from popgraph.dialects.graphcore.random import SEED
from popgraph.passes.graphcore.training.ranks import RANK
from popgraph.popart.api.devices import DeviceInfo
from popgraph.popart.exceptions import (
    as_popart_errors,
    popart_exception,
    popart_runtime_error,
)
from popgraph.popart.programs.program import Program
from popgraph.popart.sessions.overlap import Overlap
from popgraph.support.logs import log_of

_SEED_NUMBERS = 2
"""The numbers of 64 bits that a program draws from: the seed, and the steps taken with it."""
_STATES, _WORDS = 2, 4
"""PopART keeps two states of each worker, one that replicas share, of so many words each."""


class Engine:
    """A program that `prepare` compiles; whatever needs it before fails as PopART does."""

    def __init__(self, program: Program, backlog: Backlog | None = None) -> None:
        self._program = program
        self.backlog = backlog
        """Where a quick program waits for the tuned one, if there is one."""
        self._executable: Executable | None = None
        self._device: DeviceInfo | None = None
        self._state: list[int] = []
        self.loaded = False
        self.forward: Executable | None = None
        """The program of the forward pass alone, where there is one."""

    def prepare(
        self,
        device: DeviceInfo,
        rank: int = 0,
        *,
        forward: bool = False,
        overlap: Overlap | None = None,
    ) -> None:
        """
        Compiles the program of a rank, and gives it the scalars that the host writes.

        With `forward`, a second one of the same variables runs the forward pass alone. With
        `overlap`, the program is one for each stage, if it can be.
        """
        if device.runs:
            device.attach()
        self._device = device
        workers = device.numIpus * max(1, device.tilesPerIPU) * device.numWorkerContexts
        self._state = [0] * (_STATES * _WORDS * workers)
        log = log_of("devicex")
        log.info("Starting compilation for %s, backend %s", device.type, device.backend)
        start = time.perf_counter()
        with as_popart_errors():
            how = device.backend, device.threads
            code = self._program.code
            staged = None if overlap is None else overlap.build(code, *how)
            self._executable = staged or code.build(*how, self.backlog)
            if forward:
                results = self._program.forward_results
                self.forward = code.build_forward(*how, results, self._executable)
        log.info("Compilation took %.3f s", time.perf_counter() - start)
        for id, array in self._program.streamed.items():
            self._executable.write(id, array)
        if RANK in self._executable.variables:
            self._executable.write(RANK, np.array([rank]))

    def load(self) -> None:
        """An executable of this machine is in memory as soon as it is made."""
        if self._device is not None and not self._device.runs:
            raise popart_runtime_error("Trying to load an engine on an offline device")
        self.loaded = True
        log_of("session").info("Engine loaded")

    def prepared(self, message: str) -> Executable:
        """
        The executable, on a device that is attached.

        `message` says what is wrong when there is none yet.
        """
        if self._executable is None or self._device is None:
            raise popart_runtime_error(message)
        if self._device.runs:
            self._device.attach()
        return self._executable

    def prepared_for(self, call: str) -> Executable:
        """The executable that a call of PopART's own device needs."""
        return self.prepared(f"Devicex::prepare() must be called before Devicex::{call} is called.")

    def set_seed(self, seed: int) -> None:
        """The seed that steps draw from; its high bits count the steps that were taken with it."""
        if not self._program.uses_seed:
            log_of("session").warning(
                "Trying to set the random seed, but this session has no random behaviour. Doing "
                "nothing."
            )
            return
        executable = self.prepared_for("setRandomSeedFromHost(uint64_t)")
        step, low = divmod(seed, 2**64)
        if not 0 <= step < 2**63:
            raise popart_exception(f"a seed is a number from 0 to 2^64 - 1, not {seed}")
        executable.write(SEED, np.array([low, step], np.uint64).astype(np.int64))

    def random_state(self) -> list[int]:
        """
        As many words of 32 bits as the workers of the device hold.

        The first are the seed and the number of steps taken with it, lowest first.
        """
        executable = self.prepared_for("getRngStateToHost")
        if self._program.uses_seed:
            drawn = executable.read(SEED).astype("<i8").view("<u4")
            self._state[: len(drawn)] = drawn.tolist()
        return list(self._state)

    def set_random_state(self, words: Sequence[int]) -> None:
        """Goes on where `random_state` was asked for; a program that draws nothing keeps it."""
        executable = self.prepared_for("setRngStateFromHost")
        if len(words) != len(self._state):
            raise popart_runtime_error(
                f"Devicex::setRngStateValue received rngState of size {len(words)}; was expecting "
                f"size {len(self._state)}",
                "setRNGState",
                "pass what getRNGState gave",
            )
        self._state = list(words)
        if self._program.uses_seed:
            drawn = np.array(words[: 2 * _SEED_NUMBERS], "<u4").view("<i8")
            executable.write(SEED, drawn.astype(np.int64))

    def seed(self) -> int:
        """The seed, plus 2^64 times the number of steps taken with it."""
        if not self._program.uses_seed:
            log_of("session").warning(
                "Trying to get the random seed, but this session has no random behaviour. Doing "
                "nothing."
            )
            return 0
        executable = self.prepared_for("getRandomSeedToHost()")
        seed, step = (int(number) for number in executable.read(SEED).astype(np.uint64))
        return seed + step * 2**64
