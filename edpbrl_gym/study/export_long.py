"""Long tables of an export: a row for each option of a question, and for each pair of options that an answer orders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym.likelihood import Response
from edpbrl_gym.study.export_tables import OPTIONS, PAIRS, Column, StudyTables, seconds_of
from edpbrl_gym.study.materials import Materials
from edpbrl_gym.vocabulary import SEPARATOR

__all__ = ["MOST_FEATURES", "MOST_TOKENS", "long_tables", "ordered_pairs"]

MOST_FEATURES = 32
"""Most features of an option that are columns: more than that no conditional logit is fitted to."""
MOST_TOKENS = 100
"""Most tokens of a step of which each is shown often enough: beyond that components of features are columns too."""
_COMPONENTS = 10
Rows = list[dict[str, Any]]


def long_tables(tables: StudyTables, materials: Materials) -> dict[str, tuple[tuple[Column, ...], Rows]]:
    """The tables ``options`` and ``pairs``: all questions that were answered, without those taken back.

    Options have columns token_1 and on, the token at each step of the prompt (one column where an option is a token),
    and feature_1 and on: the features where there are at most ``MOST_FEATURES``, their principal components where there
    are more, and more than ``MOST_TOKENS`` in a step.
    """
    people = {row["participant"]: row for row in tables.participants}
    kept = [row for row in tables.answers if row["answer"] is not None and not row["taken_back"]]
    more = _attributes(kept, materials)
    options: Rows = []
    pairs: Rows = []
    for number, row in enumerate(kept, start=1):
        person = people[row["participant"]]
        shared = {name: row[name] for name in ("participant", "arm", "asked", "kind", "answer")} | {
            "status": person["status"],
            "excluded": int(person["excluded"] is not None),
            "question": number,
            "counts": int(row["counts"]),
            "answer_s": seconds_of(row),
        }
        response = Response.from_numbers(row["answer"], row["order"])
        options += [{**shared, **one} for one in _options(row, response)]
        texts, found = row["options"], ordered_pairs(response, len(row["options"]))
        pairs += [
            {**shared, "winner": winner + 1, "loser": loser + 1, "chosen": texts[winner], "rejected": texts[loser],
             "weight": 1 / len(found)}
            for winner, loser in found
        ]  # fmt: skip
    for place, option in enumerate(options):
        option |= {column.name: values[place] for column, values in more}
    return {"options": ((*OPTIONS, *(column for column, _ in more)), options), "pairs": (PAIRS, pairs)}


def _options(row: dict[str, Any], response: Response) -> Iterator[dict[str, Any]]:
    places = response.places(len(row["options"]))
    for index, text in enumerate(row["options"]):
        yield {
            "option": index + 1,
            "position": row["positions"].index(index + 1) + 1,
            "text": text,
            "chosen": int(response.first == index),
            "rank": places.get(index),
            "level": response.levels[index] + 1 if response.levels else None,
        }


def ordered_pairs(response: Response, count: int) -> list[tuple[int, int]]:
    """All pairs (winner, loser) of ``count`` options that an answer puts in an order.

    What was named is above what was not, but for the worst option, which is below all; of levels the higher one is
    above. Options that an answer does not tell apart are in no pair.
    """
    if response.levels:
        height = dict(enumerate(response.levels))
    else:
        places = response.places(count)
        between = len(response.order) + (response.kind != "best_worst")  # of those that were not named
        height = {option: -places.get(option, between) for option in range(count)} if places else {}
    found = []
    for one, other in combinations(height, 2):
        if height[one] != height[other]:
            found.append((one, other) if height[one] > height[other] else (other, one))
    return sorted(found)


def _attributes(kept: Sequence[dict[str, Any]], materials: Materials) -> list[tuple[Column, list[Any]]]:
    """Columns of tokens and features with a value for each option."""
    texts = [text for row in kept for text in row["options"]]
    found: list[tuple[Column, list[Any]]] = []
    if materials.config.questions.feedback == "state":
        found.append((Column("token_1", "text", "the option"), list(texts)))
    else:
        indices = [tokens for row in kept for tokens in row["tokens"] or [[]] * len(row["options"])]
        tokens = [_tokens(text, one, materials) for text, one in zip(texts, indices, strict=True)]
        for step, name in enumerate(materials.vocabulary.names):
            values = [one[step] if step < len(one) else None for one in tokens]
            meaning = f"the option's token of step {name}; empty: it has none"
            found.append((Column(f"token_{step + 1}", "text", meaning), values))
    is_large = materials.encoder.dimension > MOST_FEATURES
    if texts and (not is_large or max(materials.vocabulary.sizes) > MOST_TOKENS):
        distinct = list(dict.fromkeys(texts))
        features = materials.encoder.encode(distinct).astype(np.float64)
        name = f"by the encoder {materials.encoder.name}"
        if is_large:
            features, shares = _components(features)
            meanings = [f"principal component of the options' features {name}: {one:.1%} of variance" for one in shares]
        else:
            meanings = [f"feature {place + 1} of the option {name}" for place in range(features.shape[1])]
        rows = dict(zip(distinct, features.round(7).tolist(), strict=True))  # of 32 bits
        for place, meaning in enumerate(meanings):
            found.append((Column(f"feature_{place + 1}", "number", meaning), [rows[text][place] for text in texts]))
    return found


def _components(features: Floats) -> tuple[Floats, Floats]:
    """The leading principal components of features (n, d), and the share of the variance of each.

    The largest weight of a component is positive.
    """
    centred = features - features.mean(axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred)
    kept = vectors[:, : -_COMPONENTS - 1 : -1]
    kept = kept * np.sign(kept[np.abs(kept).argmax(axis=0), np.arange(kept.shape[1])])
    return centred @ kept, values[: -_COMPONENTS - 1 : -1] / values.sum()


def _tokens(text: str, indices: Sequence[int], materials: Materials) -> list[str]:
    """The tokens of a prompt; none where the vocabulary is not the one with which it was asked."""
    steps = materials.vocabulary.tokens[: len(indices)]
    tokens = [step[index] for step, index in zip(steps, indices, strict=False) if index < len(step)]
    return tokens if SEPARATOR.join(tokens) == text else []
