"""K language models as K policies: full copies, or adapters on one frozen model."""

from __future__ import annotations

import copy
import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edpbrl_gym._compat import require
from edpbrl_gym._files import replacing
from edpbrl_gym._validation import check_choice_of, check_count, check_number
from edpbrl_gym.language.model import LanguageModel

if TYPE_CHECKING:
    import torch

__all__ = ["AdapterPolicies", "CopiedPolicies", "Policies", "load_policies", "make_policies", "policy_stream"]


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
        """Set all learnable parameters to a ``state``; a ValueError if names or shapes differ."""
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
        """Write policies.safetensors and policies.json, with JSON-able notes ``about``; `load_policies` reads them."""
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


def policy_stream(seed: int, policy: int) -> int:
    """Seed of a policy's own random stream, distinct from all other streams of the same seed."""
    return int(np.random.SeedSequence([seed, _FIRST_WEIGHTS, policy]).generate_state(1, np.uint64)[0] >> 1)


class CopiedPolicies(Policies):
    """K full copies of a language model (the paper's setting), besides the base itself.

    Gaussian ``noise`` of that standard deviation is added to every initial weight, so that policies differ.

    Raises:
        ValueError: If a number is out of range.
    """

    kind = "copies"

    def __init__(self, base: LanguageModel, num_options: int, *, noise: float = 0.0, seed: int = 0) -> None:
        import torch

        level = check_number(noise, "noise", minimum=0.0)
        super().__init__(base, num_options, {"noise": level, "seed": check_count(seed, "seed", minimum=0)})
        self._models: list[LanguageModel] = []
        for q in range(self.num_options):
            model = copy.deepcopy(base.model).requires_grad_(True)
            if level:
                generator = torch.Generator().manual_seed(policy_stream(seed, q))
                for parameter in model.parameters():
                    values = torch.empty(parameter.shape).normal_(generator=generator)
                    parameter.data.add_(values.to(parameter), alpha=level)
            language = replace(base, model=model)
            vars(language)["rules"] = base.rules  # the same tokenizer: derive its words once, not K times
            self._models.append(language)

    @contextmanager
    def policy(self, index: int) -> Iterator[LanguageModel]:
        yield self._models[self._check_index(index)]

    @contextmanager
    def base_model(self) -> Iterator[LanguageModel]:
        yield self.base

    def language_models(self) -> list[LanguageModel]:
        return list(self._models)

    def named_parameters(self, index: int) -> list[tuple[str, torch.nn.Parameter]]:
        return list(self._models[self._check_index(index)].model.named_parameters())


