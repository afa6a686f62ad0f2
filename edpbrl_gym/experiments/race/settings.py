"""What the race runs: regimes, checkpoints and sizes. They and the seeds were fixed before any result was seen."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from edpbrl_gym._validation import check_choice_of, check_count
from edpbrl_gym.experiments.query_bench.settings import SENTENCES, BenchSettings, Regime
from edpbrl_gym.features import check_encoder_spec

__all__ = ["QUICK", "REGIMES", "RaceRegime", "RaceSettings", "get_regime"]

Source = Literal["sphere", "clustered", "prompts", "mdp"]


@dataclass(frozen=True)
class RaceRegime(Regime):
    """Who answers questions about what; users sample from the softmax.

    ``vocabulary`` is "train" (prompts built step by step from the train split) or the name of a pool of items, a
    vocabulary of one step; regimes with the same pool differ in K and scale only.

    Attributes:
        source: "mdp", or what the items are: "sphere" (uniform on the unit sphere) or "clustered" (around a few centres
            of it), both drawn anew for every seed together with the taste; "prompts" (embeddings of random partial
            prompts of the vocabulary's train split). Tastes of "mdp" and "prompts" are sentences.
        num_items: n, items of the pool; 0 for "mdp".
        dimension: d of "sphere" and "clustered"; 0 where the encoder says it.
    """

    source: Source = "mdp"
    num_items: int = 0
    dimension: int = 0

    @property
    def items(self) -> bool:
        """Whether options are items of a finite pool, a question is one step."""
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


def _regimes() -> dict[str, RaceRegime]:
    regimes = []
    for options in (4, 2):
        name_end, title_end = f"-K{options}", f", K = {options}"
        for name, title, source, count, dimension, scale in _POOLS:
            pool = f"{source}-n{count}" + (f"-d{dimension}" if dimension else "")
            regimes.append(
                RaceRegime(
                    name + name_end, title + title_end, True, "sampled", scale, pool, "state", options,
                    source=source, num_items=count, dimension=dimension,
                )
            )  # fmt: skip
        for feedback, title in (("truncated", "partial prompts"), ("state", "tokens")):
            title = f"prompt MDP, {title}{title_end}"
            name = f"mdp-{feedback}{name_end}"
            regimes.append(RaceRegime(name, title, True, "sampled", 20.0, "train", feedback, options))
    return {regime.name: regime for regime in regimes}


REGIMES: dict[str, RaceRegime] = _regimes()


def get_regime(name: str) -> RaceRegime:
    """Return the regime of that name.

    Raises:
        ValueError: There is none; the message lists them.
    """
    check_choice_of(name, "regime", tuple(REGIMES))
    return REGIMES[name]


@dataclass(frozen=True)
class RaceSettings:
    """What decides the numbers of a unit; regimes, contenders and seeds only decide which units there are.

    Attributes:
        questions: Numbers of questions about items at which estimates are judged; asked are as many as the largest.
        episodes: Numbers of episodes, the same in prompt MDPs.
        prompt_episodes: Those of them at which the best prompt is searched for (a beam search each).
        prompts: Held-out items or prompts of the preference error.
        pairs: Pairs of them.
        held_out_questions: Held-out questions of the choice error.
        vocabulary: Folder; None is the built-in one.
        encoder: Text encoder.
        split_seed: Seed of the train/test split, the prompts of "prompts" and the held-out ones.

    Raises:
        ValueError: If a value is out of range.
    """

    questions: tuple[int, ...] = (5, 10, 15, 25, 40, 60)
    episodes: tuple[int, ...] = (1, 2, 3, 5, 7, 10)
    prompt_episodes: tuple[int, ...] = (5, 10)
    prompts: int = 1000
    pairs: int = 5000
    held_out_questions: int = 600
    vocabulary: str | None = None
    encoder: str = "minilm"
    split_seed: int = 0

    def __post_init__(self) -> None:
        for name in ("questions", "episodes"):
            values = getattr(self, name)
            if not values:
                raise ValueError(f"Expected at least one number of {name}, got none")
            for value in values:
                check_count(value, name)
            object.__setattr__(self, name, tuple(sorted(set(values))))
        kept = tuple(sorted(set(self.prompt_episodes) & set(self.episodes)))
        object.__setattr__(self, "prompt_episodes", kept or (self.episodes[-1],))
        check_count(self.prompts, "prompts", minimum=2)
        check_count(self.pairs, "pairs")
        check_count(self.held_out_questions, "held_out_questions")
        check_count(self.split_seed, "split_seed", minimum=0)
        check_encoder_spec(self.encoder)

    @property
    def bench(self) -> BenchSettings:
        """The settings of the worlds of prompts, for the benchmark of questions."""
        return BenchSettings(
            episodes=self.episodes,
            prompt_episodes=self.prompt_episodes,
            prompts=self.prompts,
            pairs=self.pairs,
            held_out_episodes=max(1, self.held_out_questions // 6),
            sentences_per_seed=1,
            vocabulary=self.vocabulary,
            encoder=self.encoder,
            split_seed=self.split_seed,
        )

    def checkpoints(self, regime: RaceRegime) -> tuple[int, ...]:
        """Numbers of episodes (a question about items is one) at which estimates are judged."""
        return self.questions if regime.items else self.episodes

    def user(self, regime: RaceRegime, seed: int) -> str:
        """Name of the user of a seed: "drawn" with the items, or a sentence; ten seeds see each sentence once."""
        return "drawn" if regime.drawn else tuple(SENTENCES)[seed % len(SENTENCES)]

    def as_config(self) -> dict[str, Any]:
        """Settings and sentences, JSON-able."""
        return {**asdict(self), "sentences": dict(SENTENCES)}


QUICK: dict[str, Any] = {
    "seeds": 4,
    "regimes": ("items-d10-K4", "items-d10-K2", "items-d32-K4"),
    "arms": ("random", "greedy_d", "adaptive_a", "bald", "qeubo", "ours"),
    "questions": (5, 10, 25, 40),
    "pairs": 2500,
    "held_out_questions": 300,
}
