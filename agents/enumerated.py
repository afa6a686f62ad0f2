"""The adaptive planner over all images that one noise can become."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats32, Indices
from edpbrl_gym._base_environment import base_environment
from edpbrl_gym._seeds import generator
from edpbrl_gym._validation import check_choice_of, check_count
from edpbrl_gym.agents.base import EpisodeStart, State
from edpbrl_gym.agents.planner import POSTERIORS, AskingAgent, checked_prior
from edpbrl_gym.design.trees import EpisodeTrees
from edpbrl_gym.diffusion.enumeration import check_sequences, enumerate_from
from edpbrl_gym.estimation.priors import make_prior
from edpbrl_gym.estimation.taste_prior import TastePrior
from edpbrl_gym.planners import TokenFeatures
from edpbrl_gym.planners.adaptive import AdaptivePlanner
from edpbrl_gym.vocabulary import Vocabulary

__all__ = ["EnumeratedAgent"]

_MEMO_BYTES = 1 << 28  # of the features that are kept
_OPTIONS = ("mode", "score", "draws", "starts", "memory")  # of the planner


class EnumeratedAgent(AskingAgent):
    """Chooses the K most informative of all episodes that begin from one noise.

    Where only the initial noise is random, a noise has A^B episodes. When the episode of a group begins, the agent
    enumerates them from the observation, lets the `AdaptivePlanner` choose K of them under the posterior of all
    answers so far, and plays them. The pool of the planner changes with every noise, its posterior stays.

    The K lanes of a group must begin from the same noise (``shared_noise=K``). The choice looks at the last images,
    while a `PreferenceQuery` asks after every block: the earlier blocks' answers are learned from too, but were not
    chosen for.

    Args:
        env: An environment with a ``model`` that can branch, such as ``edpbrl/DiffusionGuidance-v0``.
        posterior: "vocabulary": `VocabularyPrior` of the last images of ``prior_noises`` noises; "ridge":
            N(0, I / lambda) with lambda the ``regularization``.
        prior: A proper prior of theta, taken as it is, or a `Population`, in place of ``posterior``.
        prior_noises: Number of noises that are enumerated for the prior.
        **arguments: ``mode``, ``score``, ``draws``, ``starts`` and ``memory`` of `AdaptivePlanner`, and those of
            ``Agent``; ``criterion`` is not used.

    Raises:
        TypeError: If the environment has no such model.
        ValueError: If an option is out of range, or a noise has too many episodes.
    """

    name = "enumerated"

    def __init__(
        self,
        env: Any,
        *,
        posterior: str = "vocabulary",
        prior: TastePrior | None = None,
        prior_noises: int = 8,
        **arguments: Any,
    ) -> None:
        self.options = {name: arguments.pop(name) for name in _OPTIONS if name in arguments}
        super().__init__(env, **arguments)
        _check_branches(self.base)
        self.posterior = check_choice_of(posterior, "posterior", POSTERIORS)
        self.prior = checked_prior(prior)
        self.prior_noises = check_count(prior_noises, "prior_noises")
        AdaptivePlanner.check_options(num_options=self.num_options, **self.options)
        count = check_sequences(self.base.model)
        if count < self.num_options:
            raise ValueError(
                f"Expected at least num_options = {self.num_options} sequences of actions, got {count}; ask with fewer "
                "options or play more actions or blocks."
            )
        self._memo: OrderedDict[bytes, Floats32] = OrderedDict()
        self._sequences: Indices = np.empty((0, 0), dtype=np.int64)

    @classmethod
    def option_names(cls, **fixed: Any) -> list[str]:
        """Those of the class and of the planner."""
        return sorted({*super().option_names(**fixed), *_OPTIONS})

    def play_on(self, env: Any) -> Self:
        """From now on play these lanes, of the same model and directions.

        Raises:
            TypeError, ValueError: If they are of another kind.
        """
        base = base_environment(env)
        _check_branches(base)
        for name in ("horizon", "directions", "model_spec", "scheduler", "steps", "encoder_spec"):
            own, other = (getattr(one.model, name, None) for one in (self.base, base))
            if own != other:
                raise ValueError(f"Expected lanes with {name} = {own!r}, as the agent was made for, got {other!r}.")
        self.env, self.base = env, base
        self._memo.clear()  # a wrapper may show other features
        return self

    def learn(self) -> Self:
        """Enumerate the noises of the prior and set up the planner; forgets all answers."""
        model = self.base.model
        rng = generator(self.seed, "enumerated prior")
        noises = self.prior_noises if self.posterior != "ridge" and self.prior is None else 1
        trees = self._enumerate(model.start([model.draw_seed(rng) for _ in range(noises)]))
        self._sequences = trees.sequences()
        names = tuple(" ".join(map(str, sequence)) for sequence in self._sequences.tolist())
        vocabulary = Vocabulary(("actions",), (names,))
        rows = np.asarray(trees.features[-1], dtype=np.float32)
        prior = self.prior
        if prior is None:
            ends = trees.features[-1].reshape(-1, trees.dimension)
            prior = make_prior(self._named(self.posterior, trees.dimension), ends)
        self.planner = AdaptivePlanner(
            vocabulary,
            options=TokenFeatures(vocabulary, rows[0]),
            prior=prior,
            num_options=self.num_options,
            seed=self.seed,
            **self.options,
        )
        self._answers, self._num_answers = None, 0
        return self

    def predict(
        self,
        observation: Any,
        state: State = None,
        episode_start: EpisodeStart = None,
        deterministic: bool = False,
    ) -> tuple[NDArray[Any], State]:
        """The next actions of the sequences that each group plays; a group that begins gets new ones.

        Which block a lane is at is read off its observation. Complete lanes get action 0.

        Raises:
            ValueError: If the lanes are no whole number of groups of K, the lanes of a group are not in step or begin
                from different noises, or ``state`` doesn't say what a group plays.
        """
        self._made(self.planner, "planner")
        observations, single = self._batch(observation)
        groups = self._groups(observations, single)
        horizon = int(self.base.model.horizon)
        done = self.base.model.split(observations)[2]
        playing = np.full((len(observations), horizon), -1, dtype=np.int64)
        if state is not None:
            playing = np.array(state[0], dtype=np.int64)
        actions = np.zeros(len(observations), dtype=np.int64)
        for group in groups:
            block = int(done[group.start])
            if (done[group] != block).any():
                raise ValueError(f"Expected the lanes of a group in step, got {done[group].tolist()} blocks done.")
            if block == horizon:
                continue
            if block == 0:
                playing[group] = self._ask(observations[group])
            if playing.shape != (len(observations), horizon) or (playing[group] < 0).any():
                raise ValueError("Expected the state that the last predict() returned for these lanes, got another.")
            actions[group] = playing[group, block]
        return actions, (playing,)

    def _ask(self, observations: NDArray[Any]) -> Indices:
        """The K sequences (K, B) of the most informative question from one noise."""
        if (observations != observations[0]).any():
            raise ValueError(
                f"Expected the {self.num_options} lanes of a group to begin from the same noise, got different ones; "
                f"make the lanes with shared_noise={self.num_options}."
            )
        planner = self._made(self.planner, "planner")
        assert isinstance(planner, AdaptivePlanner)
        planner.replace_items(self._pool(observations[0]))
        tokens = planner.ask(np.empty((self.num_options, 0), dtype=np.int64))
        return np.asarray(self._sequences[tokens])

    def _pool(self, observation: NDArray[Any]) -> Floats32:
        """What the choice looks at for every sequence from a first observation, (A^B, d)."""
        key = np.ascontiguousarray(observation).tobytes()
        if key not in self._memo:
            self._memo[key] = np.asarray(self._enumerate(observation[None]).features[-1][0], dtype=np.float32)
            while len(self._memo) > 1 and len(self._memo) * self._memo[key].nbytes > _MEMO_BYTES:
                self._memo.popitem(last=False)
        self._memo.move_to_end(key)
        return self._memo[key]

    def _enumerate(self, observations: NDArray[Any]) -> EpisodeTrees:
        return enumerate_from(self.base.model, observations, features=self.base.trajectory_features)

    def _arguments(self) -> dict[str, Any]:
        own = {"posterior": self.posterior, "prior_noises": self.prior_noises}
        return {**super()._arguments(), **own, **self.options}


def _check_branches(base: Any) -> None:
    model = getattr(base, "model", None)
    missing = [name for name in ("start", "advance", "split", "draw_seed", "directions") if not hasattr(model, name)]
    if missing or not hasattr(base, "trajectory_features"):
        raise TypeError(
            f"The agent 'enumerated' needs episodes that can be continued from any observation, {type(base).__name__} "
            f"has no model with {', '.join(missing) or 'features'}; make edpbrl/DiffusionGuidance-v0."
        )
