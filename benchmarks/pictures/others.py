"""What other people's choices teach about a new person: rivals of the library's population.

Of each other person, at most 400, there are 25 answers, the best of four random items. Each rival turns them into
features of the items and a prior of a new person's weights on them; the features are linear in those of the pictures or
free for each item. Ranks are 5 for all. Fits are maxima of the penalised likelihood, by L-BFGS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import softmax

from benchmarks.pictures.data import Rater, Ratings
from benchmarks.pictures.estimators import FeatureEstimator
from benchmarks.pictures.replay import FORMS, Asked, Belief, answer
from edpbrl_gym._arrays import Floats, Indices
from edpbrl_gym._seeds import generator
from edpbrl_gym.estimation import GaussianPrior
from edpbrl_gym.estimation.map_estimate import answer_terms
from edpbrl_gym.estimation.population import fit_population
from edpbrl_gym.likelihood import Terms

_PEOPLE, _ANSWERS, _RANK = 400, 25, 5
_LOOSE = 0.1  # precision of the logits of weights on a simplex, as good as free
_KNOWN = 1e8  # precision of a weight that is given


def choices_of(known: Sequence[Rater]) -> Indices:
    """Rows of the items of each answer, the chosen one first, (people, 25, 4)."""
    form, found = FORMS["best4"], []
    for rater in known[:_PEOPLE]:
        rng = generator(0, "pictures", "others", rater.place)
        for _ in range(_ANSWERS):
            question = rng.choice(len(rater.items), form.options, replace=False)
            best = answer(rater, form, question, rng).order[0]
            found.append(rater.items[np.roll(question, -best)])
    return np.array(found).reshape(-1, _ANSWERS, form.options)


class Constant:
    """The same scores for everybody."""

    def __init__(self, scores: Floats, *, certain: bool) -> None:
        self.scores, self.certain = scores, certain

    def fit(self, asked: Asked) -> Belief:
        """Whatever the answers."""
        size = len(asked.rater.items)
        return Belief(self.scores[asked.rater.items], np.zeros((size, size)) if self.certain else None)


class Simplex:
    """Weights >= 0 with the sum 1 on features of the items, (N, r), by maximum likelihood, taken as certain."""

    def __init__(self, features: Floats) -> None:
        self.features = features

    def fit(self, asked: Asked) -> Belief:
        """Weights by the answers, equal ones without."""
        rows, logits = self.features[asked.rater.items], np.zeros(self.features.shape[1])
        if asked.questions:
            terms = answer_terms(asked.terms(rows))

            def loss(values: Floats) -> tuple[float, Floats]:
                weights = softmax(values)
                slope = terms.score(weights)
                cost = 0.5 * _LOOSE * values @ values - terms.log_likelihood(weights)
                return cost, _LOOSE * values - weights * (slope - weights @ slope)

            logits = minimize(loss, logits, jac=True, method="L-BFGS-B").x
        return Belief(rows @ softmax(logits), np.zeros((len(rows), len(rows))))


def item_means(ratings: Ratings, known: Sequence[Rater]) -> Constant:
    """Others' mean rating of each item, less each person's mean: what 25 answers each can at best come near."""
    total, count = np.zeros((2, len(ratings.features)))
    for rater in known:
        total[rater.items] += rater.ratings - rater.ratings.mean()
        count[rater.items] += 1
    return Constant(total / np.maximum(count, 1), certain=False)


def item_choices(ratings: Ratings, known: Sequence[Rater]) -> Constant:
    """An effect of each item, N(0, 1), from others' choices, with no features (Luce, 1959)."""
    found = _trained(ratings, known, lambda p, pick, x: pick(p["effect"]), {"effect": 1.0})
    return Constant(found["effect"], certain=True)


def factorisation(ratings: Ratings, known: Sequence[Rater]) -> FeatureEstimator:
    """Matrix factorisation of choices: an effect and r factors of each item, weights N(0, 1) of each person.

    Koren, Bell & Volinsky (2009), with the likelihood of a choice in the place of squared errors, as Rendle et al.
    (2009) have it for pairs.
    """
    found = _trained(
        ratings,
        known,
        lambda p, pick, x: pick(p["effect"]) + (pick(p["factors"]) * p["person"][:, None, None]).sum(-1),
        {"effect": 1.0, "factors": float(_RANK), "person": 1.0},
    )
    precision = np.diag([_KNOWN, *[1.0] * _RANK])
    mean = np.eye(_RANK + 1)[0]
    return FeatureEstimator(
        GaussianPrior.from_precision(precision, mean), np.column_stack([found["effect"], found["factors"]])
    )


