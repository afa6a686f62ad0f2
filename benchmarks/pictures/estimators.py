"""The estimators of the replay, by name: of a person alone, and with what other people's choices teach.

Of at most 400 other people there are 25 answers each, the best of four random items. Each rival of the library turns
them into features of the items, linear in those of the pictures or free, and a prior of a new person's weights on them.
Fits are maxima of the penalised likelihood; ranks are 5, and the precisions served each best on development people.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import softmax

from benchmarks.pictures.data import Rater, Ratings
from benchmarks.pictures.replay import FORMS, Asked, Belief, Estimator, answer
from edpbrl_gym._arrays import Floats, Indices
from edpbrl_gym._seeds import generator
from edpbrl_gym._threads import one_torch_thread
from edpbrl_gym.estimation import GaussianPrior
from edpbrl_gym.estimation.items import ItemsPrior
from edpbrl_gym.estimation.map_estimate import answer_terms
from edpbrl_gym.estimation.population import fit_population
from edpbrl_gym.estimation.population.items import fit_crowd
from edpbrl_gym.estimation.priors import make_prior
from edpbrl_gym.estimation.taste_prior import TastePrior
from edpbrl_gym.likelihood import Terms

_PEOPLE, _ANSWERS, _RANK = 400, 25, 5
_LOGITS = 3.0  # precision of the logits of weights on a simplex
_KNOWN = 1e8  # precision of a weight that is given


class FeatureEstimator:
    """Utilities that are linear in features of the items, under a prior of the library.

    Args:
        prior: Of the taste.
        features: Of all items of the set, (N, r).
    """

    def __init__(self, prior: TastePrior, features: Floats) -> None:
        self.prior, self.features = prior, features

    def rows(self, asked: Asked) -> Floats:
        """Features of a person's items, (n, r)."""
        return self.features[asked.rater.items]

    def fit(self, asked: Asked) -> Belief:
        """The estimate, and the posterior's covariance."""
        rows = np.asarray(self.prior.feature_map(self.rows(asked)), dtype=np.float64)
        if not asked.questions:
            start = self.prior.start()
            return Belief(rows @ start.mean, rows @ start.covariance() @ rows.T)
        found = self.prior.fit(asked.terms(rows))
        return Belief(rows @ found.estimate.theta, rows @ found.posterior.covariance() @ rows.T)


def _by_name(name: str, **options: Any) -> Callable[[Ratings, Sequence[Rater]], Estimator]:
    return lambda ratings, known: FeatureEstimator(make_prior(name, ratings.features, **options), ratings.features)


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


class Simplex:
    """Weights >= 0 with the sum 1 on features of all items, (N, r); a single feature is the score of everybody.

    If ``certain``, the scores are utilities, and choices are predicted as if they were known; else they are an order.
    """

    def __init__(self, features: Floats, *, certain: bool = True) -> None:
        self.features, self.certain = features, certain

    def fit(self, asked: Asked) -> Belief:
        """The weights of the highest penalised likelihood; equal ones without answers."""
        rows, logits = self.features[asked.rater.items], np.zeros(self.features.shape[1])
        if asked.questions:
            terms = answer_terms(asked.terms(rows))

            def loss(values: Floats) -> tuple[float, Floats]:
                weights = softmax(values)
                slope = terms.score(weights)
                cost = 0.5 * _LOGITS * float(values @ values) - terms.log_likelihood(weights)
                return cost, _LOGITS * values - weights * (slope - weights @ slope)

            logits = minimize(loss, logits, jac=True, method="L-BFGS-B").x
        return Belief(rows @ softmax(logits), np.zeros((len(rows), len(rows))) if self.certain else None)


def item_means(ratings: Ratings, known: Sequence[Rater]) -> Simplex:
    """Others' mean rating of each item, less each person's mean: what 25 answers each can at best come near."""
    total, count = np.zeros((2, len(ratings.features)))
    for rater in known:
        total[rater.items] += rater.ratings - rater.ratings.mean()
        count[rater.items] += 1
    return Simplex((total / np.maximum(count, 1))[:, None], certain=False)


def item_choices(ratings: Ratings, known: Sequence[Rater]) -> Simplex:
    """An effect of each item, N(0, 1), from others' choices, with no features (Luce, 1959)."""
    found = _trained(ratings, known, lambda p, pick, x: pick(p["effect"])[..., 0], effect=1.0)
    return Simplex(found["effect"])


def factorisation(ratings: Ratings, known: Sequence[Rater]) -> FeatureEstimator:
    """Matrix factorisation of choices: an effect and r factors of each item, weights N(0, 1) of each person.

    Koren, Bell & Volinsky (2009), with the likelihood of a choice in the place of squared errors, as Rendle et al.
    (2009) have it for pairs.
    """

    def utilities(p: Any, pick: Any, x: Any) -> Any:
        return pick(p["effect"])[..., 0] + _weighted(pick(p["factors"]), p["person"])

    found = _trained(ratings, known, utilities, effect=1.0, factors=20.0, person=1.0)
    prior = GaussianPrior.from_precision(np.diag([_KNOWN, *[1.0] * _RANK]), np.eye(_RANK + 1)[0])
    return FeatureEstimator(prior, np.column_stack([found["effect"], found["factors"]]))


