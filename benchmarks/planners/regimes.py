"""Who answers what kind of question about what: the regimes by name."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.kit.sentences import SMALL, VOCABULARIES
from benchmarks.planners.tastes import TASTES
from edpbrl_gym._validation import check_choice_of
from edpbrl_gym.vocabulary import load_vocabulary

Source = Literal["mdp", "sphere", "clustered", "prompts"]


@dataclass(frozen=True)
class Regime:
    """Who answers what kind of question about what."""

    name: str
    title: str
    mode: str  # of the user: "argmax" or "sampled"
    scale: float = 1.0  # inverse temperature of the sampled mode
    # "train" (of the default vocabulary); of first answers the built-in vocabulary; of a pool of items its name, shared
    # by regimes that differ in K and scale only
    vocabulary: str = "train"
    feedback: str = "truncated"  # what is compared: partial prompts, "state": the last token or item, or "prompt"
    num_options: int = 4  # K
    # prompts built step by step, or what the items of a pool are: "sphere" (uniform) or "clustered", drawn anew for
    # every seed together with the taste, or "prompts" (embeddings of random partial ones); other tastes are sentences
    source: Source = "mdp"
    num_items: int = 0  # n of a pool
    dimension: int = 0  # d of "sphere" and "clustered"
    taste: str = ""  # of first answers: the shape of the tastes, of ``TASTES``

    @property
    def world(self) -> str:
        """Name of what its questions are made of: regimes with the same one share questions that no answer changes."""
        return f"{self.vocabulary}-{self.feedback}-K{self.num_options}"

    @property
    def first(self) -> bool:
        """Whether it is about the first answers of a person, judged after numbers of answers instead of episodes."""
        return bool(self.taste)

    @property
    def items(self) -> bool:
        """Whether options are items of a finite pool, and a question is one step."""
        return self.source != "mdp"

    @property
    def drawn(self) -> bool:
        """Whether every seed has items and a taste of its own."""
        return self.source in ("sphere", "clustered")

    @property
    def answering(self) -> str:
        """How its users answer, as in tables."""
        return "argmax" if self.mode == "argmax" else f"scale {self.scale:g}"


def _prompt_regimes() -> list[Regime]:
    regimes = [
        Regime("argmax", "argmax", "argmax"),
        *(Regime(f"scale-{s}", f"sampled, scale {s}", "sampled", float(s)) for s in (50, 20, 5)),
    ]
    changes: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("pairs", "K = 2", {"num_options": 2}),
        ("state", "state feedback", {"feedback": "state"}),
    )
    for name, title, change in changes:
        regimes.append(Regime(f"{name}-argmax", f"{title}, argmax", "argmax", **change))
        regimes.append(Regime(f"{name}-scale-20", f"{title}, scale 20", "sampled", 20.0, **change))
    title = "state feedback, K = 2, scale 20"
    return [*regimes, Regime("state-pairs-scale-20", title, "sampled", 20.0, feedback="state", num_options=2)]


def _pool_regimes() -> list[Regime]:
    pools: tuple[tuple[str, str, float, dict[str, Any]], ...] = (
        ("items-d10", "100 items, d = 10", 5.0, {"source": "sphere", "num_items": 100, "dimension": 10}),
        ("items-d32", "1,000 items, d = 32", 5.0, {"source": "sphere", "num_items": 1000, "dimension": 32}),
        (
            *("items-clusters", "1,000 items in clusters, d = 32", 5.0),
            {"source": "clustered", "num_items": 1000, "dimension": 32},
        ),
        ("items-d384", "5,000 prompts, d = 384", 20.0, {"source": "prompts", "num_items": 5000}),
    )
    regimes = []
    for options in (4, 2):
        for name, title, scale, pool in pools:
            words = f"{pool['source']}-n{pool['num_items']}"
            words += f"-d{pool['dimension']}" if "dimension" in pool else ""
            fields = {"vocabulary": words, "feedback": "state", "num_options": options, **pool}
            regimes.append(Regime(f"{name}-K{options}", f"{title}, K = {options}", "sampled", scale, **fields))
    return regimes


# -- first answers ---------------------------------------------------------------------------------------------------
# What a person's first answers teach, in two vocabularies. Questions compare complete prompts, and held-out prompts
# consist of head words that no question shows. "images-argmax" is the plainest one; "-K6" and "-K9" show more options,
# "-partial" partial prompts at every step, and "-mean", "-not" and so on are other shapes of tastes.

FIRST_MODES: dict[str, tuple[str, float]] = {
    "argmax": ("argmax", 1.0),
    "scale-50": ("sampled", 50.0),
    "scale-20": ("sampled", 20.0),
    "scale-5": ("sampled", 5.0),
}
"""Part of a regime's name -> the mode of the user, and its scale."""


def _first_regimes() -> list[Regime]:
    regimes = []
    for words in (*VOCABULARIES, *SMALL):
        for mode, (kind, scale) in FIRST_MODES.items():
            changes: list[tuple[str, str, dict[str, Any]]] = [("", "", {})]
            changes += [(f"-K{count}", f", K = {count}", {"num_options": count}) for count in (6, 9)]
            if mode in ("argmax", "scale-20"):
                changes.append(("-partial", ", partial prompts", {"feedback": "truncated"}))
                changes += [(f"-{taste}", f", {TASTES[taste]}", {"taste": taste}) for taste in TASTES]
                changes += [
                    (f"-K9-{taste}", f", K = 9, {TASTES[taste]}", {"num_options": 9, "taste": taste})
                    for taste in ("not", "composed")
                ]
            for name, title, change in changes:
                fields = {"vocabulary": words, "feedback": "prompt", "taste": "sentence", **change}
                about = f"{words}, {mode.replace('-', ' ')}{title}"
                regimes.append(Regime(f"{words}-{mode}{name}", about, kind, scale, **fields))
    return [regime for regime in regimes if not regime.name.endswith("-sentence")]


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
    return load_vocabulary(SMALL.get(words, words)).horizon


REGIMES: dict[str, Regime] = {
    regime.name: regime for regime in (*_prompt_regimes(), *_pool_regimes(), *_first_regimes())
}


def get_regime(name: str) -> Regime:
    """Return the regime of that name; ValueError: there is none, the message lists them."""
    check_choice_of(name, "regime", tuple(REGIMES))
    return REGIMES[name]
