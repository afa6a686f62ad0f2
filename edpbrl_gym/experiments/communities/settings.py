"""What a study of communities consists of: its settings, regimes and units; light to import for the command line."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from edpbrl_gym._validation import check_choice_of, check_count, check_number
from edpbrl_gym.experiments.bench.first_answers import FIRST_MODES
from edpbrl_gym.experiments.communities.styles import style_sentences
from edpbrl_gym.features import check_encoder_spec
from edpbrl_gym.vocabulary import BUILT_IN

__all__ = [
    "DEFAULTS",
    "DEFAULT_REGIMES",
    "ESTIMATORS",
    "KINDS",
    "NUM_OPTIONS",
    "POPULATION",
    "REGIMES",
    "RULES",
    "RULES_OF",
    "CommunitySettings",
    "CommunityUnit",
    "plan_units",
]

NUM_OPTIONS = 4
"""K, complete prompts of a question."""

REGIMES: tuple[str, ...] = tuple(f"{words}-{mode}" for words in BUILT_IN for mode in FIRST_MODES)
"""Built-in vocabulary and how people answer: argmax, or sampled at a scale."""

DEFAULT_REGIMES: tuple[str, ...] = tuple(f"{words}-{mode}" for words in BUILT_IN for mode in ("argmax", "scale-20"))

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
    "population-types": "types of other people, with the same fallback",
    "pref": "a low-rank basis of tastes learnt from other people's answers, the new person's coefficients by "
    "regularised logistic regression (PReF)",
    "pal": "prototypes learnt from other people's answers, the new person's convex weights by maximum likelihood (PAL)",
    "meta-po": "the average of other people's models, weighted by their agreement with the person's own (Meta-PO)",
}
"""Name -> what it is."""

POPULATION = "population-factors"
"""The estimator that is compared with "alone" and with the contenders."""

DEFAULTS: tuple[str, ...] = ("alone", "population-factors", "pref", "pal", "meta-po")

RULES: dict[str, str] = {
    "random": "in random order",
    "adaptive": "the question with the largest expected gain in log det of the posterior precision, over 64 draws",
    "own": "by the published rule of the estimator",
}
"""Name -> which of the candidates is asked next."""

RULES_OF: dict[str, tuple[str, ...]] = {
    "alone": ("random", "adaptive"),
    "population-factors": ("random", "adaptive"),
    "population-types": ("random", "adaptive"),
    "pref": ("random", "own"),
    "pal": ("random",),
    "meta-po": ("random", "own"),
}
"""Estimator -> who asks; PAL has no rule of its own."""


@dataclass(frozen=True)
class CommunitySettings:
    """What decides the numbers; regimes and estimators only decide which units there are.

    Attributes:
        answers: Numbers of a new person's answers after which estimates are judged.
        people: People of a community.
        questions: Questions that each of them has answered.
        new: New people of each kind.
        candidates: Random questions from which those of a new person are chosen.
        individual: Length of the individual part of a taste, relative to its style.
        factors: Columns of the loadings of population-factors.
        types: Types of people of population-types.
        shown: Prompts of the training vocabulary that questions consist of.
        held_out: Questions about held-out prompts of the log-likelihood.
        prompts: Held-out prompts of the preference error.
        pairs: Pairs of them.
        pool: Held-out prompts, those of ``prompts`` among them, from which an estimate chooses ten.
        rules: Who asks, of ``RULES``; an estimator without any of them gives no rows.
        development: Take the styles and people on which constants are chosen in place of those that are reported on.
        encoder: Text encoder: minilm, sentence-transformers:ID, open_clip:MODEL/TAG, precomputed:FILE,
            package.module:Class.
        seed: Seed of the vocabularies' split, of all people and of all questions.

    Raises:
        ValueError: A value is out of range.
    """

    answers: tuple[int, ...] = (0, 1, 2, 4, 6, 10, 20, 40)
    people: int = 300
    questions: int = 30
    new: int = 8
    candidates: int = 200
    individual: float = 0.5
    factors: int = 8
    types: int = 6
    shown: int = 3000
    held_out: int = 50
    prompts: int = 1000
    pairs: int = 5000
    pool: int = 2000
    rules: tuple[str, ...] = ("random", "adaptive", "own")
    development: bool = False
    encoder: str = "minilm"
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.answers:
            raise ValueError("Expected at least one number of answers, got none; write for example --answers 0 10 40")
        for count in self.answers:
            check_count(count, "answers", minimum=0)
        object.__setattr__(self, "answers", tuple(sorted(set(self.answers))))
        check_count(self.people, "people", minimum=20)
        for name in ("questions", "new", "factors", "types", "held_out", "pairs"):
            check_count(getattr(self, name), name)
        if check_count(self.candidates, "candidates") < self.answers[-1]:
            raise ValueError(
                f"Expected at least {self.answers[-1]} candidates, as many as a person answers, got {self.candidates}"
            )
        if not self.rules:
            raise ValueError(f"Expected at least one rule ({', '.join(RULES)}), got none")
        for rule in self.rules:
            check_choice_of(rule, "rules", tuple(RULES))
        check_number(self.individual, "individual", minimum=0.0)
        check_count(self.shown, "shown", minimum=NUM_OPTIONS)
        for name in ("prompts", "pool"):
            check_count(getattr(self, name), name, minimum=10)
        check_encoder_spec(self.encoder)
        check_count(self.seed, "seed", minimum=0)

    def as_config(self) -> dict[str, Any]:
        """Settings and styles, JSON-able."""
        return {
            **asdict(self),
            "styles": {words: style_sentences(words, development=self.development) for words in BUILT_IN},
        }


@dataclass(frozen=True)
class CommunityUnit:
    """All new people of a regime, judged with one estimator by all its rules.

    Attributes:
        regime: Name.
        estimator: Name.
    """

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
        _, kind, scale = FIRST_MODES[self.regime.partition("-")[2]]
        return float("inf") if kind == "argmax" else scale


def plan_units(
    settings: CommunitySettings,
    regimes: tuple[str, ...] = DEFAULT_REGIMES,
    estimators: tuple[str, ...] = DEFAULTS,
) -> list[CommunityUnit]:
    """The units in their order: regime after regime, so that an early stop leaves whole communities.

    Args:
        settings: Of the study.
        regimes: Names.
        estimators: Names.

    Raises:
        ValueError: No names, or an unknown one.
    """
    for names, what, known in ((regimes, "regime", REGIMES), (estimators, "estimator", tuple(ESTIMATORS))):
        if not names:
            raise ValueError(f"Expected at least one {what} ({', '.join(known)}), got none")
        for name in names:
            check_choice_of(name, what, known)
    return [CommunityUnit(regime, name) for regime in dict.fromkeys(regimes) for name in dict.fromkeys(estimators)]
