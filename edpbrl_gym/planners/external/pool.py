"""Shared code of the external planners: a pool of items, pairs of them, and quiet, repeatable calls."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats, Indices
from edpbrl_gym._compat import require
from edpbrl_gym._validation import check_array, check_integers
from edpbrl_gym.likelihood import BestOf, Response
from edpbrl_gym.likelihood.choice import check_options

__all__ = [
    "answered_pairs",
    "check_items",
    "check_pair",
    "check_prefixes",
    "load",
    "private_randomness",
]


def load(module: str, purpose: str) -> Any:
    """Import a module of the extra ``external`` without its deprecation warnings.

    Raises:
        ModuleNotFoundError: It is not installed; the message says what to install.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return require(module, purpose, "external")


@contextmanager
def private_randomness(*seed: int) -> Iterator[None]:
    """The global generators of numpy and torch, which the packages draw from, seeded inside and restored afterwards."""
    torch = require("torch", "the planners of other packages", "external")
    number = int(np.random.SeedSequence(seed).generate_state(1)[0])
    before = np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(number)  # not those of the accelerators, which nothing here draws from
        np.random.seed(number)
        try:
            yield
        finally:
            np.random.set_state(before)


def check_items(items: ArrayLike) -> tuple[Floats, Indices]:
    """The pool (n, d), and the indices of the first of each set of equal rows, at least two.

    Raises:
        ValueError: NaN, no table, or fewer than two different items.
    """
    pool = check_array(items, "items", shape=("n", "d"))
    distinct = np.sort(np.unique(pool, axis=0, return_index=True)[1]) if pool.size else np.arange(0)
    if len(distinct) < 2:
        raise ValueError(f"Expected at least 2 different items to compare, got {len(distinct)}")
    return pool, distinct.astype(np.int64)


def check_pair(num_options: int) -> None:
    """Refuse anything but K = 2.

    Raises:
        ValueError: Another K.
    """
    if num_options != 2:
        raise ValueError(f"Expected num_options (K) = 2, the package compares pairs only; got {num_options}")


def check_prefixes(prefixes: ArrayLike) -> None:
    """Refuse anything but two prompts without a token: the items are the prompts.

    Raises:
        ValueError: Another number of prompts, or prompts that are complete.
    """
    step = check_integers(np.asarray(prefixes, dtype=np.int64), "prefixes", shape=(2, "h")).shape[1]
    if step:
        raise ValueError(f"Expected prompts without tokens, since a prompt is one item; got {step} tokens")


def answered_pairs(options: ArrayLike, responses: Sequence[Response | int], dimension: int) -> Floats:
    """The chosen and the other item of each informative question, (m, 2, d).

    Skipped questions, and those of two equal items, carry no information.

    Raises:
        ValueError: Shapes that don't fit, or answers other than the best option.
    """
    shape = ("n", 2, dimension)
    rows = check_array(check_options(options), "options", shape=shape, hint="pairs of the pool's items")
    answers = [answer if isinstance(answer, Response) else Response.best(answer) for answer in responses]
    BestOf().terms(rows, answers)  # raises for answers that the packages don't know
    informative = [
        index
        for index, answer in enumerate(answers)
        if answer.first is not None and (rows[index, 0] != rows[index, 1]).any()
    ]
    order = np.array([[answers[index].first, 1 - (answers[index].first or 0)] for index in informative], dtype=np.int64)
    return rows[np.array(informative, dtype=np.int64)[:, None], order.reshape(-1, 2)]
