"""What a participant's answers say: as comparisons for estimates, and as predictions of the test questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.estimation.population import Population
from edpbrl_gym.likelihood import Response
from edpbrl_gym.study.config import Arm
from edpbrl_gym.study.export_rows import counts
from edpbrl_gym.study.materials import Materials
from edpbrl_gym.study.records import Record, StoredAnswer, StoredQuestion

__all__ = ["Predictor", "comparisons_of"]

_SHARES = (0.25, 0.5, 0.75)  # of the questions, after which predictions are made too


def comparisons_of(name: str, record: Record, materials: Materials, *, identified: bool = False) -> Comparisons | None:
    """The answers that count, under a participant's pseudonym; None without any.

    Posts of an oracle know the episodes and steps of its environment.
    """
    normal = [(question, answer) for question, answer in record.live if answer is not None and counts(question, answer)]
    if not normal:
        return None
    horizon, feedback = materials.vocabulary.horizon, materials.config.questions.feedback
    index = np.arange(len(normal))
    episode, step = (index, index * 0 + horizon - 1) if feedback == "prompt" else np.divmod(index, horizon)
    if record.posts:
        episode, step = np.array([(post.episode, post.step) for post in record.posts[: len(normal)]]).T
    kinds = materials.model.kinds
    mixes = [*kinds, "tie"] if materials.config.questions.format == "best" else kinds  # others can't be mixed with ties
    given = [answer for _, answer in normal]
    encoder = materials.encoder
    return Comparisons(
        features=np.stack([encoder.encode(question.texts) for question, _ in normal]),
        responses=tuple(one.response if one.response.kind in mixes else Response.skip() for one in given),
        episode=episode,
        step=step,
        texts=[question.texts for question, _ in normal],
        who=name,
        answered_at=_times([one.answered_at for one in given]) if identified else None,
        metadata={
            "encoder": encoder.name,
            "encoder_fingerprint": encoder.fingerprint,
            "feedback": feedback,
            "arm": record.participant.arm,
        },
    )


def _times(times: list[str]) -> Any:
    return np.array([np.datetime64(time.removesuffix("+00:00"), "us") for time in times])


class Predictor:
    """Predicts a participant's answers to the test questions from those that count.

    The prior is the population of the participant's arm where it has one, otherwise the default of `edpbrl estimate`.
    As in the participant's session, "can't tell" teaches nothing.

    Args:
        materials: What the study's questions are made of.
    """

    def __init__(self, materials: Materials) -> None:
        self._materials = materials
        self._arms = {arm.name: arm for arm in materials.config.arms}

    @cached_property
    def _words(self) -> VocabularyPrior:
        return VocabularyPrior(self._materials.encoder.encode(self._materials.vocabulary.all_tokens))

    def _prior(self, arm: Arm) -> VocabularyPrior | Population:
        population = self._materials.population(arm)
        return self._words if population is None else population.with_fallback(self._words)

    def rows(self, name: str, record: Record, comparisons: Comparisons | None) -> list[dict[str, Any]]:
        """Rows of ``PREDICTIONS``: after a quarter, half and three quarters of the questions, and after all answers.

        Args:
            name: Pseudonym of the participant.
            record: Everything about the participant.
            comparisons: From ``comparisons_of``.
        """
        order = {question.id: place for place, (question, _) in enumerate(record.history)}
        tests = [question for question, answer in record.live if _decides(question, answer)]
        if not tests or comparisons is None or record.participant.arm not in self._arms:
            return []
        options = np.stack([self._materials.encoder.encode(question.texts) for question in tests])
        kinds = self._materials.model.kinds
        told = tuple(one if one.kind in kinds else Response.skip() for one in comparisons.responses)
        learnt, total = replace(comparisons, responses=told), len(comparisons)
        prior = self._prior(self._arms[record.participant.arm])
        rows = []
        for after in _moments(self._materials.config.questions.number, total):
            fit = prior.fit(learnt.select(np.arange(after)).terms(self._materials.model))
            probabilities = fit.posterior.choice_probabilities(options)
            rows += [
                {
                    "participant": name,
                    "asked": order[question.id],
                    "after": after,
                    "last": after == total,
                    "probabilities": values.tolist(),
                }
                for question, values in zip(tests, probabilities, strict=True)
            ]
        return rows


def _decides(question: StoredQuestion, answer: StoredAnswer | None) -> bool:
    """Whether it is a test question whose answer names a best option."""
    return question.kind == "test" and answer is not None and answer.response.first is not None


def _moments(number: int, total: int) -> Sequence[int]:
    """Numbers of answers from which to predict: shares of the questions, the same for everybody, and all answers."""
    early = {round(share * number) for share in _SHARES}
    return sorted({after for after in early if 0 < after < total} | {total})
