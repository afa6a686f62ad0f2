"""Exchange of prompts on truncated feedback: the options of a question are embeddings of partial prompts.

Embeddings of partial prompts don't add up, so what a new token does to its lane is known only after the encoder has
seen the H - h prefixes that hold it. A cheap model proposes, the encoder decides: with z the present embedding of a
prefix of length h' + 1 that holds token a at step h, the model says

    z(y in place of a) = z + w[h', h] (phi_y - phi_a),

with one number w for each length and position, fitted by least squares to the prefixes that have been embedded. A few
tokens with the largest predicted gain are embedded, and the best of them is taken if the criterion gains with the true
embeddings. So the value never falls, however bad the model is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats, Indices
from edpbrl_gym._validation import check_array
from edpbrl_gym.design.deadline import NEVER
from edpbrl_gym.design.query_sets.restrictions import TokenRules
from edpbrl_gym.design.query_sets.state import InverseState, least_gain, option_weight

if TYPE_CHECKING:
    from edpbrl_gym.vocabulary import Vocabulary

__all__ = ["Embed", "PrefixFeatures", "Proposal", "TruncatedExchange", "prefixes_of"]

Embed = Callable[[Sequence[str]], NDArray[Any]]
Proposal = Literal["linear", "mean"]


class PrefixFeatures:
    """Embeddings of partial prompts, each text embedded once, within a budget.

    Args:
        vocabulary: The tokens.
        embed: Texts to embeddings (n, d).
        dimension: d.
        budget: Texts that may be embedded.

    Attributes:
        spent: Texts embedded so far.
    """

    def __init__(self, vocabulary: Vocabulary, embed: Embed, dimension: int, budget: int) -> None:
        self.spent = 0
        self.budget = budget
        self._vocabulary, self._embed, self._dimension = vocabulary, embed, dimension
        self._embeddings: dict[tuple[int, ...], Floats] = {}

    def cost(self, prefixes: Sequence[tuple[int, ...]]) -> int:
        """How many of the prefixes would have to be embedded."""
        return len({prefix for prefix in prefixes if prefix not in self._embeddings})

    def __call__(self, prefixes: Sequence[tuple[int, ...]]) -> Floats:
        """Embeddings (n, d) in float64."""
        new_prefixes = [prefix for prefix in dict.fromkeys(prefixes) if prefix not in self._embeddings]
        if new_prefixes:
            texts = [self._vocabulary.prompt(prefix) for prefix in new_prefixes]
            shape = (len(texts), self._dimension)
            rows = check_array(self._embed(texts), "embeddings", shape=shape, hint="one row a text, as the features")
            self._embeddings.update(zip(new_prefixes, rows.astype(np.float64), strict=True))
            self.spent += len(new_prefixes)
        return np.stack([self._embeddings[prefix] for prefix in prefixes])


class TruncatedExchange:
    """Exchanges tokens as long as the true embeddings of the partial prompts gain.

    Args:
        blocks: Feature rows of each step's tokens alone, for the model.
        tokens: The prompts to begin with, shape (T, K, H); they keep the restrictions.
        prefixes: Embeds partial prompts.
        state: Information and inverse; reset to these prompts.
        rules: The restrictions.
        proposal: "linear" fits w, "mean" takes w = 1 / (h' + 1).
        shortlist: Tokens that are embedded for each lane and step.

    Attributes:
        tokens: The prompts as they are.
        exchanges: Tokens replaced so far.
        exhausted: Whether the budget has ended a sweep.
    """

    def __init__(
        self,
        blocks: Sequence[NDArray[Any]],
        tokens: Indices,
        prefixes: PrefixFeatures,
        state: InverseState,
        rules: TokenRules,
        *,
        proposal: Proposal,
        shortlist: int,
    ) -> None:
        self.tokens = tokens.copy()
        self.exchanges = 0
        self.exhausted = False
        self.deadline = NEVER
        self._blocks = [np.asarray(block, dtype=np.float64) for block in blocks]
        self._prefixes, self._state, self._rules = prefixes, state, rules
        self._proposal, self._shortlist = proposal, shortlist
        self._weight = option_weight(tokens.shape[1])
        self._horizon = tokens.shape[2]
        lanes = self.tokens.reshape(-1, self._horizon)
        flat = prefixes([prefix for lane in lanes for prefix in prefixes_of(lane, 0)])
        self._embeddings = flat.reshape(*self.tokens.shape, -1)  # (T, K, H, d)
        self.reset()

    @property
    def value(self) -> float:
        """The criterion."""
        return self._state.value

    @property
    def encoded_texts(self) -> int:
        """Texts embedded so far."""
        return self._prefixes.spent

    @property
    def information(self) -> Floats:
        """Realised information with the prior."""
        return self._state.information

    def reset(self) -> float:
        """Compute information, inverse and value anew from the embeddings; returns the value."""
        options = self._embeddings.transpose(0, 2, 1, 3)
        return self._state.reset(options.reshape(-1, *options.shape[2:]))

    def sweep(self, rng: np.random.Generator) -> float:
        """Go through all episodes and steps once; returns the value, computed anew.

        The visits come in the order of what the model promises for each text that has to be embedded, so that a budget
        that does not last is spent where it helps most.
        """
        self._model = self._fit()
        steps = [step for step in range(self._horizon) if not self._rules.shared(step)]
        visits = [(episode, step) for episode in range(len(self.tokens)) for step in steps]
        promise = np.array([self._promise(episode, step) for episode, step in visits])
        order = rng.permutation(len(visits))
        for index in order[np.argsort(-promise[order], kind="stable")]:
            if self.deadline.passed:
                break
            if promise[index] > 0 and not self._visit(*visits[index]):
                self.exhausted = True
                break
        return self.reset()

    def _promise(self, episode: int, step: int) -> float:
        """Predicted gain of the best tokens of all lanes for each text of their prefixes."""
        gains = [self._shortlisted(episode, lane, step)[1] for lane in range(self.tokens.shape[1])]
        texts = sum(len(lane_gains) for lane_gains in gains) * (self._horizon - step)
        return sum(float(lane_gains[0]) for lane_gains in gains if lane_gains.size) / max(1, texts)

    def _fit(self) -> Floats:
        """Weights w[h', h] of the model, shape (H, H), zero for h > h'."""
        horizon = self._horizon
        weights = np.tril(np.broadcast_to(1.0 / np.arange(1, horizon + 1)[:, None], (horizon, horizon)))
        if self._proposal == "mean":
            return weights
        parts = [block[self.tokens[:, :, step]] for step, block in enumerate(self._blocks)]
        parts = [part - part.mean(axis=(0, 1)) for part in parts]
        for length in range(horizon):
            embeddings = self._embeddings[:, :, length]
            embeddings = embeddings - embeddings.mean(axis=(0, 1))
            gram = np.array([[np.vdot(a, b) for b in parts[: length + 1]] for a in parts[: length + 1]])
            right = np.array([np.vdot(part, embeddings) for part in parts[: length + 1]])
            weights[length, : length + 1] = np.linalg.lstsq(gram, right, rcond=None)[0]
        return weights

    def _visit(self, episode: int, step: int) -> bool:
        """Try the shortlists of the K lanes at a step; False where the budget does not allow them."""
        plans = [(lane, self._shortlisted(episode, lane, step)[0]) for lane in range(self.tokens.shape[1])]
        prefixes = [
            prefix for lane, tokens in plans for token in tokens for prefix in self._with(episode, lane, step, token)
        ]
        if self._prefixes.spent + self._prefixes.cost(prefixes) > self._prefixes.budget:
            return False
        if prefixes:
            self._prefixes(prefixes)  # one call of the encoder for all lanes
        for lane, tokens in plans:
            self._try(episode, lane, step, tokens)
        return True

    def _with(self, episode: int, lane: int, step: int, token: int) -> list[tuple[int, ...]]:
        """The prefixes that hold the step, with another token there."""
        changed = self.tokens[episode, lane].copy()
        changed[step] = token
        return prefixes_of(changed, step)

    def _around(self, episode: int, lane: int, step: int) -> tuple[Floats, Floats]:
        """Embeddings of the lane from a step on and the mean of the other lanes', both (H - step, d)."""
        embeddings = self._embeddings[episode, :, step:]
        return embeddings[lane], np.delete(embeddings, lane, axis=0).mean(axis=0)

    def _mask(self, episode: int, lane: int, step: int) -> NDArray[np.bool_]:
        ids = self._rules.ids(self.tokens[episode])
        return self._rules.allowed_ids(step, ids[lane], np.delete(ids, lane, axis=0))

    def _shortlisted(self, episode: int, lane: int, step: int) -> tuple[list[int], Floats]:
        """Tokens with the largest predicted gains, if they are positive, and these gains."""
        block, state = self._blocks[step], self._state
        lane_embeddings, mean = self._around(episode, lane, step)
        current = int(self.tokens[episode, lane, step])
        slopes = self._model[step:, step]
        removal = lane_embeddings - mean
        fixed = removal - slopes[:, None] * block[current]
        signs = np.full(len(removal), -self._weight)
        removal_gain = state.gain(removal, signs)
        if not np.isfinite(removal_gain):
            return [], np.empty(0)
        inverse, target = state.without(removal, signs)
        middle = np.eye(len(lane_embeddings)) + self._weight * _model_gram(block, fixed, slopes, inverse)
        if target is None:
            gains = removal_gain + np.linalg.slogdet(middle)[1]
        else:
            right = self._weight * _model_gram(block, fixed, slopes, target)
            gains = removal_gain + np.trace(np.linalg.solve(middle, right), axis1=1, axis2=2)
        gains[~self._mask(episode, lane, step)] = -np.inf
        gains[current] = -np.inf
        best = np.argsort(-gains, kind="stable")[: self._shortlist]
        best = best[gains[best] > least_gain(state.value)]
        return [int(token) for token in best], gains[best]

    def _try(self, episode: int, lane: int, step: int, tokens: list[int]) -> None:
        """Take the best of some tokens if the true embeddings gain."""
        mask = self._mask(episode, lane, step)  # another lane may just have taken one of them
        tokens = [token for token in tokens if mask[token]]
        if not tokens:
            return
        lane_embeddings, mean = self._around(episode, lane, step)
        flat = self._prefixes([prefix for token in tokens for prefix in self._with(episode, lane, step, token)])
        candidates = flat.reshape(len(tokens), *lane_embeddings.shape)
        removals = np.broadcast_to(lane_embeddings - mean, candidates.shape)
        changes = np.concatenate([removals, candidates - mean], axis=1)
        signs = np.repeat([-self._weight, self._weight], len(lane_embeddings))
        gains = self._state.gains(changes, signs)
        best = int(np.argmax(gains))
        if not gains[best] > least_gain(self._state.value):
            return
        self._state.change(changes[best], signs)
        self.tokens[episode, lane, step] = tokens[best]
        self._embeddings[episode, lane, step:] = candidates[best]
        self.exchanges += 1
        if self._state.worn:
            self._state.refresh()


def prefixes_of(lane: Indices, step: int) -> list[tuple[int, ...]]:
    """Prefixes of a lane that hold the token at a step, shortest first."""
    tokens = tuple(int(token) for token in lane)
    return [tokens[: end + 1] for end in range(step, len(tokens))]


def _model_gram(block: Floats, fixed: Floats, slopes: Floats, matrix: Floats) -> Floats:
    """v_i'A v_j of the model's rows v_i(y) = fixed_i + w_i phi_y for all tokens y: shape (n, r, r)."""
    solved = fixed @ matrix
    cross = (block @ solved.T)[:, :, None] * slopes[None, None, :]  # w_j phi_y'A fixed_i
    norms = np.vecdot(block @ matrix, block)
    return np.asarray(
        (solved @ fixed.T)[None] + cross + cross.transpose(0, 2, 1) + norms[:, None, None] * np.outer(slopes, slopes)
    )
