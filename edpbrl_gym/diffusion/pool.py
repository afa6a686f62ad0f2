"""Episodes of a diffusion model as the items of a pool, for planners and sessions that ask about their last images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Floats32, Indices
from edpbrl_gym._validation import check_array, check_integers
from edpbrl_gym.diffusion.enumeration import BranchingModel, enumerate_episodes, play_sequences
from edpbrl_gym.features.base import hash_arrays, hash_settings
from edpbrl_gym.features.notices import check_texts
from edpbrl_gym.vocabulary import Vocabulary

__all__ = ["TrajectoryPool"]


class TrajectoryPool:
    """Items that are last images of episodes, each named by its noise and its directions.

    The names are the tokens of a vocabulary of one step, and the pool is the encoder of its names, so that everything
    that asks about items asks about images::

        pool = TrajectoryPool.enumerate(env.unwrapped.model, noise_seeds=range(8))
        planner = make_planner("adaptive", pool.vocabulary, TokenFeatures(pool.vocabulary, pool.features))
        session = Session(planner, vocabulary=pool.vocabulary, encoder=pool)
        question = session.ask()
        pictures = pool.images(question.tokens[:, 0])  # show them
        session.tell(2)

    Attributes:
        noise_seeds: Noise of each item, (n,).
        actions: Actions of each item, (n, B); no two items are equal.
        vocabulary: One step, "image", whose tokens name the items, such as "noise 3: 0 x 2, 7 x 2".
        features: Features of the items, float32 (n, d).
        name: "trajectories".
        dimension: d.
        fingerprint: sha256 (hex) of names and features.

    Raises:
        ValueError: If shapes don't fit, or two items are equal.
    """

    name = "trajectories"

    def __init__(
        self, model: BranchingModel, noise_seeds: ArrayLike, actions: ArrayLike, *, features: ArrayLike | None = None
    ) -> None:
        self.noise_seeds: Indices = check_integers(noise_seeds, "noise_seeds", shape=("n",), low=0)
        shape, last = (len(self.noise_seeds), model.horizon), len(model.directions) - 1
        self.actions: Indices = check_integers(actions, "actions", shape=shape, low=0, high=last)
        self._model = model
        names = tuple(
            f"noise {seed}: {model.describe(sequence)}"
            for seed, sequence in zip(self.noise_seeds.tolist(), self.actions.tolist(), strict=True)
        )
        self.vocabulary = Vocabulary(("image",), (names,))
        if features is None:
            features = model.trajectory_features(self.observations(np.arange(len(names))))
        self.features: Floats32 = check_array(features, "features", shape=(len(names), "d")).astype(np.float32)
        self.dimension = int(self.features.shape[1])
        rows = hash_arrays({"features": self.features})
        self.fingerprint = hash_settings({"kind": self.name, "texts": names, "rows": rows})
        self._index = {text: row for row, text in enumerate(self.vocabulary.tokens[0])}

    @classmethod
    def enumerate(cls, model: BranchingModel, noise_seeds: ArrayLike) -> Self:
        """The pool of all A^B sequences of actions from each noise, noise after noise.

        Raises:
            ValueError: If a noise has too many sequences.
        """
        seeds = check_integers(np.atleast_1d(noise_seeds), "noise_seeds", shape=("n",), low=0)
        trees = enumerate_episodes(model, seeds)
        sequences = trees.sequences()
        return cls(
            model,
            np.repeat(seeds, len(sequences)),
            np.tile(sequences, (len(seeds), 1)),
            features=trees.features[-1].reshape(-1, trees.dimension),
        )

    def __len__(self) -> int:
        """Number of items."""
        return len(self.noise_seeds)

    def observations(self, items: ArrayLike) -> Floats32:
        """Last observations of some items (m,), played again."""
        chosen = check_integers(items, "items", shape=("m",), low=0, high=len(self) - 1)
        return play_sequences(self._model, self.noise_seeds[chosen], self.actions[chosen])

    def images(self, items: ArrayLike) -> NDArray[np.uint8]:
        """Images of some items (m,), uint8 of shape (m, height, width, 3)."""
        return self._model.trajectory_images(self.observations(items))

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Floats32:
        """Features of items by their names, float32 (m, d), not scaled to unit norm; ``progress`` is ignored.

        Raises:
            TypeError: The texts are not a list of strings.
            ValueError: A text names no item.
        """
        names = check_texts(texts)
        unknown = [text for text in names if text not in self._index]
        if unknown:
            raise ValueError(
                f"Expected names of this pool's items such as {self.vocabulary.tokens[0][0]!r}, got {unknown[0]!r}; "
                "take them from its vocabulary"
            )
        return self.features[[self._index[text] for text in names]]
