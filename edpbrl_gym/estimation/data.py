"""The data of an estimate: answered questions in any of three forms, as differences to the chosen alternatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.likelihood import Response, ResponseModel, Terms
from edpbrl_gym.likelihood.choice import check_choices, check_options

__all__ = ["Data", "answer_differences", "answer_terms"]


Data: TypeAlias = Comparisons | Terms | tuple[ArrayLike, ArrayLike | Sequence[Response]]


def answer_differences(data: Data, model: ResponseModel | None = None) -> tuple[Floats, Floats | None]:
    """Differences to the chosen alternatives, (n, K - 1, d), and their offsets, (n, K - 1), or None if all are 0.

    Args:
        data: :class:`~edpbrl_gym.comparisons.Comparisons`; the :class:`~edpbrl_gym.likelihood.Terms` of any answers;
            or a pair (options, answers) with features (n, K, d) and the chosen options (n,), or, with ``model``, the n
            ``Response`` objects.
        model: Response model; None: each answer names the best of K options. Terms already contain their model.

    Raises:
        TypeError: The data has none of the three forms, or there are responses without a model.
        ValueError: A model beside Terms, a response that names no best option without a model, or options and answers
            that do not match.
    """
    differences, offsets = answer_terms(data, model).differences()
    return differences, offsets if offsets.any() else None


def answer_terms(data: Data, model: ResponseModel | None = None) -> Terms:
    """The same data as multinomial logits; see ``answer_differences``.

    Raises:
        TypeError, ValueError: As for ``answer_differences``.
    """
    if isinstance(data, Terms):
        if model is not None:
            raise ValueError("Expected no model beside Terms, which were made by one; got both")
        return data
    options, answers = _options_and_answers(data, model)
    if model is not None:
        return model.terms(options, answers)
    features = check_options(options)
    chosen = check_choices(answers, features)
    return Terms(features, np.zeros(features.shape[:2]), chosen)


def _options_and_answers(data: object, model: ResponseModel | None) -> tuple[ArrayLike, Any]:
    if isinstance(data, Comparisons):
        data = data.features, data.choice if model is None else data.responses
    if not isinstance(data, tuple) or len(data) != 2:
        raise TypeError(
            f"Expected answers as Comparisons, Terms or a pair (options, answers), got {type(data).__name__}"
        )
    options, answers = data
    if model is None and isinstance(answers, Sequence) and any(isinstance(answer, Response) for answer in answers):
        raise TypeError("Expected a model of the responses, got none; give model=BestOf(), Ranking(), ...")
    return options, answers
