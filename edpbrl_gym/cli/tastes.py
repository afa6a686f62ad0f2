"""A taste estimated from a person's answers, with the facts about it that its file holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edpbrl_gym.comparisons import Comparisons
    from edpbrl_gym.estimation import Estimate
    from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
    from edpbrl_gym.estimation.population import Population

__all__ = ["near_words", "provenance_of", "under_population"]


def near_words(answers: Any, prior: VocabularyPrior) -> tuple[Estimate, float, dict[str, Any]]:
    """The estimate under the library's default prior, around words that the person seems to like.

    Returns:
        The estimate, the weight of the nearest words, and the facts about the prior.
    """
    fit = prior.fit(answers)
    near = 1.0 - float(fit.weights[0])
    facts = {"scale": fit.base.scale, "scale_from": "answers", "log_evidence": fit.base.log_evidence}
    return fit.estimate, near, facts | {"weight_of_neighbourhoods": near}


def under_population(answers: Any, population: Population) -> tuple[Estimate, dict[str, Any]]:
    """The estimate under a population, and the facts about it."""
    fit = population.fit(answers)
    return fit.estimate, {
        "prior": "population",
        "population_fingerprint": population.fingerprint,
        "people": population.people,
        "memberships": fit.memberships.tolist(),
        "weight_of_the_fallback": fit.fallback_weight,
        "fallback": "base" if population.fallback is None else "vocabulary",
    }


def provenance_of(comparisons: Comparisons, file: Path, estimate: Estimate, facts: dict[str, Any]) -> dict[str, Any]:
    """What a taste file says about its origin.

    Args:
        comparisons: The answers.
        file: Their file.
        estimate: The estimate.
        facts: Facts about its prior.
    """
    metadata = comparisons.metadata
    return {
        **{key: metadata[key] for key in ("encoder", "encoder_fingerprint") if key in metadata},
        "answers": file.name,
        "who": comparisons.who,
        "questions": len(comparisons),
        **facts,
        "converged": bool(estimate.converged),
        "iterations": int(estimate.iterations),
        "gradient_norm": float(estimate.gradient_norm),
        "log_likelihood": float(estimate.log_likelihood),
    }