def pref(ratings: Ratings, known: Sequence[Rater]) -> FeatureEstimator:
    """PReF (Shenfeld et al., 2025): base rewards of the features, a person's weights by a regularised logit.

    A new person's weights have the others' mean, so that there is something to say before the first answer.
    """
    found = _trained(
        ratings,
        known,
        lambda p, pick, x: ((x @ p["map"]) * p["person"][:, None, None]).sum(-1),
        {"map": 1.0, "person": 1.0},
    )
    prior = GaussianPrior.from_precision(np.eye(_RANK), found["person"].mean(axis=0))
    return FeatureEstimator(prior, ratings.features @ found["map"])


def lore(ratings: Ratings, known: Sequence[Rater]) -> Simplex:
    """LoRe (Bose et al., 2025): base rewards of the features, a person's weights on the simplex."""
    found = _trained(
        ratings,
        known,
        lambda p, pick, x: ((x @ p["map"]) * p["person"].softmax(-1)[:, None, None]).sum(-1),
        {"map": 0.01, "person": _LOOSE},
    )
    return Simplex(ratings.features @ found["map"])


def pal(ratings: Ratings, known: Sequence[Rater]) -> Simplex:
    """PAL (Chen et al., 2024): utility -|f(x) - a|^2, f linear, the ideal point a of a person a mixture of prototypes.

    |a|^2 is the same for all items, so that it is linear in the weights of the prototypes a_k, which have the sum 1:
    sum_k w_k (2 f(x) . a_k - |f(x)|^2).
    """

    def rewards(p: Any, x: Any) -> Any:
        placed = x @ p["map"]
        return 2.0 * placed @ p["prototypes"].T - (placed * placed).sum(-1)[..., None]

    found = _trained(
        ratings,
        known,
        lambda p, pick, x: (rewards(p, x) * p["person"].softmax(-1)[:, None, None]).sum(-1),
        {"map": 0.01, "prototypes": 0.01, "person": _LOOSE},
    )
    return Simplex(rewards(found, ratings.features))


def library_population(ratings: Ratings, known: Sequence[Rater]) -> FeatureEstimator:
    """The library's population of Gaussian tastes."""
    people = [Terms(ratings.features[one], np.zeros(one.shape), np.zeros(len(one), int)) for one in choices_of(known)]
    return FeatureEstimator(fit_population(people, kind="gaussian"), ratings.features)


def _trained(
    ratings: Ratings, known: Sequence[Rater], utilities: Callable[..., Any], precisions: dict[str, float]
) -> dict[str, Floats]:
    """Parameters of the largest likelihood of the others' choices times N(0, 1 / precision) of each of them.

    Args:
        ratings: The set.
        known: The others.
        utilities: (parameters, rows of items -> those of the options (people, 25, 4, ...), features of the options
            (people, 25, 4, d)) -> utilities (people, 25, 4).
        precisions: Of the parameters that it has.
    """
    import torch

    shown = choices_of(known)
    size, dimension = ratings.features.shape
    shapes = {"effect": (size,), "factors": (size, _RANK), "map": (dimension, _RANK), "prototypes": (_RANK, _RANK)}
    shapes["person"] = (len(shown), _RANK)
    rng = np.random.default_rng(0)
    start = {name: torch.tensor(0.3 * rng.standard_normal(shapes[name]), requires_grad=True) for name in precisions}
    items, features = torch.tensor(shown), torch.tensor(ratings.features[shown])

    def pick(table: Any) -> Any:
        rows = torch.nn.functional.embedding(items, table.reshape(size, -1))  # whose gradient is quick
        return rows if table.ndim > 1 else rows[..., 0]

    optimiser = torch.optim.LBFGS(list(start.values()), max_iter=300, history_size=20, line_search_fn="strong_wolfe")

    def closure() -> Any:
        optimiser.zero_grad()
        loss = -utilities(start, pick, features).log_softmax(-1)[..., 0].sum()
        loss = loss + sum(0.5 * precisions[name] * (value * value).sum() for name, value in start.items())
        loss.backward()
        return loss

    optimiser.step(closure)
    return {name: value.detach().numpy() for name, value in start.items()}


OTHERS: dict[str, Callable[[Ratings, Sequence[Rater]], Any]] = {
    "item-means": item_means,
    "item-choices": item_choices,
    "population": library_population,
    "factorisation": factorisation,
    "pref": pref,
    "lore": lore,
    "pal": pal,
}
