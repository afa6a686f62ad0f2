"""Collection of answers: an agent asks, an oracle answers, many episodes at once.

The K options of a question come from K lanes that act independently, so that two of them may be equal: a person would
compare a prompt with itself. For people such an option is exchanged before the lanes step (`DistinctOptions`).

A design's certificate is about its policies: the expected information of their questions. The questions that are drawn
have less: `information_of` computes it at p = 1/K (theta = 0), with the prior of the design problem.
"""

from __future__ import annotations

import math
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._base_environment import base_environment
from edpbrl_gym._validation import Feedback, check_count, check_feedback
from edpbrl_gym.agents.base import Agent
from edpbrl_gym.agents.tabular import require
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.design import DesignProblem
from edpbrl_gym.design.criteria import SingularInformationError, cholesky, inverse
from edpbrl_gym.envs.wrappers.preference_query import PreferenceQuery
from edpbrl_gym.likelihood.choice import fisher_information
from edpbrl_gym.mdp import PromptMDP
from edpbrl_gym.oracles import answers_of
from edpbrl_gym.vocabulary.tokens import fold
from edpbrl_gym.vocabulary.vocabulary import SEPARATOR, check_enough_options

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv

    from edpbrl_gym.agents.base import Agent
    from edpbrl_gym.oracles import Oracle

__all__ = [
    "ENVIRONMENT",
    "DistinctOptions",
    "DrawnQuestions",
    "Information",
    "answer_again",
    "check_static",
    "collect",
    "draw_questions",
    "information_of",
    "is_static",
    "make_prompt_lanes",
    "reseed",
    "token_options",
]


class DistinctOptions:
    """Exchanges options that their question shows already.

    The first of equal options stays. Each later one is replaced by an option that the question doesn't show yet, drawn
    with the agent's weights (`Agent.option_weights`), or uniformly if it has none or they are 0 on all unused actions.
    Options are equal if their texts are (ignoring case and runs of white space). Questions without equal options stay
    as they are, and the agent's own generator is not used. Where complete prompts are compared, partial ones may be
    equal as long as the steps that follow can still tell them apart.

    Args:
        base: The innermost environment, a prompt environment.
        num_options: Number of options K of a question.
        feedback: Options compared: "truncated" (partial prompts), "state" (the last token) or "prompt" (complete
            prompts).
        seed: Seed of the draws.

    Attributes:
        exchanged: Number of options exchanged so far.

    Raises:
        TypeError: If the environment does not build prompts.
        ValueError: If there are fewer than K different options at a step.
    """

    def __init__(self, base: Any, *, num_options: int, feedback: Feedback, seed: int) -> None:
        require(base, "mdp", "vocabulary", who="distinct options")
        if not isinstance(base.mdp, PromptMDP):
            raise TypeError(
                f"Expected an environment with a PromptMDP for distinct options, got a {type(base.mdp).__name__}; its "
                "options have no texts to compare."
            )
        check_feedback(feedback)
        check_enough_options(base.vocabulary, num_options, feedback)
        self.exchanged = 0
        self._base = base
        self._num_options = num_options
        self._with_prefix = feedback != "state"
        sizes = base.vocabulary.sizes
        # lanes of each step that may be equal: the steps after it can still make them differ
        self._equal = [math.prod(sizes[step + 1 :]) if feedback == "prompt" else 1 for step in range(len(sizes))]
        self._tokens = [[fold(token) for token in step] for step in base.vocabulary.tokens]
        self._rng = np.random.default_rng([seed, 0])

    def __call__(self, agent: Agent, observation: NDArray[Any], actions: NDArray[Any]) -> NDArray[Any]:
        """Return the actions of n lanes, exchanged where a question would repeat an option.

        Args:
            agent: Agent that chose the actions.
            observation: Its observations, (n, H).
            actions: Its actions, (n,); illegal ones are left for the environment to reject.

        Raises:
            ValueError: If every unused option of a step has the text of one that is shown.
        """
        result, steps = np.array(actions), self._base.mdp_step(observation)
        if result.shape != steps.shape:
            return result
        for start in range(0, len(result), self._num_options):
            step, group = int(steps[start]), slice(start, start + self._num_options)
            if step < len(self._tokens) and ((result[group] >= 0) & (result[group] < len(self._tokens[step]))).all():
                self._exchange(agent, observation[group], step, result[group])
        return result

    def _exchange(self, agent: Agent, lanes: NDArray[Any], step: int, actions: NDArray[Any]) -> None:
        """Exchange the repeats of one question beyond those allowed, in place."""
        prefixes = [self._prefix(lane, step) for lane in lanes]
        texts = [prefix + self._tokens[step][action] for prefix, action in zip(prefixes, actions, strict=True)]
        for option, text in enumerate(texts):
            if texts[:option].count(text) < self._equal[step]:
                continue
            shown = Counter(texts[:option] + texts[option + 1 :])
            usable = np.array([shown[prefixes[option] + token] < self._equal[step] for token in self._tokens[step]])
            if not usable.any():
                raise ValueError(
                    f"Expected a token at step {step} that makes another prompt than {text!r}, found none: tokens with "
                    "commas make different choices read the same; take other tokens or fewer options."
                )
            actions[option] = self._draw(agent, lanes[option], step, option, usable)
            texts[option] = prefixes[option] + self._tokens[step][actions[option]]
            self.exchanged += 1

    def _prefix(self, lane: NDArray[Any], step: int) -> str:
        """The folded text of an option before its next token."""
        if not self._with_prefix:
            return ""
        return "".join(self._tokens[earlier_step][lane[earlier_step]] + SEPARATOR for earlier_step in range(step))

    def _draw(self, agent: Agent, observation: NDArray[Any], step: int, option: int, usable: NDArray[np.bool_]) -> int:
        weights = usable.astype(np.float64)
        for agent_weights in agent.option_weights(observation, step, option):
            if (agent_weights[: usable.size] * usable).sum() > 0:
                weights = agent_weights[: usable.size] * usable
                break
        return int(self._rng.choice(usable.size, p=weights / weights.sum()))


