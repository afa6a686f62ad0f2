"""A person asked question after question, who answers as they rated, and how well the held-out items are predicted."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from benchmarks.pictures.data import LEVELS, Rater, Ratings
from edpbrl_gym._arrays import Floats, Indices
from edpbrl_gym._seeds import generator
from edpbrl_gym._threads import one_blas_thread
from edpbrl_gym.likelihood import AnswerFormat, BestOf, BestWorst, Ranking, Response, Terms
from edpbrl_gym.likelihood.rating import Like, Rating

ANSWERS = (0, 3, 6, 10, 15, 20, 40)
CALIBRATION = ("answered", "predicted", "log_probability", "covered")
_BEST = 10  # items that an estimate chooses
_GUESSED = 400  # further questions of four held-out items, whose answers are predicted
_DRAWS = 400  # of utilities, for intervals


class Form(NamedTuple):
    """What is asked: the format, and the number of items K of a question."""

    model: AnswerFormat
    options: int


FORMS: dict[str, Form] = {
    "rate": Form(Rating(LEVELS), 1),
    "like": Form(Like(), 1),
    "best2": Form(BestOf(), 2),
    "best4": Form(BestOf(), 4),
    "best9": Form(BestOf(), 9),
    "best-worst4": Form(BestWorst(), 4),
    "rank4": Form(Ranking(), 4),
}


@dataclass(eq=False)
class Asked:
    """The questions and answers of one person so far.

    Attributes:
        rater: The person; an estimator or planner looks at ``items`` and ``askable``, never at the ratings.
        features: Of the person's items, (n, d).
        form: What is asked.
        questions: Places of the items of each question among the person's items, (K,) each.
        responses: The answers.
    """

    rater: Rater
    features: Floats
    form: Form
    questions: list[Indices] = field(default_factory=list)
    responses: list[Response] = field(default_factory=list)

    def terms(self, rows: Floats) -> Terms:
        """The likelihood of the answers, given features of the person's items, (n, r)."""
        shown = np.array(self.questions, dtype=np.int64).reshape(-1, self.form.options)
        return self.form.model.terms(rows[shown], self.responses)


@dataclass(frozen=True, eq=False)
class Belief:
    """What is estimated about a person's items.

    Attributes:
        scores: Estimated utilities, (n,).
        covariance: Of the utilities, on the scale on which a choice has logistic noise, (n, n); None: scores only say
            an order.
    """

    scores: Floats
    covariance: Floats | None = None

    def preferred(self, one: Indices, other: Indices) -> Floats:
        """Probability of the answer that each item ``one`` is better than the ``other``, over the posterior.

        The mean of a logistic function of a Gaussian, by MacKay's (1992) approximation.
        """
        assert self.covariance is not None
        own = np.diagonal(self.covariance)
        variance = np.maximum(own[one] + own[other] - 2.0 * self.covariance[one, other], 0.0)
        lead = (self.scores[one] - self.scores[other]) / np.sqrt(1.0 + np.pi * variance / 8.0)
        return np.asarray(0.5 + 0.5 * np.tanh(lead / 2.0))


class Estimator(Protocol):
    """Answers to a belief."""

    def fit(self, asked: Asked) -> Belief:
        """From all answers so far, also none."""
        ...


class Planner(Protocol):
    """Who chooses the next question of one person."""

    def ask(self, asked: Asked) -> Indices:
        """Different places among ``asked.rater.askable``, (K,)."""
        ...


# a person before the first answer, the estimator, a generator of the planner's own
MakePlanner = Callable[[Asked, Any, np.random.Generator], Planner]


def answer(rater: Rater, form: Form, question: Indices, rng: np.random.Generator) -> Response:
    """What the person's own ratings answer; ties at random."""
    model = form.model
    if isinstance(model, Like):
        return Response.rating((rater.ratings[question] > np.median(rater.ratings)).astype(int).tolist())
    if isinstance(model, Rating):
        return Response.rating(rater.levels[question].tolist())
    order = np.lexsort((rng.random(len(question)), -rater.ratings[question])).tolist()
    if isinstance(model, Ranking):
        return Response.ranking(order)
    return Response.best_worst(order[0], order[-1]) if isinstance(model, BestWorst) else Response.best(order[0])


