"""The main job in a minute: choose questions, let a simulated user answer them, write prompts that they like."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._threads import for_each, single_thread
from edpbrl_gym._validation import check_choice_of, check_count, check_number
from edpbrl_gym.agents.registry import make_agent
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.estimation import Estimate, GaussianPrior, estimate_comparisons
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.experiments.collect import collect, make_prompt_lanes
from edpbrl_gym.experiments.designs import describe_design
from edpbrl_gym.experiments.memo import MemoEncoder
from edpbrl_gym.experiments.metrics import cosine_error
from edpbrl_gym.experiments.personalize import Prompt, random_prompts
from edpbrl_gym.experiments.personalize_together import best_prompts_together
from edpbrl_gym.experiments.runs import Results, RunFolder, read_results
from edpbrl_gym.experiments.seeds import derive_seed, generator
from edpbrl_gym.features import TextEncoder, check_encoder_spec, load_encoder
from edpbrl_gym.oracles import SyntheticUser
from edpbrl_gym.vocabulary import Vocabulary, load_vocabulary

if TYPE_CHECKING:
    from edpbrl_gym.agents.base import Agent

__all__ = ["DemoSettings", "run_demo"]

ADAPTIVE, DESIGNED, RANDOM = "Adaptive", "ED-PBRL", "Random"
_AGENTS = {ADAPTIVE: "adaptive", DESIGNED: "newton", RANDOM: "random"}
PAPER_REGULARIZATION = 100.0  # lambda of the ridge in the paper's experiments

_Say = Callable[[str, dict[str, Any]], object]


@dataclass(frozen=True)
class DemoSettings:
    """What decides the numbers of the demo.

    Attributes:
        text: The taste of the simulated user in words; theta* is its embedding.
        episodes: T, episodes that the user answers.
        num_policies: K, options of a question.
        criterion: Of the design.
        prior: Of the estimates: "words" (`VocabularyPrior` of the train tokens: around the words that the answers point
            to, its scale from the answers), "embeddings" (Gaussian, with the covariance of the train tokens'
            embeddings, finding F8) or "ridge" (the same in all directions). The design, which knows no answers, takes
            "embeddings" for "words".
        regularization: lambda of the design's prior, and of "embeddings" and "ridge": variances of mean 1 / lambda.
        iterations: Iterations of the design at most.
        mode: "argmax" or "sampled".
        scale: Scale of the sampled mode.
        population: Random held-out prompts that the percentiles refer to.
        vocabulary: Folder; None is the built-in one.
        encoder: Text encoder.
        seed: Seed of everything.
    """

    text: str = "A cosy winter evening, warm candle light behind frosted windows"
    episodes: int = 30
    num_policies: int = 4
    criterion: str = "D"
    prior: str = "words"
    regularization: float = 0.1
    iterations: int = 200
    mode: str = "argmax"
    scale: float = 20.0
    population: int = 500
    vocabulary: str | None = None
    encoder: str = "minilm"
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise ValueError("Expected a text that describes a taste, got an empty one")
        check_count(self.episodes, "episodes (T)")
        check_count(self.num_policies, "num_policies (K)", minimum=2)
        check_count(self.iterations, "iterations")
        check_count(self.population, "population", minimum=10)
        check_count(self.seed, "seed", minimum=0)
        check_choice_of(self.prior, "prior", ("words", "embeddings", "ridge"))
        check_number(self.regularization, "regularization (lambda)", minimum=0.0, exclusive=self.prior != "ridge")
        check_number(self.scale, "scale", minimum=0.0, exclusive=True)
        check_choice_of(self.criterion, "criterion", ("V", "A", "D"))
        check_choice_of(self.mode, "mode", ("argmax", "sampled"))
        check_encoder_spec(self.encoder)


def run_demo(
    settings: DemoSettings,
    out: str | os.PathLike[str],
    *,
    say: _Say = lambda step, facts: None,
    progress: bool = False,
) -> Results:
    """Run the demo into a new folder and write results.parquet (figure and report: ``kinds.write_report``).

    Args:
        settings: The setting.
        out: A new or empty folder, or one of the same demo (which is done again).
        say: Called after each step with its name ("vocabulary", "features", "design", "questions", "estimate",
            "prompts", "population") and facts about it.
        progress: Show a progress bar while the tokens are encoded.

    Returns:
        The results: rows of the parts "best" (up to ten prompts for each way of asking), "curve" (errors against T),
        "plain curve" (of Random questions with the paper's ridge), "population" (true scores of random prompts) and
        "ceiling" (the same search by someone who knows the taste).

    Raises:
        RunFolderError: If ``out`` holds something else or can't be written.
        ValueError: If the vocabulary can't be used.
    """
    train, test = load_vocabulary(settings.vocabulary).split(settings.seed)
    say("vocabulary", {"steps": list(train.names), "train": sum(train.sizes), "test": sum(test.sizes)})
    encoder = load_encoder(settings.encoder)
    folder = RunFolder.open(out, kind="demo", config=asdict(settings))
    folder.begin()
    texts = list(dict.fromkeys([*train.all_tokens, *test.all_tokens]))
    tokens = encoder.encode(texts, progress=progress)
    say("features", {"texts": len(texts), "dimension": encoder.dimension, "encoder": encoder.name})
    memo = MemoEncoder(_inner(encoder), texts=texts, rows=tokens)
    user = SyntheticUser.from_text(
        settings.text,
        memo,
        mode=settings.mode,
        scale=settings.scale,
        seed=derive_seed(settings.seed, "answers"),
        name="simulated user",
    )
    rows, learnt, design = _learn(settings, user, memo, say)
    rows += _write_prompts(learnt, user, test, memo, say)
    rows += _population(settings, user, test, memo)
    say("population", {"count": settings.population})
    folder.note(
        encoder=encoder.name,
        encoder_fingerprint=encoder.fingerprint,
        vocabulary_fingerprint=load_vocabulary(settings.vocabulary).fingerprint,
        train_sizes=list(train.sizes),
        test_sizes=list(test.sizes),
        user=user.describe(),
        designs=[{"agent": DESIGNED, **design}],
    )
    folder.finish()
    return read_results(folder.write_results(_table(rows)))


def _inner(encoder: TextEncoder) -> TextEncoder:
    """The encoder behind a disk cache: random prompts don't come again, so they are not stored."""
    return getattr(encoder, "encoder", encoder)


def _learn(
    settings: DemoSettings, user: SyntheticUser, encoder: MemoEncoder, say: _Say
) -> tuple[list[dict[str, Any]], dict[str, NDArray[np.float64]], dict[str, Any]]:
    """Ask and estimate with each way of asking; rows of the table, the tastes learnt and the design's facts."""
    rows: list[dict[str, Any]] = []
    learnt: dict[str, NDArray[np.float64]] = {}
    design: dict[str, Any] = {}
    paper = GaussianPrior.isotropic(encoder.dimension, PAPER_REGULARIZATION)
    prior: VocabularyPrior | GaussianPrior | None = None
    for label in _AGENTS:
        # adaptive questions come one after the other, all others at once
        env = _lanes(settings, encoder, 1 if label == ADAPTIVE else settings.episodes)
        prior = _prior(settings, env.unwrapped.features) if prior is None else prior
        agent = _agent(settings, env, label, prior)
        agent.learn()
        if agent.design is not None:
            if agent.design.status == "interrupted":
                raise KeyboardInterrupt  # Ctrl-C ends the demo; the solver has taken it for itself
            design = describe_design(agent.design)
            say("design", design)
        user.reset()
        with single_thread():  # of BLAS: many small products; the encoder's torch keeps its threads
            answered = collect(env, agent, user, episodes=settings.episodes, observe=label == ADAPTIVE)
        example = answered.texts[-1] if answered.texts else []
        say(
            "questions",
            {"agent": label, "questions": len(answered), "example": example, "choice": int(answered.choice[-1])},
        )
        found = _curve(rows, "curve", label, answered, user, prior)
        if label == RANDOM:
            _curve(rows, "plain curve", label, answered, user, paper)
        learnt[label] = found.theta
        error = cosine_error(found.theta, user.theta)
        say("estimate", {"agent": label, "cosine_error": error, "converged": found.converged})
    return rows, learnt, design


def _write_prompts(
    learnt: dict[str, NDArray[np.float64]], user: SyntheticUser, test: Vocabulary, encoder: MemoEncoder, say: _Say
) -> list[dict[str, Any]]:
    """The best prompts for each learnt taste and, in a search of its own that helps none of them, for the true one."""
    found = best_prompts_together(test, encoder, list(learnt.values()))
    rows = [
        row
        for label, prompts in zip(learnt, found, strict=True)
        for row in _score("best", label, prompts, user.theta, encoder)
    ]
    (ceiling,) = best_prompts_together(test, encoder, [user.theta])
    say("prompts", {"agents": list(learnt), "count": len(found[0])})
    return rows + _score("ceiling", "known taste", ceiling, user.theta, encoder)


def _lanes(settings: DemoSettings, encoder: MemoEncoder, groups: int) -> Any:
    """A vector environment with K lanes for each of the groups."""
    env: Any = make_prompt_lanes(
        groups * settings.num_policies,
        vocabulary=settings.vocabulary,
        encoder=settings.encoder,
        split="train",
        split_seed=settings.seed,
    )
    env.unwrapped.model.use_encoder(encoder)
    return env


def _agent(settings: DemoSettings, env: Any, label: str, prior: VocabularyPrior | GaussianPrior) -> Agent:
    options: dict[str, Any] = {}
    if label == DESIGNED:
        base = prior.base.scaled(1.0 / settings.regularization) if isinstance(prior, VocabularyPrior) else prior
        options = {"max_iterations": settings.iterations, "prior_precision": base.precision}
    elif label == ADAPTIVE:
        options = {} if isinstance(prior, VocabularyPrior) else {"prior": prior}  # the agent's own is that of the words
    return make_agent(
        _AGENTS[label],
        env,
        num_policies=settings.num_policies,
        episodes=settings.episodes,
        criterion=settings.criterion,
        seed=derive_seed(settings.seed, "queries", label),
        **options,
    )


def _prior(settings: DemoSettings, features: NDArray[np.float32]) -> VocabularyPrior | GaussianPrior:
    if settings.prior == "words":
        return VocabularyPrior(features)
    if settings.prior == "ridge":
        return GaussianPrior.isotropic(features.shape[1], settings.regularization)
    return GaussianPrior.from_embeddings(features, scale=1.0 / settings.regularization)


def _curve(
    rows: list[dict[str, Any]],
    part: str,
    label: str,
    answered: Comparisons,
    user: SyntheticUser,
    prior: VocabularyPrior | GaussianPrior,
) -> Estimate:
    """Add the cosine error after some of the episodes to the rows; return the estimate from all."""
    checkpoints = _checkpoints(int(answered.episode.max()) + 1)
    fits: dict[int, Estimate] = {}

    def fit(episodes: int) -> None:
        fits[episodes] = _estimate(answered.select(answered.episode < episodes), prior)

    for_each(fit, reversed(checkpoints))  # the longest first
    for episodes in checkpoints:
        error = cosine_error(fits[episodes].theta, user.theta)
        rows.append({"part": part, "agent": label, "episodes": episodes, "cosine_error": error})
    return fits[checkpoints[-1]]


def _estimate(answered: Comparisons, prior: VocabularyPrior | GaussianPrior) -> Estimate:
    if isinstance(prior, VocabularyPrior):
        return prior.fit(answered.features.astype(np.float64), answered.choice).estimate
    return estimate_comparisons(answered, prior=prior)


def _checkpoints(episodes: int) -> list[int]:
    return sorted({max(1, round(episodes * share)) for share in (1 / 6, 1 / 3, 1 / 2, 2 / 3, 5 / 6, 1)})


def _score(
    part: str, label: str, prompts: list[Prompt], theta: NDArray[np.float64], encoder: TextEncoder
) -> list[dict[str, Any]]:
    true = encoder.encode([prompt.text for prompt in prompts]).astype(np.float64) @ theta
    return [
        {
            "part": part,
            "agent": label,
            "rank": rank + 1,
            "prompt": prompt.text,
            "score": prompt.score,
            "true_score": float(true[rank]),
        }
        for rank, prompt in enumerate(prompts)
    ]


def _population(
    settings: DemoSettings, user: SyntheticUser, test: Vocabulary, encoder: TextEncoder
) -> list[dict[str, Any]]:
    texts = random_prompts(test, settings.population, generator(settings.seed, "population"))
    scores = encoder.encode(texts).astype(np.float64) @ user.theta
    return [
        {"part": "population", "prompt": text, "true_score": float(score)}
        for text, score in zip(texts, scores, strict=True)
    ]


def _table(rows: list[dict[str, Any]]) -> Any:
    """The rows as a DataFrame, the best prompts with their percentile among the random ones."""
    import pandas

    table = pandas.DataFrame(rows)
    population = np.sort(table.loc[table["part"] == "population", "true_score"].to_numpy(dtype=float))
    best = table["part"].isin(["best", "ceiling"])
    below = np.searchsorted(population, table.loc[best, "true_score"].to_numpy(dtype=float))
    table.loc[best, "percentile"] = 100.0 * below / len(population)
    return table
