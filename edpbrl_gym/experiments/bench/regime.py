"""A regime of the benchmark: who answers what kind of question about what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Regime", "Source"]

Source = Literal["mdp", "sphere", "clustered", "prompts"]


@dataclass(frozen=True)
class Regime:
    """Who answers what kind of question about what.

    Attributes:
        name: On the command line and in the table.
        title: In figures.
        headline: Whether the study "efficiency" gives it all seeds (a side regime gets fewer).
        mode: "argmax" or "sampled".
        scale: Inverse temperature of the sampled mode.
        vocabulary: Of prompt MDPs: "train" (the default vocabulary's train split), "small" (about 400 tokens of it) or
            "skewed" (80% of the tokens are near-duplicates); of first answers: the built-in vocabulary, "images" or
            "interiors". Of pools of items: name of the pool; regimes with the same pool differ in K and scale only.
        feedback: "truncated" (partial prompts), "state" (the last token, or the item) or "prompt" (complete prompts).
        num_options: K, options of a question.
        imperfect: Options of ``ImperfectUser`` beside mode and scale, as (name, value).
        source: "mdp" (prompts built step by step), or what the items of a pool are: "sphere" (uniform on the unit
            sphere) or "clustered" (around a few centres of it), both drawn anew for every seed together with the taste;
            "prompts" (embeddings of random partial prompts of the vocabulary's train split). Tastes of "mdp" and
            "prompts" are sentences.
        num_items: n, items of the pool; 0 for "mdp".
        dimension: d of "sphere" and "clustered"; 0 where the encoder says it.
        styles: 1, a linear taste; or 2: the user likes this style and another one, but not their mixture
            (`edpbrl_gym.oracles.TwoStyles`). The other is the sentence five further on, or drawn too.
        kernels: Whether Random questions are also given to the estimators of tastes that are not linear.
        taste: Of first answers: the shape of the tastes, one of `tastes.TASTES`; "" in all other regimes.
    """

    name: str
    title: str
    headline: bool
    mode: str
    scale: float = 1.0
    vocabulary: str = "train"
    feedback: str = "truncated"
    num_options: int = 4
    imperfect: tuple[tuple[str, float], ...] = ()
    source: Source = "mdp"
    num_items: int = 0
    dimension: int = 0
    styles: Literal[1, 2] = 1
    kernels: bool = False
    taste: str = ""

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
