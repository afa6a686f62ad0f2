"""Answers in several stages: the whole ranking (Plackett-Luce), and best and worst.

Both start with the best of the K options and continue with those that remain. The likelihood is therefore a product of
multinomial logits, and the expected information a sum over the sets that may remain, weighted by their probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Floats
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
from edpbrl_gym.likelihood.response import Kind, Response
from edpbrl_gym.likelihood.terms import Terms

__all__ = ["MAX_ENUMERATED", "MAX_RANKED", "BestWorst", "Ranking", "chosen_in_turn", "staged_terms", "staged_weights"]


MAX_ENUMERATED = 8  # largest K for which all K! rankings are enumerated (8! = 40,320)
MAX_RANKED = 12  # largest K for which the 2^K subsets are summed (4,096)


def _without_chosen(values: Floats, chosen: NDArray[np.int64]) -> Floats:
    """The utilities with the chosen option of each row at -inf."""
    remaining = values.copy()
    remaining[np.arange(len(values)), chosen] = -np.inf
    return remaining


def staged_terms(ordered: Floats, stages: NDArray[np.int64]) -> list[Terms]:
    """The first choices of Plackett-Luce rankings as multinomial logits, stage by stage.

    Args:
        ordered: Features of the K options of m questions, the first choice first, (m, K, d).
        stages: Number of choices of each question that the answer tells, (m,), in 0..K-1.
    """
    terms = []
    for stage in range(int(stages.max(initial=0))):
        told = ordered if (stages > stage).all() else ordered[stages > stage]
        offsets = np.zeros(told.shape[:2])
        offsets[:, :stage] = -np.inf
        terms.append(Terms(told, offsets, np.full(len(told), stage)))
    return terms


def staged_weights(values: Floats, stages: int) -> Floats:
    """Information of the first ``stages`` choices of a Plackett-Luce ranking, (n, K, K), from utilities (n, K).

    The sum over the sets R that may remain before one of these choices of P(R) (diag(p_R) - p_R p_R'), with p_R the
    choice probabilities among R. The recursion starts at P(all) = 1; each set R adds P(R) p_R(i) to P(R without i).
    """
    num_questions, count = values.shape
    weights = np.zeros((num_questions, count, count))
    set_probabilities = {tuple(range(count)): np.ones(num_questions)}
    for size in range(count, count - stages, -1):
        next_probabilities = {members: np.zeros(num_questions) for members in combinations(range(count), size - 1)}
        for members, probability in set_probabilities.items():
            chances = np.exp(log_softmax(values[:, list(members)]))
            rows, columns = np.ix_(members, members)
            weights[:, rows, columns] += probability[:, None, None] * choice_weights(chances)
            for place in range(size):
                next_probabilities[members[:place] + members[place + 1 :]] += probability * chances[:, place]
        set_probabilities = next_probabilities
    return weights


def chosen_in_turn(values: Floats, uniforms: Floats | None, stages: int) -> NDArray[np.int64]:
    """The first ``stages`` choices of Plackett-Luce rankings, (n, stages); without draws by descending utility."""
    order = np.empty((len(values), stages), dtype=np.int64)
    remaining = values
    for stage in range(stages):
        order[:, stage], uniforms = pick(remaining, uniforms)
        if stage < stages - 1:
            remaining = _without_chosen(remaining, order[:, stage])
    return order


@dataclass(frozen=True)
class Ranking:
    """All K options in order: the Plackett-Luce model (Plackett, 1975; Luce, 1959).

    The best of all options, then the best of the remaining ones, and so on: K - 1 multinomial logits,

        P(o_1, ..., o_K) = prod_{s=1..K-1} exp(v_{o_s}) / sum_{j >= s} exp(v_{o_j}).

    Its first choice is best-of-K, so the model also accepts "best" answers, with one term each.
    """

    name: ClassVar[str] = "ranking"
    kinds: ClassVar[tuple[Kind, ...]] = ("ranking",)

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
        # log of the sum of exp over an option and those ranked below it
        log_sums = np.logaddexp.accumulate(ordered[..., ::-1], axis=-1)[..., ::-1]
        return np.exp((ordered - log_sums).sum(axis=-1))

    def terms(self, options: ArrayLike, responses: Sequence[Response]) -> Terms:
        """K - 1 terms for each ranking, stage by stage, padded to K alternatives; one for each "best" answer.

        Raises:
            ValueError: An answer other than "ranking", "best" or "skip", or one that does not match the options.
        """
        features = check_options(options)
        by_kind = checked_responses(responses, features, ("ranking", "best"), self.name)
        indices, orders = by_kind["ranking"]
        terms = [best_terms(features, by_kind["best"][0], by_kind["best"][1][:, 0])]
        if len(indices):
            terms += staged_terms(features[indices[:, None], orders], np.full(len(indices), features.shape[1] - 1))
        return Terms.concatenate(terms)

    def information(self, options: ArrayLike, theta: ArrayLike | None = None) -> Floats:
        """Expected Fisher information, (d, d): exact, over the sets that may remain.

        Raises:
            ValueError: K > 12.
        """
        features, values = checked_values(options, theta)
        return information_from_weights(features, self.weights(values))

    def weights(self, values: ArrayLike) -> Floats:
        """Sum over the remaining sets R of P(R) (diag(p_R) - p_R p_R'), (n, K, K), from the utilities (n, K).

        It visits 2^K sets, each for all questions at once; see ``staged_weights``.

        For K > 3 the weights need not exceed those of :class:`BestWorst` in the Loewner order, since its worst is not
        the last of a Plackett-Luce ranking; at theta = 0 they do.

        Raises:
            ValueError: K > 12.
        """
        checked = checked_utilities(values)
        count = checked.shape[1]
        if count > MAX_RANKED:
            raise ValueError(f"Expected at most {MAX_RANKED} options for the information of a ranking, got K = {count}")
        return staged_weights(checked, count - 1)

    def sample(self, options: ArrayLike, theta: ArrayLike, uniforms: ArrayLike | None) -> list[Response]:
        """One ranking per question. With ``uniforms=None``: by descending utility, ties by the lowest index."""
        _, values = checked_values(options, theta)
        order = chosen_in_turn(values, checked_uniforms(uniforms, len(values)), values.shape[1])
        return [Response.ranking([int(option) for option in row]) for row in order]


@dataclass(frozen=True)
class BestWorst:
    """The best and the worst option: the sequential best-worst logit.

    The best of all by the multinomial logit, then the worst of the rest by one in the negative utilities,

        P(b, w) = exp(v_b) / sum_j exp(v_j) * exp(-v_w) / sum_{j != b} exp(-v_j)

    (Lancsar et al., 2013, after Marley & Louviere, 2005). For K = 3 it is the Plackett-Luce model of the ranking. For
    K > 3 it is close to the first and last place of a Plackett-Luce ranking, but not equal: here the worst is chosen as
    precisely as the best, while the last place of a ranking is merely what remains. The model also accepts "best"
    answers, with one term each. K = 2 is allowed; the worst then adds no information.
    """

    name: ClassVar[str] = "best_worst"
    kinds: ClassVar[tuple[Kind, ...]] = ("best_worst",)

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
        """Two terms for each answer, the second with the negatives of the K - 1 other options, padded to K.

        Raises:
            ValueError: An answer other than "best_worst", "best" or "skip", or one that does not match the options.
        """
        features = check_options(options)
        by_kind = checked_responses(responses, features, ("best_worst", "best"), self.name)
        indices, orders = by_kind["best_worst"]
        terms = [best_terms(features, by_kind["best"][0], by_kind["best"][1][:, 0])]
        if len(indices):
            terms.append(best_terms(features, indices, orders[:, 0]))
            offsets = _without_chosen(np.zeros((len(indices), features.shape[1])), orders[:, 0])
            terms.append(Terms(-features[indices], offsets, orders[:, 1]))
        return Terms.concatenate(terms)

    def information(self, options: ArrayLike, theta: ArrayLike | None = None) -> Floats:
        """Expected Fisher information, (d, d): exact, over the K options that may be the best."""
        features, values = checked_values(options, theta)
        return information_from_weights(features, self.weights(values))

    def weights(self, values: ArrayLike) -> Floats:
        """Weights of the best, plus the sum over b of P(best = b) times those of the worst of the others, (n, K, K)."""
        checked = checked_utilities(values)
        best = np.exp(log_softmax(checked))
        worst = np.exp(_worst_given_best(checked))
        weights = choice_weights(best)
        for option in range(checked.shape[1]):
            weights += best[:, option, None, None] * choice_weights(worst[:, option])
        return weights

    def sample(self, options: ArrayLike, theta: ArrayLike, uniforms: ArrayLike | None) -> list[Response]:
        """One answer per question. With ``uniforms=None``: largest and smallest utility, ties by the lowest index.

        If all utilities are equal, these are options 0 and 1.
        """
        _, values = checked_values(options, theta)
        draws = checked_uniforms(uniforms, len(values))
        best, draws = pick(values, draws)
        worst, _ = pick(_without_chosen(-values, best), draws)
        return [Response.best_worst(int(b), int(w)) for b, w in zip(best, worst, strict=True)]


def _worst_given_best(values: Floats) -> Floats:
    """Logarithm of P(worst = w | best = b), (n, b, w), -inf on the diagonal."""
    count = values.shape[1]
    remaining = np.repeat(-values[:, None, :], count, axis=1)
    remaining[:, np.arange(count), np.arange(count)] = -np.inf
    return log_softmax(remaining)
