"""Changes of a model after its engines were made."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

if TYPE_CHECKING:
    from vanilla_transformer.decoding.ensemble import DecodedModel

_SAMPLES = 4  # numbers of a weight that are looked at


class _OptimizerSteps:
    """Count the steps of all optimizers: fused kernels change weights without a new version."""

    def __init__(self) -> None:
        self.number = 0
        register_optimizer_step_post_hook(self._count)

    def _count(self, *_: Any) -> None:
        self.number += 1


_optimizer_steps = _OptimizerSteps()


class ModelWatch:
    """
    Notice that a model has other modules, weights or adapters than before, or another mode.

    An engine copies some or all weights, so a new one is needed then.
    """

    def __init__(self, model: "DecodedModel"):
        self.model = model
        self._identity: tuple[Any, ...] | None = None
        self._held = list[nn.Module | Tensor]()  # so that no others can get their addresses
        # A few numbers of each weight, and a view of where they are
        self._views = list[Tensor]()
        self._samples = torch.empty(0)

    def forget(self) -> None:
        """Take the model for changed at the next look."""
        self._identity = None

    def has_changed(self) -> bool:
        """Return whether the model has changed since the last look. The first look finds a
        change.
        """
        modules = _modules_of(self.model)
        weights = list[nn.Parameter]()
        for module in modules:
            weights.extend(weight for weight in module._parameters.values() if weight is not None)
        is_training = bool(modules) and modules[0].training
        objects, types = [*map(id, modules)], [*map(type, modules)]
        places = [*map(_place_of, weights)]
        adapters = _adapters_of(modules)
        identity = (_optimizer_steps.number, objects, types, places, is_training, adapters)
        samples = _join(self._views)
        is_same = torch.allclose(samples, self._samples, rtol=0.0, atol=0.0, equal_nan=True)
        if identity == self._identity and is_same:
            return False
        self._identity = identity
        self._held = [*modules, *(weight.detach() for weight in weights)]
        self._views = _sample_views(weights)
        self._samples = _join(self._views)
        return True


def _modules_of(model: "DecodedModel") -> list[nn.Module]:
    """Return a model and all its modules, in a fifth of the time of `modules()`. A model that is no
    module has none.
    """
    modules = list[nn.Module]()
    if isinstance(model, nn.Module):
        modules.append(model)
    for module in modules:  # which grows
        modules.extend(child for child in module._modules.values() if child is not None)
    return modules


def _adapters_of(modules: list[nn.Module]) -> list[tuple[Any, ...]]:
    """Return the state of adapters, which PEFT switches without a change of weights."""
    adapters = list[tuple[Any, ...]]()
    for module in modules:
        if "_active_adapter" in vars(module):
            scaling = {**getattr(module, "scaling", {})}
            adapters.append((module.disable_adapters, repr(module.active_adapters), scaling))
    return adapters


def _place_of(weight: nn.Parameter) -> tuple[int, ...]:
    """Return numbers of which one differs whenever a weight is replaced or written to, but by way
    of its `data`.
    """
    version = 0 if weight.is_inference() else weight._version
    return id(weight), weight.data_ptr() if type(weight) is nn.Parameter else 0, version


def _sample_views(weights: list[nn.Parameter]) -> list[Tensor]:
    """Return views of a few numbers of each weight: an adapter is merged by way of `data`, too."""
    plain = list[Tensor]()
    for weight in weights:
        if type(weight) is nn.Parameter and weight.is_contiguous():
            plain.append(weight.detach())
    views = list[Tensor]()
    for tensor in plain:
        if tensor.device == plain[0].device and not tensor.is_meta:
            interval = max(1, tensor.numel() // _SAMPLES)
            views.append(tensor.view(-1)[::interval])
    return views


def _join(samples: list[Tensor]) -> Tensor:
    return torch.cat(samples) if samples else torch.empty(0)
