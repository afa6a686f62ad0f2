"""Collection of answers: an agent asks, an oracle answers, many episodes at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._base_environment import base_environment
from edpbrl_gym._feedback import Feedback, check_feedback
from edpbrl_gym._validation import check_count
from edpbrl_gym.collection.distinct import DistinctOptions
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.envs.wrappers.preference_query import PreferenceQuery
from edpbrl_gym.oracles import answers_of

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv

    from edpbrl_gym.agents.base import Agent
    from edpbrl_gym.oracles import Oracle

__all__ = [
    "ENVIRONMENT",
    "DrawnQuestions",
    "answer_again",
    "check_static",
    "collect",
    "draw_questions",
    "is_static",
    "make_prompt_lanes",
    "reseed",
]

ENVIRONMENT = "edpbrl/PromptConstruction-v0"


def make_prompt_lanes(num_envs: int, *, environment: str = ENVIRONMENT, **arguments: Any) -> VectorEnv:
    """Create a registered environment with ``num_envs`` lanes in one array.

    Args:
        num_envs: Number of lanes.
        environment: Id of an environment that has its own vector form.
        **arguments: Arguments of the environment.
    """
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
        lanes_env = make_prompt_lanes(total * options, environment=env, **(env_arguments or {}))
        try:
            return _run(lanes_env, agent, oracle, total, options, seed, feedback, observe, distinct)
        finally:
            lanes_env.close()
    if env_arguments:
        raise ValueError("Expected env_arguments with the id of an environment only, got a made environment")
    return _run(env, agent, oracle, total, options, seed, feedback, observe, distinct)


def _run(
    env: VectorEnv,
    agent: Agent,
    oracle: Oracle,
    episodes: int,
    lanes: int,
    seed: int,
    feedback: Feedback,
    observe: bool,
    distinct: bool,
) -> Comparisons:
    venv = PreferenceQuery(env, lanes=lanes, oracle=oracle, feedback=feedback)
    base = base_environment(env)
    exchange = DistinctOptions(base, num_options=lanes, feedback=feedback, seed=seed) if distinct else None
    play_on = getattr(agent, "play_on", None)
    if play_on is not None:  # an agent that must know its environment, and may reject it
        play_on(venv)
    num_finished = 0
    observation, _ = venv.reset(seed=seed)
    state = None
    while num_finished < episodes:
        actions, state = agent.predict(observation, state, venv.episode_start)
        if exchange is not None:
            actions = exchange(agent, observation, actions)
        observation, _, terminations, truncations, infos = venv.step(actions)
        done = np.logical_or(terminations, truncations)
        # an episode ends with its last question, answered or not
        num_finished += int((done.reshape(-1, lanes).all(axis=1) & infos["_question"]).sum())
        if observe and infos["_preference"].any():
            agent.observe(venv.comparisons)
    comparisons = venv.comparisons
    if int(comparisons.episode.max()) >= episodes:
        comparisons = comparisons.select(comparisons.episode < episodes)
    return comparisons


def answer_again(comparisons: Comparisons, oracle: Oracle) -> Comparisons:
    """Return the same questions, answered by another oracle (nothing is encoded again).

    For agents whose questions don't depend on the answers: one set of questions then serves every user. Questions that
    the oracle does not answer (skips) are dropped; episodes and steps keep their numbers.

    Args:
        comparisons: Answered questions.
        oracle: Oracle that answers.
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

    Args:
        env: Id of a prompt environment.
        agent: Agent that plays all lanes; its questions must not depend on answers.
        episodes: Number of episodes T.
        env_arguments: Arguments of the environment.
        feedback: "truncated" shows partial prompts, "state" the last token, "prompt" complete prompts, once an episode.
        distinct: Exchange options that a question would show twice (`DistinctOptions`). False keeps the agent's
            options, as in the paper: for simulations.

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
