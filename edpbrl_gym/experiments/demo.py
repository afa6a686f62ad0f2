"""The whole workflow in a minute: twenty questions to a simulated user, and the prompts that they will like."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._seeds import derive_seed, generator
from edpbrl_gym._threads import one_blas_thread, one_torch_thread
from edpbrl_gym.estimation import GaussianPrior, estimate
from edpbrl_gym.estimation.metrics import cosine_error, preference_error
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.experiments.demo_report import make_report
from edpbrl_gym.experiments.framework import Experiment, Run, Unit, run_experiment, text_inputs
from edpbrl_gym.experiments.runs import Results
from edpbrl_gym.experiments.settings import DemoSettings
from edpbrl_gym.features.memo import MemoEncoder
from edpbrl_gym.oracles import SyntheticUser
from edpbrl_gym.personalize.search import Prompt, best_prompts, random_prompts
from edpbrl_gym.planners import PromptFeatures, make_planner
from edpbrl_gym.planners.registry import PLANNERS
from edpbrl_gym.session import Session, run

if TYPE_CHECKING:
    from edpbrl_gym.features import TextEncoder
    from edpbrl_gym.vocabulary import Vocabulary

__all__ = ["DEMO", "run_demo"]

_PLANNERS = {PLANNERS[name].title: name for name in ("adaptive", "random")}
_ADAPTIVE, _RANDOM = _PLANNERS
_CHECKPOINTS = 5  # points of a learning curve
_PAPER_REGULARIZATION = 100.0  # lambda of the ridge in the paper's experiments
_POPULATION = 200  # random prompts of kept words, on which tastes are judged and percentiles are based

Say = Callable[[str, dict[str, Any]], object]
_Theta = NDArray[np.float64]


def run_demo(
    settings: DemoSettings,
    out: str | os.PathLike[str],
    *,
    say: Say = lambda step, facts: None,
    progress: bool = False,
) -> Results:
    """Run the demo, as ``run_experiment``; that of an earlier run of the same settings is run again.

    ``say`` is called after each step with its name ("vocabulary", "features", "questions") and facts about it. Parts of
    the results: "best" prompts for each way of asking, "curve" of the errors against the number of questions, "plain
    curve" with the paper's ridge, "population" of random prompts, "ceiling" of a search with the true taste.
    """
    demo = replace(DEMO, run_unit=functools.partial(_run_unit, say=say))
    return run_experiment(demo, settings, out, jobs=1, progress=progress)


def _run_unit(settings: DemoSettings, unit: Unit, folder: Path, run: Run, say: Say = lambda step, facts: None) -> Any:
    train, test = run.vocabulary.split(settings.seed)
    say("vocabulary", {"steps": list(train.names), "train": sum(train.sizes), "test": sum(test.sizes)})
    encoder = run.encoder
    texts = list(dict.fromkeys([*train.all_tokens, *test.all_tokens]))
    tokens = encoder.encode(texts, progress=run.progress)
    say("features", {"texts": len(texts), "dimension": encoder.dimension, "encoder": encoder.name})
    # not the disk cache around the encoder: random prompts don't recur, so they are not stored
    memo = MemoEncoder(getattr(encoder, "encoder", encoder), texts=texts, rows=tokens)
    known = np.concatenate([tokens, memo.encode([settings.text])])

    def make_encoder() -> MemoEncoder:
        """A new one for each session, so that batches, and with them the last bits, don't depend on which is faster."""
        return MemoEncoder(memo.encoder, texts=[*texts, settings.text], rows=known)

    user = SyntheticUser.from_text(settings.text, memo, mode="argmax", name="simulated user")
    texts_shown = random_prompts(test, _POPULATION, generator(settings.seed, "population"))
    encoding = make_encoder()
    words = encoding.encode(train.all_tokens)
    features = PromptFeatures(train, words, encoding)  # encodes with all cores

    def ask(title: str) -> _Asked:
        return _ask(settings, title, train, features, VocabularyPrior(words), make_encoder(), user)

    # adaptive questions wait for each other's answers and keep one core busy; the other one does the rest
    with one_blas_thread(), one_torch_thread(), ThreadPoolExecutor(1) as pool:
        try:
            other = pool.submit(ask, _RANDOM)
            shown = pool.submit(lambda: make_encoder().encode(texts_shown).astype(np.float64))
            results = {_ADAPTIVE: ask(_ADAPTIVE), _RANDOM: other.result()}
            rows_shown = shown.result()
        except BaseException:  # Ctrl-C too: cancel the work that has not started
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    for title, asked in results.items():
        say("questions", {"agent": title, "questions": settings.questions, **asked.facts})
    rows = [row for title, asked in results.items() for row in _curves(title, asked, user.theta, rows_shown)]
    tastes = [("best", title, asked.thetas[settings.questions]) for title, asked in results.items()]
    population = rows_shown @ user.theta
    for part, title, theta in [*tastes, ("ceiling", "known taste", user.theta)]:
        found = best_prompts(test, memo, theta, method="model")
        rows += _score(part, title, found, user.theta, memo, population)
    rows += [
        {"part": "population", "prompt": text, "true_score": float(score)}
        for text, score in zip(texts_shown, population, strict=True)
    ]
    run.folder.note(train_sizes=list(train.sizes), test_sizes=list(test.sizes), user=user.describe())
    return rows


