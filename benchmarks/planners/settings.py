"""What the benchmark runs: sizes, users, units, studies. Sentences and seeds were fixed before any result was seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any

from benchmarks.kit.sentences import SENTENCES, SMALL, VOCABULARIES
from benchmarks.planners.arms import PLANNED, get_arm
from benchmarks.planners.regimes import FIRST_MODES, REGIMES, Regime, episodes_of, get_regime
from benchmarks.planners.tastes import TASTES, taste_sentences, taste_users
from edpbrl_gym._validation import MOST_PROMPTS, check_count
from edpbrl_gym.features import check_encoder_spec

_DEVELOPMENT_SEEDS = 1000  # the first of them


@dataclass(frozen=True)
class PlannerSettings:
    """What decides the numbers of a unit; regimes, arms and the number of seeds only decide which units there are."""

    # numbers of episodes (T) in prompt MDPs after which estimates are judged
    episodes: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 36, 45, 60)
    questions: tuple[int, ...] = (5, 10, 15, 25, 40, 60)  # the same for pools of items, in questions
    answers: tuple[int, ...] = (6, 12, 18, 24, 36, 60, 120, 360)  # the same for first answers, in answers
    planned: int = 360  # largest of the answers for planners, which take far longer than Random
    prompt_episodes: tuple[int, ...] = (3, 10, 30, 60)  # episodes after which the best prompt is searched for
    prompts: int = 1000  # held-out prompts or items of the preference error
    pairs: int = 5000  # of them
    pool: int = 2000  # held-out prompts, the above among them, of which an estimate of first answers chooses ten
    held_out_questions: int = 600  # of the choice error
    # users of a seed: 2 takes the sentences s mod 10 and (s + 5) mod 10, so that 20 seeds give 40 runs
    sentences_per_seed: int = 2
    # in regimes of first answers, ask the sentences on which constants are chosen, with seeds from 1000 on
    development: bool = False
    vocabulary: str | None = None  # built-in or a folder of token files (None: images); first answers have their own
    encoder: str = "minilm"
    split_seed: int = 0  # of the train/test split, of the items that are prompts, and of the held-out prompts

    def __post_init__(self) -> None:
        for name in ("episodes", "questions", "answers"):
            values = getattr(self, name)
            for value in values or (0,):
                check_count(value, name)
            object.__setattr__(self, name, tuple(sorted(set(values))))
        searched = tuple(sorted(set(self.prompt_episodes) & set(self.episodes)))
        object.__setattr__(self, "prompt_episodes", searched or (self.episodes[-1],))
        check_count(self.prompts, "prompts", minimum=2, maximum=MOST_PROMPTS)
        for name in ("planned", "pairs", "pool", "held_out_questions", "sentences_per_seed"):
            check_count(getattr(self, name), name)
        check_encoder_spec(self.encoder)

    def checkpoints(self, regime: Regime, *, planned: bool = False) -> tuple[int, ...]:
        """Numbers of episodes (a question about items is one) after which estimates are judged, where a planner asks.

        Raises:
            ValueError: A regime of first answers in which none of the numbers is a whole number of episodes.
        """
        if regime.first:
            return episodes_of(regime, tuple(count for count in self.answers if not planned or count <= self.planned))
        return self.questions if regime.items else self.episodes

    def users(self, regime: Regime, seed: int) -> tuple[str, ...]:
        """Names of the users of a seed: "drawn" with the items, or users, evenly spaced from ``seed`` on."""
        if regime.drawn:
            return ("drawn",)
        names = tuple(SENTENCES)
        if regime.first:
            names = taste_users(regime.taste, regime.vocabulary, development=self.development)
        spread = len(names) / self.sentences_per_seed
        return tuple(names[(seed + int(number * spread)) % len(names)] for number in range(self.sentences_per_seed))

    def as_config(self) -> dict[str, Any]:
        """Settings and sentences, JSON-able; ``sentences_per_seed`` is left out, as it only adds or removes units."""
        known = VOCABULARIES if self.development else (*VOCABULARIES, *SMALL)
        first = {words: taste_sentences(words, development=self.development) for words in known}
        config = {**asdict(self), "sentences": dict(SENTENCES), "first_sentences": first}
        del config["sentences_per_seed"]
        return config


@dataclass(frozen=True, order=True)
class Unit:
    """What is run: an arm asks a user; the seed is that of items, questions and answers."""

    seed: int
    regime: str
    user: str
    arm: str

    @property
    def part(self) -> str:
        """Name of its part file."""
        return f"{self.regime}__{self.arm}__s{self.seed:04d}-{self.user}"


# -- studies ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Study:
    """What is run unless the user says otherwise."""

    seeds: Mapping[tuple[str, str], int]  # (regime, arm) -> how many
    settings: Mapping[str, Any] = field(default_factory=dict)  # in what they differ from the defaults


def _block(regimes: Iterable[str], arms: Iterable[str], seeds: int) -> dict[tuple[str, str], int]:
    return {(one, arm): seeds for one, arm in product(regimes, arms) if get_arm(arm).runs_in(REGIMES[one])}


def _efficiency() -> Study:
    settings = {"episodes": (3, 6, 8, 10, 12, 15, 20, 30, 36, 45, 60), "prompt_episodes": (60,)}
    return Study(_block(("argmax", "scale-50", "scale-20", "scale-5"), ("random", "adaptive"), 2), settings)


def _comparison() -> Study:
    pools = [
        f"{pool}-K{count}" for count in (4, 2) for pool in ("items-d10", "items-d32", "items-clusters", "items-d384")
    ]
    regimes = (*pools, "scale-20", "state-scale-20", "pairs-scale-20", "state-pairs-scale-20")
    settings = {"episodes": (1, 2, 3, 5, 7, 10), "prompt_episodes": (5, 10), "sentences_per_seed": 1}
    return Study(_block(regimes, ("adaptive", "adaptive-best", "ed-pbrl", "ed-pbrl-exact", *PLANNED), 20), settings)


def _first_answers() -> Study:
    """Three seeds of 4 users see every sentence once; more options and other shapes of tastes get two."""
    seeds: dict[tuple[str, str], int] = {}
    for words in VOCABULARIES:
        seeds |= _block((f"{words}-{mode}" for mode in FIRST_MODES), ("random", "adaptive"), 3)
        for name in (f"{words}-argmax", f"{words}-scale-20"):
            seeds |= _block([name], ["adaptive-best"], 3) | _block([f"{name}-partial"], ["random"], 3)
            rankings = ("random+best-worst", "adaptive+best-worst", "random+ranking", "adaptive+ranking")
            seeds |= _block([f"{name}-K6"], rankings, 2) | _block([f"{name}-K9"], ("random", "adaptive"), 2)
            seeds |= _block(
                (f"{name}-{taste}" for taste in TASTES if taste not in ("sentence", "composed")), ["random"], 2
            )
        seeds |= _block([f"{words}-argmax-K9"], ("random+partial", "adaptive+partial"), 2)
    return Study(seeds, {"answers": (6, 12, 18, 24, 36, 60, 120), "planned": 24, "sentences_per_seed": 4})


def _small() -> Study:
    """Three seeds of 4 users see every sentence once; best of nine complete prompts."""
    seeds: dict[tuple[str, str], int] = {}
    for name in (f"{words}-{mode}" for words in (*SMALL, *VOCABULARIES) for mode in ("argmax", "scale-20")):
        seeds |= _block([f"{name}-K9"], ("random", "adaptive"), 3)
        seeds |= _block([f"{name}-partial", f"{name}-K9-not", f"{name}-K9-composed"], ["random"], 3)
    return Study(seeds, {"answers": (3, 6, 10, 20, 30, 36), "planned": 30, "sentences_per_seed": 4})


STUDIES: dict[str, Study] = {
    "efficiency": _efficiency(),
    "comparison": _comparison(),
    "first-answers": _first_answers(),
    "small-vocabularies": _small(),
}
"""Name -> study: "efficiency", how many questions each way of asking needs (docs/query-efficiency.md); "comparison",
all planners on the same items and users (docs/planner-comparison.md); "first-answers", what a person's first answers
teach, also in "small-vocabularies" (docs/first-answers.md)."""


def plan_units(
    settings: PlannerSettings,
    *,
    study: Study = STUDIES["efficiency"],
    regimes: Sequence[str] = (),
    arms: Sequence[str] = (),
    seeds: int | None = None,
    first_seed: int = 0,
) -> list[Unit]:
    """Return the units to be run, in their order: seed after seed, so that an early stop leaves a small benchmark.

    Where no regimes, arms or seeds are named they are those of the study; ``seeds`` is at most. An arm has no units in
    a regime where it can't run.

    Raises:
        ValueError: An unknown name, an arm that can run in none of the regimes, or settings that do not fit a regime.
    """
    most = check_count(max(study.seeds.values()) if seeds is None else seeds, "seeds")
    check_count(first_seed, "first_seed", minimum=0)
    chosen = dict.fromkeys(regimes or [regime for regime, _ in study.seeds])
    for name in chosen:
        _check_regime(settings, get_regime(name))
    if settings.development and first_seed < _DEVELOPMENT_SEEDS:
        first_seed += _DEVELOPMENT_SEEDS
    pairs = study.seeds
    if regimes and arms:
        pairs = {pair: study.seeds.get(pair, most) for pair in product(chosen, dict.fromkeys(arms))}
    units = [
        Unit(seed, regime, user, arm)
        for (regime, arm), count in pairs.items()
        if regime in chosen and (not arms or arm in arms) and get_arm(arm).runs_in(get_regime(regime))
        for seed in range(first_seed, first_seed + min(count, most))
        for user in settings.users(get_regime(regime), seed)
    ]
    for arm in arms:
        if arm not in {unit.arm for unit in units}:
            able = [name for name, regime in REGIMES.items() if get_arm(arm).runs_in(regime)]
            raise ValueError(
                f"Expected for {arm!r} a --regime in which it can run ({', '.join(able)}), got {', '.join(chosen)}"
            )
    order = {name: number for number, name in enumerate(chosen)}
    return sorted(units, key=lambda unit: (unit.seed, order[unit.regime]))


def _check_regime(settings: PlannerSettings, regime: Regime) -> None:
    if regime.first and settings.vocabulary is not None:
        raise ValueError(f"Expected no vocabulary for {regime.name}, which has its own, got {settings.vocabulary!r}")
    if settings.development and not regime.first:
        raise ValueError(f"Expected only regimes of first answers for development, got {regime.name}")
    settings.checkpoints(regime, planned=True)
