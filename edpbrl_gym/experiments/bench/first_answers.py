"""The regimes of the first answers: what a person's first 6 to 360 answers teach, in two vocabularies.

Questions compare complete prompts, as a person who looks at pictures does, and held-out prompts consist of head words
that no question shows. "images-argmax" is the plainest one; "-K6" and "-K9" show more options, "-partial" partial
prompts at every step, and "-mean", "-not" and so on are other shapes of the users' tastes (`tastes.TASTES`).
"""

from __future__ import annotations

import functools

from edpbrl_gym.experiments.bench.regime import Regime
from edpbrl_gym.experiments.bench.tastes import TASTES
from edpbrl_gym.vocabulary import BUILT_IN, load_vocabulary

__all__ = ["FIRST_MODES", "episodes_of", "first_regimes"]

FIRST_MODES: dict[str, tuple[str, str, float]] = {
    "argmax": ("argmax", "argmax", 1.0),
    "scale-50": ("scale 50", "sampled", 50.0),
    "scale-20": ("scale 20", "sampled", 20.0),
    "scale-5": ("scale 5", "sampled", 5.0),
}
"""Part of a regime's name -> what it is in titles, the mode of the user, and its scale."""

_OPTIONS = (4, 6, 9)
_TWO = ("argmax", "scale-20")  # modes of partial prompts and of the other shapes of tastes


def first_regimes() -> list[Regime]:
    """All regimes of first answers: for each vocabulary the modes, the numbers of options, and the shapes of tastes."""
    regimes = []
    for words in BUILT_IN:
        for mode in FIRST_MODES:
            regimes += [_regime(words, mode, num_options=count) for count in _OPTIONS]
        regimes += [_regime(words, mode, feedback="truncated") for mode in _TWO]
        for taste in TASTES:
            if taste != "sentence":
                regimes += [_regime(words, mode, taste=taste) for mode in _TWO]
    return regimes


def _regime(
    words: str, mode: str, *, num_options: int = 4, feedback: str = "prompt", taste: str = "sentence"
) -> Regime:
    title, kind, scale = FIRST_MODES[mode]
    name, titles = f"{words}-{mode}", [words, title]
    if num_options != 4:
        name, titles = f"{name}-K{num_options}", [*titles, f"K = {num_options}"]
    if feedback == "truncated":
        name, titles = f"{name}-partial", [*titles, "partial prompts"]
    if taste != "sentence":
        name, titles = f"{name}-{taste}", [*titles, TASTES[taste]]
    return Regime(
        name, ", ".join(titles), False, kind, scale, words, feedback, num_options, taste=taste,
        styles=2 if taste == "two-styles" else 1,
    )  # fmt: skip


def episodes_of(regime: Regime, answers: tuple[int, ...]) -> tuple[int, ...]:
    """Numbers of episodes after which so many answers are given.

    An episode of complete prompts is one answer, one of partial prompts has an answer at every step; numbers of answers
    that are no whole number of episodes are left out.

    Raises:
        ValueError: None is left.
    """
    each = 1 if regime.feedback == "prompt" else _horizon(regime.vocabulary)
    episodes = tuple(count // each for count in answers if count % each == 0)
    if not episodes:
        raise ValueError(
            f"Expected for {regime.name!r} a number of answers that is a multiple of {each}, one for each step of a "
            f"prompt, got {', '.join(map(str, answers)) or 'none'}"
        )
    return episodes


@functools.cache
def _horizon(words: str) -> int:
    return load_vocabulary(words).horizon
