"""The engine on a device; as in PopART, it must be compiled and loaded before it runs."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from popgraph.backends.base import Executable
from popgraph.background import Backlog
from popgraph.engine.engine import Engine
from popgraph.engine.program_stages import ParallelPipeline
from popgraph.popart.api.devices import DeviceInfo
from popgraph.popart.exceptions import as_popart_errors, popart_runtime_error
from popgraph.popart.programs.program import Program
from popgraph.support.logs import log_of

_STATES, _WORDS = 2, 4
"""PopART has two random states per worker, one of them shared by replicas, of four words each."""
_NO_RANDOMNESS = (
    "Trying to %s the random seed, but this session has no random behaviour. Doing nothing."
)


class DeviceEngine:
    """An engine that `prepare` compiles; earlier uses raise PopART's errors."""

    def __init__(self, program: Program, backlog: Backlog | None = None) -> None:
        self.engine = Engine(program, backlog)
        self._draws = program.uses_seed
        self._device: DeviceInfo | None = None
        self._state: list[int] = []
        self.loaded = False

    def prepare(
        self,
        device: DeviceInfo,
        rank: int = 0,
        *,
        forward: bool = False,
        overlap: ParallelPipeline | None = None,
    ) -> None:
        """Compiles the program of a rank; see `Engine.compile`."""
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
            self.engine.compile(how, rank, forward=forward, overlap=overlap)
        log.info("Compilation took %.3f s", time.perf_counter() - start)

    def load(self) -> None:
        """Marks the engine as loaded; an executable for this machine needs no transfer."""
        if self._device is not None and not self._device.runs:
            raise popart_runtime_error("Trying to load an engine on an offline device")
        self.loaded = True
        log_of("session").info("Engine loaded")

    def prepared(self, message: str) -> Executable:
        """
        The executable, on an attached device.

        `message` is the error if the engine is not compiled.
        """
        executable = self.engine.executable
        if executable is None or self._device is None:
            raise popart_runtime_error(message)
        if self._device.runs:
            self._device.attach()
        return executable

    def prepared_for(self, call: str) -> Executable:
        """The executable for a method of PopART's device."""
        return self.prepared(f"Devicex::prepare() must be called before Devicex::{call} is called.")

    @property
    def seed(self) -> int:
        """The seed, plus 2^64 times the number of steps taken with it."""
        if not self._draws:
            log_of("session").warning(_NO_RANDOMNESS, "get")
            return 0
        self.prepared_for("getRandomSeedToHost()")
        return self.engine.seed

    @seed.setter
    def seed(self, seed: int) -> None:
        if not self._draws:
            log_of("session").warning(_NO_RANDOMNESS, "set")
            return
        self.prepared_for("setRandomSeedFromHost(uint64_t)")
        with as_popart_errors():
            self.engine.seed = seed

    @property
    def random_state(self) -> list[int]:
        """
        The random state, in 32-bit words; as long as PopART's state of the device's workers.

        The first ones are the seed and the number of steps, in little-endian order.
        """
        self.prepared_for("getRngStateToHost")
        if self._draws:
            drawn = self.engine.random_state.astype("<i8").view("<u4")
            self._state[: len(drawn)] = drawn.tolist()
        return list(self._state)

    @random_state.setter
    def random_state(self, words: Sequence[int]) -> None:
        self.prepared_for("setRngStateFromHost")
        if len(words) != len(self._state):
            raise popart_runtime_error(
                f"Devicex::setRngStateValue received rngState of size {len(words)}; was expecting "
                f"size {len(self._state)}",
                "setRNGState",
                "pass what getRNGState gave",
            )
        self._state = list(words)
        if self._draws:
            drawn = np.array(words[: 2 * len(self.engine.random_state)], "<u4").view("<i8")
            self.engine.random_state = drawn.astype(np.int64)