ENVIRONMENT = "edpbrl/PromptConstruction-v0"


def make_prompt_lanes(num_envs: int, *, environment: str = ENVIRONMENT, **arguments: Any) -> VectorEnv:
    """Create a registered environment that has its own vector form, with ``num_envs`` lanes in one array."""
    import gymnasium

    import edpbrl_gym  # noqa: F401  (registers the environments)

    return gymnasium.make_vec(environment, num_envs=num_envs, vectorization_mode="vector_entry_point", **arguments)


def collect(
    env: str | VectorEnv,
    agent: Agent,
    oracle: Oracle,
    *,
    episodes: int,
    seed: int = 0,
    feedback: Feedback = "truncated",
    lanes: int | None = None,
    env_arguments: dict[str, Any] | None = None,
    observe: bool = False,
    distinct: bool = False,
) -> Comparisons:
    """Run an agent for T episodes of K lanes and return the answered questions.

    With an id all T episodes run at once (T * K lanes), so that the encoder gets large batches. In either case no
    question depends on an earlier answer, unless the agent observes the answers (``observe``).

    Args:
        env: Id of an environment with a vector form, or a vector environment with a multiple of K lanes.
        agent: Agent that plays all lanes; lane i is option i mod K.
        oracle: Oracle that answers.
        episodes: Number of episodes T, at least 1; further episodes of a vector environment are dropped.
        seed: Seed of the environment's reset. The agent's draws come from the agent's own seed.
        feedback: Options compared: "truncated" (partial prompts), "state" (the last token) or "prompt" (complete
            prompts, one question an episode).
        lanes: Number of options K; None takes ``agent.num_options``.
        env_arguments: Arguments of the environment if ``env`` is an id.
        observe: Pass all answers to the agent after each step. To let it learn between episodes, pass an environment of
            K lanes; with an id all episodes run at once.
        distinct: Exchange options that a question would show twice (`DistinctOptions`), for people. Without it the
            lanes are as the agent plays them, as in the paper.

    Returns:
        T * H comparisons (for a horizon of H; T of complete prompts), ordered by step within each batch of episodes,
        without those that the oracle did not answer.

    Raises:
        TypeError: If ``distinct`` is set for an environment that does not build prompts.
        ValueError: If T < 1, the number of lanes is not a multiple of K, or the options can't be distinct.
        RuntimeError: If no question was answered.
    """
    total = check_count(episodes, "episodes (T)")
    options = check_count(agent.num_options if lanes is None else lanes, "lanes (K)", minimum=2)
    if isinstance(env, str):
        made = make_prompt_lanes(total * options, environment=env, **(env_arguments or {}))
        given: dict[str, Any] = {"lanes": options, "seed": seed, "observe": observe, "distinct": distinct}
        with closing(made):
            return collect(made, agent, oracle, episodes=total, feedback=feedback, **given)
    if env_arguments:
        raise ValueError("Expected env_arguments with the id of an environment only, got a made environment")
    venv = PreferenceQuery(env, lanes=options, oracle=oracle, feedback=feedback)
    base = base_environment(env)
    exchange = DistinctOptions(base, num_options=options, feedback=feedback, seed=seed) if distinct else None
    play_on = getattr(agent, "play_on", None)
    if play_on is not None:  # an agent that must know its environment, and may reject it
        play_on(venv)
    num_finished = 0
    observation, _ = venv.reset(seed=seed)
    state = None
    while num_finished < total:
        actions, state = agent.predict(observation, state, venv.episode_start)
        if exchange is not None:
            actions = exchange(agent, observation, actions)
        observation, _, terminations, truncations, infos = venv.step(actions)
        done = np.logical_or(terminations, truncations)
        # an episode ends with its last question, answered or not
        num_finished += int((done.reshape(-1, options).all(axis=1) & infos["_question"]).sum())
        if observe and infos["_preference"].any():
            agent.observe(venv.comparisons)
    comparisons = venv.comparisons
    return comparisons.select(comparisons.episode < total) if comparisons.episode.max() >= total else comparisons


