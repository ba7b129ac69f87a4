"""`popgraph.torch.compile`: a module whose forward and backward pass are programs."""

from __future__ import annotations

from typing import Any

from torch import nn

from popgraph.support.errors import RunError
from popgraph.torch.dispatch import Dispatcher, Kind


class CompiledModule(nn.Module):
    """
    A module that computes the forward and backward pass of another one by programs.

    Both have the same parameters, buffers and children, so a `state_dict`, an optimizer, `train()`
    and `to()` work on either. Attributes that this class lacks are those of the original module.
    """

    def __init__(self, module: nn.Module, threads: int | None = None) -> None:
        super().__init__()
        object.__setattr__(self, "original", module)
        self._parameters, self._buffers = module._parameters, module._buffers
        self._modules = module._modules
        self.training, self.threads = module.training, threads
        object.__setattr__(self, "_dispatcher", Dispatcher(module, threads))
        self._survey()

    def _survey(self) -> None:
        """Notes the submodules, whose structure the programs depend on."""
        modules = list(self.original.modules())
        held = [
            (one._modules, name, child) for one in modules for name, child in one._modules.items()
        ]
        object.__setattr__(self, "_held", held)
        object.__setattr__(self, "_all", modules)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if any(holder.get(name) is not child for holder, name, child in self._held):
            self._survey()
            self._dispatcher.clear()
        return self._dispatcher(args, kwargs, self._state())

    def _state(self) -> Kind:
        """Modes of the modules, and types of their parameters and buffers."""
        modules = self._all
        return (
            *(one.training for one in modules),
            *(
                None if held is None else (held.requires_grad, held.dtype, held.shape)
                for one in modules
                for held in one._parameters.values()
            ),
            *(
                None if held is None else (held.dtype, held.shape)
                for one in modules
                for held in one._buffers.values()
            ),
        )

    def train(self, mode: bool = True) -> CompiledModule:
        self.original.train(mode)
        self.training = mode
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles have no programs; they compile at their first calls."""
        return CompiledModule, (self.original, self.threads)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["original"], name)


def compile(module: nn.Module, *, threads: int | None = None) -> CompiledModule:
    """
    A module whose forward and backward pass are programs of PopGraph.

    Programs are built at the first call with arguments of a kind: their structure, the shapes and
    element types of tensors, training or evaluation, gradients or none. Parameters and buffers are
    PyTorch's, and programs read their memory. `threads` is the number of threads, by default
    PyTorch's.
    """
    if not isinstance(module, nn.Module):
        raise RunError(
            f"popgraph.torch.compile takes a torch.nn.Module, not {type(module).__name__}",
            hint="torch.compile(function, backend='popgraph')",
        )
    return CompiledModule(module, threads)
