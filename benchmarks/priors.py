"""Which prior should an estimate have? Errors under many priors, from the same random questions: docs/priors.md.

    python -m benchmarks.priors [--sentences 6] [--seeds 4]

Questions: random partial prompts (truncated feedback) of the train part of the built-in vocabulary, K = 4, MiniLM.
Users: sentences (none of those that experiments report, though three of the first six have a cosine of 0.53 to 0.57 to
one) who answer by argmax or sample at inverse temperature 50, 20, 5. Errors: cosine error, and preference error on
pairs of prompts from the held-out words. Every estimator sees the same answers. "tokens 0.5": the prior is the
covariance of the tokens to the power 0.5; "about 0": their second moment about 0 instead. "auto": the scale by the
evidence (``fit_prior``), "flat" and "spread 1.5" with ``log_spread`` infinite and 1.5 instead of the default; "powers":
the power too (``choose_prior`` over 0.25, 0.5, 0.75, 1); "x10": a fixed scale of 10 (lambda = 0.1).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import make_parser, show
from edpbrl_gym._arrays import Floats
from edpbrl_gym.estimation import GaussianPrior, choose_prior, estimate, fit_prior
from edpbrl_gym.estimation.metrics import cosine_error, preference_error, sample_pairs
from edpbrl_gym.features import load_encoder
from edpbrl_gym.reporting.tables import TextTable
from edpbrl_gym.vocabulary import SEPARATOR, Vocabulary, load_vocabulary

Fit = Callable[[Floats, NDArray[np.int64]], tuple[Floats, float, float]]  # theta, scale, power (NaN: not chosen)

SENTENCES = (
    "a cosy winter cabin",
    "baroque gold ornaments",
    "a quiet rainy street in soft grey tones",
    "playful pastel toys photographed from above",
    "a harsh desert under a merciless noon sun",
    "delicate ink drawings of insects and ferns",
    "an underwater world full of glowing jellyfish",
    "dusty steam engines and brass gears",
)
USERS: dict[str, float | None] = {"argmax": None, "50": 50.0, "20": 20.0, "5": 5.0}
EPISODES = (10, 30, 60)
NUM_OPTIONS = 4
FIRST_SEED = 1000
SAMPLE_PROMPTS = 3000  # for covariances of prompts and of partial prompts


def prefixes(vocabulary: Vocabulary, tokens: NDArray[np.int64]) -> list[str]:
    """The partial prompts of each row of tokens (n, H), step by step within a row."""
    texts = []
    for row in tokens.tolist():
        words = [names[index] for names, index in zip(vocabulary.tokens, row, strict=True)]
        texts += [SEPARATOR.join(words[: step + 1]) for step in range(len(words))]
    return texts


def load_data(sentences: int, seeds: int) -> dict[str, Any]:
    """All embeddings: questions (seeds, T, H, K, d), tokens, partial prompts, tastes, held-out prompts and pairs."""
    train, test = load_vocabulary().split(seed=0)
    encoder = load_encoder("minilm")
    rng = np.random.default_rng(FIRST_SEED)

    def draw(vocabulary: Vocabulary, count: int, source: np.random.Generator) -> NDArray[np.int64]:
        return np.stack([source.integers(size, size=count) for size in vocabulary.sizes], axis=1)

    longest = max(EPISODES)
    questions = []
    for seed in range(seeds):
        tokens = draw(train, longest * NUM_OPTIONS, np.random.default_rng(FIRST_SEED + 1 + seed))
        rows = encoder.encode(prefixes(train, tokens)).reshape(longest, NUM_OPTIONS, train.horizon, -1)
        questions.append(rows.transpose(0, 2, 1, 3))
    sample = encoder.encode(prefixes(train, draw(train, SAMPLE_PROMPTS, rng))).reshape(-1, train.horizon, 384)
    pairs = sample_pairs(test.sizes, prompts=1000, pairs=5000, rng=rng)
    return {
        "questions": np.stack(questions),
        "tokens": encoder.encode(train.all_tokens),
        "prefixes": sample,
        "tastes": encoder.encode(list(SENTENCES[:sentences])),
        "prompts": encoder.encode([test.prompt(row) for row in pairs.tokens]),
        "pairs": pairs.pairs,
    }


def answers(questions: Floats, theta: Floats, inverse_temperature: float | None, seed: int) -> NDArray[np.int64]:
    values = questions @ theta
    if inverse_temperature is not None:
        values = inverse_temperature * values + np.random.default_rng(seed).gumbel(size=values.shape)
    return np.asarray(values.argmax(axis=1))


def estimators(data: dict[str, Any]) -> dict[str, Fit]:
    """Name -> (options, choices) -> (theta, scale, power)."""
    tokens = data["tokens"].astype(np.float64)
    partial = data["prefixes"].astype(np.float64)
    bases: dict[str, GaussianPrior] = {"ridge": GaussianPrior.isotropic(tokens.shape[1], 1.0)}
    for power in (0.25, 0.5, 0.75, 1.0):
        bases[f"tokens {power}"] = GaussianPrior.from_embeddings(tokens, power=power)
        bases[f"partial prompts {power}"] = GaussianPrior.from_embeddings(
            partial.reshape(-1, tokens.shape[1]), power=power
        )
        bases[f"prompts {power}"] = GaussianPrior.from_embeddings(partial[:, -1], power=power)
    for power in (0.5, 0.75, 1.0):
        bases[f"tokens about 0, {power}"] = GaussianPrior.from_embeddings(tokens, power=power, centred=False)

    def fixed(prior: GaussianPrior, scale: float) -> Fit:
        return lambda options, choices: (estimate((options, choices), prior=prior.scaled(scale)).theta, scale, np.nan)

    def auto(base: GaussianPrior, **arguments: Any) -> Fit:
        def fit(options: Floats, choices: NDArray[np.int64]) -> tuple[Floats, float, float]:
            prior_fit = fit_prior((options, choices), base=base, **arguments)
            return prior_fit.estimate.theta, prior_fit.scale, np.nan

        return fit

    def auto_power(kind: str) -> Fit:
        candidates = {name: base for name, base in bases.items() if name.startswith(kind) and "about" not in name}

        def fit(options: Floats, choices: NDArray[np.int64]) -> tuple[Floats, float, float]:
            choice = choose_prior((options, choices), candidates=candidates)
            return choice.fit.estimate.theta, choice.fit.scale, float(choice.name.split()[-1])

        return fit

    fits = {
        "ridge 100": fixed(bases["ridge"], 0.01),
        "ridge 1": fixed(bases["ridge"], 1.0),
        "ridge auto": auto(bases["ridge"]),
        "tokens 0.5 x10": fixed(bases["tokens 0.5"], 10.0),
        "partial prompts 0.5 x10": fixed(bases["partial prompts 0.5"], 10.0),
        "tokens 0.5 auto, flat": auto(bases["tokens 0.5"], log_spread=np.inf),
        "tokens 0.5 auto, spread 1.5": auto(bases["tokens 0.5"], log_spread=1.5),
    }
    fits |= {f"{name} auto": auto(base) for name, base in bases.items() if name != "ridge"}
    fits |= {"tokens powers auto": auto_power("tokens"), "partial prompts powers auto": auto_power("partial")}
    return fits


def run(
    data: dict[str, Any], users: dict[str, float | None], lengths: list[int], only: list[str] | None
) -> list[dict[str, Any]]:
    """Rows of (estimator, user, T): mean errors over sentences and seeds, median scale, power and milliseconds."""
    prompts, pairs = data["prompts"].astype(np.float64), data["pairs"]
    rows: list[dict[str, Any]] = []
    for name, fit in estimators(data).items():
        if only is not None and name not in only:
            continue
        print(name, flush=True)
        for user, inverse_temperature in users.items():
            for episodes in lengths:
                measures = []
                for number, taste in enumerate(data["tastes"].astype(np.float64)):
                    for seed, asked in enumerate(data["questions"]):
                        options = asked[:episodes].reshape(-1, *asked.shape[-2:]).astype(np.float64)
                        choices = answers(options, taste, inverse_temperature, 10_000 * number + seed)
                        start = time.perf_counter()
                        theta, scale, power = fit(options, choices)
                        seconds = time.perf_counter() - start
                        errors = cosine_error(theta, taste), preference_error(theta, taste, prompts, pairs)
                        measures.append((*errors, scale, power, seconds))
                measured = np.array(measures)
                rows.append(
                    {
                        "estimator": name,
                        "user": user,
                        "episodes": episodes,
                        "cosine": float(measured[:, 0].mean()),
                        "preference": float(measured[:, 1].mean()),
                        "scale": float(np.median(measured[:, 2])),
                        "power": float(np.median(measured[:, 3])),
                        "milliseconds": float(1e3 * np.median(measured[:, 4])),
                    }
                )
    return rows


def table_of(rows: list[dict[str, Any]], key: str) -> TextTable:
    columns = list(dict.fromkeys((row["user"], row["episodes"]) for row in rows))
    header = ("estimator", *(f"{user} T={episodes}" for user, episodes in columns), "mean")
    texts = []
    for name in dict.fromkeys(row["estimator"] for row in rows):
        values = {(row["user"], row["episodes"]): row[key] for row in rows if row["estimator"] == name}
        mean = f"{np.mean([values[column] for column in columns]):.3f}"
        texts.append([name, *(f"{values[column]:.3f}" for column in columns), mean])
    return TextTable(key, header, texts, words=1)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--sentences", type=int, default=6)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--users", nargs="+", default=list(USERS), choices=list(USERS))
    parser.add_argument("--episodes", type=int, nargs="+", default=list(EPISODES))
    parser.add_argument("--only", nargs="+", help="names of estimators")
    options = parser.parse_args()
    data = load_data(options.sentences, options.seeds)
    rows = run(data, {name: USERS[name] for name in options.users}, options.episodes, options.only)
    for key in ("cosine", "preference", "scale", "milliseconds"):
        show(table_of(rows, key), width=220)
    chosen = [row for row in rows if np.isfinite(row["power"])]
    if chosen:
        show(table_of(chosen, "power"), width=220)


if __name__ == "__main__":
    main()
