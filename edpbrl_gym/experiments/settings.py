"""Settings of the synthetic experiment: the paper's numbers, checked, and written to config.json."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from edpbrl_gym._feedback import Feedback, check_feedback
from edpbrl_gym._validation import check_choice_of, check_count, check_number, check_path
from edpbrl_gym.features import check_encoder_spec

if TYPE_CHECKING:
    from edpbrl_gym.vocabulary import Vocabulary

__all__ = [
    "PAPER_USERS",
    "QUICK",
    "AgentSettings",
    "SyntheticSettings",
    "UserSettings",
    "agent_labels",
    "check_users",
    "parse_agents",
]

# The three sentences of the paper's ground-truth models (appendix, "Ground Truth Scorer Models").
PAPER_USERS: dict[str, str] = {
    "sunny": "An image with warm colors depicting bright sunshine",
    "medieval": "An image with ancient kingdom depicting medieval times",
    "technological": "An image with advanced technologies depicting futuristic style",
}

QUICK: dict[str, Any] = {"episodes": (10, 40, 110), "runs": 8}


@dataclass(frozen=True)
class AgentSettings:
    """An agent of the comparison, written ``name[,option=value...]``.

    Options: ``criterion``, ``regularization`` (of its design; else the experiment's), ``label`` (its name in tables),
    and whatever its class takes, such as ``max_iterations`` or ``variant`` of a Frank-Wolfe agent.

    Attributes:
        text: The original text, for config.json.
        name: Registered name or import string "package.module:Class".
        label: In tables and figures.
        options: The options.
    """

    text: str
    name: str
    label: str
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> AgentSettings:
        """Read ``name[,option=value...]``; values are Python literals, anything else is a string.

        Raises:
            ValueError: If a part is no ``option=value``.
        """
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
    """The title of an agent with its options."""
    from edpbrl_gym.agents.registry import AGENTS

    if "label" in options:
        return str(options["label"])
    title = AGENTS[name].title if name in AGENTS else name.rpartition(":")[2]
    details = [f"{_short(key)}{value}" for key, value in options.items()]
    return f"{title} ({', '.join(details)})" if details else title


def _short(key: str) -> str:
    return {"criterion": "", "regularization": "lambda "}.get(key, f"{key} ")


def parse_agents(texts: Sequence[str]) -> tuple[AgentSettings, ...]:
    """Parse agents, see ``AgentSettings.parse``; those with the same title have their names in the labels.

    Raises:
        ValueError: No agent, two with the same label, or one that can't be parsed.
    """
    agents = tuple(AgentSettings.parse(text) for text in texts)
    titles = [agent.label for agent in agents]
    agents = tuple(
        replace(agent, label=f"{agent.label}, {agent.name}")
        if titles.count(agent.label) > 1 and "label" not in agent.options
        else agent
        for agent in agents
    )
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
    """How a simulated user answers.

    Attributes:
        mode: "argmax" (always the best option) or "sampled" (softmax).
        scale: Inverse temperature of the softmax; without effect for argmax.
    """

    mode: str
    scale: float

    @property
    def label(self) -> str:
        """Name in tables and figures."""
        return "argmax" if self.mode == "argmax" else f"sampled, scale {self.scale:g}"


def check_users(users: Mapping[str, str]) -> dict[str, str]:
    """Return sentences by user name; an empty sentence is that of the paper's user of this name.

    Raises:
        ValueError: No user, or one without a name or a sentence.
    """
    if not users:
        raise ValueError("Expected at least one user, got none")
    sentences = {name: sentence or PAPER_USERS.get(name, "") for name, sentence in users.items()}
    for name, sentence in sentences.items():
        if not name.strip() or not sentence.strip():
            raise ValueError(f"Expected users among {', '.join(PAPER_USERS)} or as name=sentence, got {name!r}")
    return sentences


@dataclass(frozen=True)
class SyntheticSettings:
    """What decides the numbers of the synthetic experiment; the defaults are the paper's.

    Attributes:
        episodes: The T at which estimates are judged.
        runs: Independent repeats.
        agents: Who asks, the baseline last: name or package.module:Class[,option=value...], as frank_wolfe,criterion=D.
        users: The paper's users by name, or your own as name=sentence; theta* is the sentence's embedding.
        modes: Users take the best option, or sample from the softmax (the paper does not say which).
        scales: Inverse temperatures of the sampled mode; 1 is nearly uniform, at 20 about 6 in 10 answers are the best.
        num_options: K, options of a question.
        criterion: Optimality criterion of the designs; the paper's is V.
        regularization: Lambda of the designs.
        estimation_regularization: Lambda of the estimates (None: that of the designs).
        iterations: Maximum number of Frank-Wolfe iterations.
        design_for: A design for each T, since its objective depends on T, or one for the largest T, whose first
            episodes serve all (three times faster).
        feedback: Compare partial prompts, single tokens, or complete prompts (once an episode).
        prompts: Held-out prompts of the preference error.
        pairs: Pairs of them.
        vocabulary: Built-in vocabulary (images, interiors) or folder of token files, one per step, in alphabetical
            order (None: images).
        encoder: Text encoder: minilm, sentence-transformers:ID, open_clip:MODEL/TAG (the paper: CLIP ViT-L/14),
            package.module:Class.
        tokens_per_step: Maximum number of train tokens of every step (None: all).
        seed: Seed of all draws, the train/test split included.

    Raises:
        ValueError: If a value is out of range.
    """

    episodes: tuple[int, ...] = (10, 30, 50, 70, 90, 110)
    runs: int = 25
    agents: tuple[str, ...] = ("frank_wolfe", "random")
    users: Mapping[str, str] = field(default_factory=lambda: dict(PAPER_USERS))
    modes: tuple[Literal["argmax", "sampled"], ...] = ("argmax", "sampled")
    scales: tuple[float, ...] = (1.0, 20.0)
    num_options: int = 4
    criterion: Literal["V", "A", "D"] = "V"
    regularization: float = 100.0
    estimation_regularization: float | None = None
    iterations: int = 100
    design_for: Literal["each", "largest"] = "each"
    feedback: Feedback = "truncated"
    prompts: int = 1000
    pairs: int = 5000
    vocabulary: str | None = None
    encoder: str = "minilm"
    tokens_per_step: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.episodes:
            raise ValueError(
                "Expected at least one number of episodes (T), got none; write for example --episodes 10 30"
            )
        for value in self.episodes:
            check_count(value, "episodes (T)")
        object.__setattr__(self, "episodes", tuple(sorted(set(self.episodes))))
        check_count(self.runs, "runs")
        check_count(self.num_options, "num_options (K)", minimum=2)
        check_count(self.iterations, "iterations")
        check_count(self.prompts, "prompts", minimum=2)
        check_count(self.pairs, "pairs")
        check_count(self.seed, "seed", minimum=0)
        check_encoder_spec(self.encoder)
        check_path(self.vocabulary, "vocabulary")
        if self.tokens_per_step is not None:
            check_count(self.tokens_per_step, "tokens_per_step", minimum=2)
        check_number(self.regularization, "regularization (lambda)", minimum=0.0)
        if self.estimation_regularization is not None:
            check_number(self.estimation_regularization, "estimation_regularization (lambda)", minimum=0.0)
        check_choice_of(self.criterion, "criterion", ("V", "A", "D"))
        check_choice_of(self.design_for, "design_for", ("each", "largest"))
        check_feedback(self.feedback)
        if not self.modes:
            raise ValueError("Expected at least one mode, got none")
        object.__setattr__(self, "users", check_users(self.users))
        for mode in self.modes:
            check_choice_of(mode, "modes", ("argmax", "sampled"))
        for scale in self.scales:
            check_number(scale, "scales", minimum=0.0, exclusive=True)
        if "sampled" in self.modes and not self.scales:
            raise ValueError(
                'Expected at least one scale for the mode "sampled", got none; write for example --scales 20'
            )
        parse_agents(self.agents)

    @property
    def parsed_agents(self) -> tuple[AgentSettings, ...]:
        """The agents, parsed."""
        return parse_agents(self.agents)

    @property
    def answering(self) -> tuple[UserSettings, ...]:
        """All ways of answering."""
        answerings: list[UserSettings] = []
        for mode in self.modes:
            scales = (1.0,) if mode == "argmax" else self.scales
            answerings += [UserSettings(mode, float(scale)) for scale in scales]
        return tuple(dict.fromkeys(answerings))

    @property
    def estimation_lambda(self) -> float:
        """Lambda of the estimate."""
        return self.regularization if self.estimation_regularization is None else self.estimation_regularization

    def split(self, vocabulary: Vocabulary) -> tuple[Vocabulary, Vocabulary]:
        """The train and the test part of a vocabulary."""
        train, test = vocabulary.split(self.seed)
        return (train if self.tokens_per_step is None else train.subset(self.tokens_per_step, 0)), test

    @property
    def environment(self) -> dict[str, Any]:
        """Arguments of the environment on whose train vocabulary the agents ask."""
        return {
            "vocabulary": self.vocabulary,
            "encoder": self.encoder,
            "split": "train",
            "split_seed": self.seed,
            "tokens_per_step": self.tokens_per_step,
        }

    def as_config(self) -> dict[str, Any]:
        """All settings, JSON-able."""
        return {**asdict(self), "users": dict(self.users)}
