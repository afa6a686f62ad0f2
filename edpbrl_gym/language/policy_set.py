"""The interface of the K policies of REINFORCE, whatever their weights are."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edpbrl_gym._files import replacing
from edpbrl_gym._validation import check_count
from edpbrl_gym.language.model import LanguageModel

if TYPE_CHECKING:
    import torch

__all__ = ["Policies", "add_noise", "policy_stream", "weight_bytes"]

_FIRST_WEIGHTS = int.from_bytes(b"policies", "big")  # purpose of the random streams here, unique to this module


class Policies(ABC):
    """K policies that start from one language model, the base.

    Policies are used one at a time, inside ``with policies.policy(q) as language: ...``.

    Attributes:
        base: The language model from which all start; use its weights through `base_model`.
        num_options: K.
        options: Options of the class, JSON-able.
    """

    kind: str

    def __init__(self, base: LanguageModel, num_options: int, options: dict[str, Any]) -> None:
        self.base = base
        self.num_options = check_count(num_options, "num_options (K)", minimum=2)
        self.options = options

    @abstractmethod
    def policy(self, index: int) -> AbstractContextManager[LanguageModel]:
        """Context in which policy ``index`` may be sampled and scored."""

    @abstractmethod
    def base_model(self) -> AbstractContextManager[LanguageModel]:
        """Context in which the base may be sampled and scored."""

    @abstractmethod
    def language_models(self) -> list[LanguageModel]:
        """The K policies as language models that may be used side by side, to sample and score without gradients."""

    @abstractmethod
    def named_parameters(self, index: int) -> list[tuple[str, torch.nn.Parameter]]:
        """Learnable parameters of policy ``index`` by name; all policies have the same names."""

    @abstractmethod
    def memory(self) -> int:
        """Bytes of all weights together, the base's included, shared ones once."""

    def parameters(self) -> list[torch.nn.Parameter]:
        """The learnable parameters of all policies."""
        return [parameter for q in range(self.num_options) for _, parameter in self.named_parameters(q)]

    def finite(self) -> bool:
        """Whether all learnable parameters are finite."""
        import torch

        with torch.no_grad():
            checks = [torch.isfinite(parameter).all() for parameter in self.parameters()]
        return bool(torch.stack(checks).all())

    def state(self) -> dict[str, torch.Tensor]:
        """Copies of all learnable parameters, on the CPU, by ``<policy>.<parameter>``."""
        return {
            f"{q}.{name}": parameter.detach().cpu().clone().contiguous()
            for q in range(self.num_options)
            for name, parameter in self.named_parameters(q)
        }

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        """Set all learnable parameters to a ``state``.

        Raises:
            ValueError: If names or shapes differ.
        """
        import torch

        parameters = {f"{q}.{name}": p for q in range(self.num_options) for name, p in self.named_parameters(q)}
        if parameters.keys() != state.keys() or any(parameters[name].shape != state[name].shape for name in parameters):
            raise ValueError(
                f"Expected the weights of {self.num_options} policies ({self.kind}) of {self.base.name} with options "
                f"{self.options}, got others; make the policies with the settings that the weights were saved with."
            )
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(state[name])

    def save(self, folder: str | Path, *, about: dict[str, Any] | None = None) -> None:
        """Write policies.safetensors and policies.json; `load_policies` reads them with the same base.

        Args:
            folder: The folder, made if missing.
            about: JSON-able notes for readers of policies.json.
        """
        from safetensors.torch import save

        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        data = {
            "kind": self.kind,
            "num_options": self.num_options,
            "options": self.options,
            "base": self.base.name,
            "base_fingerprint": self.base.fingerprint,
            "about": about or {},
        }
        with replacing(target / "policies.safetensors") as part:
            part.write_bytes(save(self.state()))  # so that a full disk raises an OSError
        with replacing(target / "policies.json") as part:
            part.write_text(json.dumps(data, indent=2), encoding="utf-8")

    def _check_index(self, index: int) -> int:
        number = check_count(index, "policy", minimum=0)
        if number >= self.num_options:
            raise ValueError(f"Expected policy in 0..{self.num_options - 1}, got {number}")
        return number


def add_noise(parameters: list[torch.nn.Parameter], noise: float, seed: int, policy: int) -> None:
    """Add Gaussian noise of that standard deviation to all parameters, drawn from the policy's stream."""
    import torch

    if noise:
        generator = torch.Generator().manual_seed(policy_stream(seed, policy))
        for parameter in parameters:
            values = torch.empty(parameter.shape).normal_(generator=generator)
            parameter.data.add_(values.to(parameter), alpha=noise)


def policy_stream(seed: int, policy: int) -> int:
    """Seed of a policy's own random stream, distinct from all other streams of the same seed."""
    return int(np.random.SeedSequence([seed, _FIRST_WEIGHTS, policy]).generate_state(1, np.uint64)[0] >> 1)


def weight_bytes(models: Sequence[Any]) -> int:
    """Bytes of the weights of some models, each tensor once."""
    sizes = {p.data_ptr(): p.numel() * p.element_size() for model in models for p in model.parameters()}
    return sum(sizes.values())
