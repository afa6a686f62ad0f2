"""An agent of your own
====================

Plug in an agent of your own: pass its import string instead of a registered name.

On the command line::

    python examples/custom_agent.py --episodes 40
    python examples/custom_agent.py --agent random  # the same with a registered one
"""
# sphinx_gallery_thumbnail_path = "results-questions.png"

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import tyro

import edpbrl_gym as eg
from edpbrl_gym.agents import EpisodeStart, State


# %%
# An agent is a class with ``predict``: observations of all lanes in, an action for every lane out.
class DistinctAgent(eg.Agent):
    """Shows K different tokens in every question if the step has as many."""

    name = "distinct"

    def __init__(self, env: Any, **arguments: Any) -> None:
        """Read the number of tokens of each step from the environment's MDP."""
        super().__init__(env, **arguments)
        self.sizes = np.array(self.base.mdp.sizes)

    def predict(
        self,
        observation: Any,
        state: State = None,
        episode_start: EpisodeStart = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, State]:
        """Assign the tokens of the current step to the lanes; ``state`` isn't needed here."""
        steps = self.base.mdp_step(observation)
        actions = np.zeros(len(observation), dtype=int)
        for first in range(0, len(observation), self.num_options):
            step = steps[first]
            if step == len(self.sizes):  # a complete prompt: the environment only resets
                continue
            order = np.arange(self.sizes[step]) if deterministic else self.rng.permutation(self.sizes[step])
            lanes = np.arange(first, min(first + self.num_options, len(observation)))
            actions[lanes] = np.resize(order, lanes.size)
        return actions, state


# %%
# What can be set on the command line.
@dataclass
class Args:
    """Arguments of the run."""

    agent: str = "custom_agent:DistinctAgent"
    """a registered name or an import string package.module:Class"""
    user: str = "a quiet misty morning in the mountains"
    """what the simulated user likes"""
    episodes: int = 40
    """episodes T"""
    lanes: int = 4
    """options K of a question"""
    tokens_per_step: int | None = 50
    """size of the vocabulary"""
    regularization: float = 1.0
    """ridge lambda of the estimate"""
    seed: int = 0
    """seed of agent and environment"""


# %%
# The agent asks a simulated user, and the taste is estimated from the answers.
def main(args: Args) -> float:
    """Ask, estimate and return the cosine between the estimate and the taste."""
    env = gymnasium.make_vec(
        "edpbrl/PromptConstruction-v0",
        num_envs=args.lanes,
        tokens_per_step=args.tokens_per_step,
        autoreset_mode="same_step",
    )
    base: Any = env.unwrapped  # with .encoder, .mdp and .features
    user = eg.SyntheticUser.from_text(args.user, base.encoder, mode="argmax", seed=args.seed)
    query = eg.PreferenceQuery(env, lanes=args.lanes, oracle=user)
    agent = eg.make_agent(
        args.agent, query, num_options=args.lanes, episodes=args.episodes, criterion="D", seed=args.seed
    ).learn()

    observations, infos = query.reset(seed=args.seed)
    state = None
    for _ in range(args.episodes * base.mdp.horizon):
        actions, state = agent.predict(observations, state, query.episode_start)
        observations, rewards, _, _, infos = query.step(actions)

    result = eg.estimate(query.comparisons, regularization=args.regularization)
    cosine = float(result.theta @ user.theta / np.linalg.norm(result.theta) / np.linalg.norm(user.theta))
    print(f"last question: {infos['question'][0].tolist()}\nanswer: {infos['preference'][0]}")
    print(f"{agent.name}: {len(query.comparisons)} answers, cosine with the true taste {cosine:.3f}")
    print(f"estimate converged: {result.converged} after {result.iterations} iterations")
    return cosine


# %%
# Run it.
if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
