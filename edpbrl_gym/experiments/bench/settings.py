"""What the benchmark runs: regimes, sizes, users. The sentences and seeds were fixed before any result was seen."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from edpbrl_gym._validation import check_choice_of, check_count, check_path
from edpbrl_gym.experiments.bench.sentences import SENTENCES
from edpbrl_gym.features import check_encoder_spec

__all__ = ["REGIMES", "SENTENCES", "STUDY_SETTINGS", "BenchSettings", "Regime", "Unit", "get_regime"]

Source = Literal["mdp", "sphere", "clustered", "prompts"]


@dataclass(frozen=True)
class Regime:
    """Who answers what kind of question about what.

    Attributes:
        name: On the command line and in the table.
        title: In figures.
        headline: Whether the study "efficiency" gives it all seeds (a side regime gets fewer).
        mode: "argmax" or "sampled".
        scale: Inverse temperature of the sampled mode.
        vocabulary: Of prompt MDPs: "train" (the default vocabulary's train split), "small" (about 400 tokens of it) or
            "skewed" (80% of the tokens are near-duplicates). Of pools of items: name of the pool; regimes with the
            same pool differ in K and scale only.
        feedback: "truncated" (partial prompts) or "state" (the last token, or the item).
        num_options: K, options of a question.
        imperfect: Options of ``ImperfectUser`` beside mode and scale, as (name, value).
        source: "mdp" (prompts built step by step), or what the items of a pool are: "sphere" (uniform on the unit
            sphere) or "clustered" (around a few centres of it), both drawn anew for every seed together with the taste;
            "prompts" (embeddings of random partial prompts of the vocabulary's train split). Tastes of "mdp" and
            "prompts" are sentences.
        num_items: n, items of the pool; 0 for "mdp".
        dimension: d of "sphere" and "clustered"; 0 where the encoder says it.
        styles: 1, a linear taste; or 2: the user likes this style and another one, but not their mixture
            (`edpbrl_gym.oracles.TwoStyles`). The other is the sentence five further on, or drawn too.
        kernels: Whether Random questions are also given to the estimators of tastes that are not linear.
    """

    name: str
    title: str
    headline: bool
    mode: str
    scale: float = 1.0
    vocabulary: str = "train"
    feedback: str = "truncated"
    num_options: int = 4
    imperfect: tuple[tuple[str, float], ...] = ()
    source: Source = "mdp"
    num_items: int = 0
    dimension: int = 0
    styles: Literal[1, 2] = 1
    kernels: bool = False

    @property
    def world(self) -> str:
        """Name of what its questions are made of: regimes with the same one share questions that no answer changes."""
        return f"{self.vocabulary}-{self.feedback}-K{self.num_options}"

    @property
    def items(self) -> bool:
        """Whether options are items of a finite pool, and a question is one step."""
        return self.source != "mdp"

    @property
    def drawn(self) -> bool:
        """Whether every seed has items and a taste of its own."""
        return self.source in ("sphere", "clustered")


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
    regime.name: regime for regime in (*_prompt_regimes(), *_pool_regimes(), *_style_regimes())
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
        prompt_episodes: Numbers of episodes, among them, after which the best prompt is searched for (a beam search
            each).
        prompts: Held-out prompts or items of the preference error.
        pairs: Pairs of them.
        held_out_questions: Held-out questions of the choice error.
        sentences_per_seed: Users of a seed: 2 takes the sentences s mod 10 and (s + 5) mod 10, so that 20 seeds give
            40 runs; 10 crosses all.
        vocabulary: Built-in vocabulary (images, interiors) or folder of token files, one per step, in alphabetical
            order (None: images).
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
    prompt_episodes: tuple[int, ...] = (3, 10, 30, 60)
    prompts: int = 1000
    pairs: int = 5000
    held_out_questions: int = 600
    sentences_per_seed: int = 2
    vocabulary: str | None = None
    encoder: str = "minilm"
    small_per_step: int = 67
    skewed_per_step: int = 200
    split_seed: int = 0

    def __post_init__(self) -> None:
        for name, what in (("episodes", "episodes (T)"), ("questions", "questions")):
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

    def checkpoints(self, regime: Regime) -> tuple[int, ...]:
        """Numbers of episodes (a question about items is one) after which estimates are judged."""
        return self.questions if regime.items else self.episodes

    def users(self, regime: Regime, seed: int) -> tuple[str, ...]:
        """Names of the users of a seed: "drawn" with the items, or sentences, evenly spaced from ``seed`` on."""
        if regime.drawn:
            return ("drawn",)
        names = tuple(SENTENCES)
        spread = len(names) / self.sentences_per_seed
        return tuple(names[(seed + int(number * spread)) % len(names)] for number in range(self.sentences_per_seed))

    def as_config(self) -> dict[str, Any]:
        """Settings and sentences, JSON-able; ``sentences_per_seed`` is left out, as it only adds or removes units."""
        config = {**asdict(self), "sentences": dict(SENTENCES)}
        del config["sentences_per_seed"]
        return config


_FEW: dict[str, Any] = {"episodes": (1, 2, 3, 5, 7, 10), "prompt_episodes": (5, 10), "sentences_per_seed": 1}

STUDY_SETTINGS: dict[str, dict[str, Any]] = {
    "efficiency": {},
    "efficiency-quick": {"prompts": 500, "pairs": 2500, "held_out_questions": 180, "prompt_episodes": (10, 60)},
    "comparison": _FEW,
    "comparison-quick": {**_FEW, "questions": (5, 10, 25, 40), "pairs": 2500, "held_out_questions": 300},
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
