"""Gaussian priors whose scale comes from the answers or is given, and those of them that have a name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.estimation.evidence import PriorFit, fit_given, fit_prior
from edpbrl_gym.estimation.map_estimate import Data
from edpbrl_gym.estimation.posterior import Posterior
from edpbrl_gym.estimation.prior import GaussianPrior, attribute_prior
from edpbrl_gym.estimation.taste_prior import Described, TastePrior
from edpbrl_gym.likelihood import AnswerFormat

__all__ = ["ScaledPrior", "attributes_prior", "embeddings_prior", "of_attributes", "ridge_prior"]

# the prior on the scale of a person's taste for attributes, in units of the typical one: its median, and the deviation
# of its log. They predict held-out answers best for development people of two studies of choices (docs/people.md)
_ATTRIBUTES, _ATTRIBUTES_SPREAD = 8.0, 0.5


class ScaledPrior(TastePrior):
    """A Gaussian prior N(m, s C), with s from the answers (`fit_prior`) or given.

    Args:
        base: N(m, C), proper.
        scale: S, > 0; None: from the answers.
        title: The prior in words.
        strength: Where the scale comes from the answers, as ``log_spread`` an argument of `fit_prior`.
        log_spread: See there.
        facts: About it, for the files of tastes.
    """

    def __init__(
        self,
        base: GaussianPrior,
        scale: float | None = None,
        title: str = "a Gaussian prior",
        *,
        strength: float = 1.0,
        log_spread: float = 3.0,
        **facts: Any,
    ) -> None:
        self._strength, self._log_spread = strength, log_spread
        self.base, self.scale, self.title, self.facts = base, scale, title, {"prior": "gaussian", **facts}
        self.is_fixed = scale is not None  # type: ignore[misc]

    @property
    def dimension(self) -> int:
        """Number of features d."""
        return self.base.dimension

    def start(self) -> Posterior:
        """N(m, C) at the given scale, or at 1."""
        return self.base.scaled(self.scale or 1.0).start()

    def fit(self, data: Data, *, model: AnswerFormat | None = None) -> PriorFit:
        """By `fit_prior`, or at the given scale."""
        if self.scale is None:
            strength, spread = self._strength, self._log_spread
            return fit_prior(data, base=self.base, model=model, strength=strength, log_spread=spread)
        return replace(fit_given(data, self.base.scaled(self.scale), model=model), scale=self.scale)

    def described(self, fit: PriorFit) -> Described:
        """By the title and the scale."""
        facts = {**self.facts, "scale": fit.scale, "scale_from": "answers" if self.scale is None else "given"}
        if self.scale is not None:
            return Described(f"{self.title}, scale {fit.scale:g}", facts)
        return Described(
            f"{self.title}, scale {fit.scale:.3g} from the answers", {**facts, "log_evidence": fit.log_evidence}
        )


def ridge_prior(
    features: ArrayLike, *, regularization: float | None = None, scale: float | Literal["auto"] | None = None
) -> TastePrior:
    """N(0, I / lambda) for features (..., d); lambda is 1, given, 1 / ``scale`` or from the answers."""
    dimension = np.shape(features)[-1]
    if scale is None:
        return GaussianPrior.isotropic(dimension, 1.0 if regularization is None else regularization)
    base = GaussianPrior.isotropic(dimension, 1.0)
    return ScaledPrior(base, None if scale == "auto" else float(scale), "ridge", prior="ridge")


def embeddings_prior(
    features: ArrayLike, *, power: float = 1.0, scale: float | Literal["auto"] | None = None
) -> ScaledPrior:
    """`GaussianPrior.from_embeddings` about 0, with the scale from the answers, unless it is given."""
    base = GaussianPrior.from_embeddings(features, power=power, centred=False)
    given = None if scale in (None, "auto") else float(scale)
    return ScaledPrior(base, given, f"embeddings to the power {power:g}", prior="embeddings", power=power)


def attributes_prior(people: Sequence[Comparisons]) -> ScaledPrior:
    """`attribute_prior` with the scale from the answers."""
    return of_attributes(attribute_prior(people))


def of_attributes(base: GaussianPrior) -> ScaledPrior:
    """N(0, s C) with the scale from the answers, under the prior on it that real people's choices gave."""
    return ScaledPrior(
        base,
        title="attributes in any units",
        strength=_ATTRIBUTES,
        log_spread=_ATTRIBUTES_SPREAD,
        prior="attributes",
    )