class _Asked(NamedTuple):
    """What a session has learnt."""

    thetas: dict[int, _Theta]  # the estimates by the number of questions answered, (d,); the last is from all answers
    plain: dict[int, _Theta]  # the same for the paper's ridge, lambda = 100, from the same answers
    facts: dict[str, Any]  # about its last question and its estimate


def _ask(
    settings: DemoSettings,
    title: str,
    words: Vocabulary,
    features: PromptFeatures,
    prior: VocabularyPrior,
    encoder: MemoEncoder,
    user: SyntheticUser,
) -> _Asked:
    """Ask the questions of one planner, and estimate after some of them."""
    distinct: dict[str, Any] = {"distinct": True} if title == _RANDOM else {}
    planner = make_planner(
        _PLANNERS[title],
        words,
        features.with_encoder(encoder),
        prior=prior,
        num_options=settings.num_options,
        seed=derive_seed(settings.seed, "queries", title),
        **distinct,
    )
    session = Session(planner, vocabulary=words, encoder=encoder, num_options=settings.num_options, feedback="prompt")
    checkpoints = {max(1, round(settings.questions * share)) for share in np.linspace(0, 1, _CHECKPOINTS + 1)[1:]}
    thetas: dict[int, _Theta] = {}

    def learn(session: Session) -> None:
        if session.answered in checkpoints:
            thetas[session.answered] = np.asarray(session.estimate.theta)

    run(session, user, settings.questions, track=learn)
    answered = session.comparisons
    ridge = GaussianPrior.isotropic(encoder.dimension, _PAPER_REGULARIZATION)
    plain = {count: np.asarray(estimate(answered.select(np.arange(count)), prior=ridge).theta) for count in thetas}
    last = session.transcript.questions[-1]
    facts = {"example": last.texts, "chosen": answered.choice[-1], "converged": session.estimate.converged}
    return _Asked(thetas, plain, facts)


def _curves(title: str, asked: _Asked, truth: _Theta, prompts: _Theta) -> list[dict[str, Any]]:
    """Errors of the estimates after some of the questions: on all pairs of some prompts, and of the direction."""
    pairs = np.stack(np.triu_indices(len(prompts), k=1), axis=1)
    kinds = [("curve", asked.thetas)] + ([("plain curve", asked.plain)] if title == _RANDOM else [])
    return [
        {
            "part": kind,
            "agent": title,
            "questions": count,
            "preference_error": preference_error(theta, truth, prompts, pairs),
            "cosine_error": cosine_error(theta, truth),
        }
        for kind, thetas in kinds
        for count, theta in sorted(thetas.items())
    ]


def _score(
    part: str, label: str, prompts: list[Prompt], theta: _Theta, encoder: TextEncoder, population: _Theta
) -> list[dict[str, Any]]:
    """The best prompts with their true scores, and their percentiles among the scores of the random ones."""
    true = encoder.encode([prompt.text for prompt in prompts]).astype(np.float64) @ theta
    below = 100.0 * np.searchsorted(np.sort(population), true) / len(population)
    return [
        {
            "part": part,
            "agent": label,
            "rank": number + 1,
            "prompt": prompt.text,
            "score": prompt.score,
            "true_score": float(true[number]),
            "percentile": float(below[number]),
        }
        for number, prompt in enumerate(prompts)
    ]


DEMO = Experiment(
    kind="demo",
    command="edpbrl demo",
    settings=DemoSettings,
    plan=lambda settings: [Unit("demo")],
    inputs=text_inputs,
    prepare=lambda run, todo: run,
    run_unit=_run_unit,
    report=make_report,
    resumes=False,
)
