"""Do 90% credible intervals cover 90%? The tables of calibration in docs/priors.md.

    python -m benchmarks.calibration [--users 500] [--episodes 20] [--scales 1]

Users are drawn from the prior and answer random questions by the sampled logit:
theta ~ N(0, scale * C), C the covariance of the default prior (tokens of the built-in vocabulary, MiniLM, d = 384);
questions are random partial prompts, K = 4, one for each of the 6 steps of an episode. Intervals: of theta's
coordinates, of the lead of one random prompt over another, of the score of the prompt that the estimate recommends (the
best of 1,000; its own interval, though it was chosen by the same answers). Accuracy: predicted and true share of
further questions whose truly best option the estimate names. With the user's own scale, and with that of the evidence.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

from benchmarks.common import make_parser, show, training_tokens
from edpbrl_gym._arrays import Floats
from edpbrl_gym.estimation import GaussianPrior, Posterior, estimate, fit_posterior, fit_prior
from edpbrl_gym.reporting.tables import TextTable
from edpbrl_gym.vocabulary import SEPARATOR

NUM_OPTIONS = 4
PROMPTS = 1000
LEVEL = 0.9


def material() -> tuple[Floats, Floats]:
    """Embeddings of the tokens (N, d) and of the partial prompts of random prompts (n, H, d)."""
    train, encoder, tokens = training_tokens()
    rng = np.random.default_rng(1000)
    texts = []
    for _ in range(2 * PROMPTS):
        words = [names[rng.integers(len(names))] for names in train.tokens]
        texts += [SEPARATOR.join(words[: step + 1]) for step in range(len(words))]
    rows = encoder.encode(texts, progress=True).reshape(2 * PROMPTS, train.horizon, -1)
    return tokens.astype(np.float64), rows.astype(np.float64)


def questions(partial: Floats, episodes: int, rng: np.random.Generator) -> Floats:
    """Random questions, (episodes * H, K, d): at each step the partial prompts of K prompts."""
    count, horizon = partial.shape[:2]
    prompts = np.stack([rng.choice(count, size=NUM_OPTIONS, replace=False) for _ in range(episodes)])
    return np.concatenate([partial[prompts, step] for step in range(horizon)])


def judge(posterior: Posterior, theta: Floats, partial: Floats, rng: np.random.Generator) -> dict[str, float]:
    """Coverage and accuracy for one user."""
    prompts = partial[:PROMPTS, -1]
    leads = prompts[rng.integers(PROMPTS, size=200)] - prompts[rng.integers(PROMPTS, size=200)]
    best = prompts[[int((prompts @ posterior.mean).argmax())]]
    further = questions(partial, 30, rng)
    right = (further @ theta).argmax(axis=1) == (further @ posterior.mean).argmax(axis=1)

    def covered(rows: Floats) -> float:
        low, high = posterior.interval(rows, LEVEL)
        truth = rows @ theta
        return float(((low <= truth) & (truth <= high)).mean())

    return {
        "coordinates": covered(np.eye(len(theta))),
        "leads": covered(leads),
        "recommended": covered(best),
        "predicted accuracy": posterior.expected_accuracy(further, draws=200),
        "true accuracy": float(right.mean()),
    }


def one_user(user: int) -> list[dict[str, Any]]:
    """Four posteriors of one user, judged on the same further questions."""
    base, partial, (episodes, scale, seed) = _shared["base"], _shared["partial"], _shared["settings"]
    rng = np.random.default_rng([seed, user])
    root = base.covariance_root()
    theta = np.sqrt(scale) * root @ rng.standard_normal(len(root))
    options = questions(partial, episodes, rng)
    choices = (options @ theta + rng.gumbel(size=options.shape[:2])).argmax(axis=1)
    known = estimate((options, choices), prior=base.scaled(scale))
    fitted = fit_prior((options, choices), base=base)
    exact = fit_posterior((options, choices), base=base, scale=scale)
    close = fit_posterior((options, choices), base=base, start=fitted)
    fits = (
        ("known", "Laplace", Posterior.from_estimate(known), scale),
        ("known", "variational", exact.posterior, scale),
        ("evidence", "Laplace", Posterior.from_estimate(fitted.estimate), fitted.scale),
        ("evidence", "variational", close.posterior, close.scale),
    )
    rows = []
    for name, method, posterior, chosen in fits:
        same = np.random.default_rng([seed + 1, user])
        rows.append({"scale": name, "method": method, "chosen": chosen, **judge(posterior, theta, partial, same)})
    return rows


_shared: dict[str, Any] = {}


def _share(base: GaussianPrior, partial: Floats, settings: tuple[int, float, int]) -> None:
    _shared.update(base=base, partial=partial, settings=settings)


def run(
    users: int, episodes: int, scale: float, tokens: Floats, partial: Floats, seed: int, jobs: int
) -> list[dict[str, Any]]:
    arguments = GaussianPrior.from_embeddings(tokens), partial, (episodes, scale, seed)
    with ProcessPoolExecutor(jobs, initializer=_share, initargs=arguments) as pool:
        return [row for rows in pool.map(one_user, range(users), chunksize=5) for row in rows]


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--users", type=int, default=500)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--scales", type=float, nargs="+", default=[1.0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    tokens, partial = material()
    keys = ("coordinates", "leads", "recommended", "predicted accuracy", "true accuracy")
    header = ("true scale", "prior's scale", "method", "median chosen", *keys)
    texts = []
    for scale in options.scales:
        rows = run(options.users, options.episodes, scale, tokens, partial, options.seed, options.jobs)
        for name, method in dict.fromkeys((row["scale"], row["method"]) for row in rows):
            part = [row for row in rows if row["scale"] == name and row["method"] == method]
            means = {key: float(np.mean([row[key] for row in part])) for key in keys}
            middle = float(np.median([row["chosen"] for row in part]))
            texts.append([f"{scale:g}", name, method, f"{middle:.3g}", *(f"{means[key]:.3f}" for key in keys)])
    show(TextTable(f"{options.users} users, level {LEVEL}", header, texts, words=3))


if __name__ == "__main__":
    main()
