"""What is replayed, and the units of work."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from edpbrl_gym._validation import check_choice_of, check_count
from edpbrl_gym.experiments.people.asking import RULES
from edpbrl_gym.experiments.people.estimators import ESTIMATORS, HIERARCHICAL_BAYES
from edpbrl_gym.features import check_encoder_spec

__all__ = ["PeopleSettings", "PeopleUnit", "check_estimators"]


@dataclass(frozen=True)
class PeopleSettings:
    """What decides the numbers; which estimators there are only decides which units there are.

    Attributes:
        data: Data sets: files, folders or names; see ``loading``.
        rule: Who asks: random, adaptive, bald.
        answers: Numbers of a new person's answers after which the held-out ones are predicted.
        people_per_fold: Largest number of people of a fold that are replayed.
        held_out: Questions of each new person that are held out.
        folds: Folds over people, >= 2.
        draws: Draws of hierarchical Bayes; the first half is discarded.
        encoder: Text encoder of answers about texts.

    Raises:
        ValueError: A value is out of range, or a rule is unknown.
    """

    data: tuple[str, ...] = ()
    rule: tuple[str, ...] = ("random", "adaptive")
    answers: tuple[int, ...] = (0, 1, 2, 4, 6, 8, 12)
    people_per_fold: int = 70
    held_out: int = 4
    folds: int = 5
    draws: int = 8000
    encoder: str = "minilm"

    def __post_init__(self) -> None:
        if not self.answers:
            raise ValueError("Expected at least one number of answers, got none; write for example --answers 0 4 8")
        for count in self.answers:
            check_count(count, "answers", minimum=0)
        object.__setattr__(self, "answers", tuple(sorted(set(self.answers))))
        if not self.rule:
            raise ValueError(f"Expected at least one rule ({', '.join(RULES)}), got none")
        for rule in self.rule:
            check_choice_of(rule, "rule", tuple(RULES))
        object.__setattr__(self, "rule", tuple(dict.fromkeys(self.rule)))
        check_count(self.people_per_fold, "people_per_fold")
        check_count(self.held_out, "held_out")
        check_count(self.folds, "folds", minimum=2)
        check_count(self.draws, "draws", minimum=100)
        check_encoder_spec(self.encoder)

    def as_config(self) -> dict[str, Any]:
        """JSON-able; the data go by their fingerprints, which are added when they are loaded."""
        config = asdict(self)
        del config["data"]
        return config


@dataclass(frozen=True)
class PeopleUnit:
    """The new people of one fold of one data set, replayed with one estimator by all its rules.

    Attributes:
        data: Name of the data set.
        estimator: Name.
        fold: Number of the fold.
    """

    data: str
    estimator: str
    fold: int

    @property
    def part(self) -> str:
        """Name of its part file."""
        return f"{self.data}__{self.estimator}__fold{self.fold}"

    def rules(self, settings: PeopleSettings) -> tuple[str, ...]:
        """The rules that ask: hierarchical Bayes, which is fitted to all people at once, is asked at random."""
        if self.estimator == HIERARCHICAL_BAYES:
            return ("random",)
        return settings.rule


def check_estimators(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names without repetitions.

    Raises:
        ValueError: There is none, or one is unknown.
    """
    if not names:
        raise ValueError(f"Expected at least one estimator ({', '.join(ESTIMATORS)}), got none")
    for name in names:
        check_choice_of(name, "estimator", tuple(ESTIMATORS))
    return tuple(dict.fromkeys(names))
