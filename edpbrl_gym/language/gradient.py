"""The score-function gradient of one rollout, accumulated in the policies' parameters.

For policy q (paper, Eq. "REINFORCE gradient", with credits instead of the centred objective)

    g_q = 1/M sum_m sum_t sum_j  w(m, t, q, h_j)  grad log p_q(z_j | z_<j),

h_j the number of words complete before token j. The penalty beta KL(p_q || p_base) is estimated by its score-function
form: with the log-ratios r_i = log p_q(z_i | z_<i) - log p_base(z_i | z_<i),

    grad KL = E sum_j (sum_{i >= j} r_i - b_j) grad log p_q(z_j | z_<j),

since a token's score has mean zero given what came before it, and grad log p itself has mean zero. b_j is the mean of
the other prompts' sums at position j; other prompts are independent, so the estimate is unbiased.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym.language.policy_set import Policies
from edpbrl_gym.language.rollouts import Rollout, mixed_precision
from edpbrl_gym.language.sampling import Samples, log_probabilities
from edpbrl_gym.language.settings import ReinforceSettings

if TYPE_CHECKING:
    import torch

__all__ = ["accumulate_gradient"]


def accumulate_gradient(
    policies: Policies, rollout: Rollout, weights: Floats, settings: ReinforceSettings, *, meta_samples: int
) -> float | None:
    """Add the gradient of -(E[L] - beta sum_q KL(p_q || p_base)) to ``.grad`` of the policies' parameters.

    Args:
        policies: The policies that the rollout was drawn from.
        rollout: The prompts.
        weights: Weight of a token by policy and words complete before it, (m, T, K, H + 1), for the rollout's m
            meta-samples.
        settings: KL weight, batch size and precision are used.
        meta_samples: M, all meta-samples of the iteration; several processes hold m < M each and sum their gradients.

    Returns:
        Mean estimate of KL(p_q || p_base) in nats a prompt; None if it has no weight.
    """
    import torch

    divergences = []
    for q, samples in enumerate(rollout.samples):
        policy_weights = torch.from_numpy(np.array(weights[:, :, q])).reshape(len(samples), -1)
        # a choice can change the prefixes from ``word`` on (counted from 1), so word - 1 words were complete
        token_weights = policy_weights.gather(1, samples.word - 1) / meta_samples
        if settings.kl_weight:
            to_go = _divergence_to_go(policies, samples, settings)
            divergences.append(float(to_go[:, 0].mean()))
            share = settings.kl_weight / (meta_samples * weights.shape[1])
            token_weights = token_weights - share * _centred(to_go)
        with policies.policy(q) as language:
            for start in range(0, len(samples), settings.batch_size):
                rows = slice(start, start + settings.batch_size)
                with mixed_precision(settings.precision, language.device):
                    scores = log_probabilities(language, samples.select(rows))
                loss = -(scores * token_weights[rows].to(scores)).sum()
                loss.backward()  # type: ignore[no-untyped-call]
    return float(np.mean(divergences)) if divergences else None


def _divergence_to_go(policies: Policies, samples: Samples, settings: ReinforceSettings) -> torch.Tensor:
    """Sum of the log-ratios of policy and base from each choice on, float64 (n, L) on the CPU."""
    import torch

    with policies.base_model() as language, torch.no_grad(), mixed_precision(settings.precision, language.device):
        base = log_probabilities(language, samples, batch_size=settings.batch_size).double().cpu()
    ratios = samples.log_probabilities - base
    return ratios.flip(1).cumsum(1).flip(1)


def _centred(values: torch.Tensor) -> torch.Tensor:
    """Values minus the mean of the other rows; unchanged if there is one row."""
    rows = len(values)
    return values if rows < 2 else (values - values.mean(dim=0)) * (rows / (rows - 1))
