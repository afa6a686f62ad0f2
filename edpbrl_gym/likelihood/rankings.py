"""Answers in several stages: the whole ranking (Plackett-Luce), and best and worst.

Both start with the best of the K options and go on with what is left. So the likelihood is a product of multinomial
logits, and so is the expected information a sum over the sets that may be left, each weighted by its probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, permutations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._validation import check_count
from edpbrl_gym.likelihood.choice import check_options, log_softmax
from edpbrl_gym.likelihood.models import (
    best_terms,
    checked_responses,
    checked_uniforms,
    checked_utilities,
    checked_values,
    choice_weights,
    information_from_weights,
    pick,
)
from edpbrl_gym.likelihood.response import Response
from edpbrl_gym.likelihood.terms import Terms

__all__ = ["MAX_ENUMERATED", "MAX_RANKED", "BestWorst", "Ranking"]

Floats = NDArray[np.float64]

MAX_ENUMERATED = 8  # options whose K! rankings are listed (40,320)
MAX_RANKED = 12  # options whose 2^K subsets are summed over (4,096)


def _without_chosen(values: Floats, chosen: NDArray[np.int64]) -> Floats:
    """The utilities with the chosen option of each row at -inf."""
    left = values.copy()
    left[np.arange(len(values)), chosen] = -np.inf
    return left


@dataclass(frozen=True)
class Ranking:
    """All K options in order: the Plackett-Luce model (Plackett, 1975; Luce, 1959).

    The best of all, then the best of what is left, and so on: K - 1 multinomial logits,

        P(o_1, ..., o_K) = prod_{s=1..K-1} exp(v_{o_s}) / sum_{j >= s} exp(v_{o_j}).

    Its first choice is best-of-K, so "best" answers fit the model too and count one term.
    """

    @property
    def name(self) -> str:
        """The name "ranking"."""
        return "ranking"

    def outcomes(self, num_options: int) -> tuple[Response, ...]:
        """The K! rankings in lexicographic order.

        Raises:
            ValueError: K > 8.
        """
        count = check_count(num_options, "num_options", minimum=2)
        if count > MAX_ENUMERATED:
            raise ValueError(f"Expected at most {MAX_ENUMERATED} options to list all rankings, got K = {count}")
        return tuple(Response.ranking(order) for order in permutations(range(count)))

    def probabilities(self, options: ArrayLike, theta: ArrayLike) -> Floats:
        """Probability of each ranking, (n, K!).

        Raises:
            ValueError: K > 8.
        """
        _, values = checked_values(options, theta)
        orders = np.array([outcome.order for outcome in self.outcomes(values.shape[1])])
        ordered = values[:, orders]
        # log of the sum of exp over an option and those behind it
        behind = np.logaddexp.accumulate(ordered[..., ::-1], axis=-1)[..., ::-1]
        return np.exp((ordered - behind).sum(axis=-1))

    def terms(self, options: ArrayLike, responses: Sequence[Response]) -> Terms:
        """K - 1 terms a ranking, padded to K alternatives, stage by stage; one for an answer that is a best only.

        Raises:
            ValueError: answers of another kind than "ranking", "best" and "skip", or that do not fit the options.
        """
        features = check_options(options)
        found = checked_responses(responses, features, ("ranking", "best"), self.name)
        places, orders = found["ranking"]
        parts = [best_terms(features, found["best"][0], found["best"][1][:, 0])]
        if len(places):
            count = features.shape[1]
            ordered = features[places[:, None], orders]
            for stage in range(count - 1):
                offsets = np.zeros((len(places), count))
                offsets[:, :stage] = -np.inf
                parts.append(Terms(ordered, offsets, np.full(len(places), stage)))
        return Terms.concatenate(parts)

    def information(self, options: ArrayLike, theta: ArrayLike | None = None) -> Floats:
        """Expected Fisher information, (d, d): exact, over the sets that may be left.

        Raises:
            ValueError: K > 12.
        """
        features, values = checked_values(options, theta)
        return information_from_weights(features, self.weights(values))

    def weights(self, values: ArrayLike) -> Floats:
        """Sum over the sets R left of P(R) (diag(p_R) - p_R p_R'), (n, K, K), of the utilities (n, K).

        P(all) = 1, and a set R passes its probability on: P(R without i) gains P(R) p_R(i). 2^K sets, all questions at
        once.

        For K > 3 they need not exceed those of :class:`BestWorst` in the Loewner order, since its worst is not the last
        of a Plackett-Luce ranking; at theta = 0 they do.

        Raises:
            ValueError: K > 12.
        """
        checked = checked_utilities(values)
        num_questions, count = checked.shape
        if count > MAX_RANKED:
            raise ValueError(f"Expected at most {MAX_RANKED} options for the information of a ranking, got K = {count}")
        weights = np.zeros((num_questions, count, count))
        reached = {tuple(range(count)): np.ones(num_questions)}
        for size in range(count, 1, -1):
            smaller = {left: np.zeros(num_questions) for left in combinations(range(count), size - 1)}
            for left, probability in reached.items():
                chances = np.exp(log_softmax(checked[:, list(left)]))
                rows, columns = np.ix_(left, left)
                weights[:, rows, columns] += probability[:, None, None] * choice_weights(chances)
                for place in range(size):
                    smaller[left[:place] + left[place + 1 :]] += probability * chances[:, place]
            reached = smaller
        return weights

    def sample(self, options: ArrayLike, theta: ArrayLike, uniforms: ArrayLike | None) -> list[Response]:
        """One ranking a question; ``uniforms`` None: by falling utility, equal ones by index."""
        _, values = checked_values(options, theta)
        draws = checked_uniforms(uniforms, len(values))
        order = np.empty(values.shape, dtype=np.int64)
        left = values
        for stage in range(values.shape[1]):
            order[:, stage], draws = pick(left, draws)
            if stage < values.shape[1] - 1:
                left = _without_chosen(left, order[:, stage])
        return [Response.ranking([int(option) for option in row]) for row in order]


@dataclass(frozen=True)
class BestWorst:
    """The best option and the worst: the sequential best-worst logit.

    The best of all by the multinomial logit, then the worst of the rest by one in the negative utilities,

        P(b, w) = exp(v_b) / sum_j exp(v_j) * exp(-v_w) / sum_{j != b} exp(-v_j)

    (Lancsar et al., 2013, after Marley & Louviere, 2005). For K = 3 it is the Plackett-Luce model of the ranking; for
    K > 3 it is close to, but not, the best and the last of a Plackett-Luce ranking: finding the worst is as precise
    here as finding the best, while a Plackett-Luce last place is what is left over. "best" answers fit the model too
    and count one term. K = 2 is allowed; the worst then says nothing more.
    """

    @property
    def name(self) -> str:
        """The name "best_worst"."""
        return "best_worst"

    def outcomes(self, num_options: int) -> tuple[Response, ...]:
        """The K (K - 1) pairs in lexicographic order."""
        count = check_count(num_options, "num_options", minimum=2)
        return tuple(Response.best_worst(best, worst) for best, worst in permutations(range(count), 2))

    def probabilities(self, options: ArrayLike, theta: ArrayLike) -> Floats:
        """Probability of each pair (best, worst), (n, K (K - 1))."""
        _, values = checked_values(options, theta)
        best, worst = np.array([outcome.order for outcome in self.outcomes(values.shape[1])]).T
        return np.exp(log_softmax(values)[:, best] + _worst_given_best(values)[:, best, worst])

    def terms(self, options: ArrayLike, responses: Sequence[Response]) -> Terms:
        """Two terms an answer, the second with the negative of the K - 1 other options, padded to K.

        Raises:
            ValueError: answers of another kind than "best_worst", "best" and "skip", or that do not fit the options.
        """
        features = check_options(options)
        found = checked_responses(responses, features, ("best_worst", "best"), self.name)
        places, orders = found["best_worst"]
        parts = [best_terms(features, found["best"][0], found["best"][1][:, 0])]
        if len(places):
            parts.append(best_terms(features, places, orders[:, 0]))
            offsets = _without_chosen(np.zeros((len(places), features.shape[1])), orders[:, 0])
            parts.append(Terms(-features[places], offsets, orders[:, 1]))
        return Terms.concatenate(parts)

    def information(self, options: ArrayLike, theta: ArrayLike | None = None) -> Floats:
        """Expected Fisher information, (d, d): exact, over the K options that may be the best."""
        features, values = checked_values(options, theta)
        return information_from_weights(features, self.weights(values))

    def weights(self, values: ArrayLike) -> Floats:
        """Weights of the best, plus the sum over b of P(best = b) times those of the worst of the rest, (n, K, K)."""
        checked = checked_utilities(values)
        best = np.exp(log_softmax(checked))
        worst = np.exp(_worst_given_best(checked))
        weights = choice_weights(best)
        for option in range(checked.shape[1]):
            weights += best[:, option, None, None] * choice_weights(worst[:, option])
        return weights

    def sample(self, options: ArrayLike, theta: ArrayLike, uniforms: ArrayLike | None) -> list[Response]:
        """One answer a question; ``uniforms`` None: largest and smallest utility, ties to the lowest index.

        Where all utilities are equal these are options 0 and 1.
        """
        _, values = checked_values(options, theta)
        draws = checked_uniforms(uniforms, len(values))
        best, draws = pick(values, draws)
        worst, _ = pick(_without_chosen(-values, best), draws)
        return [Response.best_worst(int(b), int(w)) for b, w in zip(best, worst, strict=True)]


def _worst_given_best(values: Floats) -> Floats:
    """Logarithm of P(worst = w | best = b), (n, b, w), -inf on the diagonal."""
    count = values.shape[1]
    left = np.repeat(-values[:, None, :], count, axis=1)
    left[:, np.arange(count), np.arange(count)] = -np.inf
    return log_softmax(left)