def judge(belief: Belief, rater: Rater) -> dict[str, float]:
    """How well held-out items are predicted.

    - accuracy: share of their pairs with different ratings that the scores order rightly, half of equal scores;
    - hit: share of random questions of four in which an item with the highest rating has the highest score;
    - regret: mean rating of the ten best less that of the ten with the highest scores (random among equal ones), in
      standard deviations of the person's ratings;
    - answered: share of the answers to all pairs that are the likelier ones, equal ratings being answered at random;
      predicted: the share that the belief expects; log_probability: of the answer about a pair;
    - covered: share of pairs whose lead is in its central 90% interval. Utilities have another unit than ratings, so
      that leads are in standard deviations, of the ratings of the held-out items and of each draw of their utilities.
    """
    better, worse = rater.pairs
    lead = belief.scores[better] - belief.scores[worse]
    tie = np.abs(lead) <= 1e-9 * max(1.0, float(np.abs(belief.scores).max()))
    held, ratings = rater.held_out, rater.ratings[rater.held_out]
    shuffled = generator(0, "pictures", "ten best", rater.place).permutation(len(held))
    fours = generator(0, "pictures", "hit", rater.place).random((_GUESSED, len(held))).argsort(axis=1)[:, :4]
    guess = np.round(belief.scores[held], 9)[fours].argmax(axis=1)
    highest = ratings[fours] == ratings[fours].max(axis=1, keepdims=True)
    chosen = shuffled[np.argsort(-np.round(belief.scores[held][shuffled], 9), kind="stable")[:_BEST]]
    lost = np.sort(ratings)[::-1][:_BEST].mean() - ratings[chosen].mean()
    return {
        "accuracy": float(np.where(tie, 0.5, lead > 0).mean()) if len(lead) else np.nan,
        "hit": float(highest[np.arange(_GUESSED), guess].mean()),
        "regret": float(lost / rater.ratings.std()),
        **(dict.fromkeys(CALIBRATION, np.nan) if belief.covariance is None else _calibrated(belief, rater)),
    }


def _calibrated(belief: Belief, rater: Rater) -> dict[str, float]:
    held, ratings = rater.held_out, rater.ratings[rater.held_out]
    one, other = np.triu_indices(len(held), 1)
    chances = belief.preferred(held[one], held[other])
    answers = 0.5 + 0.5 * np.sign(ratings[one] - ratings[other])  # 1: one, 0: other, 1/2: at random
    right = np.where(chances == 0.5, 0.5, np.where(chances > 0.5, answers, 1.0 - answers))
    logs = answers * np.log(np.maximum(chances, 1e-12)) + (1.0 - answers) * np.log(np.maximum(1.0 - chances, 1e-12))
    assert belief.covariance is not None
    rng = generator(0, "pictures", "intervals", rater.place)
    draws = rng.multivariate_normal(belief.scores[held], belief.covariance[np.ix_(held, held)], _DRAWS, method="eigh")
    spread = draws.std(axis=1)
    standard = draws[spread > 0] / spread[spread > 0, None]
    covered = np.nan
    if len(standard) and ratings.std() > 0:
        low, high = np.quantile(standard[:, one] - standard[:, other], [0.05, 0.95], axis=0)
        leads = (ratings[one] - ratings[other]) / ratings.std()
        covered = float(((low <= leads) & (leads <= high)).mean())
    found = (right.mean(), np.maximum(chances, 1.0 - chances).mean(), logs.mean(), covered)
    return dict(zip(CALIBRATION, map(float, found), strict=True))


@one_blas_thread()
def replay(
    ratings: Ratings,
    raters: Sequence[Rater],
    make_planner: MakePlanner,
    estimator: Estimator,
    form: Form,
    *,
    answers: Sequence[int] = ANSWERS,
    repeats: int = 1,
) -> list[dict[str, Any]]:
    """Ask people, each from the start in every repeat; a row for each person, repeat and number of answers.

    Beside the measures of ``judge`` a row has ``pictures``, all that were shown so far, ``different`` ones among them,
    ``seconds`` of the person, if each picture takes the median time of the person's ratings (NaN: not measured), and
    ``wait``, the mean time until a question was chosen.
    """
    rows = []
    for rater in raters:
        for repeat in range(repeats):
            asked = Asked(rater, ratings.features[rater.items], form)
            planner = make_planner(asked, estimator, generator(repeat, "pictures", "questions", rater.place))
            rng, spent = generator(repeat, "pictures", "answers", rater.place), 0.0
            for count in range(max(answers) + 1):
                if count:
                    start = time.perf_counter()
                    question = planner.ask(asked)
                    spent += time.perf_counter() - start
                    asked.questions.append(question)
                    asked.responses.append(answer(rater, form, question, rng))
                if count in answers:
                    shown = np.concatenate([np.zeros(0, int), *asked.questions])
                    facts = {"person": rater.place, "repeat": repeat, "answers": count, "wait": spent / max(1, count)}
                    facts |= {"pictures": len(shown), "different": len(np.unique(shown))}
                    facts["seconds"] = len(shown) * rater.seconds
                    rows.append(facts | judge(estimator.fit(asked), rater))
    return rows
