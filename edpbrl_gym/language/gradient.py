"""The score-function gradient of one rollout, and the credits that weight the scores.

REINFORCE (Williams, 1992, "Simple statistical gradient-following algorithms for connectionist reinforcement learning")
estimates the gradient of E[L] for policy q by

    g_q = 1/M sum_m sum_t sum_j  w(m, t, q, h_j)  grad log p_q(z_j | z_<j),

h_j the number of words complete before token j, with w = L_m. Since a token's score has mean zero given everything that
does not depend on it, anything of that kind may be subtracted from w without changing the mean of g. Two credits:

==================  ====================================================  ==============================
name                w of a token drawn when h words were complete         mean of g
==================  ====================================================  ==============================
batch_mean          L_m - mean of L                                       (M - 1) / M times the gradient
marginal_causal     D_mtq(h) - mean of D_m'tq(h) over other m', all t     the gradient
==================  ====================================================  ==============================

The batch mean is the paper's; it contains L_m itself with weight 1 / M, hence the factor, the same for every parameter.
D_mtq(h) is L_m minus the objective without the words of prompt (t, q) after the first h: a difference reward (Wolpert
and Tumer, 2002, "Optimal payoff functions for members of collectives"), as the counterfactual credit of Foerster et al.
(2018, "Counterfactual multi-agent policy gradients"). Its variance is 20 to 31 times lower (docs/reinforce.md).

The penalty beta KL(p_q || p_base) is estimated by its score-function form: with the log-ratios
r_i = log p_q(z_i | z_<i) - log p_base(z_i | z_<i),

    grad KL = E sum_j (sum_{i >= j} r_i - b_j) grad log p_q(z_j | z_<j),

where b_j is the mean of the other prompts' sums at position j; other prompts are independent, so it is unbiased.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_choice_of
from edpbrl_gym.language.objective import TruncatedObjective
from edpbrl_gym.language.policies import Policies
from edpbrl_gym.language.rollouts import Rollout
from edpbrl_gym.language.sampling import Samples, log_probabilities
from edpbrl_gym.language.settings import CREDITS, ReinforceSettings

if TYPE_CHECKING:
    import torch

__all__ = ["accumulate_gradient", "credit_weights"]


def credit_weights(objective: TruncatedObjective, credit: str) -> Floats:
    """Return the weight of a token by the number of words that were complete before it was drawn.

    Args:
        objective: Of M meta-samples; with one, marginal_causal is not centred.
        credit: See the table of this module.

    Returns:
        Shape (M, T, K, H + 1); entry h is the weight of tokens drawn when h words were complete.

    Raises:
        ValueError: If the credit is unknown, or batch_mean has one meta-sample only.
    """
    samples, episodes, policies, words, _ = objective.shape
    if check_choice_of(credit, "credit", CREDITS) == "batch_mean":
        if samples < 2:
            raise ValueError(
                "Expected at least 2 meta-samples for the credit 'batch_mean', got 1; its baseline is their mean"
            )
        values = objective.values
        centred = (values - values.mean())[:, None, None, None]
        return np.broadcast_to(centred, (samples, episodes, policies, words + 1))
    credits = objective.contributions
    if samples < 2:
        return credits
    means = credits.mean(axis=1, keepdims=True)
    baseline: Floats = (means.sum(axis=0, keepdims=True) - means) / (samples - 1)
    return credits - baseline


def accumulate_gradient(
    policies: Policies, rollout: Rollout, weights: Floats, settings: ReinforceSettings
) -> float | None:
    """Add the gradient of -(E[L] - beta sum_q KL(p_q || p_base)) to ``.grad`` of the policies' parameters.

    Args:
        policies: The policies that the rollout was drawn from.
        rollout: The prompts.
        weights: Weight of a token by policy and words complete before it, (M, T, K, H + 1).
        settings: KL weight and batch size are used.

    Returns:
        Mean estimate of KL(p_q || p_base) in nats a prompt; None if it has no weight.
    """
    import torch

    meta_samples, episodes = weights.shape[:2]
    divergences = []
    for q, samples in enumerate(rollout.samples):
        policy_weights = torch.from_numpy(np.array(weights[:, :, q])).reshape(len(samples), -1)
        # a choice can change the prefixes from ``word`` on (counted from 1), so word - 1 words were complete
        token_weights = policy_weights.gather(1, samples.word - 1) / meta_samples
        if settings.kl_weight:
            to_go = _divergence_to_go(policies, samples, settings)
            divergences.append(float(to_go[:, 0].mean()))
            share = settings.kl_weight / (meta_samples * episodes)
            token_weights = token_weights - share * _centred(to_go)
        with policies.policy(q) as language:
            for start in range(0, len(samples), settings.batch_size):
                rows = slice(start, start + settings.batch_size)
                scores = log_probabilities(language, samples.select(rows))
                loss = -(scores * token_weights[rows].to(scores)).sum()
                loss.backward()
    return float(np.mean(divergences)) if divergences else None


def _divergence_to_go(policies: Policies, samples: Samples, settings: ReinforceSettings) -> torch.Tensor:
    """Sum of the log-ratios of policy and base from each choice on, float64 (n, L) on the CPU."""
    import torch

    with policies.base_model() as language, torch.no_grad():
        base = log_probabilities(language, samples, batch_size=settings.batch_size).double().cpu()
    ratios = samples.log_probabilities - base
    return ratios.flip(1).cumsum(1).flip(1)


def _centred(values: torch.Tensor) -> torch.Tensor:
    """Values minus the mean of the other rows; unchanged if there is one row."""
    rows = len(values)
    return values if rows < 2 else (values - values.mean(dim=0)) * (rows / (rows - 1))
