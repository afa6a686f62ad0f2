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
class RaceRegime:
    """Who answers questions about what.

    Attributes:
        name: On the command line and in the table.
        title: In figures.
        source: "sphere" (items uniform on the unit sphere) or "clustered" (around a few centres of it), both drawn anew
            for every seed together with the taste; "prompts" (embeddings of random partial prompts of the vocabulary's
            train split); or "mdp" (prompts built step by step from the train split). Tastes of the last two are
            sentences.
        num_options: K, options of a question.
        scale: Inverse temperature of the user, who samples from the softmax.
        num_items: n, items of the pool; 0 for "mdp".
        dimension: d of "sphere" and "clustered"; 0 where the encoder says it.
        feedback: "state" (an item, or the last token) or "truncated" (partial prompts, "mdp" only).
    """

    name: str
    title: str
    source: Source
    num_options: int
    scale: float
    num_items: int = 0
    dimension: int = 0
    feedback: str = "state"

    @property
    def items(self) -> bool:
        """Whether options are items of a finite pool, a question is one step."""
        return self.source != "mdp"

    @property
    def drawn(self) -> bool:
        """Whether every seed has items and a taste of its own."""
        return self.source in ("sphere", "clustered")

    @property
    def pool(self) -> str:
        """Name of its items: regimes with the same one differ in K and scale only."""
        return f"{self.source}-n{self.num_items}-d{self.dimension}" if self.drawn else f"prompts-n{self.num_items}"

    @property
    def base(self) -> Regime:
        """The regime as the benchmark of questions knows it."""
        return Regime(
            self.name,
            self.title,
            True,
            "sampled",
            self.scale,
            vocabulary="train" if self.source == "mdp" else self.pool,
            feedback=self.feedback,
            num_options=self.num_options,
        )


def _regimes() -> dict[str, RaceRegime]:
    found = []
    for options in (4, 2):
        end = f"K{options}"
        found += [
            RaceRegime(f"items-d10-{end}", f"100 items, d = 10, K = {options}", "sphere", options, 5.0, 100, 10),
            RaceRegime(f"items-d32-{end}", f"1,000 items, d = 32, K = {options}", "sphere", options, 5.0, 1000, 32),
            RaceRegime(
                f"items-clusters-{end}", f"1,000 items in clusters, d = 32, K = {options}", "clustered", options, 5.0,
                1000, 32,
            ),
            RaceRegime(f"items-d384-{end}", f"5,000 prompts, d = 384, K = {options}", "prompts", options, 20.0, 5000),
            RaceRegime(
                f"mdp-truncated-{end}", f"prompt MDP, partial prompts, K = {options}", "mdp", options, 20.0,
                feedback="truncated",
            ),
            RaceRegime(f"mdp-state-{end}", f"prompt MDP, tokens, K = {options}", "mdp", options, 20.0),
        ]  # fmt: skip
    return {regime.name: regime for regime in found}


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
