"""Settings that experiments share, those of the synthetic one and the demo, and the agents and users they name."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from edpbrl_gym._validation import (
    MOST_EPISODES,
    MOST_OPTIONS,
    MOST_PROMPTS,
    Feedback,
    check_choice_of,
    check_count,
    check_feedback,
    check_number,
    check_path,
    known_name,
)
from edpbrl_gym.features import check_encoder_spec

__all__ = [
    "DEMO_USERS",
    "PAPER_USERS",
    "AgentSettings",
    "DemoSettings",
    "DesignSettings",
    "SyntheticSettings",
    "UserSettings",
    "agent_labels",
    "check_named",
    "parse_agents",
]

# The three sentences of the paper's ground-truth models (appendix, "Ground Truth Scorer Models").
PAPER_USERS: dict[str, str] = {
    "sunny": "An image with warm colors depicting bright sunshine",
    "medieval": "An image with ancient kingdom depicting medieval times",
    "technological": "An image with advanced technologies depicting futuristic style",
}

DEMO_USERS: tuple[str, ...] = (
    "A cosy winter evening, warm candle light behind frosted windows",
    "Long summer holidays at the seaside when I was small",
    "A smoky jazz club long after midnight",
    "Strict modern architecture and nothing superfluous",
    "Spring flowers in my grandmother's garden",
)
"""The simulated users of the demo. Nothing was chosen on them."""


@dataclass(frozen=True)
class AgentSettings:
    """An agent of the comparison, written ``name[,option=value...]``.

    Options are ``label``, ``criterion`` and ``regularization`` (else the experiment's), and what its class takes.
    """

    text: str  # the original one, for config.json
    name: str  # registered, or import string "package.module:Class"
    label: str  # in tables and figures
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> AgentSettings:
        """Read ``name[,option=value...]``; values are Python literals, anything else is a string."""
        name, *parts = [part.strip() for part in text.split(",")]
        options: dict[str, Any] = {}
        for part in parts:
            key, equals, value = part.partition("=")
            if not equals or not key.isidentifier():
                raise ValueError(
                    f"Expected an agent as name[,option=value...], such as 'frank_wolfe,criterion=D,regularization=1', "
                    f"got {text!r}"
                )
            try:
                options[key] = ast.literal_eval(value)
            except (ValueError, SyntaxError):
                options[key] = value
        return cls(text, name, _label(name, options), options)


def _label(name: str, options: Mapping[str, Any]) -> str:
    from edpbrl_gym.agents.registry import AGENTS

    if "label" in options:
        return str(options["label"])
    entry = AGENTS.get(known_name(name, AGENTS))
    title = name.rpartition(":")[2] if entry is None else entry.title
    short = {"criterion": "", "regularization": "lambda "}
    details = [f"{short.get(key, f'{key} ')}{value}" for key, value in options.items()]
    return f"{title} ({', '.join(details)})" if details else title


def parse_agents(texts: Sequence[str]) -> tuple[AgentSettings, ...]:
    """Parse agents, see ``AgentSettings.parse``."""
    agents = tuple(AgentSettings.parse(text) for text in texts)
    labels = [agent.label for agent in agents]
    if not labels or len(set(labels)) != len(labels):
        raise ValueError(
            f"Expected at least one agent, each with its own label, got {labels}; add label=... to tell them apart"
        )
    return agents


def agent_labels(config: Mapping[str, Any]) -> list[str]:
    """Labels of the agents of a stored configuration, in their order; the last is the baseline."""
    return [agent.label for agent in parse_agents(config["agents"])]


@dataclass(frozen=True)
class UserSettings:
    """How a simulated user answers."""

    mode: str  # "argmax" (always the best option) or "sampled" (softmax)
    scale: float  # inverse temperature of the softmax; without effect for argmax

    @property
    def label(self) -> str:
        """Name in tables and figures."""
        return "argmax" if self.mode == "argmax" else f"sampled, scale {self.scale:g}"


def check_named(texts: Mapping[str, str], known: Mapping[str, str], what: str, text: str) -> dict[str, str]:
    """Return texts by name; an empty one is that of the known thing (of the paper) of this name.

    Raises:
        ValueError: There is none, or one without a name or a text; ``what`` ("user") and ``text`` ("sentence") name it.
    """
    if not texts:
        raise ValueError(f"Expected at least one {what}, got none")
    found = {name: given or known.get(name, "") for name, given in texts.items()}
    for name, given in found.items():
        if not name.strip() or not given.strip():
            raise ValueError(f"Expected {what}s among {', '.join(known)} or as name={text}, got {name!r}")
    return found


@dataclass(frozen=True, kw_only=True)
class DesignSettings(ABC):
    """Questions of agents that ask the same of everybody; the defaults are the paper's.

    Attributes:
        agents: Who asks, the baseline last: name or package.module:Class[,option=value...], as frank_wolfe,criterion=D.
        num_options: K, options of a question.
        criterion: Optimality criterion of the designs by its name; the paper's is V.
        regularization: Lambda of the designs.
        iterations: Maximum number of Frank-Wolfe iterations.
        vocabulary: Vocabulary (images, interiors, posters, styles) or folder of token files, one per step, in
            alphabetical order (None: images). Questions use its 75% train part.
        encoder: Text encoder: minilm, sentence-transformers:ID, open_clip:MODEL/TAG (the paper: CLIP ViT-L/14),
            package.module:Class.
        seed: Seed of all draws, the train/test split included; not of a judge.
    """

    agents: tuple[str, ...] = ("frank_wolfe", "random")
    num_options: int = 4
    criterion: str = "V"
    regularization: float = 100.0
    iterations: int = 100
    vocabulary: str | None = None
    encoder: str = "minilm"
    seed: int = 0

    def __post_init__(self) -> None:
        check_count(self.num_options, "num_options (K)", minimum=2, maximum=MOST_OPTIONS)
        check_count(self.iterations, "iterations")
        check_count(self.seed, "seed", minimum=0)
        check_number(self.regularization, "regularization (lambda)", minimum=0.0)
        check_encoder_spec(self.encoder)
        check_path(self.vocabulary, "vocabulary")
        parse_agents(self.agents)

    @property
    def parsed_agents(self) -> tuple[AgentSettings, ...]:
        """The agents, parsed."""
        return parse_agents(self.agents)

    @abstractmethod
    def planned(self, agent: AgentSettings) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """The T that an agent plans for, and the T that its questions serve: ((planned, (served, ...)), ...)."""

    @property
    def environment(self) -> dict[str, Any]:
        """Arguments of the environment on whose train vocabulary the agents ask."""
        return {"vocabulary": self.vocabulary, "encoder": self.encoder, "split": "train", "split_seed": self.seed}

    def as_config(self) -> dict[str, Any]:
        """All settings, JSON-able."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class SyntheticSettings(DesignSettings):
    """What decides the numbers of the synthetic experiment; the defaults are the paper's.

    Attributes:
        episodes: The T at which estimates are judged.
        runs: Independent repeats.
        users: The paper's users by name, or your own as name=sentence; theta* is the sentence's embedding.
        modes: Users take the best option, or sample from the softmax (the paper does not say which).
        scales: Inverse temperatures of the sampled mode; 1 is nearly uniform, at 20 about 6 in 10 answers are the best.
        estimation_regularization: Lambda of the estimates (None: that of the designs).
        design_for: A design for each T, since its objective depends on T, or one for the largest T, whose first
            episodes serve all (three times faster).
        feedback: Compare partial prompts, single tokens, or complete prompts (once an episode).
        prompts: Held-out prompts of the preference error.
        pairs: Pairs of them.
    """

    episodes: tuple[int, ...] = (10, 30, 50, 70, 90, 110)
    runs: int = 25
    users: Mapping[str, str] = field(default_factory=lambda: dict(PAPER_USERS))
    modes: tuple[Literal["argmax", "sampled"], ...] = ("argmax", "sampled")
    scales: tuple[float, ...] = (1.0, 20.0)
    estimation_regularization: float | None = None
    design_for: Literal["each", "largest"] = "each"
    feedback: Feedback = "truncated"
    prompts: int = 1000
    pairs: int = 5000

    def __post_init__(self) -> None:
        if not self.episodes:
            raise ValueError(
                "Expected at least one number of episodes (T), got none; write for example --episodes 10 30"
            )
        for value in self.episodes:
            check_count(value, "episodes (T)", maximum=MOST_EPISODES)
        object.__setattr__(self, "episodes", tuple(sorted(set(self.episodes))))
        check_count(self.runs, "runs")
        check_count(self.prompts, "prompts", minimum=2, maximum=MOST_PROMPTS)
        check_count(self.pairs, "pairs")
        super().__post_init__()
        if self.estimation_regularization is not None:
            check_number(self.estimation_regularization, "estimation_regularization (lambda)", minimum=0.0)
        check_choice_of(self.design_for, "design_for", ("each", "largest"))
        check_feedback(self.feedback)
        object.__setattr__(self, "users", check_named(self.users, PAPER_USERS, "user", "sentence"))
        for mode in self.modes:
            check_choice_of(mode, "modes", ("argmax", "sampled"))
        for scale in self.scales:
            check_number(scale, "scales", minimum=0.0, exclusive=True)
        if not self.modes or ("sampled" in self.modes and not self.scales):
            raise ValueError(
                "Expected at least one mode, and at least one scale for sampled, got none; write --scales 20"
            )

    def planned(self, agent: AgentSettings) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """As in the base class; Random plans nothing: a smaller T is the first T episodes of its one sequence."""
        largest = max(self.episodes)
        if self.design_for == "largest" or agent.name == "random":
            return ((largest, self.episodes),)
        return tuple((episodes, (episodes,)) for episodes in self.episodes)

    @property
    def answering(self) -> tuple[UserSettings, ...]:
        """All ways of answering."""
        scales = {"argmax": (1.0,), "sampled": self.scales}
        return tuple(dict.fromkeys(UserSettings(mode, float(scale)) for mode in self.modes for scale in scales[mode]))

    @property
    def estimation_lambda(self) -> float:
        """Lambda of the estimate."""
        return self.regularization if self.estimation_regularization is None else self.estimation_regularization


@dataclass(frozen=True)
class DemoSettings:
    """Settings that decide the numbers of the demo.

    Attributes:
        text: Tastes of the simulated users in words, one user each; theta* is the embedding.
        questions: Questions that each user answers, in each way of asking.
        num_options: K, complete prompts of one of our questions; the paper's has four partial ones.
        vocabulary: Vocabulary (images, interiors, posters, styles) or folder of token files, one per step, in
            alphabetical order.
        encoder: Text encoder: minilm, sentence-transformers:ID, open_clip:MODEL/TAG, package.module:Class.
        seed: Seed of all draws.
    """

    text: tuple[str, ...] = DEMO_USERS
    questions: int = 18
    num_options: int = 9
    vocabulary: str = "posters"
    encoder: str = "minilm"
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.text or not all(text.strip() for text in self.text):
            raise ValueError("Expected a text that describes a taste, for each user, got an empty one")
        if len(set(self.text)) < len(self.text):
            raise ValueError("Expected another taste for each user, got one twice; leave it out")
        check_count(self.questions, "questions", maximum=MOST_EPISODES)
        check_count(self.num_options, "num_options (K)", minimum=2, maximum=MOST_OPTIONS)
        check_count(self.seed, "seed", minimum=0)
        check_encoder_spec(self.encoder)
        check_path(self.vocabulary, "vocabulary")

    def as_config(self) -> dict[str, Any]:
        """All settings, JSON-able."""
        return asdict(self)
