"""From objectives to the weights of the score function: the baselines and credits of REINFORCE.

REINFORCE (Williams, 1992, "Simple statistical gradient-following algorithms for connectionist reinforcement learning")
estimates the gradient of E[L] by

    g = 1/M sum_m sum_t sum_q sum_j  w(m, t, q, j)  grad log p_q(token j of prompt (m, t, q) | tokens before it),

with w = L_m. Since a token's score has mean zero given everything that does not depend on it, anything of that kind may
be subtracted from w without changing the mean of g: other prompts (policies sample independently of each other), the
words of the same prompt before the token, other meta-samples, earlier iterations. The credits differ in what they
subtract:

==================  ====================================================  ==============================
name                w of a token drawn when h words were complete         mean of g
==================  ====================================================  ==============================
batch_mean          L_m - mean of L                                       (M - 1) / M times the gradient
leave_one_out       L_m - mean of the other L                             the gradient
moving_average      L_m - average of earlier iterations                   the gradient
marginal            D_mtq - mean of D_m'tq over other m', all t           the gradient
causal              G_mh - mean of G_m'h over other m'                    the gradient
marginal_causal     D_mtq(h) - mean of D_m'tq(h) over other m', all t     the gradient
==================  ====================================================  ==============================

The batch mean is the paper's. It contains L_m itself with weight 1 / M, hence the factor, which is the same for every
parameter: the direction is unbiased, the length is not, and M / (M - 1) times batch_mean is leave_one_out (Kool, van
Hoof and Welling, 2019, "Buy 4 REINFORCE samples, get a baseline for free!").

D_mtq is L_m minus the objective without prompt (t, q): a difference reward (Wolpert and Tumer, 2002, "Optimal payoff
functions for members of collectives"), as the counterfactual credit of Foerster et al. (2018, "Counterfactual
multi-agent policy gradients"). D_mtq(h) removes only the words after the first h. G_mh is L_m minus the objective of
the first h positions of all prompts. See `TruncatedObjective`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_choice_of, check_number
from edpbrl_gym.language.objective import TruncatedObjective

__all__ = ["CREDITS", "Credit", "CreditName", "Rewards"]

CreditName = Literal["batch_mean", "leave_one_out", "moving_average", "marginal", "causal", "marginal_causal"]
Part = Literal["gains", "contributions"]
CREDITS: tuple[str, ...] = get_args(CreditName)


@dataclass(frozen=True, eq=False)
class Rewards:
    """Objectives of M meta-samples, and the parts of them that credits use.

    Attributes:
        values: the objective, (M,).
        gains: gain of the positions from h on, (M, H + 1); None if no credit needs it.
        contributions: gain of each prompt from position h on, (M, T, K, H + 1); None if no credit needs it.
        sizes: (T, K, H).
    """

    values: Floats
    gains: Floats | None
    contributions: Floats | None
    sizes: tuple[int, int, int]

    @classmethod
    def of(cls, objective: TruncatedObjective, parts: Collection[Part] = ("gains", "contributions")) -> Rewards:
        """Evaluate an objective's values and the parts that are needed."""
        _, episodes, policies, words, _ = objective.shape
        return cls(
            objective.values,
            objective.gains if "gains" in parts else None,
            objective.contributions if "contributions" in parts else None,
            (episodes, policies, words),
        )

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of the weights, (M, T, K, H + 1)."""
        episodes, policies, words = self.sizes
        return len(self.values), episodes, policies, words + 1

    def gathered(self, gather: Callable[[Floats], Floats]) -> Rewards:
        """The rewards with ``gather`` applied to every array, which adds the meta-samples of other processes."""
        gains, contributions = (None if a is None else gather(a) for a in (self.gains, self.contributions))
        return Rewards(gather(self.values), gains, contributions, self.sizes)

    def part(self, name: Part) -> Floats:
        """The gains or contributions.

        Raises:
            ValueError: they were not evaluated.
        """
        array = self.gains if name == "gains" else self.contributions
        if array is None:
            raise ValueError(f"Expected rewards with {name}, got some without; pass the credit's parts to Rewards.of")
        return array


class Credit:
    """Turns the rewards of an iteration into the weights of the score function.

    Args:
        name: see the table of this module.
        decay: moving_average: share of the old average that remains after an iteration, in [0, 1).

    Attributes:
        average: moving_average: the average of the iterations so far, None before the first.

    Raises:
        ValueError: an unknown name, or ``decay`` out of range.
    """

    def __init__(self, name: str = "batch_mean", *, decay: float = 0.9) -> None:
        self.name = check_choice_of(name, "credit", CREDITS)
        self.decay = check_number(decay, "decay", minimum=0.0)
        if self.decay >= 1.0:
            raise ValueError(f"Expected decay in [0, 1), got {self.decay}")
        self.average: float | None = None

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of the rewards that it needs besides the values."""
        if self.name in ("marginal", "marginal_causal"):
            return ("contributions",)
        return ("gains",) if self.name == "causal" else ()

    def weights(self, rewards: Rewards) -> Floats:
        """Return the weight of a token by the number of words that were complete before it was drawn.

        A call is an iteration: moving_average updates its average afterwards. Its first iteration uses leave_one_out.

        Args:
            rewards: with the credit's ``parts``, of M >= 2 meta-samples; with one, batch_mean and leave_one_out have no
                baseline, and marginal and causal are not centred.

        Returns:
            Shape (M, T, K, H + 1); entry h is the weight of tokens drawn when h words were complete.

        Raises:
            ValueError: M = 1 with batch_mean, leave_one_out, or the first iteration of moving_average; or the rewards
                lack a part.
        """
        if self.name == "marginal_causal":
            return _centred(rewards.part("contributions"))
        if self.name == "marginal":
            return np.broadcast_to(_centred(rewards.part("contributions")[..., :1]), rewards.shape)
        if self.name == "causal":
            return np.broadcast_to(_centred(rewards.part("gains")[:, None, None, :]), rewards.shape)
        return np.broadcast_to(self._advantages(rewards.values)[:, None, None, None], rewards.shape)

    def _advantages(self, values: Floats) -> Floats:
        """Objectives minus their baseline, (M,)."""
        average = self.average
        if self.name == "moving_average":
            mean = float(values.mean())
            self.average = mean if average is None else self.decay * average + (1.0 - self.decay) * mean
            if average is not None:
                return values - average
        if len(values) < 2:
            raise ValueError(
                f"Expected at least 2 meta-samples for the credit {self.name!r}, got 1; its baseline is their mean"
            )
        centred = values - values.mean()
        return centred if self.name == "batch_mean" else centred * (len(values) / (len(values) - 1))

    def state(self) -> dict[str, Any]:
        """The state to resume from: the average."""
        return {"average": self.average}

    def load_state(self, state: dict[str, Any]) -> None:
        """Resume from a ``state``."""
        average = state["average"]
        self.average = None if average is None else float(average)


def _centred(credits: Floats) -> Floats:
    """Subtract the mean over the other meta-samples and all their trajectories, for each policy and position.

    Args:
        credits: (M, T, K, H + 1), or with T or K replaced by 1.

    Returns:
        The same shape; unchanged if M = 1.
    """
    samples = len(credits)
    if samples < 2:
        return credits
    means = credits.mean(axis=1, keepdims=True)
    baseline: Floats = (means.sum(axis=0, keepdims=True) - means) / (samples - 1)
    return credits - baseline
