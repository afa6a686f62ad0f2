"""What the benchmark runs: regimes, sizes, users. The sentences and seeds were fixed before any result was seen."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from edpbrl_gym._validation import check_choice_of, check_count, check_path
from edpbrl_gym.experiments.bench.first_answers import episodes_of, first_regimes
from edpbrl_gym.experiments.bench.regime import Regime, Source
from edpbrl_gym.experiments.bench.sentences import SENTENCES
from edpbrl_gym.experiments.bench.tastes import taste_sentences, taste_users
from edpbrl_gym.features import check_encoder_spec
from edpbrl_gym.vocabulary import BUILT_IN

__all__ = ["REGIMES", "SENTENCES", "STUDY_SETTINGS", "BenchSettings", "Regime", "Unit", "get_regime"]

# name, title, source, n, d, scale of the user
_POOLS: tuple[tuple[str, str, Source, int, int, float], ...] = (
    ("items-d10", "100 items, d = 10", "sphere", 100, 10, 5.0),
    ("items-d32", "1,000 items, d = 32", "sphere", 1000, 32, 5.0),
    ("items-clusters", "1,000 items in clusters, d = 32", "clustered", 1000, 32, 5.0),
    ("items-d384", "5,000 prompts, d = 384", "prompts", 5000, 0, 20.0),
)


def _prompt_regimes() -> list[Regime]:
    regimes = [
        Regime("argmax", "argmax", True, "argmax"),
        Regime("scale-50", "sampled, scale 50", True, "sampled", 50.0),
        Regime("scale-20", "sampled, scale 20", True, "sampled", 20.0),
        Regime("scale-5", "sampled, scale 5", True, "sampled", 5.0),
    ]
    changes: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("pairs", "K = 2", {"num_options": 2}),
        ("state", "state feedback", {"feedback": "state"}),
        ("small", "400 tokens", {"vocabulary": "small"}),
        ("skewed", "80% near-duplicates", {"vocabulary": "skewed"}),
    )
    for name, title, change in changes:
        regimes.append(Regime(f"{name}-argmax", f"{title}, argmax", False, "argmax", **change))
        regimes.append(Regime(f"{name}-scale-20", f"{title}, scale 20", False, "sampled", 20.0, **change))
    # the threshold skips 10% to 30% of random questions of four sentences that are not among those above
    for name, title, scale, imperfect in (
        ("mistakes", "scale 50, 10% mistakes", 50.0, ("mistake_rate", 0.1)),
        ("skips", "scale 20, skips what it dislikes", 20.0, ("skip_threshold", 0.19)),
        ("myopic", "scale 20, last words weigh more", 20.0, ("myopia", 0.7)),
    ):
        regimes.append(Regime(name, title, False, "sampled", scale, imperfect=(imperfect,)))
    title = "state feedback, K = 2, scale 20"
    regimes.append(Regime("state-pairs-scale-20", title, False, "sampled", 20.0, feedback="state", num_options=2))
    return regimes


def _pool_regimes() -> list[Regime]:
    return [
        Regime(
            f"{name}-K{options}", f"{title}, K = {options}", False, "sampled", scale,
            f"{source}-n{count}" + (f"-d{dimension}" if dimension else ""), "state", options,
            source=source, num_items=count, dimension=dimension,
        )
        for options in (4, 2)
        for name, title, source, count, dimension, scale in _POOLS
    ]  # fmt: skip


def _style_regimes() -> list[Regime]:
    """Tastes that are not linear, and the same users with a linear one."""
    regimes = []
    for name, title, styles in (("two-styles", "two styles", 2), ("one-style", "one style", 1)):
        fields: dict[str, Any] = {"styles": styles, "kernels": True}
        regimes.append(Regime(f"{name}-argmax", f"{title}, argmax", False, "argmax", **fields))
        regimes.append(Regime(f"{name}-scale-20", f"{title}, scale 20", False, "sampled", 20.0, **fields))
        for pool, about, source, count, dimension, scale in (_POOLS[0], _POOLS[3]):
            pool_fields = {**fields, "source": source, "num_items": count, "dimension": dimension}
            vocabulary = f"{source}-n{count}" + (f"-d{dimension}" if dimension else "")
            names = f"{name}-{pool}", f"{title}, {about}"
            regimes.append(Regime(*names, False, "sampled", scale, vocabulary, "state", **pool_fields))
    return regimes


REGIMES: dict[str, Regime] = {
    regime.name: regime for regime in (*_prompt_regimes(), *_pool_regimes(), *_style_regimes(), *first_regimes())
}


def get_regime(name: str) -> Regime:
    """Return the regime of that name.

    Raises:
        ValueError: There is none; the message lists them.
    """
    check_choice_of(name, "regime", tuple(REGIMES))
    return REGIMES[name]


@dataclass(frozen=True)
class BenchSettings:
    """What decides the numbers of a unit; regimes, arms and the number of seeds only decide which units there are.

    Attributes:
        episodes: Numbers of episodes (T) in prompt MDPs after which estimates are judged; questions are asked up to the
            largest.
        questions: The same for pools of items, in questions.
        answers: The same for regimes of first answers, in answers.
        planned: Largest of ``answers`` for planners, which take far longer than Random.
        prompt_episodes: Numbers of episodes, among them, after which the best prompt is searched for (a beam search
            each).
        prompts: Held-out prompts or items of the preference error.
        pairs: Pairs of them.
        pool: Held-out prompts, those of ``prompts`` among them, from which an estimate chooses ten, in regimes of first
            answers.
        held_out_questions: Held-out questions of the choice error.
        sentences_per_seed: Users of a seed: 2 takes the sentences s mod 10 and (s + 5) mod 10, so that 20 seeds give
            40 runs; 10 crosses all.
        development: Ask the sentences on which constants are chosen, with seeds from 1000 on, in place of those that
            are reported on; in regimes of first answers only.
        vocabulary: Built-in vocabulary (images, interiors) or folder of token files, one per step, in alphabetical
            order (None: images). Regimes of first answers have their own.
        encoder: Text encoder: minilm, sentence-transformers:ID, open_clip:MODEL/TAG, precomputed:FILE,
            package.module:Class.
        small_per_step: Tokens of a step in the vocabulary "small".
        skewed_per_step: Tokens of a step in the vocabulary "skewed".
        split_seed: Seed of the train/test split, of the items that are prompts, and of the held-out prompts.

    Raises:
        ValueError: If a value is out of range.
    """

    episodes: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 36, 45, 60)
    questions: tuple[int, ...] = (5, 10, 15, 25, 40, 60)
    answers: tuple[int, ...] = (6, 12, 18, 24, 36, 60, 120, 360)
    planned: int = 360
    prompt_episodes: tuple[int, ...] = (3, 10, 30, 60)
    prompts: int = 1000
    pairs: int = 5000
    pool: int = 2000
    held_out_questions: int = 600
    sentences_per_seed: int = 2
    development: bool = False
    vocabulary: str | None = None
    encoder: str = "minilm"
    small_per_step: int = 67
    skewed_per_step: int = 200
    split_seed: int = 0

    def __post_init__(self) -> None:
        for name, what in (("episodes", "episodes (T)"), ("questions", "questions"), ("answers", "answers")):
            values = getattr(self, name)
            if not values:
                raise ValueError(f"Expected at least one number of {what}, got none; write for example --{name} 10")
            for value in values:
                check_count(value, what)
            object.__setattr__(self, name, tuple(sorted(set(values))))
        for value in self.prompt_episodes:
            check_count(value, "prompt_episodes")
        searched = tuple(sorted(set(self.prompt_episodes) & set(self.episodes)))
        object.__setattr__(self, "prompt_episodes", searched or (self.episodes[-1],))
        check_count(self.prompts, "prompts", minimum=2)
        check_count(self.pairs, "pairs")
        if check_count(self.planned, "planned") < self.answers[0]:
            raise ValueError(
                f"Expected planned of at least {self.answers[0]}, the first of the answers after which a planner is "
                f"judged, got {self.planned}"
            )
        check_count(self.pool, "pool", minimum=2)
        check_count(self.held_out_questions, "held_out_questions")
        check_count(self.sentences_per_seed, "sentences_per_seed")
        if self.sentences_per_seed > len(SENTENCES):
            raise ValueError(
                f"Expected sentences_per_seed of at most {len(SENTENCES)} (all sentences), got "
                f"{self.sentences_per_seed}"
            )
        check_count(self.small_per_step, "small_per_step", minimum=2)
        check_count(self.skewed_per_step, "skewed_per_step", minimum=10)
        check_count(self.split_seed, "split_seed", minimum=0)
        check_encoder_spec(self.encoder)
        check_path(self.vocabulary, "vocabulary")

    def checkpoints(self, regime: Regime, *, planned: bool = False) -> tuple[int, ...]:
        """Numbers of episodes (a question about items is one) after which estimates are judged.

        Args:
            regime: In which.
            planned: Whether a planner asks.

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
        first = {words: taste_sentences(words, development=self.development) for words in BUILT_IN}
        config = {**asdict(self), "sentences": dict(SENTENCES), "first_sentences": first}
        del config["sentences_per_seed"]
        return config


