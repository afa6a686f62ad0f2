"""K language models as K policies: full copies, or adapters on one frozen model."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edpbrl_gym._compat import require
from edpbrl_gym._validation import check_choice_of, check_count, check_number
from edpbrl_gym.language.model import LanguageModel
from edpbrl_gym.language.policy_set import Policies, add_noise, policy_stream, weight_bytes

if TYPE_CHECKING:
    import torch

__all__ = ["AdapterPolicies", "CopiedPolicies", "Policies", "load_policies", "make_policies"]


class CopiedPolicies(Policies):
    """K full copies of a language model (the paper's setting), besides the base itself.

    Args:
        base: The language model, left unchanged.
        num_options: K.
        noise: Standard deviation of Gaussian noise added to every initial weight, so that policies differ.
        seed: Seed of the noise.

    Raises:
        ValueError: If a number is out of range.
    """

    kind = "copies"

    def __init__(self, base: LanguageModel, num_options: int, *, noise: float = 0.0, seed: int = 0) -> None:
        level = check_number(noise, "noise", minimum=0.0)
        super().__init__(base, num_options, {"noise": level, "seed": check_count(seed, "seed", minimum=0)})
        self._models: list[LanguageModel] = []
        for q in range(self.num_options):
            model = copy.deepcopy(base.model).requires_grad_(True)
            add_noise([parameter for _, parameter in model.named_parameters()], level, seed, q)
            language = replace(base, model=model)
            vars(language)["rules"] = base.rules  # the same tokenizer: derive its words once, not K times
            self._models.append(language)

    @contextmanager
    def policy(self, index: int) -> Iterator[LanguageModel]:
        """The copy. See the base class."""
        yield self._models[self._check_index(index)]

    @contextmanager
    def base_model(self) -> Iterator[LanguageModel]:
        """The base model. See the base class."""
        yield self.base

    def language_models(self) -> list[LanguageModel]:
        """The copies. See the base class."""
        return list(self._models)

    def named_parameters(self, index: int) -> list[tuple[str, torch.nn.Parameter]]:
        """All weights of the copy, tied ones once. See the base class."""
        return list(self._models[self._check_index(index)].model.named_parameters())

    def memory(self) -> int:
        """K + 1 models. See the base class."""
        return weight_bytes([language.model for language in [self.base, *self._models]])


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
        """The model with that adapter. See the base class."""
        self._peft.base_model.set_adapter(f"policy_{self._check_index(index)}")
        self._require_gradients()
        yield self.base

    @contextmanager
    def base_model(self) -> Iterator[LanguageModel]:
        """The model without an adapter. See the base class."""
        self._peft.base_model.disable_adapter_layers()
        try:
            yield self.base
        finally:
            self._peft.base_model.enable_adapter_layers()
            self._require_gradients()

    def language_models(self) -> list[LanguageModel]:
        """One view of the model for each adapter, which activates the adapter when called. See the base class."""
        views = [replace(self.base, model=_AdapterView(self, q)) for q in range(self.num_options)]
        for view in views:
            vars(view)["rules"] = self.base.rules
        return views

    def named_parameters(self, index: int) -> list[tuple[str, torch.nn.Parameter]]:
        """A and B of the adapter. See the base class."""
        return self._named[self._check_index(index)]

    def memory(self) -> int:
        """One model and K adapters. See the base class."""
        return weight_bytes([self._peft])


class _AdapterView:
    """The model under one adapter."""

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
    """Make K policies.

    Args:
        base: The language model from which they start.
        num_options: K.
        kind: "adapters" (`AdapterPolicies`) or "copies" (`CopiedPolicies`).
        **options: Options of the class.

    Raises:
        ValueError: If the kind is unknown or an option is out of range.
        TypeError: If the kind has no such option.
    """
    if check_choice_of(kind, "kind of policies", ("adapters", "copies")) == "adapters":
        return AdapterPolicies(base, num_options, **options)
    return CopiedPolicies(base, num_options, **options)


def load_policies(folder: str | Path, base: LanguageModel) -> Policies:
    """Return saved policies.

    Args:
        folder: Folder written by ``Policies.save``.
        base: The language model from which they started, freshly loaded.

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
