"""All K options in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_count
from edpbrl_gym.likelihood.formats import AnswerFormat, Input, Texts, Words
from edpbrl_gym.likelihood.logits import checked_uniforms, checked_values
from edpbrl_gym.likelihood.partial import PartialRanking
from edpbrl_gym.likelihood.plackett_luce import PlackettLuce, chosen_in_turn
from edpbrl_gym.likelihood.response import Kind, Response

__all__ = ["MAX_ENUMERATED", "MAX_RANKED", "Ranking"]

MAX_RANKED = 12  # largest K for which the 2^K subsets are summed (4,096)
MAX_ENUMERATED = 8  # largest K for which all K! rankings are enumerated (8! = 40,320)
_SPOKEN = 3  # taps of who may rank some, for the planner's information: people seldom go on


@dataclass(frozen=True)
class Ranking(PlackettLuce):
    """All K options in order: the Plackett-Luce model (Plackett, 1975; Luce, 1959).

    The best of all options, then the best of the remaining ones, and so on: K - 1 multinomial logits,

        P(o_1, ..., o_K) = prod_{s=1..K-1} exp(v_{o_s}) / sum_{j >= s} exp(v_{o_j}).

    Its first choice is best-of-K, so the model also accepts "best" answers, with one term each.
    """

    name: ClassVar[str] = "ranking"
    kinds: ClassVar[tuple[Kind, ...]] = ("ranking",)
    told: ClassVar[tuple[Kind, ...]] = ("ranking", "best")
    texts: ClassVar[Texts] = Texts(
        "question_ranking", "question_attention_first", "choose_all", "keys_order", "all, in order"
    )

    def _stages(self, num_options: int) -> int:
        if num_options > MAX_RANKED:
            raise ValueError(
                f"Expected at most {MAX_RANKED} options for the information of a ranking, got K = {num_options}"
            )
        return num_options - 1

    def picks(self, num_options: int) -> tuple[int, ...]:
        """The best of those that are left, until one is left."""
        return (1,) * (num_options - 1)

    def outcomes(self, num_options: int) -> tuple[Response, ...]:
        """The K! rankings in lexicographic order, K <= 8."""
        count = check_count(num_options, "num_options", minimum=2)
        if count > MAX_ENUMERATED:
            raise ValueError(f"Expected at most {MAX_ENUMERATED} options to list all rankings, got K = {count}")
        return tuple(Response.ranking(order) for order in permutations(range(count)))

    def probabilities(self, options: ArrayLike, theta: ArrayLike) -> Floats:
        """Probability of each ranking, (n, K!), K <= 8."""
        _, values = checked_values(options, theta)
        orders = np.array([outcome.order for outcome in self.outcomes(values.shape[1])])
        ordered = values[:, orders]
        # log of the sum of exp over an option and those ranked below it
        log_sums = np.logaddexp.accumulate(ordered[..., ::-1], axis=-1)[..., ::-1]
        return np.exp((ordered - log_sums).sum(axis=-1))

    def sample(self, options: ArrayLike, theta: ArrayLike, uniforms: ArrayLike | None) -> list[Response]:
        """One ranking per question. With ``uniforms=None``: by descending utility, ties by the lowest index."""
        _, values = checked_values(options, theta)
        order = chosen_in_turn(values, checked_uniforms(uniforms, len(values)), values.shape[1])
        return [Response.ranking([int(option) for option in row]) for row in order]

    @property
    def inputs(self) -> tuple[Input, ...]:
        """All options in order."""
        return (Input("order", "place"),)

    def words(self, num_options: int) -> Words:
        """As of the rankings that end where the person likes."""
        return PartialRanking().words(num_options)

    def seconds(self, num_options: int) -> float:
        """Three for each option."""
        return 3.0 * num_options

    def response(self, given: Sequence[int], num_options: int) -> Response:
        """All options, the best first."""
        return Response.ranking(given).checked(num_options)

    def spoken(self, num_options: int) -> AnswerFormat:
        """Who types ranks as many as they like; of two options "best" says it all."""
        check_count(num_options, "num_options (K)", minimum=3)
        return PartialRanking(min(_SPOKEN, num_options - 1))
