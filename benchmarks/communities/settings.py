"""What a study of communities consists of: its settings, regimes and units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.kit.command import check_names
from benchmarks.kit.sentences import VOCABULARIES, style_sentences
from benchmarks.planners.regimes import FIRST_MODES
from edpbrl_gym._validation import check_count
from edpbrl_gym.features import check_encoder_spec

NUM_OPTIONS = 4
"""K, complete prompts of a question."""

REGIMES: tuple[str, ...] = tuple(f"{words}-{mode}" for words in VOCABULARIES for mode in FIRST_MODES)
"""Built-in vocabulary and how people answer: argmax, or sampled at a scale."""

DEFAULT_REGIMES: tuple[str, ...] = tuple(f"{words}-{mode}" for words in VOCABULARIES for mode in ("argmax", "scale-20"))

KINDS: dict[str, str] = {
    "same style": "a style of the community",
    "unseen style": "a style that nobody in the community has",
    "atypical": "a random direction of the embeddings",
}
"""Kind of new person -> what the taste consists of."""

ESTIMATORS: dict[str, str] = {
    "alone": "no other people: the vocabulary's prior with its neighbourhoods (`VocabularyPrior`)",
    "population-factors": "other people's common directions about the vocabulary's prior, which is also the fallback "
    "for who is unlike them (`fit_population`, `Population.with_fallback`)",
}
"""Name -> what it is."""

DEFAULTS: tuple[str, ...] = ("alone", "population-factors")

RULES: dict[str, str] = {
    "random": "in random order",
    "adaptive": "the question with the largest expected gain in log det of the posterior precision, over 64 draws",
}
"""Name -> which of the candidates is asked next."""


@dataclass(frozen=True)
class CommunitySettings:
    """What decides the numbers; regimes and estimators only decide which units there are."""

    answers: tuple[int, ...] = (0, 1, 2, 4, 6, 10, 20, 40)  # of a new person, after which estimates are judged
    people: int = 300  # of a community
    questions: int = 30  # that each of them has answered
    new: int = 8  # people of each kind
    candidates: int = 200  # random questions from which those of a new person are chosen
    factors: int = 8  # columns of the loadings of population-factors
    shown: int = 3000  # prompts of the training vocabulary of which questions consist
    held_out: int = 50  # questions about held-out prompts of the log-likelihood
    prompts: int = 1000  # held-out prompts of the preference error
    pairs: int = 5000  # of them
    pool: int = 2000  # held-out prompts, the above among them, from which an estimate chooses ten
    rules: tuple[str, ...] = ("random", "adaptive")  # who asks
    development: bool = False  # take the styles and people on which constants are chosen, which are not reported on
    encoder: str = "minilm"
    seed: int = 0  # of the vocabularies' split, of all people and of all questions

    def __post_init__(self) -> None:
        for count in self.answers:
            check_count(count, "answers", minimum=0)
        object.__setattr__(self, "answers", tuple(sorted(set(self.answers))))
        check_count(self.people, "people", minimum=20)
        for name in ("questions", "new", "factors", "held_out", "pairs"):
            check_count(getattr(self, name), name)
        check_count(self.candidates, "candidates", minimum=max(1, *self.answers))  # as many as a person answers
        check_count(self.shown, "shown", minimum=NUM_OPTIONS)
        for name in ("prompts", "pool"):
            check_count(getattr(self, name), name, minimum=10)
        check_names(self.rules, "rule", tuple(RULES))
        check_encoder_spec(self.encoder)

    def styles(self, words: str) -> dict[str, str]:
        """Style -> sentence of a built-in vocabulary, the unseen ones last."""
        return style_sentences(words, development=self.development)

    def as_config(self) -> dict[str, Any]:
        """Settings and styles, JSON-able."""
        return {**asdict(self), "styles": {words: self.styles(words) for words in VOCABULARIES}}


@dataclass(frozen=True)
class CommunityUnit:
    """All new people of a regime, judged with one estimator by all its rules."""

    regime: str
    estimator: str

    @property
    def part(self) -> str:
        """Name of its part file."""
        return f"{self.regime}__{self.estimator}"

    @property
    def words(self) -> str:
        """The vocabulary."""
        return self.regime.partition("-")[0]

    @property
    def scale(self) -> float:
        """Inverse temperature of the answers; infinity: the best option."""
        kind, scale = FIRST_MODES[self.regime.partition("-")[2]]
        return float("inf") if kind == "argmax" else scale


def plan_units(
    settings: CommunitySettings, regimes: Sequence[str] = DEFAULT_REGIMES, estimators: Sequence[str] = DEFAULTS
) -> list[CommunityUnit]:
    """The units in their order: regime after regime, so that an early stop leaves whole communities.

    Raises:
        ValueError: No names, or an unknown one.
    """
    chosen = check_names(regimes, "regime", REGIMES)
    names = check_names(estimators, "estimator", tuple(ESTIMATORS))
    return [CommunityUnit(regime, name) for regime in chosen for name in names]
