"""Small studies about a pool, and people who share what they like in its items."""

from __future__ import annotations

import numpy as np

from edpbrl_gym.likelihood import Response
from tests.helpers.encoders import CountingEncoder
from tests.helpers.studies import SMALL, write_study

ITEMS = tuple(f"picture {number}" for number in range(40))
LEAST = 4
ARMS = """
[thanks]
style = 0
[[arms]]
name = "alone"
planner = "adaptive"
prior = "items"
[[arms]]
name = "others"
planner = "adaptive"
prior = "study"
[crowd]
minimum_people = 4
"""
POOL = (
    SMALL[: SMALL.index("[[arms]]")]
    .replace("number = 6", "number = 5")
    .replace("options = 3", "options = 4")
    .replace("repeated = 2", "repeated = 0\ntest = 2")
)


def write_pool(folder, text=POOL + ARMS):
    write_study(folder, text)
    for path in (folder / "words").glob("*.txt"):
        path.unlink()
    (folder / "words" / "1-items.txt").write_text("\n".join(ITEMS) + "\n", encoding="utf-8")
    return folder


class People:
    """People who share what they like in each item, beside a taste in the features and a liking of their own."""

    def __init__(self, seed=0, *, items=ITEMS):
        self.rng = np.random.default_rng(seed)
        self.shared = self.rng.normal(size=len(items)) * 1.5
        self.features = CountingEncoder().encode(items)
        self.items = {text: place for place, text in enumerate(items)}

    def draw(self):
        own = self.features @ self.rng.normal(size=8) * 0.7 + 0.5 * self.rng.normal(size=len(self.items))
        return dict(zip(self.items, self.shared + own, strict=True))

    def answer(self, utilities, question):
        if question.expected is not None:
            return Response.best(question.expected)
        values = np.array([utilities[text] for text in question.texts])
        return Response.best(int((values + self.rng.gumbel(size=len(values))).argmax()))
