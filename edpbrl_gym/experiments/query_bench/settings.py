"""What the benchmark runs: sentences, regimes, sizes. The sentences and seeds were fixed before any result was seen."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from edpbrl_gym._validation import check_choice_of, check_count
from edpbrl_gym.experiments.settings import PAPER_USERS
from edpbrl_gym.features import check_encoder_spec

__all__ = ["EPISODES", "QUICK", "REGIMES", "SENTENCES", "BenchSettings", "Regime", "Unit", "get_regime"]

# The paper's three users and seven of ours. Choices of constants in the library were made on other sentences and seeds.
SENTENCES: dict[str, str] = {
    **PAPER_USERS,
    "underwater": "An underwater world of coral reefs and drifting light",
    "noir": "A black and white street at night in the mood of film noir",
    "storybook": "Soft pastel colours and gentle shapes of a children's picture book",
    "industrial": "Rusty machines and broken concrete in an abandoned factory",
    "botanical": "Fine botanical drawings of wild flowers and leaves",
    "minimal": "A minimal composition with much empty space and clean lines",
    "festival": "A crowded street festival full of bright colours and music",
}

EPISODES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 36, 45, 60)


@dataclass(frozen=True)
class Regime:
    """Who answers what kind of question.

    Attributes:
        name: On the command line and in the table.
        title: In figures.
        headline: Whether it is one of the four headline regimes (all seeds) or a side regime (fewer).
        mode: "argmax" or "sampled".
        scale: Inverse temperature of the sampled mode.
        vocabulary: "train" (the default vocabulary's train split), "small" (about 400 tokens of it) or "skewed" (80% of
            the tokens are near-duplicates).
        feedback: "truncated" (partial prompts) or "state" (the last token).
        num_options: K, options of a question.
        imperfect: Options of ``ImperfectUser`` beside mode and scale, as (name, value).
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

    @property
    def world(self) -> str:
        """Name of what its questions are made of: regimes with the same one share questions of static rules."""
        return f"{self.vocabulary}-{self.feedback}-K{self.num_options}"

    @property
    def drawn(self) -> bool:
        """Whether every seed has a world and a taste of its own."""
        return False


def _regimes() -> dict[str, Regime]:
    found = [
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
    for name, title, other in changes:
        found.append(Regime(f"{name}-argmax", f"{title}, argmax", False, "argmax", **other))
        found.append(Regime(f"{name}-scale-20", f"{title}, scale 20", False, "sampled", 20.0, **other))
    # the threshold skips 10% to 30% of random questions of four sentences that are not among those above
    for name, title, scale, imperfect in (
        ("mistakes", "scale 50, 10% mistakes", 50.0, ("mistake_rate", 0.1)),
        ("skips", "scale 20, skips what it dislikes", 20.0, ("skip_threshold", 0.19)),
        ("myopic", "scale 20, last words weigh more", 20.0, ("myopia", 0.7)),
    ):
        found.append(Regime(name, title, False, "sampled", scale, imperfect=(imperfect,)))
    return {regime.name: regime for regime in found}


REGIMES: dict[str, Regime] = _regimes()


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
        episodes: The T at which estimates are judged; questions are asked up to the largest.
        prompt_episodes: The T, among them, at which the best prompt is searched for (a beam search each).
        prompts: Held-out prompts of the preference error.
        pairs: Pairs of them.
        held_out_episodes: Random held-out episodes of the choice accuracy.
        sentences_per_seed: Users of a seed: 2 takes the sentences s mod 10 and (s + 5) mod 10, so that 20 seeds give
            40 runs; 10 crosses all.
        vocabulary: Folder; None is the built-in one.
        encoder: Text encoder.
        small_per_step: Tokens of a step in the vocabulary "small".
        skewed_per_step: Tokens of a step in the vocabulary "skewed".
        split_seed: Seed of the train/test split and of the held-out prompts.

    Raises:
        ValueError: If a value is out of range.
    """

    episodes: tuple[int, ...] = EPISODES
    prompt_episodes: tuple[int, ...] = (3, 10, 30, 60)
    prompts: int = 1000
    pairs: int = 5000
    held_out_episodes: int = 100
    sentences_per_seed: int = 2
    vocabulary: str | None = None
    encoder: str = "minilm"
    small_per_step: int = 67
    skewed_per_step: int = 200
    split_seed: int = 0

    def __post_init__(self) -> None:
        if not self.episodes:
            raise ValueError("Expected at least one number of episodes (T), got none; write for example --episodes 10")
        for value in (*self.episodes, *self.prompt_episodes):
            check_count(value, "episodes (T)")
        object.__setattr__(self, "episodes", tuple(sorted(set(self.episodes))))
        kept = tuple(sorted(set(self.prompt_episodes) & set(self.episodes)))
        object.__setattr__(self, "prompt_episodes", kept or (self.episodes[-1],))
        check_count(self.prompts, "prompts", minimum=2)
        check_count(self.pairs, "pairs")
        check_count(self.held_out_episodes, "held_out_episodes")
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

    def checkpoints(self, regime: Regime) -> tuple[int, ...]:
        """Numbers of episodes at which estimates are judged, the same in all regimes."""
        return self.episodes

    def sentences_of(self, seed: int) -> tuple[str, ...]:
        """Names of the sentences of a seed, evenly spaced around the list from ``seed``."""
        names = tuple(SENTENCES)
        spread = len(names) / self.sentences_per_seed
        return tuple(names[(seed + int(number * spread)) % len(names)] for number in range(self.sentences_per_seed))

    def as_config(self) -> dict[str, Any]:
        """Settings and sentences, JSON-able; ``sentences_per_seed`` is left out, as it only adds or removes units."""
        config = {**asdict(self), "sentences": dict(SENTENCES)}
        del config["sentences_per_seed"]
        return config


@dataclass(frozen=True, order=True)
class Unit:
    """What is run, in this benchmark and in the race.

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


QUICK: dict[str, Any] = {
    "seeds": 2,
    "regimes": ("argmax", "scale-20"),
    "arms": ("random+ridge100", "random+ours", "adaptive"),
    "prompts": 500,
    "pairs": 2500,
    "held_out_episodes": 30,
    "prompt_episodes": (10, 60),
}
