"""K small policy networks on flat observations, and the surrogate whose gradient is REINFORCE's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Booleans, Floats, Indices
from edpbrl_gym._validation import check_count

if TYPE_CHECKING:
    import torch

__all__ = ["PolicyNetworks", "score_surrogate"]

_FIRST_SCALE = 0.1  # of the last layer's first weights: the first policies are nearly uniform, but not equal
_LIMIT = 10.0  # of standardised inputs


class PolicyNetworks:
    """K multilayer perceptrons with tanh, from a standardised observation to the logits of the legal actions.

    Args:
        num_policies: K.
        num_actions: A.
        mean: Mean of the inputs, (n,).
        deviation: Standard deviation of the inputs, (n,); an input that never changes (0) counts as 0.
        hidden: Sizes of the hidden layers.
        seed: Of the first weights; torch's global state stays as it was.

    Attributes:
        modules: The K networks.
    """

    def __init__(
        self,
        *,
        num_policies: int,
        num_actions: int,
        mean: NDArray[np.floating],
        deviation: NDArray[np.floating],
        hidden: Sequence[int],
        seed: int = 0,
    ) -> None:
        import torch

        self.num_policies, self.num_actions = num_policies, num_actions
        self.mean, self.deviation = np.asarray(mean, dtype=np.float64), np.asarray(deviation, dtype=np.float64)
        self.hidden = tuple(check_count(size, "hidden") for size in hidden)
        sizes = (len(self.mean), *self.hidden, num_actions)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.modules = [_perceptron(sizes) for _ in range(num_policies)]

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """Weights of all networks."""
        return [parameter for module in self.modules for parameter in module.parameters()]

    def log_probabilities(self, policy: int, inputs: NDArray[Any], masks: Booleans) -> torch.Tensor:
        """Log-probabilities of one policy's actions, -inf where illegal, (n, A).

        Args:
            policy: Which of the K.
            inputs: Flat observations, (n, inputs).
            masks: Legal actions, (n, A), at least one a row.
        """
        import torch

        scale = np.where(self.deviation > 0, self.deviation, np.inf)
        rows = np.clip((np.asarray(inputs, dtype=np.float64) - self.mean) / scale, -_LIMIT, _LIMIT)
        logits = self.modules[policy](torch.as_tensor(rows, dtype=torch.float32))
        return logits.masked_fill(~torch.as_tensor(masks), -torch.inf).log_softmax(dim=1)

    def probabilities(self, policies: Indices, inputs: NDArray[Any], masks: Booleans) -> Floats:
        """Probabilities (n, A) of the actions of n lanes, each of which plays one of the policies."""
        import torch

        table = np.zeros(masks.shape)
        with torch.no_grad():
            for policy in np.unique(policies).tolist():
                lanes = np.flatnonzero(policies == policy)
                table[lanes] = self.log_probabilities(policy, inputs[lanes], masks[lanes]).exp().double().numpy()
        return table / table.sum(axis=1, keepdims=True)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Weights and standardisation as arrays by names."""
        arrays: dict[str, NDArray[Any]] = {"mean": self.mean, "deviation": self.deviation}
        for policy, module in enumerate(self.modules):
            arrays |= {f"{policy}/{name}": value.numpy().copy() for name, value in module.state_dict().items()}
        return arrays

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], *, num_policies: int, num_actions: int, hidden: Sequence[int]
    ) -> Self:
        """The networks that ``arrays`` describes.

        Raises:
            ValueError: If the arrays are not those of networks of this size.
        """
        import torch

        mean, deviation = arrays["mean"], arrays["deviation"]
        networks = cls(
            num_policies=num_policies, num_actions=num_actions, mean=mean, deviation=deviation, hidden=hidden
        )
        for policy, module in enumerate(networks.modules):
            own = {name: torch.as_tensor(arrays[f"{policy}/{name}"]) for name in module.state_dict()}
            try:
                module.load_state_dict(own)
            except RuntimeError as error:
                raise ValueError(f"Expected weights of networks with hidden layers {hidden}, got others") from error
        return networks


def score_surrogate(
    networks: PolicyNetworks, inputs: NDArray[Any], masks: Booleans, actions: Indices, weights: Floats
) -> tuple[torch.Tensor, torch.Tensor]:
    """A function of the weights whose gradient is the score-function estimate of REINFORCE.

        1/M sum_m sum_t sum_q sum_h  w(m, t, q, h) log p_q(a | o)     (paper, Eq. "REINFORCE gradient")

    Args:
        networks: The K policies p_q.
        inputs: Flat observations o, (M, T, K, H, inputs).
        masks: Legal actions, (M, T, K, H, A).
        actions: The actions a that were drawn, (M, T, K, H).
        weights: w, (M, T, K, H); see `edpbrl_gym.language.credit`.

    Returns:
        The surrogate, and the mean entropy of the policies in nats a decision; the entropy's gradient takes the
        observations as given.
    """
    import torch

    surrogate, entropy = torch.zeros(()), torch.zeros(())
    for policy in range(networks.num_policies):
        taken = torch.as_tensor(actions[:, :, policy].reshape(-1, 1))
        legal = masks[:, :, policy].reshape(-1, networks.num_actions)
        logs = networks.log_probabilities(policy, inputs[:, :, policy].reshape(len(taken), -1), legal)
        credits = torch.as_tensor(weights[:, :, policy].reshape(-1), dtype=logs.dtype)
        surrogate = surrogate + (credits * logs.gather(1, taken)[:, 0]).sum() / len(weights)
        finite = torch.where(torch.as_tensor(legal), logs, torch.zeros_like(logs))
        entropy = entropy - (finite.exp() * finite).sum(dim=1).mean() / networks.num_policies
    return surrogate, entropy


def _perceptron(sizes: Sequence[int]) -> Any:
    from torch import nn

    layers: list[nn.Module] = []
    for before, after in zip(sizes[:-1], sizes[1:], strict=True):
        layers += [nn.Linear(before, after), nn.Tanh()]
    module = nn.Sequential(*layers[:-1])
    for parameter in layers[-2].parameters():
        parameter.data *= _FIRST_SCALE
    return module
