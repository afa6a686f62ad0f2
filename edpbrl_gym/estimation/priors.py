"""All priors of a taste by name: one table for planners, sessions, agents and commands; it imports no prior."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import ArrayLike

from edpbrl_gym._compat import Need, import_string
from edpbrl_gym._validation import did_you_mean, known_name

if TYPE_CHECKING:
    from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
    from edpbrl_gym.estimation.other_texts import OtherTexts
    from edpbrl_gym.estimation.taste_prior import TastePrior

__all__ = [
    "MOST_ITEMS",
    "PRIORS",
    "PRIOR_FILES",
    "PriorEntry",
    "default_prior",
    "load_prior",
    "make_prior",
    "prior_needs",
    "prior_options",
    "prior_or_words",
]

_ROOM = "edpbrl_gym.estimation"


class PriorEntry(NamedTuple):
    """A row of the table.

    Attributes:
        path: "package.module:name" of what makes the prior of the embeddings of a vocabulary, (N, d).
        needs_words: Whether features that are no embeddings of words will not do, such as attributes of options.
        uses_features: Whether it depends on them at all, beyond their number d.
        of_options: Whether it is about the options that may be asked about, even where these are made of tokens.
        needs: Optional packages that it imports.
    """

    path: str
    needs_words: bool = False
    uses_features: bool = True
    of_options: bool = False
    needs: tuple[str, ...] = ()


PRIORS: dict[str, PriorEntry] = {
    "words": PriorEntry(f"{_ROOM}.neighbourhood:VocabularyPrior", True),
    "embeddings": PriorEntry(f"{_ROOM}.scaled_prior:embeddings_prior", True),
    "ridge": PriorEntry(f"{_ROOM}.scaled_prior:ridge_prior", uses_features=False),
    "blocks": PriorEntry(f"{_ROOM}.blocks:BlocksPrior", True),
    "items": PriorEntry(f"{_ROOM}.items:ItemsPrior", True, of_options=True),
    "gp": PriorEntry(f"{_ROOM}.gaussian_process:GaussianProcessPrior", True, needs=("sklearn",)),
}

MOST_ITEMS = 2000
"""Items of a pool, above which a deviation of each would make people wait."""

PRIOR_FILES: dict[str, str] = {
    "population.safetensors": f"{_ROOM}.population.storage:PopulationFile",
    "prior.npz": f"{_ROOM}.prior:GaussianPrior",
}
"""What ``TastePrior.save`` writes, by the name of the file."""


def _maker(name: str) -> Callable[..., TastePrior]:
    entry = PRIORS.get(known_name(name, PRIORS))
    if entry is None and not all(name.partition(":")):
        raise ValueError(
            f"Expected a prior among {', '.join(PRIORS)}, or an import string such as 'my_package.my_module:MyPrior', "
            f"got {name!r}{did_you_mean(name, PRIORS)}"
        )
    maker: Callable[..., TastePrior] = import_string(name if entry is None else entry.path, "prior")
    return maker


def default_prior(blocks: Sequence[int], pool: int = 0) -> str:
    """The name of the prior that a taste has by default.

    Args:
        blocks: Those of the encoder (``blocks_of``).
        pool: Number of items that may be asked about; 0: prompts of several steps.
    """
    if len(blocks) < 2:
        return "words"
    return "items" if 0 < pool <= MOST_ITEMS else "blocks"


def make_prior(
    prior: TastePrior | str,
    features: ArrayLike | Callable[[], ArrayLike],
    *,
    blocks: Sequence[int] = (),
    others: OtherTexts | None = None,
    **options: Any,
) -> TastePrior:
    """A prior by its name in `PRIORS` or its import string; one that is made already stays as it is.

    Args:
        prior: The name, or the prior.
        features: Embeddings of the vocabulary, (N, d), or a function that gives them.
        blocks: Numbers of features of the encoder's blocks, for priors that tell them apart.
        others: `other_texts` of the vocabulary, for priors that learn from them too.
        **options: Of the prior, such as ``power``: `prior_options`.

    Raises:
        TypeError: It has no such option; the message lists those that it has.
        ValueError: An unknown name.
    """
    if not isinstance(prior, str):
        return prior
    maker, known = _maker(prior), prior_options(prior)
    if blocks and "blocks" in known:
        options["blocks"] = tuple(blocks)
    if others is not None and "others" in known:
        options["others"] = others
    for option in options:
        if option not in known:
            raise TypeError(f"The prior {prior!r} has no option {option!r}; its options: {', '.join(known) or 'none'}.")
    return maker(features() if callable(features) else features, **options)


def prior_options(name: str) -> list[str]:
    """What `make_prior` takes for a prior besides the features; raises as `make_prior`."""
    parameters = inspect.signature(_maker(name)).parameters.values()
    return [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]


def prior_needs(name: str) -> list[Need]:
    """The optional packages that a prior imports; none for the file of one."""
    return [Need(package, f"the prior {name!r}") for package in (PRIORS[name].needs if name in PRIORS else ())]


def prior_or_words(
    given: TastePrior | None, words: Callable[[OtherTexts | None], VocabularyPrior], others: OtherTexts | None = None
) -> TastePrior:
    """The prior of a taste: without one that of the words, on which a population without a fallback falls back.

    Args:
        given: The prior, if there is one.
        words: Makes that of the words, beside those of other texts if there are any.
        others: `other_texts` of the vocabulary; a population does without.
    """
    return words(others) if given is None else given.with_words(lambda: words(None))


def load_prior(path: str | os.PathLike[str]) -> TastePrior:
    """Read the file of a prior, whatever its name: that of a population, or a Gaussian one.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A file of another kind.
    """
    kinds = {Path(name).suffix: made for name, made in PRIOR_FILES.items()}
    if Path(path).suffix not in kinds:
        raise ValueError(f"Expected the file of a prior ({' or '.join(kinds)}), got {path}")
    found: TastePrior = import_string(kinds[Path(path).suffix], "prior").load(path)
    return found
