"""The whole experiment: questions, pictures, the judge's answers, estimates, held-out accuracy."""

from __future__ import annotations

import functools
import json
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._executor import Executor, Track, no_track
from edpbrl_gym._threads import one_thread
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.experiments.designs import check_agents, train_tokens
from edpbrl_gym.experiments.framework import Experiment, Inputs, Run, run_experiment, text_inputs
from edpbrl_gym.experiments.llm.asking import LEDGER, ask_style, read_answers
from edpbrl_gym.experiments.llm.measuring import fit_words, measure
from edpbrl_gym.experiments.llm.questions import ArmQuestions, make_questions
from edpbrl_gym.experiments.llm.report import make_report
from edpbrl_gym.experiments.llm.settings import LLMSettings
from edpbrl_gym.experiments.runs import Results, RunFolder
from edpbrl_gym.oracles.judge import Judge, JudgeSettings
from edpbrl_gym.personalize.taste import save_taste
from edpbrl_gym.vocabulary import Vocabulary

if TYPE_CHECKING:
    from edpbrl_gym.rendering import CachedRenderer

__all__ = ["LLM", "run_llm"]

# of the judge's settings, those that decide an answer; the address may change between two sessions of a run, and so may
# max_answer_tokens, which decides only whether there is an answer: the configuration keeps the one the run began with
_DECIDING = ("model", "temperature", "show", "structured", "second_look", "seed", "max_answer_tokens")

_log = logging.getLogger(__name__)

Advance = Callable[[str, int, int], None]


class StyleUnit(NamedTuple):
    """The estimates of one style, by its position in the settings and its name."""

    number: int
    style: str

    @property
    def name(self) -> str:
        """Number and name in names of files."""
        safe = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in self.style)
        return f"{self.number:02d}-{safe}"

    @property
    def part(self) -> str:
        """Name of the part with the accuracies."""
        return f"accuracy-{self.name}"

    @property
    def answers(self) -> str:
        """Name of the part with the answers."""
        return f"answers-{self.name}"


class _Prepared(NamedTuple):
    """Data shared by the estimates of all styles."""

    arms: list[ArmQuestions]
    tokens: NDArray[np.float32]  # embeddings of the train tokens, (N, d)
    guidance: dict[str, NDArray[np.float64]]  # embedding of each style's guidance text, (d,)
    known: dict[str, Any]  # provenance of the tastes
    vocabulary: Vocabulary  # the whole one, of which the train split is asked about


def run_llm(
    settings: LLMSettings,
    judge: JudgeSettings,
    out: str | os.PathLike[str],
    *,
    renderer: CachedRenderer | None = None,
    jobs: int | Executor | None = None,
    track: Track = no_track,
    advance: Advance = lambda stage, done, total: None,
) -> Results:
    """Run the experiment, or the rest of it, as ``run_experiment``; no answered question is asked again.

    The style of ``judge`` is replaced by each style's guidance text; its ``show`` must be "images" with a ``renderer``,
    which draws the partial prompts, and "texts" without. ``advance`` is called with a stage ("pictures" or a style),
    the steps done and all steps.

    Raises:
        RunFolderError: Also if the budget ended (``BudgetSpent``), or the judge answered nothing.
    """
    llm = replace(
        LLM,
        inputs=functools.partial(_inputs, judge=judge, renderer=renderer, began_with=_began_with(Path(out), judge)),
        prepare=functools.partial(_prepare, judge=judge, renderer=renderer, advance=advance),
    )
    return run_experiment(llm, settings, out, jobs=jobs, track=track)


def _plan(settings: LLMSettings) -> list[StyleUnit]:
    check_agents(settings)
    return [StyleUnit(number, style) for number, style in enumerate(settings.styles)]


