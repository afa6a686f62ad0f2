"""The study of communities as an experiment: its preparation and a unit's work."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym._threads import one_thread
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.experiments.bench.measuring import Scorer
from edpbrl_gym.experiments.communities.community import NewPerson, known_people, new_people
from edpbrl_gym.experiments.communities.estimators import chooser, make_estimator
from edpbrl_gym.experiments.communities.report import make_report
from edpbrl_gym.experiments.communities.settings import RULES_OF, CommunitySettings, CommunityUnit, plan_units
from edpbrl_gym.experiments.communities.worlds import CommunityWorld, load_world, prepare_world
from edpbrl_gym.experiments.framework import Experiment, Inputs, Run, sorted_by
from edpbrl_gym.experiments.people.estimators import Fit
from edpbrl_gym.experiments.people.replay import follow
from edpbrl_gym.features import load_encoder

__all__ = ["COMMUNITIES", "measure"]


def _inputs(settings: CommunitySettings) -> Inputs:
    encoder = load_encoder(settings.encoder)
    return Inputs(encoder, None, {"encoder_fingerprint": encoder.fingerprint}, {"encoder": encoder.name})


def _prepare(run: Run, todo: list[CommunityUnit]) -> None:
    for words in dict.fromkeys(unit.words for unit in todo):
        prepare_world(run.settings, words, run.encoder, run.folder.path, progress=run.progress)


def measure(fit: Fit, world: CommunityWorld, taste: Floats, scale: float) -> dict[str, float]:
    """How well a taste is known.

    - preference_error: share of pairs of held-out prompts that the estimate orders wrongly;
    - regret_ten: share of the attainable gain that is lost by choosing ten held-out prompts by the estimate;
    - log_likelihood: of the answers to held-out questions, in nats: the expectation over the person's answers.

    Args:
        fit: The estimate and what it predicts.
        world: With the held-out prompts.
        taste: The true one, unit norm, (d,).
        scale: Inverse temperature of the answers; infinity: the best option.
    """
    errors = Scorer(world.judged, taste).first_errors(fit.theta)
    utilities = world.held_out @ taste
    if np.isinf(scale):
        truth = (utilities == utilities.max(axis=1, keepdims=True)).astype(np.float64)
    else:
        truth = np.exp(scale * (utilities - utilities.max(axis=1, keepdims=True)))
    truth /= truth.sum(axis=1, keepdims=True)
    predicted = np.clip(fit.probabilities(world.held_out), np.finfo(np.float64).tiny, 1.0)
    return {
        "preference_error": errors["preference_error"],
        "regret_ten": errors["regret_ten"],
        "log_likelihood": float((truth * np.log(predicted)).sum(axis=1).mean()),
    }


def _run_unit(settings: CommunitySettings, unit: CommunityUnit, folder: Path, prepared: None) -> list[dict[str, Any]]:
    """Ask all new people of a regime with one estimator by all its rules."""
    world = load_world(settings, unit.words, folder)
    with one_thread():
        prior = VocabularyPrior(world.judged.tokens)
        known = known_people(settings, unit, world)
        start = time.perf_counter()
        estimator = make_estimator(unit.estimator, settings, known, prior)
        seconds = time.perf_counter() - start
        del known
        rows = []
        for person in new_people(settings, unit, world):

            def measured(fit: Fit, person: NewPerson = person) -> list[dict[str, Any]]:
                return [measure(fit, world, person.taste, unit.scale)]

            facts = {
                **{"regime": unit.regime, "words": unit.words, "estimator": unit.estimator},
                **{"kind": person.kind, "person": person.number, "seconds_population": seconds},
            }
            for rule in [rule for rule in RULES_OF[unit.estimator] if rule in settings.rules]:
                choose = chooser(estimator, rule, person.kind, person.number)
                found = follow(estimator, choose, person.candidates, settings.answers, measured)
                rows += [{**facts, "rule": rule, **row} for row in found]
    return rows


COMMUNITIES = Experiment(
    kind="communities",
    command="edpbrl bench communities",
    settings=CommunitySettings,
    plan=plan_units,
    inputs=_inputs,
    prepare=_prepare,
    run_unit=_run_unit,
    report=make_report,
    table=sorted_by("regime", "estimator", "rule", "kind", "person", "answers"),
    units="communities",
)