def answer_again(comparisons: Comparisons, oracle: Oracle) -> Comparisons:
    """Return the same questions, answered by another oracle (nothing is encoded again).

    For agents whose questions don't depend on the answers: one set of questions then serves every user. Questions that
    the oracle does not answer (skips) are dropped; episodes and steps keep their numbers.
    """
    responses = answers_of(oracle, comparisons.queries).responses
    describe = getattr(oracle, "describe", None)
    described = describe() if callable(describe) else {"name": oracle.name}
    return Comparisons(
        features=comparisons.features,
        responses=responses,
        episode=comparisons.episode,
        step=comparisons.step,
        texts=comparisons.texts,
        sizes=comparisons.sizes,
        who=oracle.name,
        metadata={**comparisons.metadata, "oracle": described},
    ).answered


def is_static(agent: Agent) -> bool:
    """Return whether an agent's questions don't depend on the answers.

    An agent that overrides ``observe`` counts as adaptive, unless its attribute ``static`` is true.
    """
    from edpbrl_gym.agents.base import Agent as Base

    return bool(getattr(agent, "static", type(agent).observe is Base.observe))


def check_static(agent: Agent) -> None:
    """Raise a ValueError for an agent that adapts its questions to the answers: every user would need its own run."""
    if not is_static(agent):
        raise ValueError(
            f"Expected an agent whose questions don't depend on the answers, {type(agent).__name__} overrides "
            "observe(); this experiment asks the same questions of all users. Use collect() with one user at a time"
        )


def reseed(agent: Agent, seed: int) -> None:
    """Set the state of an agent's own generator, in place, so that helpers which share it follow."""
    agent.rng.bit_generator.state = np.random.default_rng(seed).bit_generator.state


