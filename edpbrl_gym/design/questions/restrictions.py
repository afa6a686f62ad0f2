"""What the lanes of an episode may show together: distinct options, no overlap, forbidden pairs, one base for all.

`Restrictions` states the restrictions; `TokenRules` binds them to the tokens of a prompt and answers, for one lane and
the known tokens around it, which tokens are allowed. Nothing here knows how a question is valued, so planners,
exchange algorithms and tests share it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Booleans, Indices
from edpbrl_gym._validation import check_choice_of, check_count, check_integers
from edpbrl_gym.mdp import PromptMDP
from edpbrl_gym.vocabulary.tokens import fold

if TYPE_CHECKING:
    from edpbrl_gym.vocabulary import Vocabulary

__all__ = ["Restrictions", "SharedBase", "TokenRules"]

SharedBase = Literal["free", "episode", "all"]


@dataclass(frozen=True, kw_only=True)
class Restrictions:
    """Which tokens may stand together in the K lanes of an episode.

    Tokens are named by their feature rows (of a `PromptMDP`: ``offsets[h] + a`` for token a of step h).

    Attributes:
        distinct: The options that a question compares at a step are different tokens.
        no_overlap: No two lanes of an episode share a token, at whatever steps they show it. Implies ``distinct``.
        forbidden: Pairs of rows that must not both stand in one lane; (a, a) forbids a token twice in one lane.
        shared_base: "episode": the lanes of an episode begin with the same token; "all": all lanes of all episodes do.
            The shared first tokens are then exempt from ``distinct`` and ``no_overlap``, and the first question of an
            episode compares equal options and says nothing.
        base: Row of the token that all lanes begin with; only with ``shared_base="all"``. None leaves the choice open.
        identity: Which rows are the same token, an integer for each row; None: every row is a token of its own.

    Raises:
        TypeError: If a row or an identity is no integer.
        ValueError: If ``shared_base`` is unknown, a base is given without "all", or a pair is none.
    """

    distinct: bool = True
    no_overlap: bool = False
    forbidden: tuple[tuple[int, int], ...] = ()
    shared_base: SharedBase = "free"
    base: int | None = None
    identity: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        check_choice_of(self.shared_base, "shared_base", get_args(SharedBase))
        if self.base is not None:
            if self.shared_base != "all":
                raise ValueError(
                    f'Expected shared_base="all" where a base is given, got {self.shared_base!r}; '
                    "one given token is the base of all lanes."
                )
            object.__setattr__(self, "base", check_count(self.base, "base (row)", minimum=0))
        pairs = check_integers(
            np.array([tuple(pair) for pair in self.forbidden]).reshape(-1, 2) if self.forbidden else np.empty((0, 2)),
            "forbidden",
            shape=("n", 2),
            low=0,
        )
        object.__setattr__(self, "forbidden", tuple((int(a), int(b)) for a, b in pairs))
        if self.identity is not None:
            ids = check_integers(np.asarray(self.identity), "identity", shape=("N",))
            object.__setattr__(self, "identity", tuple(int(value) for value in ids))

    @classmethod
    def of_texts(
        cls,
        vocabulary: Vocabulary,
        *,
        distinct: bool = True,
        no_overlap: bool = False,
        forbidden: Iterable[tuple[str, str]] = (),
        shared_base: SharedBase = "free",
        base: str | None = None,
    ) -> Restrictions:
        """Restrictions on tokens named by their texts; a text that stands in two files is one token.

        Args:
            vocabulary: The tokens.
            distinct: See the class.
            no_overlap: See the class.
            forbidden: Pairs of texts.
            shared_base: See the class.
            base: Text of the token that all lanes begin with.

        Raises:
            ValueError: If a text is no token of the vocabulary, or the base no token of its first step.
        """
        numbers: dict[str, int] = {}
        identity = tuple(numbers.setdefault(fold(token), len(numbers)) for token in vocabulary.all_tokens)
        first_row = {number: row for row, number in reversed(list(enumerate(identity)))}

        def row_of(text: str) -> int:
            if fold(text) not in numbers:
                raise ValueError(
                    f"Expected a token of the vocabulary, got {text!r}, which is none; check its spelling."
                )
            return first_row[numbers[fold(text)]]

        begin = None
        if base is not None:
            first = [fold(token) for token in vocabulary.tokens[0]]
            if fold(base) not in first:
                raise ValueError(
                    f"Expected the base among the {len(first)} tokens of the first step ({vocabulary.names[0]}), "
                    f"got {base!r}."
                )
            begin = first.index(fold(base))
        return cls(
            distinct=distinct,
            no_overlap=no_overlap,
            forbidden=tuple((row_of(a), row_of(b)) for a, b in forbidden),
            shared_base=shared_base,
            base=begin,
            identity=identity,
        )

    def rules(self, mdp: PromptMDP) -> TokenRules:
        """Bind the restrictions to the tokens of the steps."""
        ranges = [(mdp.step_pairs(step).start, mdp.step_pairs(step).stop) for step in range(mdp.horizon)]
        return TokenRules(self, ranges=ranges, num_rows=mdp.num_rows)


class TokenRules:
    """Restrictions bound to the tokens of the H steps; answers what is allowed around known tokens.

    Tokens are given as in an environment: action a of step h, row ``ranges[h][0] + a``; -1 stands for "not known yet"
    and restricts nothing.

    Args:
        restrictions: The restrictions.
        ranges: First and one past the last row of each step's tokens; steps may share rows.
        num_rows: N.

    Raises:
        ValueError: If a row of the restrictions does not exist, or ``identity`` has another length than N.
    """

    def __init__(self, restrictions: Restrictions, *, ranges: Sequence[tuple[int, int]], num_rows: int) -> None:
        self.restrictions = restrictions
        self.ranges = tuple((int(low), int(high)) for low, high in ranges)
        self.num_rows = check_count(num_rows, "num_rows")
        self.horizon = len(self.ranges)
        self.first = np.array([low for low, _ in self.ranges], dtype=np.int64)
        self.sizes = tuple(high - low for low, high in self.ranges)
        identity = restrictions.identity
        if identity is not None and len(identity) != self.num_rows:
            raise ValueError(
                f"Expected an identity for each of the {self.num_rows} feature rows, got {len(identity)}; build the "
                "restrictions for this vocabulary."
            )
        ids = np.arange(self.num_rows) if identity is None else np.unique(np.array(identity), return_inverse=True)[1]
        self.identity: Indices = np.asarray(ids, dtype=np.int64)
        self._count = int(self.identity.max()) + 1
        self._known = np.concatenate([[-1], self.identity])  # by row + 1; first that of an unknown token
        self._step_ids = [self.identity[low:high] for low, high in self.ranges]
        self._partners = self._forbidden_partners()
        self._check_base()

    def _forbidden_partners(self) -> dict[int, Indices]:
        partners: dict[int, set[int]] = {}
        for pair in self.restrictions.forbidden:
            if max(pair) >= self.num_rows:
                raise ValueError(
                    f"Expected forbidden pairs of rows in 0..{self.num_rows - 1}, got {pair}; "
                    "build the restrictions for this vocabulary."
                )
            a, b = (int(self.identity[row]) for row in pair)
            partners.setdefault(a, set()).add(b)
            partners.setdefault(b, set()).add(a)
        return {token: np.array(sorted(others), dtype=np.int64) for token, others in partners.items()}

    def _check_base(self) -> None:
        base = self.restrictions.base
        low, high = self.ranges[0]
        if base is not None and not low <= base < high:
            raise ValueError(f"Expected the base among the rows {low}..{high - 1} of the first step, got row {base}.")

    def with_base(self, token: int) -> TokenRules:
        """The same rules with the token of the first step that all lanes begin with."""
        fixed = replace(self.restrictions, shared_base="all", base=int(self.first[0]) + token)
        return TokenRules(fixed, ranges=self.ranges, num_rows=self.num_rows)

    def with_repeats(self) -> TokenRules:
        """The same rules without ``distinct``."""
        loose = replace(self.restrictions, distinct=False)
        return TokenRules(loose, ranges=self.ranges, num_rows=self.num_rows)

    def shared(self, step: int) -> bool:
        """Whether the lanes of an episode show the same token at this step."""
        return step == 0 and self.restrictions.shared_base != "free"

    def differ(self, step: int) -> bool:
        """Whether the lanes of an episode show different tokens at this step."""
        return (self.restrictions.distinct or self.restrictions.no_overlap) and not self.shared(step)

    def ids(self, tokens: ArrayLike) -> Indices:
        """Identity of each token of an array (..., h), h <= H; -1 where the token is not known."""
        numbers = np.asarray(tokens, dtype=np.int64)
        return self._known[np.where(numbers < 0, 0, numbers + self.first[: numbers.shape[-1]] + 1)]

    def allowed(self, step: int, lane: ArrayLike, others: ArrayLike, among: Indices | slice = slice(None)) -> Booleans:
        """Which tokens a lane may show at a step, given all other tokens that are known.

        Args:
            step: The step h.
            lane: Tokens of this lane, shape (n,), n <= H; the entry of ``step`` itself, if there is one, is ignored.
                Give what is known: the tokens so far, or the whole lane if its token at ``step`` is to be replaced.
            others: Tokens of the other lanes of the episode, shape (m, n').
            among: The tokens to answer for, all by default.

        Returns:
            Boolean array (tokens of the step,), or one entry for each token of ``among``.
        """
        return self.allowed_ids(step, self.ids(np.asarray(lane)), self.ids(_lanes(others, self.horizon)), among)

    def allowed_ids(self, step: int, lane: Indices, others: Indices, among: Indices | slice = slice(None)) -> Booleans:
        """`allowed` for identities as `ids` gives them: for callers that keep them."""
        restrictions, shared = self.restrictions, self.shared(step)
        banned = np.zeros(self._count + 1, dtype=np.bool_)  # the last entry takes the -1 of unknown tokens
        at_step = others[:, step] if others.shape[1] > step else np.empty(0, dtype=np.int64)
        if restrictions.no_overlap:
            banned[others[:, 1:] if shared else others] = True
        elif restrictions.distinct and not shared:
            banned[at_step] = True
        if self._partners:
            for position, token in enumerate(lane.tolist()):
                if position != step and token in self._partners:
                    banned[self._partners[token]] = True
        ids = self._step_ids[step][among]
        mask = ~banned[ids]
        if shared:
            base_ids = at_step[at_step >= 0]
            if restrictions.base is not None:
                mask &= np.arange(self.sizes[0])[among] == restrictions.base - self.first[0]
            elif base_ids.size:
                mask &= ids == base_ids[0]
        return mask

    def _has_forbidden(self, lanes: Indices) -> Booleans:
        """Which lanes of identities (n, H) hold a forbidden pair."""
        forbidden = np.zeros(len(lanes), dtype=np.bool_)
        for token, partners in self._partners.items():
            matches = lanes == token
            for partner in partners[partners >= token]:
                if partner == token:
                    forbidden |= matches.sum(axis=1) >= 2
                else:
                    forbidden |= matches.any(axis=1) & (lanes == partner).any(axis=1)
        return forbidden

    def violations(self, tokens: ArrayLike) -> list[str]:
        """What is wrong with tokens (T, K, H), one line for each violation found; empty if nothing is."""
        array = check_integers(np.asarray(tokens), "tokens", shape=("T", "K", self.horizon))
        for step, size in enumerate(self.sizes):
            check_integers(array[..., step], f"tokens of step {step}", shape=("T", "K"), low=0, high=size - 1)
        messages = []
        for episode, lanes in enumerate(array):
            messages += [f"episode {episode}: {text}" for text in self.episode_violations(lanes)]
        bases = np.unique(array[..., 0])
        if self.restrictions.shared_base == "all" and bases.size > 1:
            messages.append(f"all lanes: {bases.size} different first tokens where one is to be shared")
        return messages

    def episode_violations(self, lanes: ArrayLike) -> list[str]:
        """Violations within one episode of tokens (K, H)."""
        ids, restrictions = self.ids(lanes), self.restrictions
        messages = []
        for step in range(self.horizon):
            repeated = len(np.unique(ids[:, step])) < len(ids)
            if self.shared(step):
                if len(np.unique(ids[:, 0])) > 1:
                    messages.append("the lanes begin with different tokens")
                if (
                    restrictions.base is not None
                    and (np.asarray(lanes)[:, 0] + self.first[0] != restrictions.base).any()
                ):
                    messages.append("a lane does not begin with the base")
            elif repeated and (restrictions.distinct or restrictions.no_overlap):
                messages.append(f"step {step}: two options show the same token")
        if restrictions.no_overlap:
            messages += self._overlaps(ids)
        for lane in np.flatnonzero(self._has_forbidden(ids)):
            messages.append(f"lane {lane}: a forbidden pair of tokens")
        return messages

    def _overlaps(self, ids: Indices) -> list[str]:
        messages = []
        for a in range(len(ids)):
            for b in range(a + 1, len(ids)):
                same = ids[a][:, None] == ids[b][None, :]
                np.fill_diagonal(same, False)  # equal tokens at the same step: told apart above
                if same.any():
                    messages.append(f"lanes {a} and {b} share a token")
        return messages

    def describe(self) -> dict[str, Any]:
        """The restrictions for a result file, JSON-able, without the identities."""
        restrictions = self.restrictions
        return {
            "distinct": restrictions.distinct,
            "no_overlap": restrictions.no_overlap,
            "forbidden": len(restrictions.forbidden),
            "shared_base": restrictions.shared_base,
            "base": restrictions.base,
        }


def _lanes(tokens: ArrayLike, horizon: int) -> Indices:
    """Tokens of m lanes (m, n); an empty list stands for no lanes."""
    array = np.asarray(tokens, dtype=np.int64)
    return array.reshape(0, horizon) if array.size == 0 else array
