"""An environment of your own
==========================

Plug in an environment of your own: with ``.mdp`` and ``.features`` every tabular agent works on it.

A walk around a ring of colours that sometimes slips; the user is asked which of two walks is at the nicer colour.

On the command line::

    python examples/plug_in_environment.py
"""
# sphinx_gallery_thumbnail_path = "synthetic-argmax.png"

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import tyro
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import edpbrl_gym as eg

COLOURS, STEPS, SLIP = 12, 8, 0.1


# %%
# The environment: ``mdp`` says how it moves, ``features`` what a person may like about each state.
class ColourWalk(gymnasium.Env):
    """Stay (0), go left (1) or right (2) on a ring of colours; with probability SLIP a move fails."""

    metadata = {"render_modes": []}

    def __init__(self) -> None:
        """Define the model: transitions P(s' | s, a), and a feature row for each state."""
        moves = np.array([0, -1, 1])
        self.transitions = np.zeros((COLOURS, 3, COLOURS))
        for state in range(COLOURS):
            for action, move in enumerate(moves):
                self.transitions[state, action, (state + move) % COLOURS] += 1 - SLIP
                self.transitions[state, action, state] += SLIP
        start = np.full(COLOURS, 1 / COLOURS)
        self.mdp = eg.FiniteHorizonMDP.from_dense(self.transitions, start, STEPS)
        angle = 2 * np.pi * np.arange(COLOURS) / COLOURS
        self.features = np.stack([np.cos(angle), np.sin(angle), np.cos(2 * angle)], axis=1)
        self.observation_space = gymnasium.spaces.Discrete(COLOURS)  # the state itself: no mdp_state needed
        self.action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Begin at a random colour."""
        super().reset(seed=seed)
        self.state, self.steps = int(self.np_random.integers(COLOURS)), 0
        return self.state, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Walk one step."""
        self.state = int(self.np_random.choice(COLOURS, p=self.transitions[self.state, action]))
        self.steps += 1
        return self.state, 0.0, self.steps == STEPS, False, {}


# %%
# What can be set on the command line.
@dataclass
class Args:
    """Arguments of the run."""

    agent: str = "newton"
    """a registered name or an import string package.module:Class"""
    episodes: int = 20
    """episodes T"""
    lanes: int = 2
    """options K of a question"""
    scale: float = 3.0
    """inverse temperature of the user's answers"""
    seed: int = 0
    """seed of everything"""


# %%
# Design the questions, ask, estimate.
def main(args: Args) -> float:
    """Design, ask, estimate; print and return the cosine with the true taste."""
    env = SyncVectorEnv([ColourWalk] * args.lanes, autoreset_mode=AutoresetMode.SAME_STEP)
    user = eg.SyntheticUser(np.array([0.5, -0.8, 0.3]), mode="sampled", scale=args.scale, seed=args.seed)
    query = eg.PreferenceQuery(env, lanes=args.lanes, oracle=user, feedback="state")
    agent = eg.make_agent(
        args.agent, query, num_options=args.lanes, episodes=args.episodes, criterion="D", seed=args.seed
    ).learn()
    if agent.design is not None:
        print(agent.design.summary())

    observations, _ = query.reset(seed=args.seed)
    state = None
    for _ in range(args.episodes * STEPS):
        actions, state = agent.predict(observations, state, query.episode_start)
        observations, *_ = query.step(actions)

    result = eg.estimate(query.comparisons, regularization=0.1)
    cosine = float(result.theta @ user.theta / np.linalg.norm(result.theta) / np.linalg.norm(user.theta))
    print(f"{agent.name}: {len(query.comparisons)} answers, theta {np.round(result.theta, 2)}, cosine {cosine:.3f}")
    return cosine


# %%
# Run it.
if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
