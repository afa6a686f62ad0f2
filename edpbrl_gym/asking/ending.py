"""The end of a session, for the terminal and the browser: what was learnt, in files and for the last page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from edpbrl_gym.comparisons import Comparisons
    from edpbrl_gym.session import Recommendation, Session, Standing, StepWords
    from edpbrl_gym.vocabulary import Vocabulary

__all__ = [
    "ANSWERS",
    "PAGE",
    "PAIRS",
    "PROMPTS",
    "TASTE",
    "WILDCARDS",
    "Best",
    "Ending",
    "conclude",
    "keep_answers",
    "keep_pictures",
    "words_of_items",
]

ANSWERS, TASTE, PROMPTS = "answers.parquet", "taste.safetensors", "prompts.txt"
PAGE, PAIRS, WILDCARDS = "page.html", "pairs", "wildcards"
_LEVEL = 0.9  # with which a phrase is liked or disliked
_WORDS = 3  # of each step that are named, at most
_LEAST_ITEMS = 3  # with a phrase, for it to be named


@dataclass(frozen=True)
class Best:
    """A prompt, or the name of a picture, that the person is expected to like."""

    text: str
    share: float
    """Of random ones that they like less."""


@dataclass(frozen=True)
class Ending:
    """What was learnt.

    Attributes:
        questions: Number of questions answered or skipped.
        prompts: The best prompts, best first.
        standings: How they compare with random ones.
        words: What is liked and disliked, step by step.
        answers: All answers.
    """

    questions: int
    prompts: tuple[Recommendation, ...]
    standings: tuple[Standing, ...]
    words: tuple[StepWords, ...]
    answers: Comparisons

    @property
    def best(self) -> list[Best]:
        """The best prompts with their standings."""
        return [Best(one.text, other.share) for one, other in zip(self.prompts, self.standings, strict=True)]


def conclude(
    session: Session,
    out: Path,
    *,
    count: int,
    whole: Vocabulary | None = None,
    by_items: bool = False,
    wildcards: bool = False,
    reading: AbstractContextManager[object] | None = None,
) -> Ending | None:
    """Write the answers, the taste and its best prompts to a folder.

    Args:
        session: The session.
        out: The folder.
        count: Number of prompts.
        whole: The vocabulary of which the session's is a pool of prompts; None: the session's own.
        by_items: Whether only the items of the pool have features, so that the prompts are among them, and words are
            judged by the items that have them.
        wildcards: Whether to write weighted wildcards, where phrases have features.
        reading: Held while the session is read, where another thread answers.

    Returns:
        What was learnt; None: nothing yet, and files of answers that were taken back are gone.
    """
    from edpbrl_gym.personalize.keeping import write_wildcards
    from edpbrl_gym.personalize.taste import provenance_of, save_taste
    from edpbrl_gym.session.recommendation import recommend, standings, step_words

    with reading or nullcontext():
        answers = session.comparisons
    keep_answers(session, out, answers)
    (out / PROMPTS).unlink(missing_ok=True)  # those of other answers
    learnt = answers.informative
    if not len(learnt):
        (out / TASTE).unlink(missing_ok=True)
        return None
    searched = session.vocabulary if whole is None or by_items else whole
    estimate, facts, landmarks = _estimate(session, learnt)
    origin = provenance_of(learnt, Path(ANSWERS), estimate, facts)
    save_taste(out / TASTE, estimate.theta, origin, vocabulary=searched, landmarks=landmarks)
    draws = session.draws(answers)
    prompts = recommend(searched, session.memo, estimate.theta, draws, count=count, level=0.9)
    texts = [prompt.text for prompt in prompts]
    _write_prompts(out / PROMPTS, texts)
    if by_items:
        words = [] if whole is None else words_of_items(whole, session.vocabulary.tokens[0], session.memo, draws)
    else:
        words = step_words(searched, session.memo, draws)
        if wildcards:
            write_wildcards(out / WILDCARDS, searched, session.memo, draws)
    standing = standings(searched, session.memo, draws, texts)
    return Ending(len(answers), tuple(prompts), tuple(standing), tuple(words), answers)


def keep_pictures(
    ending: Ending, out: Path, pictures: Callable[[str], bytes | None], *, title: str = "", subject: str | None = None
) -> None:
    """Write what needs pictures: a page to send to a friend, and pairs of pictures with what was preferred.

    Args:
        ending: What was learnt.
        out: The folder.
        pictures: The PNG of a text, None where there is none.
        title: Title of the page.
        subject: What all pictures show.
    """
    from edpbrl_gym.personalize.keeping import PagePrompt, PageWords, write_page, write_pairs

    best = [
        PagePrompt(one.text, pictures(one.text), f"liked more than {min(99, int(100 * one.share))}% of random ones")
        for one in ending.best
    ]
    words = [PageWords(one.step, one.liked, one.disliked) for one in ending.words]
    write_page(out / PAGE, best, words=words, questions=ending.questions, **({"title": title} if title else {}))
    texts = ending.answers.texts or []
    found = {text: png for texts_of in texts for text in texts_of if (png := pictures(text)) is not None}
    write_pairs(out / PAIRS, texts, ending.answers.responses, found, caption=subject)


def keep_answers(session: Session, out: Path, answers: Comparisons | None = None) -> None:
    """Write all answers, or those of a moment ago; without any the file of others is gone."""
    answers = session.comparisons if answers is None else answers
    if len(answers):
        answers.to_parquet(out / ANSWERS)
    else:  # those that a call before wrote have been taken back
        (out / ANSWERS).unlink(missing_ok=True)


def _estimate(session: Session, answers: Any) -> tuple[Any, dict[str, Any], Any]:
    """The taste as `edpbrl estimate` has it from the same answers, the facts about its prior, and its landmarks."""
    from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
    from edpbrl_gym.estimation.other_texts import other_texts
    from edpbrl_gym.estimation.priors import prior_or_words
    from edpbrl_gym.features import embed_tokens
    from edpbrl_gym.likelihood import format_of

    vocabulary, encoder = session.vocabulary, session.maker.encoder
    prior = prior_or_words(
        session.outlook.given_prior,
        lambda others: VocabularyPrior(embed_tokens(vocabulary, encoder), others=others),
        other_texts(vocabulary, encoder),
    )
    fit = prior.fit(prior.mapped(answers).terms(format_of(answers.responses)))
    return fit.estimate, prior.described(fit).facts, prior.landmarks


def _write_prompts(path: Path, prompts: Sequence[str]) -> None:
    from edpbrl_gym._places import write_atomically

    write_atomically(path, lambda file: file.write_text("\n".join([*prompts, ""]), encoding="utf-8"))


def words_of_items(vocabulary: Vocabulary, items: Sequence[str], encoder: Any, draws: Any) -> list[StepWords]:
    """The phrases of each step whose items are surely liked more or less than the average item of the pool.

    What ``step_words`` is for features of phrases, for features of whole items, such as what their pictures look like:
    a phrase's lead is theta . (mean of the items with it - mean of all).

    Args:
        vocabulary: The phrases.
        items: Prompts of the vocabulary.
        encoder: Encoder of the items.
        draws: Draws of the taste, (s, d).
    """
    from edpbrl_gym.session.recommendation import StepWords
    from edpbrl_gym.vocabulary import SEPARATOR

    utilities = np.asarray(draws) @ encoder.encode(list(items)).astype(np.float64).T  # (s, items)
    utilities -= utilities.mean(axis=1, keepdims=True)
    phrases = [frozenset(item.split(SEPARATOR)) for item in items]
    found = []
    for name, step in zip(vocabulary.names, vocabulary.tokens, strict=True):
        among = [np.array([token in one for one in phrases]) for token in step]
        known = [(token, mask) for token, mask in zip(step, among, strict=True) if mask.sum() >= _LEAST_ITEMS]
        leads = np.array([utilities[:, mask].mean(axis=1) for _, mask in known]).reshape(len(known), len(utilities))
        sides = []
        for sign in (1.0, -1.0):
            sure = np.quantile(sign * leads, 1 - _LEVEL, axis=1) if len(known) else np.empty(0)
            order = np.argsort(-sure, kind="stable")[:_WORDS]
            sides.append(tuple(known[index][0] for index in order if sure[index] > 0))
        found.append(StepWords(name, *sides))
    return found
