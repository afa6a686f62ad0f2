"""Small environments and vocabularies that the tests of environments, wrappers and agents share."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete

from edpbrl_gym.features import save_precomputed
from edpbrl_gym.mdp import FiniteHorizonMDP

TOKENS = {
    "bases": ["a lighthouse on a cliff", "a city street"],
    "lighting": ["golden hour", "neon glow", "overcast sky"],
    "style": ["oil painting", "pencil sketch", "watercolor", "pixel art"],
}
SIZES = (2, 3, 4)


def write_vocabulary(folder: Path) -> str:
    """Write a vocabulary of unequal files and return its folder as a string."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, tokens in TOKENS.items():
        (folder / f"{name}.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    return str(folder)


def write_summed_world(folder: Path, *, dimension: int, seed: int) -> dict[str, Any]:
    """Write the vocabulary and embeddings of all partial prompts; return the arguments of the environment.

    A prompt is the sum of its tokens and a little more.
    """
    order = ["bases", "lighting", "style"]
    rng = np.random.default_rng(seed)
    rows = {token: rng.normal(size=dimension) for name in order for token in TOKENS[name]}
    known = dict(rows)
    for step in range(2, len(order) + 1):
        for tokens in itertools.product(*(TOKENS[name] for name in order[:step])):
            known[", ".join(tokens)] = sum(rows[token] for token in tokens) + 0.2 * rng.normal(size=dimension)
    path = folder / "rows.npz"
    save_precomputed(path, list(known), np.array(list(known.values())))
    return {"vocabulary": write_vocabulary(folder / "words"), "order": order, "encoder": f"precomputed:{path}"}


def chain_mdp(seed: int = 3, states: int = 5, actions: int = 3, horizon: int = 4) -> FiniteHorizonMDP:
    """A stochastic MDP in which one action is missing in one state."""
    rng = np.random.default_rng(seed)
    transitions = rng.dirichlet(np.ones(states), size=(states, actions))
    initial = rng.dirichlet(np.ones(states))
    admissible = np.ones((horizon, states, actions), dtype=bool)
    admissible[:, 1, 2] = False
    return FiniteHorizonMDP.from_dense(transitions, initial, horizon, admissible=admissible)


class ChainEnv(gymnasium.Env):
    """A third party's stochastic environment; its observation is the MDP's state."""

    metadata = {"render_modes": []}

    def __init__(self, *, seed: int = 3) -> None:
        self.mdp = chain_mdp(seed)
        self.features = np.random.default_rng(seed).normal(size=(self.mdp.num_rows, 3)).astype(np.float32)
        self.observation_space = Discrete(self.mdp.num_states)
        self.action_space = Discrete(self.mdp.num_actions)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        self.state = int(self.np_random.choice(self.mdp.num_states, p=self.mdp.initial))
        return self.state, {}

    def step(self, action):
        pair = int(np.flatnonzero((self.mdp.pair_state == self.state) & (self.mdp.pair_action == action))[0])
        row = self.mdp.transitions[[pair]].toarray().ravel()
        self.state = int(self.np_random.choice(self.mdp.num_states, p=row))
        self.steps += 1
        return self.state, 0.0, self.steps == self.mdp.horizon, False, {}


class RaggedEnv(ChainEnv):
    """Episodes of random length: lanes of a group fall out of step."""

    def step(self, action):
        state, reward, terminated, truncated, info = super().step(action)
        return state, reward, terminated or bool(self.np_random.random() < 0.4), truncated, info


class BareEnv(gymnasium.Env):
    """An environment without a model."""

    metadata = {"render_modes": []}

    def __init__(self) -> None:
        self.observation_space = Discrete(2)
        self.action_space = Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return 1, 0.0, True, False, {}