def pref(ratings: Ratings, known: Sequence[Rater]) -> FeatureEstimator:
    """PReF (Shenfeld et al., 2025): base rewards of the features, a person's weights by a regularised logit.

    A new person's weights have the others' mean, so that there is something to say before the first answer.
    """
    found = _trained(ratings, known, lambda p, pick, x: _weighted(x @ p["map"], p["person"]), map=300.0, person=1.0)
    prior = GaussianPrior.from_precision(np.eye(_RANK), found["person"].mean(axis=0))
    return FeatureEstimator(prior, ratings.features @ found["map"])


def lore(ratings: Ratings, known: Sequence[Rater]) -> Simplex:
    """LoRe (Bose et al., 2025): base rewards of the features, a person's weights on the simplex."""
    found = _trained(ratings, known, lambda p, pick, x: _mixed(x @ p["map"], p["person"]), map=10.0, person=_LOGITS)
    return Simplex(ratings.features @ found["map"])


def pal(ratings: Ratings, known: Sequence[Rater]) -> Simplex:
    """PAL (Chen et al., 2024): utility -|f(x) - a|^2, f linear, the ideal point a of a person a mixture of prototypes.

    |a|^2 is the same for all items, so that it is linear in the weights of the prototypes a_k, which have the sum 1:
    sum_k w_k (2 f(x) . a_k - |f(x)|^2).
    """

    def rewards(p: Any, x: Any) -> Any:
        placed = x @ p["map"]
        return 2.0 * placed @ p["prototypes"].T - (placed * placed).sum(-1)[..., None]

    penalties = {"map": 10.0, "prototypes": 10.0, "person": _LOGITS}
    found = _trained(ratings, known, lambda p, pick, x: _mixed(rewards(p, x), p["person"]), **penalties)
    return Simplex(rewards(found, ratings.features))


def library_population(ratings: Ratings, known: Sequence[Rater]) -> FeatureEstimator:
    """The library's population of Gaussian tastes."""
    people = [Terms(ratings.features[one], np.zeros(one.shape), np.zeros(len(one), int)) for one in choices_of(known)]
    return FeatureEstimator(fit_population(people, kind="gaussian"), ratings.features)


def library_items(ratings: Ratings, known: Sequence[Rater]) -> FeatureEstimator:
    """The library's prior of a pool, with what others said about its items."""
    alone = ItemsPrior(ratings.features)
    rows = alone.feature_map(ratings.features)
    people = [Terms(rows[one], np.zeros(one.shape), np.zeros(len(one), int)) for one in choices_of(known)]
    return FeatureEstimator(alone.with_crowd(fit_crowd(people, alone)), ratings.features)


def _weighted(values: Any, person: Any) -> Any:
    return (values * person[:, None, None]).sum(-1)


def _mixed(values: Any, logits: Any) -> Any:
    return _weighted(values, logits.softmax(-1))


@one_torch_thread()
def _trained(
    ratings: Ratings, known: Sequence[Rater], utilities: Callable[..., Any], **precisions: float
) -> dict[str, Floats]:
    """Parameters of the largest likelihood of the others' choices times N(0, 1 / precision) of each of them.

    Args:
        ratings: The set.
        known: The others.
        utilities: (parameters, table of all items -> its rows of the options (people, 25, 4, r), features of the
            options (people, 25, 4, d)) -> utilities (people, 25, 4).
        **precisions: Of the parameters that it has; of maps of features for 400 people, for fewer in proportion.
    """
    import torch

    shown = choices_of(known)
    size, dimension = ratings.features.shape
    shapes = {"effect": (size, 1), "factors": (size, _RANK), "map": (dimension, _RANK), "prototypes": (_RANK, _RANK)}
    shapes["person"] = (len(shown), _RANK)
    normal = np.random.default_rng(0).standard_normal
    found = {name: torch.tensor(0.3 * normal(shapes[name]), requires_grad=True) for name in precisions}
    share = {"map": len(shown) / _PEOPLE, "prototypes": len(shown) / _PEOPLE}
    items, features = torch.tensor(shown), torch.tensor(ratings.features[shown])
    search: dict[str, Any] = {"max_iter": 300, "history_size": 20, "line_search_fn": "strong_wolfe"}
    optimiser: Any = torch.optim.LBFGS(list(found.values()), **search)

    def pick(table: Any) -> Any:
        return torch.nn.functional.embedding(items, table)  # its gradient is quick

    def closure() -> Any:
        optimiser.zero_grad()
        loss = -utilities(found, pick, features).log_softmax(-1)[..., 0].sum()
        loss = loss + sum(0.5 * precisions[k] * share.get(k, 1.0) * (value * value).sum() for k, value in found.items())
        loss.backward()
        return loss

    optimiser.step(closure)
    return {name: value.detach().numpy() for name, value in found.items()}


ESTIMATORS: dict[str, Callable[[Ratings, Sequence[Rater]], Estimator]] = {
    "ridge1": _by_name("ridge"),
    "ridge-fit": _by_name("ridge", scale="auto"),
    "words": _by_name("words"),
    "items": _by_name("items"),
    "gp": _by_name("gp", landmarks=100),
    "item-means": item_means,
    "item-choices": item_choices,
    "population": library_population,
    "population-items": library_items,
    "factorisation": factorisation,
    "pref": pref,
    "lore": lore,
    "pal": pal,
}
"""Name -> (the set, other people) -> estimator. One's own is an object with ``fit`` and a line here."""