_FEW: dict[str, Any] = {"episodes": (1, 2, 3, 5, 7, 10), "prompt_episodes": (5, 10), "sentences_per_seed": 1}

STUDY_SETTINGS: dict[str, dict[str, Any]] = {
    "efficiency": {},
    "efficiency-quick": {"prompts": 500, "pairs": 2500, "held_out_questions": 180, "prompt_episodes": (10, 60)},
    "comparison": _FEW,
    "comparison-quick": {**_FEW, "questions": (5, 10, 25, 40), "pairs": 2500, "held_out_questions": 300},
    "first-answers": {"answers": (6, 12, 18, 24, 36, 60, 120), "planned": 24, "sentences_per_seed": 4},
    "first-answers-quick": {
        **{"answers": (6, 12, 24, 36), "planned": 24, "sentences_per_seed": 4},
        **{"prompts": 500, "pairs": 2500, "pool": 1000},
    },
}
"""Name of a study -> what its settings differ in from the defaults of ``BenchSettings``; see ``studies``."""


@dataclass(frozen=True, order=True)
class Unit:
    """What is run.

    Attributes:
        seed: Of items, questions and answers.
        regime: Name.
        user: Name of the user, such as that of a sentence.
        arm: Name.
    """

    seed: int
    regime: str
    user: str
    arm: str

    @property
    def part(self) -> str:
        """Name of its part file."""
        return f"{self.regime}__{self.arm}__s{self.seed:04d}-{self.user}"
