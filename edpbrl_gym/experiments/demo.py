"""The whole workflow in a minute: twenty questions to a simulated user, and the prompts that they will like."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._seeds import derive_seed, generator
from edpbrl_gym.estimation.metrics import cosine_error, preference_error
from edpbrl_gym.experiments.demo_asking import RANDOM, Asked, Asking, Say
from edpbrl_gym.experiments.demo_report import make_report
from edpbrl_gym.experiments.demo_settings import DemoSettings
from edpbrl_gym.experiments.framework import Experiment, Inputs, Run, run_experiment, text_inputs
from edpbrl_gym.experiments.runs import Results
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.features.memo import MemoEncoder
from edpbrl_gym.oracles import ImperfectUser, SyntheticUser
from edpbrl_gym.personalize.search import Prompt, random_prompts
from edpbrl_gym.personalize.together import best_prompts_together
from edpbrl_gym.vocabulary import Vocabulary

__all__ = ["DEMO", "run_demo"]


def run_demo(
    settings: DemoSettings,
    out: str | os.PathLike[str],
    *,
    say: Say = lambda step, facts: None,
    progress: bool = False,
) -> Results:
    """Run the demo into a new folder and write results.parquet (figure and report: ``registry.write_report``).

    Args:
        settings: Settings of the demo.
        out: A new or empty folder, or one of the same demo, which is run again.
        say: Called after each step with its name ("vocabulary", "features", "questions", "estimate", "prompts") and
            facts about it; from another thread for Random questions.
        progress: Show a progress bar while the tokens are encoded.

    Returns:
        The results: rows of the parts "best" (up to ten prompts for each way of asking), "curve" (errors of the taste
        against the number of questions), "plain curve" (of Random questions with the paper's ridge), "population" (true
        scores of random prompts) and "ceiling" (the same search with the true taste).

    Raises:
        RunFolderError: If ``out`` holds something else or can't be written.
        ValueError: If the vocabulary can't be used.
    """
    demo = replace(DEMO, run_unit=functools.partial(_run_unit, say=say))
    return run_experiment(demo, settings, out, jobs=1, progress=progress)


@dataclass(frozen=True)
class _Whole:
    """The only unit: asking, estimating and searching, in this process."""

    part: str = "demo"


def _inputs(settings: DemoSettings) -> Inputs:
    inputs = text_inputs(settings)
    assert inputs.encoder is not None
    return replace(inputs, config={}, notes={"encoder": inputs.encoder.name, **inputs.config})


def _run_unit(settings: DemoSettings, unit: _Whole, folder: Path, run: Run, say: Say = lambda step, facts: None) -> Any:
    train, test = run.vocabulary.split(settings.seed)
    say("vocabulary", {"steps": list(train.names), "train": sum(train.sizes), "test": sum(test.sizes)})
    encoder = run.encoder
    texts = list(dict.fromkeys([*train.all_tokens, *test.all_tokens]))
    tokens = encoder.encode(texts, progress=run.progress)
    say("features", {"texts": len(texts), "dimension": encoder.dimension, "encoder": encoder.name})
    memo = MemoEncoder(_inner(encoder), texts=texts, rows=tokens)
    known = np.concatenate([tokens, memo.encode([settings.text])])

    def make_encoder() -> MemoEncoder:
        return MemoEncoder(memo.encoder, texts=[*texts, settings.text], rows=known)

    def make_user() -> SyntheticUser:
        return ImperfectUser.from_text(
            settings.text,
            memo,
            mode=settings.mode,
            scale=settings.scale,
            response=settings.answers,
            seed=derive_seed(settings.seed, "answers"),
            name="simulated user",
        )

    user = make_user()
    texts_shown = random_prompts(test, settings.population, generator(settings.seed, "population"))
    population: list[NDArray[np.float64]] = []
    results = Asking(settings, train, make_user, make_encoder).run(
        lambda: population.append(make_encoder().encode(texts_shown).astype(np.float64)), say
    )
    (rows_shown,) = population
    rows = [row for title, asked in results.items() for row in _curves(title, asked, user.theta, rows_shown)]
    for title in results:
        last = [row for row in rows if row["agent"] == title and row["part"] == "curve"][-1]
        say("estimate", {"agent": title, "preference_error": last["preference_error"]})
    rows += _write_prompts({title: asked.theta for title, asked in results.items()}, user, test, memo, say)
    rows += [
        {"part": "population", "prompt": text, "true_score": float(score)}
        for text, score in zip(texts_shown, rows_shown @ user.theta, strict=True)
    ]
    run.folder.note(train_sizes=list(train.sizes), test_sizes=list(test.sizes), user=user.describe())
    return _table(rows)


def _curves(title: str, asked: Asked, truth: NDArray[np.float64], prompts: NDArray[np.float64]) -> list[dict[str, Any]]:
    """Errors of the estimates after some of the questions: on all pairs of some prompts, and of the direction."""
    pairs = np.stack(np.triu_indices(len(prompts), k=1), axis=1)
    parts = [("curve", asked.thetas)] + ([("plain curve", asked.plain)] if title == RANDOM else [])
    return [
        {
            "part": part,
            "agent": title,
            "questions": count,
            "preference_error": preference_error(theta, truth, prompts, pairs),
            "cosine_error": cosine_error(theta, truth),
        }
        for part, thetas in parts
        for count, theta in sorted(thetas.items())
    ]


def _inner(encoder: TextEncoder) -> TextEncoder:
    """The encoder behind a disk cache: random prompts don't recur, so they are not stored."""
    return getattr(encoder, "encoder", encoder)


def _write_prompts(
    tastes: dict[str, NDArray[np.float64]], user: SyntheticUser, test: Vocabulary, encoder: MemoEncoder, say: Say
) -> list[dict[str, Any]]:
    """The best prompts for each estimated taste and, in a separate search, for the true one."""
    prompts_by_taste = best_prompts_together(test, encoder, list(tastes.values()))
    rows = [
        row
        for label, prompts in zip(tastes, prompts_by_taste, strict=True)
        for row in _score("best", label, prompts, user.theta, encoder)
    ]
    (ceiling,) = best_prompts_together(test, encoder, [user.theta])
    say("prompts", {"agents": list(tastes), "count": len(prompts_by_taste[0])})
    return rows + _score("ceiling", "known taste", ceiling, user.theta, encoder)


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


def _table(rows: list[dict[str, Any]]) -> Any:
    """The rows as a DataFrame, the best prompts with their percentile among the random ones."""
    import pandas

    table = pandas.DataFrame(rows)
    population = np.sort(table.loc[table["part"] == "population", "true_score"].to_numpy(dtype=float))
    best = table["part"].isin(["best", "ceiling"])
    below = np.searchsorted(population, table.loc[best, "true_score"].to_numpy(dtype=float))
    table.loc[best, "percentile"] = 100.0 * below / len(population)
    return table


DEMO = Experiment(
    kind="demo",
    command="edpbrl demo",
    settings=DemoSettings,
    plan=lambda settings: [_Whole()],
    inputs=_inputs,
    prepare=lambda run, todo: run,
    run_unit=_run_unit,
    report=make_report,
    resumes=False,
)
