"""The experiment start to end: questions, pictures, the judge's answers, estimates, held-out accuracy."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._threads import one_thread
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.experiments.designs import Tokens
from edpbrl_gym.experiments.llm.asking import LEDGER, answers_part, ask_style, read_answers
from edpbrl_gym.experiments.llm.measuring import AnsweredArm, fit_words, measure
from edpbrl_gym.experiments.llm.questions import ArmQuestions, check_agents, make_questions
from edpbrl_gym.experiments.llm.settings import LLMSettings
from edpbrl_gym.experiments.processes import Track, in_parallel, no_track, workers
from edpbrl_gym.experiments.runs import Results, RunFolder, read_results
from edpbrl_gym.features import load_encoder
from edpbrl_gym.oracles.judge import Judge, JudgeSettings
from edpbrl_gym.personalize.taste import save_taste
from edpbrl_gym.vocabulary import load_vocabulary

if TYPE_CHECKING:
    from edpbrl_gym.rendering.cache import RenderedImage
    from edpbrl_gym.rendering.renderer import Renderer

__all__ = ["KIND", "run_llm"]

KIND = "llm"
# of the judge's settings, those that decide an answer; the address may change between two sessions of a run
_DECIDING = ("model", "temperature", "show", "structured", "second_look", "seed", "max_answer_tokens")

Advance = Callable[[str, int, int], None]


def _no_progress(stage: str, done: int, total: int) -> None:
    """Show nothing."""


@dataclass(frozen=True, eq=False)
class _StyleTask:
    """What the estimates of one style need, sent to their process."""

    settings: LLMSettings
    style: str
    part: str
    folder: Path
    arms: list[AnsweredArm]
    tokens: NDArray[np.float32]
    guidance: NDArray[np.float64]
    provenance: dict[str, Any]


def run_llm(
    settings: LLMSettings,
    judge: JudgeSettings,
    out: str | os.PathLike[str],
    *,
    renderer: Renderer | None = None,
    jobs: int | None = None,
    track: Track = no_track,
    advance: Advance = _no_progress,
) -> Results:
    """Run the experiment, or the rest of it, and write results.parquet (figures and report: ``report.write_report``).

    A run that was stopped or killed goes on in the same folder: designs, questions and finished styles are read from
    there, and no question whose answer has come back is asked again (``ledger.jsonl``).

    Args:
        settings: Styles, arms, folds, estimates.
        judge: Who answers; its style is replaced by each style's guidance text. ``show`` must be "images" with a
            renderer and "texts" without.
        out: The run folder, new or of an earlier run with the same settings.
        renderer: Draws the partial prompts; None lets the judge read them.
        jobs: Processes for designs and estimates; None: one for each core. The results don't depend on it.
        track: Shows progress over designs and estimates.
        advance: Called with a stage ("pictures" or a style), the steps done and all steps.

    Returns:
        The results as stored: rows of the parts "accuracy" and "answer".

    Raises:
        RunFolderError: If ``out`` holds something else, the budget ended (``BudgetSpent``), or the judge answered
            nothing.
        ValueError: If an agent, the vocabulary or the judge can't be used.
    """
    check_agents(settings)
    if judge.show != ("texts" if renderer is None else "images"):
        raise ValueError(
            f"Expected a judge that is shown {'texts' if renderer is None else 'images'} "
            f"{'without' if renderer is None else 'with'} a renderer, got show={judge.show!r}"
        )
    folder, tokens = _open(settings, judge, out, renderer)
    processes = workers(jobs)
    answers = [answers_part(style, place) for place, style in enumerate(settings.styles)]
    missing = {part: style for part, style in zip(answers, settings.styles, strict=True) if not folder.has_part(part)}
    if missing:
        with Judge(judge, ledger=folder.path / LEDGER) as asked:  # first, so that a missing key is said at once
            arms = _questions(settings, folder, tokens, processes, track)
            images = None if renderer is None else _render(settings, arms, renderer, advance)
            for part, style in missing.items():
                of_style, report = asked.for_style(settings.styles[style]), functools.partial(advance, style)
                account = ask_style(of_style, style, arms, folder, part, images=images, progress=report)
                folder.note(accounts={**folder.provenance.get("accounts", {}), style: account})
    else:
        arms = _questions(settings, folder, tokens, processes, track)
    _estimate(settings, folder, arms, answers, tokens, processes, track)
    folder.finish()
    return read_results(folder.write_results(_table(folder, answers)))


def _questions(
    settings: LLMSettings, folder: RunFolder, tokens: Tokens, processes: int, track: Track
) -> list[ArmQuestions]:
    arms = make_questions(settings, folder, tokens, processes=processes, track=track)
    equal = {arm.arm: arm.with_equal_options for arm in arms}
    folder.note(questions=sum(len(arm) for arm in arms), equal_options=equal)
    return arms


def _open(
    settings: LLMSettings, judge: JudgeSettings, out: str | os.PathLike[str], renderer: Renderer | None
) -> tuple[RunFolder, Tokens]:
    """The run folder with its configuration, and the embedded tokens of the train part."""
    train, _ = load_vocabulary(settings.vocabulary).split(settings.seed)
    if settings.tokens_per_step is not None:
        train = train.subset(settings.tokens_per_step, 0)
    encoder = load_encoder(settings.encoder)
    deciding = [*_DECIDING, "image_size"] if renderer is not None else _DECIDING
    config = settings.as_config() | {
        "judge": {name: getattr(judge, name) for name in deciding},
        "rendering": None if renderer is None else _about(renderer),
        "encoder_fingerprint": encoder.fingerprint,
        "vocabulary_fingerprint": load_vocabulary(settings.vocabulary).fingerprint,
    }
    folder = RunFolder.open(out, kind=KIND, config=config)
    folder.begin()
    folder.note(
        encoder=encoder.name,
        train_sizes=list(train.sizes),
        steps=list(train.names),
        judge_address=judge.address,
        prices=[judge.price_per_million_input, judge.price_per_million_output],
    )
    texts = list(dict.fromkeys(train.all_tokens))
    return folder, Tokens(encoder.fingerprint, texts, encoder.encode(texts))


def _about(renderer: Renderer) -> dict[str, Any]:
    return {**renderer.settings.as_dict(), "fingerprint": renderer.fingerprint}


def _render(
    settings: LLMSettings, arms: list[ArmQuestions], renderer: Renderer, advance: Advance
) -> dict[str, RenderedImage]:
    """A picture of every partial prompt, all from the same seed: equal prompts are one picture."""
    texts = list(dict.fromkeys(text for arm in arms for options in arm.texts for text in options))
    pictures = renderer.render(
        texts, seed=settings.image_seed, progress=lambda done, total: advance("pictures", done, total)
    )
    return dict(zip(texts, pictures, strict=True))


def _estimate(
    settings: LLMSettings,
    folder: RunFolder,
    arms: list[ArmQuestions],
    answers: list[str],
    tokens: Tokens,
    processes: int,
    track: Track,
) -> None:
    """Estimates and accuracies of the styles that lack them."""
    encoder = load_encoder(settings.encoder)
    known = {"encoder": encoder.name, "encoder_fingerprint": encoder.fingerprint, "judge": folder.config["judge"]}
    tasks = []
    for part, (style, guidance) in zip(answers, settings.styles.items(), strict=True):
        if not folder.has_part(_accuracy_part(part)):
            answered = read_answers(folder.read_parts([part]), arms)
            taste = encoder.encode([guidance])[0].astype(np.float64)
            provenance = {**known, "style": style, "guidance": guidance}
            tasks.append(_StyleTask(settings, style, part, folder.path, answered, tokens.rows, taste, provenance))
    if tasks:
        for _ in track("estimates", in_parallel(_measure_style, [(task,) for task in tasks], processes), len(tasks)):
            pass


def _accuracy_part(answers: str) -> str:
    return answers.replace("answers-", "accuracy-", 1)


def _measure_style(task: _StyleTask) -> str:
    """Measure one style, and keep what each arm's answers taught altogether for `edpbrl personalize`."""
    import pandas

    folder = RunFolder(task.folder, kind=KIND, config={})
    rows = measure(task.settings, task.style, task.arms, task.tokens, task.guidance)
    prior = VocabularyPrior(task.tokens)
    number = task.part.removeprefix("answers-")
    for place, arm in enumerate(task.arms):
        used = arm.choices >= 0
        with one_thread():
            theta, _ = fit_words(prior, arm.questions.features[used].astype(np.float64), arm.choices[used])
        save_taste(
            task.folder / "tastes" / f"{number}-arm{place}.safetensors",
            theta,
            {**task.provenance, "asked_by": arm.questions.arm, "questions": int(used.sum()), "estimate": "words"},
        )
    folder.write_part(_accuracy_part(task.part), pandas.DataFrame(rows))
    return task.style


def _table(folder: RunFolder, answers: list[str]) -> Any:
    import pandas

    accuracy = folder.read_parts([_accuracy_part(part) for part in answers]).assign(part="accuracy")
    given = folder.read_parts(answers).assign(part="answer")
    return pandas.concat([accuracy, given], ignore_index=True)