class AdapterPolicies(Policies):
    """K LoRA adapters (peft) on one frozen language model: weights of one model and K small corrections.

    Policy q adds scale B_q A_q to the target weights (Hu et al., 2021, "LoRA: low-rank adaptation of large language
    models"); B_q starts at zero, so that all policies equal the base.

    The model is changed in place (adapters wrap its layers): use it only through this object.

    Args:
        base: The language model.
        num_options: K.
        rank: Rank of the adapters.
        alpha: Their scale is alpha / rank; None: alpha = 2 rank.
        target_modules: Names of the layers that get adapters; None: peft's choice for the architecture (c_attn for
            GPT-2).
        noise: Standard deviation of the initial B_q, so that policies differ.
        seed: Seed of A_q and of the noise.

    Raises:
        ModuleNotFoundError: If peft is not installed.
        ValueError: If a number is out of range, or the model has no such layers.
    """

    kind = "adapters"

    def __init__(
        self,
        base: LanguageModel,
        num_options: int,
        *,
        rank: int = 8,
        alpha: float | None = None,
        target_modules: Sequence[str] | None = None,
        noise: float = 0.0,
        seed: int = 0,
    ) -> None:
        options = {
            "rank": check_count(rank, "rank"),
            "alpha": check_number(2.0 * rank if alpha is None else alpha, "alpha", minimum=0.0, exclusive=True),
            "target_modules": None if target_modules is None else [str(name) for name in target_modules],
            "noise": check_number(noise, "noise", minimum=0.0),
            "seed": check_count(seed, "seed", minimum=0),
        }
        super().__init__(base, num_options, options)
        self._peft = self._inject()
        by_policy: list[list[tuple[str, torch.nn.Parameter]]] = [[] for _ in range(self.num_options)]
        for name, parameter in self._peft.named_parameters():
            parts = name.split(".")
            owner = next((part for part in parts if part.startswith("policy_")), None)
            if owner is not None:
                parts.remove(owner)
                by_policy[int(owner.removeprefix("policy_"))].append((".".join(parts), parameter))
        self._named = by_policy
        self._initialise()
        self._require_gradients()

    def _inject(self) -> Any:
        """The peft model with K adapters."""
        peft = require("peft", "adapters on a language model")
        config = peft.LoraConfig(
            r=self.options["rank"],
            lora_alpha=self.options["alpha"],
            lora_dropout=0.0,  # sampling and scoring must see one distribution
            target_modules=self.options["target_modules"],
            task_type="CAUSAL_LM",
            fan_in_fan_out=_stores_transposed(self.base.model, self.options["target_modules"]),
        )
        try:
            with warnings.catch_warnings():  # a warning of transformers about a name that peft uses
                warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing", category=FutureWarning)
                model = peft.get_peft_model(self.base.model, config, adapter_name="policy_0")
        except ValueError as error:  # unknown architecture without target_modules, or no layer of that name
            raise ValueError(
                f"Expected layers of {self.base.name} that take adapters, got {error}; name some by target_modules"
            ) from error
        for q in range(1, self.num_options):
            model.add_adapter(f"policy_{q}", config)
        return model

    def _initialise(self) -> None:
        """Draw A uniformly like a linear layer's weights (as peft, but from our own generator); B is zero or noise."""
        import torch

        for q, named in enumerate(self._named):
            generator = torch.Generator().manual_seed(policy_stream(self.options["seed"], q))
            for name, parameter in named:
                values = torch.empty(parameter.shape)
                if "lora_A" in name:
                    values.uniform_(-1.0, 1.0, generator=generator).div_(parameter.shape[1] ** 0.5)
                else:
                    values.normal_(generator=generator).mul_(self.options["noise"])
                parameter.data.copy_(values)

    def _require_gradients(self) -> None:
        """Let all adapters learn; peft freezes those that it switches off."""
        for parameter in self.parameters():
            parameter.requires_grad_(True)

    @contextmanager
    def policy(self, index: int) -> Iterator[LanguageModel]:
        self._peft.base_model.set_adapter(f"policy_{self._check_index(index)}")
        self._require_gradients()
        yield self.base

    @contextmanager
    def base_model(self) -> Iterator[LanguageModel]:
        self._peft.base_model.disable_adapter_layers()
        try:
            yield self.base
        finally:
            self._peft.base_model.enable_adapter_layers()
            self._require_gradients()

    def language_models(self) -> list[LanguageModel]:
        views = [replace(self.base, model=_AdapterView(self, q)) for q in range(self.num_options)]
        for view in views:
            vars(view)["rules"] = self.base.rules
        return views

    def named_parameters(self, index: int) -> list[tuple[str, torch.nn.Parameter]]:
        return self._named[self._check_index(index)]


class _AdapterView:
    """The model under one adapter, which is activated by every call."""

    def __init__(self, policies: AdapterPolicies, index: int) -> None:
        self._policies, self._index = policies, index

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        with self._policies.policy(self._index) as language:
            return language.model(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # copies and pickles look up private names before the model exists
            raise AttributeError(name)
        return getattr(self._policies.base.model, name)


def make_policies(base: LanguageModel, num_options: int, *, kind: str = "adapters", **options: Any) -> Policies:
    """Make K policies of a kind, "adapters" (`AdapterPolicies`) or "copies" (`CopiedPolicies`), with its options.

    Raises:
        ValueError: If the kind is unknown or an option is out of range.
        TypeError: If the kind has no such option.
    """
    if check_choice_of(kind, "kind of policies", ("adapters", "copies")) == "adapters":
        return AdapterPolicies(base, num_options, **options)
    return CopiedPolicies(base, num_options, **options)


def load_policies(folder: str | Path, base: LanguageModel) -> Policies:
    """Return saved policies.

    Raises:
        FileNotFoundError: If the folder holds no policies.
        ValueError: If they are damaged, or started from another model.
    """
    from safetensors.torch import load_file

    source = Path(folder)
    for name in ("policies.json", "policies.safetensors"):
        if not (source / name).is_file():
            raise FileNotFoundError(f"Expected saved policies in {source}, it has no {name}.")
    try:
        data = json.loads((source / "policies.json").read_text(encoding="utf-8"))
        base_fingerprint, policies = data["base_fingerprint"], (data["kind"], data["num_options"], data["options"])
        state = load_file(source / "policies.safetensors")
    except Exception as error:  # safetensors has its own kind of error for a damaged file
        raise ValueError(f"Expected saved policies in {source}, got {type(error).__name__}: {error}") from error
    if base_fingerprint != base.fingerprint:
        raise ValueError(
            f"Expected the language model from which the policies in {source} started ({data.get('base')}), got "
            f"{base.name} with other weights or another tokenizer; load that one."
        )
    kind, count, options = policies
    restored = make_policies(base, count, kind=kind, **options)
    restored.load_state(state)
    return restored


def _stores_transposed(model: Any, targets: list[str] | None) -> bool:
    """Whether the layers that get adapters are GPT-2's Conv1D, which store their weights transposed."""
    from transformers.pytorch_utils import Conv1D

    return any(
        isinstance(module, Conv1D)
        for name, module in model.named_modules()
        if targets is None or name.rpartition(".")[2] in targets
    )
