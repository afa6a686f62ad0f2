"""``Vocabulary``: the tokens of every prompt step, with splits, subsets, prompt texts, and whether K options differ."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._validation import Feedback, check_choice_of, check_count, check_integers, check_number
from edpbrl_gym.vocabulary.heads import draw_heads
from edpbrl_gym.vocabulary.tokens import fold, normalise, refusal

__all__ = ["SEPARATOR", "Vocabulary", "check_enough_options"]


SEPARATOR = ", "  # between the tokens of a prompt, as in the paper
_SUBJECT = "subject"
_MOST_SUBJECT = 300  # characters; what encoders of text read of a prompt is not much longer
_SAYS_WHAT = re.compile(
    r"[\W\d_]*(subject|base|room|object|motif)s?", re.IGNORECASE
)  # names of steps, also "1-subject"


def _composed(token: str) -> str:
    return normalise(token) if isinstance(token, str) else token  # _check_step rejects other types with their index


def _trimmed(token: str) -> str:
    """The token as in a file; one that can't be read is left for _check_step to refuse."""
    if not isinstance(token, str) or refusal(token.replace("\t", " ")) is not None:
        return token
    return " ".join(token.split())


def _check_step(name: str, tokens: Sequence[str]) -> None:
    if not isinstance(name, str) or not name:
        raise ValueError(f"Expected every step's name as a non-empty string, got {name!r}")
    problem = refusal(name)
    if problem is not None:
        raise ValueError(f"Expected a readable name of a step, got {problem}")
    if not tokens:
        raise ValueError(f"Expected at least one token in step {name!r}, got none; add a token or leave the step out")
    first_index: dict[str, int] = {}
    for index, token in enumerate(tokens):
        if not isinstance(token, str):
            raise TypeError(f"Expected strings as tokens, got {token!r} at index {index} of step {name!r}")
        folded = fold(token)
        if not folded:
            raise ValueError(f"Expected non-empty tokens, got {token!r} at index {index} of step {name!r}")
        problem = refusal(token)
        if problem is not None:
            raise ValueError(f"Expected a readable token at index {index} of step {name!r}, got {problem}")
        if folded in first_index:
            raise ValueError(
                f"Expected distinct tokens in step {name!r}, got {token!r} at indices {first_index[folded]} and "
                f"{index} (case, spaces and what can't be seen folded); keep one"
            )
        first_index[folded] = index


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of each of the H steps of a prompt.

    The same token may occur in two steps (it then has two rows), but not twice in one step.

    Attributes:
        names: One name per step, in prompt order, length H.
        tokens: Tokens of each step, in Unicode's composed form (NFC); ``tokens[h][a]`` is action ``a`` of step ``h``.

    Raises:
        TypeError: A token is not a string.
        ValueError: No step, repeated names, a step without tokens, or a repeated token or one that can't be read.
    """

    names: tuple[str, ...]
    tokens: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        for field in ("names", "tokens"):
            if isinstance(getattr(self, field), str):
                raise TypeError(f"Expected {field} as a sequence, got the string {getattr(self, field)!r}")
        for name, step in zip(self.names, self.tokens, strict=False):
            if isinstance(step, str):
                raise TypeError(f"Expected the tokens of step {name!r} as a sequence, got the string {step!r}")
        object.__setattr__(self, "names", tuple(self.names))
        object.__setattr__(self, "tokens", tuple(tuple(map(_composed, step)) for step in self.tokens))
        if not self.names or len(self.names) != len(self.tokens):
            raise ValueError(
                f"Expected one name for each of at least one step, got {len(self.names)} name(s) "
                f"and {len(self.tokens)} step(s)"
            )
        for name, step in zip(self.names, self.tokens, strict=True):
            _check_step(name, step)
        if len(set(self.names)) != len(self.names):
            raise ValueError(f"Expected distinct step names, got {self.names}")

    @classmethod
    def from_lists(cls, steps: Mapping[str, Sequence[str]] | Sequence[Sequence[str]]) -> Vocabulary:
        """A vocabulary from the tokens of each step, as ``load_vocabulary`` would read them from files.

        Args:
            steps: Name of each step -> its tokens, in prompt order; or the tokens of each step, whose names then are
                "step 1", "step 2", ...

        Raises:
            TypeError: Steps or tokens that are no sequences, such as sets, or a token that is no string.
            ValueError: As for the class.
        """
        if isinstance(steps, (str, Set)) or not isinstance(steps, Iterable):
            raise TypeError(
                f"Expected the tokens of each step as a dict or a list of lists, got {type(steps).__name__}; for a "
                "folder of files use load_vocabulary"
            )
        named = (
            dict(steps) if isinstance(steps, Mapping) else {f"step {n}": one for n, one in enumerate(steps, start=1)}
        )
        for name, tokens in named.items():
            if isinstance(tokens, (str, Set, Mapping)) or not isinstance(tokens, Iterable):
                raise TypeError(f"Expected the tokens of {name!r} as a list of strings, got {type(tokens).__name__}")
        return cls(tuple(named), tuple(tuple(map(_trimmed, tokens)) for tokens in named.values()))

    @property
    def horizon(self) -> int:
        """Number of steps H of a complete prompt."""
        return len(self.names)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of tokens of each step, length H."""
        return tuple(len(step) for step in self.tokens)

    @property
    def all_tokens(self) -> list[str]:
        """All tokens, step after step: the row order of ``PromptMDP(vocabulary.sizes)``; length sum(sizes)."""
        return [token for step in self.tokens for token in step]

    @property
    def fingerprint(self) -> str:
        """sha256 (hex) of the step names and tokens, in their order."""
        text = json.dumps([self.names, self.tokens], ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    def prompt(self, indices: Sequence[int] | NDArray[np.integer]) -> str:
        """Return the text of a prompt: the chosen tokens joined with ``", "``.

        Args:
            indices: Token index per step, at most H; fewer give a partial prompt, none the empty text.

        Raises:
            TypeError, ValueError: The indices are no integers, more than H, or one is out of range for its step.
        """
        checked_indices = check_integers(indices, "indices", shape=(None,), hint="give one token index per step")
        if len(checked_indices) > self.horizon:
            raise ValueError(f"Expected at most {self.horizon} indices (one per step), got {len(checked_indices)}")
        chosen_tokens = []
        for step, index in enumerate(checked_indices.tolist()):
            if not 0 <= index < len(self.tokens[step]):
                raise ValueError(
                    f"Expected an index in 0..{len(self.tokens[step]) - 1} for step {step} ({self.names[step]}), "
                    f"got {index}"
                )
            chosen_tokens.append(self.tokens[step][index])
        return SEPARATOR.join(chosen_tokens)

    @property
    def subject_step(self) -> int | None:
        """The step that says what is shown, by its name (subject, bases, room, ...); None: there is none."""
        return next((step for step, name in enumerate(self.names) if _SAYS_WHAT.fullmatch(name)), None)

    def with_subject(self, subject: str) -> Vocabulary:
        """The vocabulary of prompts about one subject: a first step "subject" with this token alone.

        It takes the place of the step that says what is shown (``subject_step``), or stands before all others.

        Args:
            subject: What a person wrote, such as "a lighthouse on a cliff"; commas inside are fine. White space and
                punctuation around it are removed.

        Raises:
            TypeError: The subject is no string.
            ValueError: It is empty, has over 300 characters or one that can't be seen.
        """
        if not isinstance(subject, str):
            raise TypeError(f"Expected the subject as a text, got {type(subject).__name__}")
        text = " ".join(normalise(subject).split()).strip(" ,;.")
        if not fold(text):
            raise ValueError('Expected a subject with words in it, such as "a lighthouse on a cliff", got none')
        if len(text) > _MOST_SUBJECT:
            raise ValueError(
                f"Expected a subject of at most {_MOST_SUBJECT} characters, got {len(text):,}: {text[:40]!r}...; say "
                "what the picture shows, the other words come from the vocabulary"
            )
        problem = refusal(text)
        if problem is not None:
            raise ValueError(f"Expected a readable subject, got {problem}")
        others = [step for step in range(self.horizon) if step != self.subject_step]
        return Vocabulary(
            (_SUBJECT, *(self.names[step] for step in others)), ((text,), *(self.tokens[step] for step in others))
        )

    def split(
        self, seed: int, test_fraction: float = 0.25, by: Literal["token", "head"] = "token"
    ) -> tuple[Vocabulary, Vocabulary]:
        """Return disjoint (train, test) vocabularies: each step is split separately, in its own order.

        The test side of a step gets ``round(test_fraction * size)`` tokens; each side gets at least one. The one token
        of ``with_subject`` is on both sides.

        Args:
            seed: Seed of the draw.
            test_fraction: Share of the test side.
            by: "token": every token by itself; or "head": tokens of a step that share a head word
                (`edpbrl_gym.vocabulary.heads.head_word`) are on one side, so that held-out tokens are not near copies
                of training tokens. The test side then gets as near to that number of tokens as whole groups allow.

        Raises:
            ValueError: A step has only one token, or by head only one head word; the fraction is outside (0, 1); ``by``
                is neither.
        """
        check_choice_of(by, "by", ("token", "head"))
        seed = check_count(seed, "seed", minimum=0)
        fraction = check_number(test_fraction, "test_fraction", minimum=0.0, exclusive=True)
        if fraction >= 1.0:
            raise ValueError(f"Expected test_fraction in (0, 1), got {fraction}")
        sides: tuple[list[tuple[str, ...]], list[tuple[str, ...]]] = ([], [])
        for step, tokens in enumerate(self.tokens):
            size = len(tokens)
            if size == 1 and self.names[step] == _SUBJECT:
                for side in sides:
                    side.append(tokens)
                continue
            if size < 2:
                raise ValueError(
                    f"Expected at least 2 tokens in step {self.names[step]!r} to split it, got 1; add tokens"
                )
            held_out = min(max(round(fraction * size), 1), size - 1)
            # a stream per step: more tokens in one step do not change the split of the others
            rng = np.random.default_rng([seed, step])
            if by == "token":
                test_indices = set(rng.permutation(size)[:held_out].tolist())
            else:
                try:
                    test_indices = draw_heads(tokens, held_out, rng)
                except ValueError as error:
                    raise ValueError(
                        f"Expected at least 2 head words in step {self.names[step]!r} to split it by head, but "
                        f"{error}; add tokens, or split by token"
                    ) from None
            sides[0].append(tuple(t for i, t in enumerate(tokens) if i not in test_indices))
            sides[1].append(tuple(t for i, t in enumerate(tokens) if i in test_indices))
        return Vocabulary(self.names, tuple(sides[0])), Vocabulary(self.names, tuple(sides[1]))

    def subset(self, per_step: int, seed: int) -> Vocabulary:
        """Return at most ``per_step`` tokens of every step, drawn without replacement, in their own order.

        A step with no more than ``per_step`` tokens keeps all of them.

        Raises:
            ValueError: ``per_step`` below 1.
        """
        per_step = check_count(per_step, "per_step")
        seed = check_count(seed, "seed", minimum=0)
        steps = []
        for step, tokens in enumerate(self.tokens):
            indices = np.sort(np.random.default_rng([seed, step]).permutation(len(tokens))[:per_step])
            steps.append(tuple(tokens[i] for i in indices))
        return Vocabulary(self.names, tuple(steps))


def check_enough_options(vocabulary: Vocabulary, num_options: int, feedback: Feedback) -> None:
    """Raise a ValueError if a step that asks does not have K different options; the message names it.

    With feedback "truncated", the options of step h are the partial prompts of h + 1 tokens; with "state", its tokens;
    with "prompt", the last step alone asks, about complete prompts.
    """
    counts = [math.prod(vocabulary.sizes[: step + 1]) for step in range(vocabulary.horizon)]
    if feedback == "state":
        counts = list(vocabulary.sizes)
    if feedback == "prompt":
        if counts[-1] < num_options:
            raise ValueError(
                f"Expected at least K = {num_options} different complete prompts, so that all options of a question "
                f"differ, got {counts[-1]}; ask with fewer options, or add tokens."
            )
        return
    too_few = [
        f"{count} at step {step} ({vocabulary.names[step]})" for step, count in enumerate(counts) if count < num_options
    ]
    if not too_few:
        return
    option_kind = "partial prompts" if feedback == "truncated" else "tokens"
    order = "begin with a longer file, " if feedback == "truncated" and vocabulary.horizon > 1 else ""
    raise ValueError(
        f"Expected at least K = {num_options} different {option_kind} at every step, so that all options of a question "
        f"differ, got {', '.join(too_few)}; ask with at most K = {min(counts)} options, {order}add tokens, or compare "
        "complete prompts (feedback 'prompt')."
    )
