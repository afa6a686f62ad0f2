"""Rankings of several tastes, and their sheet."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from edpbrl_gym.personalize.rankings import Picture, RankedPrompts, rank_prompts, rankings_table
from edpbrl_gym.personalize.search import Prompt, best_prompts
from edpbrl_gym.personalize.sheet import comparison_sheet
from edpbrl_gym.vocabulary import Vocabulary
from tests.helpers.encoders import CountingEncoder
from tests.helpers.small_vocabulary import TOKENS

ENCODER = CountingEncoder(dimension=8)


@pytest.fixture
def rankings():
    vocabulary = Vocabulary(tuple(TOKENS), tuple(TOKENS.values()))
    rng = np.random.default_rng(7)
    tastes = {"ED-PBRL": rng.normal(size=8), "Random": rng.normal(size=8)}
    truth = rng.normal(size=8)

    def beam(theta, base):
        return best_prompts(vocabulary, ENCODER, theta, count=3, base=base)

    found = rank_prompts(tastes, beam, ENCODER, bases=["my dog", "a gate"], truth=truth)
    for one in found:  # the other scores: tests/cli/test_personalize.py
        base = ENCODER.encode([one.base])[0].astype(float)
        assert (one.base_score, one.base_true_score) == pytest.approx((base @ tastes[one.taste], base @ truth))
    return found


def test_the_table_has_a_row_for_each_prompt_and_the_columns_that_are_known(rankings):
    names, rows = rankings_table(rankings)
    assert names == ["taste", "base", "rank", "score", "true_score", "base_score", "base_true_score",
                     "prompt"]  # fmt: skip
    assert [row["rank"] for row in rows] == [1, 2, 3] * 4
    bare = RankedPrompts("mine", None, (Prompt("a", 1.0, (0,)),), None, None, None)
    assert rankings_table([bare])[0] == ["taste", "rank", "score", "prompt"]
    picture = Picture("image.png", False)
    names, full = rankings_table(rankings, pictures={rankings[0].prompts[0].text: picture})
    assert names[-3:] == ["prompt", "image", "flagged"]
    assert sum(row["image"] is not None for row in full) == 1


def test_the_sheet_shows_every_picture_in_its_column(rankings, tmp_path):
    """A colour of its own for every picture; flagged ones must not appear."""
    found = rankings
    texts = [*dict.fromkeys(["my dog", "a gate", *(p.text for one in found for p in one.prompts)])]
    colours = {text: (10 + 15 * number, 200 - 12 * number, 90) for number, text in enumerate(texts)}
    hidden = found[3].prompts[1].text
    pictures = {}
    for number, (text, colour) in enumerate(colours.items()):
        Image.new("RGB", (16, 16), colour).save(tmp_path / f"{number}.png")
        pictures[text] = Picture(tmp_path / f"{number}.png", text == hidden)
    (path,) = comparison_sheet(found, pictures, tmp_path / "sheet.png", count=2, tile=64, title="Two")
    seen = np.asarray(Image.open(path).convert("RGB"))

    def columns(colour):
        """Columns in which at least one whole picture has this colour."""
        places = np.argwhere((seen == colour).all(axis=2))[:, 1] - 24 - 96
        assert (places % 84 < 64).all()
        return {int(one) for one in np.unique(places // 84) if (places // 84 == one).sum() >= 64 * 64}

    expected = {text: set() for text in colours} | {"my dog": {0}, "a gate": {0}}
    for one in found:
        for prompt in one.prompts[:2]:
            expected[prompt.text].add(1 if one.taste == "ED-PBRL" else 2)
    expected[hidden] = set()
    assert {text: columns(colour) for text, colour in colours.items()} == expected


def test_a_sheet_of_no_ranking_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="at least one ranking"):
        comparison_sheet([], {}, tmp_path / "sheet.png")