@dataclass(frozen=True, eq=False)
class DrawnQuestions:
    """Questions for people.

    Attributes:
        questions: T * H entries (episode, step, K texts), ordered by episode and step; T of complete prompts.
        tokens: Action of each lane at each step, (T, K, H).
        exchanged: Number of options exchanged because their question showed them already.
    """

    questions: list[tuple[int, int, list[str]]]
    tokens: NDArray[np.int64]
    exchanged: int


def draw_questions(
    env: str,
    agent: Agent,
    *,
    episodes: int,
    env_arguments: dict[str, Any],
    feedback: Feedback = "truncated",
    distinct: bool = True,
) -> DrawnQuestions:
    """Draw the questions of an agent as texts, without asking anyone and without encoding anything.

    The arguments are those of `collect`; the agent's questions must not depend on answers.

    Raises:
        ValueError: If T < 1, the agent's questions depend on answers, or the options can't be distinct.
    """
    check_static(agent)
    check_feedback(feedback)
    options = agent.num_options
    lanes = make_prompt_lanes(check_count(episodes, "episodes (T)") * options, environment=env, **env_arguments)
    base = base_environment(lanes)
    exchange = DistinctOptions(base, num_options=options, feedback=feedback, seed=agent.seed) if distinct else None
    questions: list[tuple[int, int, list[str]]] = []
    observation, _ = lanes.reset()
    state = None
    starts = np.ones(lanes.num_envs, dtype=np.bool_)
    for step in range(base.mdp.horizon):
        actions, state = agent.predict(observation, state, starts)
        if exchange is not None:
            actions = exchange(agent, observation, actions)
        observation, _, _, _, _ = lanes.step(actions)
        starts = np.zeros_like(starts)
        if feedback == "prompt" and step + 1 < base.mdp.horizon:
            continue
        texts = base.state_texts(observation) if feedback == "state" else base.trajectory_texts(observation)
        questions += [
            (episode, step, texts[episode * options : (episode + 1) * options]) for episode in range(episodes)
        ]
    lanes.close()
    return DrawnQuestions(
        questions=sorted(questions, key=lambda question: question[:2]),
        tokens=np.asarray(observation, dtype=np.int64).reshape(episodes, options, -1),
        exchanged=0 if exchange is None else exchange.exchanged,
    )


@dataclass(frozen=True)
class Information:
    """Information of a set of questions."""

    value: float | None  # criterion of their information plus the prior; None if that is singular (lambda = 0)
    gain: float | None  # value minus that of the prior alone; None if either is singular
    learned: float  # number of the d parameters that the answers determine, tr(I_data (I_data + Lambda)^-1)
    efficiency: float | None  # of the value relative to a certified bound; None without a bound


def information_of(problem: DesignProblem, options: ArrayLike, *, upper_bound: float | None = None) -> Information:
    """Compute the information of questions.

    Args:
        problem: Design problem with the prior and the criterion.
        options: Features of the options, (n, K, d).
        upper_bound: Bound on the value of any such questions: `Design.upper_bound` if the options are feature rows.
    """
    data = fisher_information(options)
    try:
        covariance = inverse(cholesky(data + problem.prior))
        value = problem.criterion.value(data + problem.prior)
    except SingularInformationError:
        return Information(None, None, float(np.linalg.matrix_rank(data, hermitian=True)), None)
    gain = value - problem.baseline
    return Information(
        value=value,
        gain=gain if np.isfinite(gain) else None,
        learned=float(np.vdot(data, covariance)),
        efficiency=None if upper_bound is None else problem.criterion.efficiency(value, upper_bound, problem.dimension),
    )


def token_options(problem: DesignProblem, tokens: NDArray[np.integer]) -> NDArray[np.float64]:
    """Features (T * H, K, d) of tokens (T, K, H) of a prompt MDP, ordered by episode and step."""
    first_rows = np.array([problem.mdp.step_pairs(step).start for step in range(problem.horizon)])  # type: ignore[attr-defined]
    rows = (tokens + first_rows).transpose(0, 2, 1)
    return problem.rows(rows.ravel()).reshape(-1, tokens.shape[1], problem.dimension)
