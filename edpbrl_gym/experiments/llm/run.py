"""The whole experiment: questions, pictures, the judge's answers, estimates, held-out accuracy."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._executor import Executor, Track, no_track
from edpbrl_gym._threads import one_thread
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.experiments.designs import train_tokens
from edpbrl_gym.experiments.framework import Experiment, Inputs, Run, run_experiment, text_inputs
from edpbrl_gym.experiments.llm.asking import LEDGER, answers_part, ask_style, read_answers
from edpbrl_gym.experiments.llm.measuring import fit_words, measure
from edpbrl_gym.experiments.llm.questions import ArmQuestions, check_agents, make_questions
from edpbrl_gym.experiments.llm.report import make_report
from edpbrl_gym.experiments.llm.settings import LLMSettings
from edpbrl_gym.experiments.runs import Results, RunFolder
from edpbrl_gym.oracles.judge import Judge, JudgeSettings
from edpbrl_gym.personalize.taste import save_taste

if TYPE_CHECKING:
    from edpbrl_gym.rendering.cache import RenderedImage
    from edpbrl_gym.rendering.renderer import Renderer

__all__ = ["LLM", "run_llm"]

# of the judge's settings, those that decide an answer; the address may change between two sessions of a run
_DECIDING = ("model", "temperature", "show", "structured", "second_look", "seed", "max_answer_tokens")

Advance = Callable[[str, int, int], None]


def _no_progress(stage: str, done: int, total: int) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class StyleUnit:
    """The estimates of one style.

    Attributes:
        place: Position in the settings.
        style: Name of the style.
    """

    place: int
    style: str

    @property
    def part(self) -> str:
        """Name of the part with the accuracies."""
        return self.answers.replace("answers-", "accuracy-", 1)

    @property
    def answers(self) -> str:
        """Name of the part with the answers."""
        return answers_part(self.style, self.place)


@dataclass(frozen=True, eq=False)
class _Prepared:
    """Data shared by the estimates of all styles.

    Attributes:
        arms: The questions.
        tokens: Embeddings of the train tokens, (N, d).
        guidance: Embedding of each style's guidance text, (d,) each.
        known: Provenance of the tastes.
    """

    arms: list[ArmQuestions]
    tokens: NDArray[np.float32]
    guidance: dict[str, NDArray[np.float64]]
    known: dict[str, Any]


def run_llm(
    settings: LLMSettings,
    judge: JudgeSettings,
    out: str | os.PathLike[str],
    *,
    renderer: Renderer | None = None,
    asking: Executor | None = None,
    jobs: int | Executor | None = None,
    track: Track = no_track,
    advance: Advance = _no_progress,
) -> Results:
    """Run the experiment, or the rest of it, and write results.parquet (figures and report: ``registry.write_report``).

    A run that was stopped or killed resumes in the same folder: designs, questions and finished styles are read from
    it, and no answered question is asked again (``ledger.jsonl``).

    Args:
        settings: Styles, arms, folds, estimates.
        judge: Who answers; its style is replaced by each style's guidance text. ``show`` must be "images" with a
            renderer and "texts" without.
        out: The run folder, new or of an earlier run with the same settings.
        renderer: Draws the partial prompts; None lets the judge read them.
        asking: Its workers ask the judge (None: this process does).
        jobs: Who does designs and estimates, as in ``run_experiment``. The results don't depend on it.
        track: Shows progress over designs and estimates.
        advance: Called with a stage ("pictures" or a style), the steps done and all steps.

    Returns:
        The results as stored: rows of the parts "accuracy" and "answer".

    Raises:
        RunFolderError: If ``out`` holds something else, the budget ended (``BudgetSpent``), or the judge answered
            nothing.
        ValueError: If an agent, the vocabulary or the judge can't be used.
    """
    if judge.show != ("texts" if renderer is None else "images"):
        raise ValueError(
            f"Expected a judge that is shown {'texts' if renderer is None else 'images'} "
            f"{'without' if renderer is None else 'with'} a renderer, got show={judge.show!r}"
        )
    llm = replace(
        LLM,
        inputs=functools.partial(_inputs, judge=judge, renderer=renderer),
        prepare=functools.partial(_prepare, judge=judge, renderer=renderer, asking=asking, advance=advance),
    )
    return run_experiment(llm, settings, out, jobs=jobs, track=track)


def _plan(settings: LLMSettings) -> list[StyleUnit]:
    check_agents(settings)
    return [StyleUnit(place, style) for place, style in enumerate(settings.styles)]


def _inputs(settings: LLMSettings, judge: JudgeSettings, renderer: Renderer | None) -> Inputs:
    inputs = text_inputs(settings)
    deciding = [*_DECIDING, "image_size"] if renderer is not None else _DECIDING
    config = {
        "judge": {name: getattr(judge, name) for name in deciding},
        "rendering": None if renderer is None else {**renderer.settings.as_dict(), "fingerprint": renderer.fingerprint},
    }
    notes = {
        "judge_address": judge.address,
        "prices": [judge.price_per_million_input, judge.price_per_million_output],
    }
    return replace(inputs, config={**inputs.config, **config}, notes={**inputs.notes, **notes})


def _prepare(
    run: Run,
    todo: list[StyleUnit],
    judge: JudgeSettings,
    renderer: Renderer | None,
    asking: Executor | None,
    advance: Advance,
) -> _Prepared:
    """Draw the questions, and ask the judge those of every style without answers."""
    settings: LLMSettings = run.settings
    folder = run.folder
    train, _ = settings.design.split(run.vocabulary)
    folder.note(train_sizes=list(train.sizes))
    tokens = train_tokens(train, run.encoder)
    missing = [unit for unit in _plan(settings) if not folder.has_part(unit.answers)]
    with ExitStack() as stack:
        # first, so that a missing key is reported at once
        base_judge = (
            stack.enter_context(Judge(judge, ledger=folder.path / LEDGER, executor=asking)) if missing else None
        )
        arms = make_questions(settings, run, tokens)
        equal = {arm.arm: arm.with_equal_options for arm in arms}
        folder.note(questions=sum(len(arm) for arm in arms), equal_options=equal)
        if base_judge is not None:
            images = None if renderer is None else _render(settings, arms, renderer, advance)
            for unit in missing:
                style_judge = base_judge.for_style(settings.styles[unit.style])
                report = functools.partial(advance, unit.style)
                account = ask_style(style_judge, unit.style, arms, folder, unit.answers, images=images, progress=report)
                folder.note(accounts={**folder.provenance.get("accounts", {}), unit.style: account})
    guidance = {unit.style: run.encoder.encode([settings.styles[unit.style]])[0].astype(np.float64) for unit in todo}
    known = {"encoder": run.encoder.name, "encoder_fingerprint": run.encoder.fingerprint}
    return _Prepared(arms, tokens.rows, guidance, {**known, "judge": folder.config["judge"]})


def _render(
    settings: LLMSettings, arms: list[ArmQuestions], renderer: Renderer, advance: Advance
) -> dict[str, RenderedImage]:
    """A picture of every distinct partial prompt, all from the same seed."""
    texts = list(dict.fromkeys(text for arm in arms for options in arm.texts for text in options))
    pictures = renderer.render(
        texts, seed=settings.image_seed, progress=lambda done, total: advance("pictures", done, total)
    )
    return dict(zip(texts, pictures, strict=True))


def _run_unit(settings: LLMSettings, unit: StyleUnit, folder: Path, prepared: _Prepared) -> list[dict[str, Any]]:
    """Measure one style, and save the taste from all answers of each arm for `edpbrl personalize`."""
    answers = RunFolder(folder, kind="", config={}).read_parts([unit.answers])
    arms = read_answers(answers, prepared.arms)
    rows = measure(settings, unit.style, arms, prepared.tokens, prepared.guidance[unit.style])
    prior = VocabularyPrior(prepared.tokens)
    about = {**prepared.known, "style": unit.style, "guidance": settings.styles[unit.style]}
    number = unit.answers.removeprefix("answers-")
    for place, arm in enumerate(arms):
        answered = arm.choices >= 0
        with one_thread():
            theta, _ = fit_words(prior, arm.questions.features[answered].astype(np.float64), arm.choices[answered])
        save_taste(
            folder / "tastes" / f"{number}-arm{place}.safetensors",
            theta,
            {**about, "asked_by": arm.questions.arm, "questions": int(answered.sum()), "estimate": "words"},
        )
    return rows


def _table(folder: RunFolder, units: Sequence[StyleUnit]) -> Any:
    import pandas

    accuracy = folder.read_parts([unit.part for unit in units]).assign(part="accuracy")
    answers = folder.read_parts([unit.answers for unit in units]).assign(part="answer")
    return pandas.concat([accuracy, answers], ignore_index=True)


LLM = Experiment(
    kind="llm",
    command="edpbrl reproduce llm",
    settings=LLMSettings,
    plan=_plan,
    run_unit=_run_unit,
    report=make_report,
    table=_table,
    units="estimates",
)