def _began_with(folder: Path, judge: JudgeSettings) -> JudgeSettings:
    """The judge with the max_answer_tokens of the run in the folder, if there is one."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))["config"]
        return replace(judge, max_answer_tokens=config["judge"]["max_answer_tokens"])
    except (OSError, ValueError, TypeError, KeyError):  # what is wrong with it is said when the folder is opened
        return judge


def _inputs(
    settings: LLMSettings, renderer: CachedRenderer | None, judge: JudgeSettings, began_with: JudgeSettings
) -> Inputs:
    inputs = text_inputs(settings)
    deciding = [*_DECIDING, "image_size"] if renderer is not None else _DECIDING
    config = {
        "judge": {name: getattr(began_with, name) for name in deciding},
        "rendering": None if renderer is None else {**renderer.describe(), "fingerprint": renderer.fingerprint},
    }
    notes = {
        "judge_address": judge.address,
        "max_answer_tokens": judge.max_answer_tokens,
        "prices": [judge.price_per_million_input, judge.price_per_million_output],
    }
    return replace(inputs, config={**inputs.config, **config}, notes={**inputs.notes, **notes})


def _prepare(
    run: Run, todo: list[StyleUnit], judge: JudgeSettings, renderer: CachedRenderer | None, advance: Advance
) -> _Prepared:
    """Draw the questions, and ask the judge those of every style without answers."""
    settings: LLMSettings = run.settings
    folder = run.folder
    train, _ = run.vocabulary.split(settings.seed)
    folder.note(train_sizes=list(train.sizes))
    tokens = train_tokens(train, run.encoder)
    missing = [unit for unit in _plan(settings) if not folder.has_part(unit.answers)]
    with ExitStack() as stack:
        # first, so that a missing key is reported at once
        asked = stack.enter_context(Judge(judge, ledger=folder.path / LEDGER)) if missing else None
        arms = make_questions(settings, run, tokens)
        equal = {arm.arm: arm.with_equal_options for arm in arms}
        folder.note(questions=sum(len(arm) for arm in arms), equal_options=equal)
        images = None
        if renderer is not None and missing:  # a picture of every distinct partial prompt, all from the same seed
            texts = list(dict.fromkeys(text for arm in arms for options in arm.texts for text in options))
            pictures, error = renderer.render_some(texts, seed=0, progress=functools.partial(advance, "pictures"))
            if error is not None:
                if all(picture is None for picture in pictures) or error.is_over_budget:
                    raise error
                _log.warning("Questions without a picture of each option are not asked: %s", error)
            images = dict(zip(texts, pictures, strict=True))
        for unit in missing:
            assert asked is not None
            judging = asked.for_style(settings.styles[unit.style])
            progress = functools.partial(advance, unit.style)
            account = ask_style(judging, unit.style, arms, folder, unit.answers, images=images, progress=progress)
            folder.note(accounts={**folder.provenance.get("accounts", {}), unit.style: account})
    guidance = {unit.style: run.encoder.encode([settings.styles[unit.style]])[0].astype(np.float64) for unit in todo}
    known = {"encoder": run.encoder.name, "encoder_fingerprint": run.encoder.fingerprint}
    return _Prepared(arms, tokens.rows, guidance, {**known, "judge": folder.config["judge"]}, run.vocabulary)


def _run_unit(settings: LLMSettings, unit: StyleUnit, folder: Path, prepared: _Prepared) -> list[dict[str, Any]]:
    """Measure one style, and save the taste from all answers of each arm for `edpbrl personalize`."""
    arms = read_answers(RunFolder(folder, kind="", config={}).read_parts([unit.answers]), prepared.arms)
    rows = measure(settings, unit.style, arms, prepared.tokens, prepared.guidance[unit.style])
    prior = VocabularyPrior(prepared.tokens)
    about = {**prepared.known, "style": unit.style, "guidance": settings.styles[unit.style]}
    for number, arm in enumerate(arms):
        answered = arm.choices >= 0
        with one_thread():
            theta, _ = fit_words(prior, arm.answers(answered))
        save_taste(
            folder / "tastes" / f"{unit.name}-arm{number}.safetensors",
            theta,
            {**about, "asked_by": arm.questions.arm, "questions": int(answered.sum()), "estimate": "words"},
            vocabulary=prepared.vocabulary,
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
