"""The protocols of priors and of their fits, by which planners, sessions and commands know them.

A prior of one's own is a subclass of `TastePrior` and a line in `PRIORS` (docs/own-prior.md).
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np

from edpbrl_gym._arrays import AnyFloats, Floats

if TYPE_CHECKING:
    from edpbrl_gym.comparisons import Comparisons
    from edpbrl_gym.estimation.map_estimate import Data, Estimate
    from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
    from edpbrl_gym.estimation.posterior import Posterior
    from edpbrl_gym.features import TextEncoder
    from edpbrl_gym.likelihood import AnswerFormat, Terms

__all__ = ["Described", "Fit", "FitPart", "TastePrior", "check_prior"]


class FitPart(Protocol):
    """The estimate under one Gaussian prior, its mean (d,), and the log evidence of the answers."""

    @property
    def estimate(self) -> Estimate: ...
    @property
    def mean(self) -> Floats: ...
    @property
    def log_evidence(self) -> float: ...


class Fit(Protocol):
    """What a prior and answers say together."""

    @property
    def parts(self) -> Sequence[FitPart]:
        """What is averaged, at least one part."""

    @property
    def weights(self) -> Floats:
        """Posterior weights of the parts, sum 1."""

    @property
    def hedged(self) -> int:
        """The number of the part that stands for all later ones too, as the same answers selected these."""

    @property
    def estimate(self) -> Estimate:
        """The estimate of theta."""

    @property
    def posterior(self) -> Posterior:
        """The posterior: draws, intervals, choice probabilities."""

    @property
    def planned(self) -> Posterior:
        """The posterior to plan questions with."""


class Described(NamedTuple):
    """A fit in words: title of its prior, facts for the file of a taste, and how the person belongs to others."""

    title: str
    facts: dict[str, Any]
    belonging: str = ""


class TastePrior(ABC):
    """A prior of the taste, which answers turn into a posterior.

    Attributes:
        label: What it is, in files of sessions and in messages.
        file: Name of the file that ``save`` writes in a folder; "": it can't be saved.
        provenance: With what features it was learnt, as far as known: ``encoder``, ``encoder_fingerprint``, ...
        is_fixed: Whether theta alone is learnt, no scale and no weights: rules of the literature then estimate from all
            answers before every question.
        fallback_weight: Its prior weight as the fallback of a population; 0: it is none.
        own: Coordinates of theta that are about one item each, and say nothing about other options; None: none are.
        space: Names the features that ``feature_map`` makes; "": theta is about the options' own features.
    """

    label: ClassVar[str] = "prior"
    file: ClassVar[str] = ""
    provenance: Mapping[str, Any] = {}
    is_fixed: ClassVar[bool] = False
    fallback_weight: ClassVar[float] = 0.0
    own: slice | None = None
    space: str = ""

    @property
    def fingerprint(self) -> str:
        """Names it in a session's file, so that no other goes on there; "": it follows from vocabulary and encoder."""
        return ""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Number of features d that theta is about."""

    @property
    def inputs(self) -> int:
        """Number of features D of an option, of which ``feature_map`` makes those that theta is about."""
        return self.dimension

    @abstractmethod
    def start(self) -> Posterior:
        """What it says before the first answer.

        Raises:
            ValueError: An improper prior.
        """

    @functools.cached_property
    def started(self) -> Posterior:
        """``start()``, made once: whoever begins with this prior shares it."""
        return self.start()

    @abstractmethod
    def fit(self, data: Data, *, model: AnswerFormat | None = None) -> Fit:
        """Estimate the taste from answers about features of ``feature_map``; arguments are those of ``estimate``."""

    def fit_planned(self, terms: Terms) -> Posterior | None:
        """``fit(terms).planned``, if that takes less time without the rest; None: it does not."""
        return None

    def think(self) -> None:  # noqa: B027  (optional for subclasses)
        """Make what the first fit begins with, while nobody waits."""

    @abstractmethod
    def described(self, fit: Any) -> Described:
        """One of its fits in words."""

    def with_words(self, words: Callable[[], VocabularyPrior]) -> TastePrior:
        """With the prior of a vocabulary for people unlike all others, if it knows others and has none yet."""
        return self

    def with_scale(self) -> TastePrior:
        """With its scale from the answers, if it has a given one."""
        return self

    def feature_map(self, rows: AnyFloats) -> AnyFloats:
        """The features that theta is about, (..., d), of options' own features (..., D)."""
        return rows

    def mapped(self, comparisons: Comparisons) -> Comparisons:
        """Comparisons with the features that theta is about."""
        if not self.space:
            return comparisons
        metadata = {key: value for key, value in comparisons.metadata.items() if key != "attributes"}  # their names
        features = self.feature_map(comparisons.features).astype(np.float32)
        return replace(comparisons, features=features, metadata=metadata)

    def encoder(self, encoder: TextEncoder) -> TextEncoder:
        """An encoder of texts, by the features that theta is about."""
        from edpbrl_gym.features.mapped import MappedEncoder

        return MappedEncoder(encoder, self.feature_map, self.space, self.dimension) if self.space else encoder

    @property
    def landmarks(self) -> Floats | None:
        """Features of which ``PRIORS`` makes a prior with the same ``feature_map`` again; None without such a map."""
        return None

    def save(self, path: Any) -> None:
        """Write it to a file named ``file``."""
        raise NotImplementedError(f"a {type(self).__name__} has no file")

    @classmethod
    def load(cls, path: Any) -> Self:
        """Read what ``save`` wrote."""
        raise NotImplementedError(f"a {cls.__name__} has no file")


def check_prior(value: Any, name: str, *kinds: type, hint: str = "") -> Any:
    """The value; TypeError where it is of none of these kinds."""
    if not isinstance(value, kinds):
        expected = " or ".join(f"a {kind.__name__}" for kind in kinds)
        raise TypeError(f"Expected {name} as {expected}, got {type(value).__name__}{hint}")
    return value
