"""Response models by name, for options and files."""

from __future__ import annotations

from edpbrl_gym._validation import check_choice_of
from edpbrl_gym.likelihood.models import BestOf, ResponseModel, WithTies
from edpbrl_gym.likelihood.rankings import BestWorst, Ranking

__all__ = ["RESPONSE_MODELS", "make_response_model"]

RESPONSE_MODELS = ("best", "best_worst", "ranking", "ties")


def make_response_model(name: str, *, nu: float = 1.0) -> ResponseModel:
    """Return the response model with a name.

    Args:
        name: "best", "best_worst", "ranking" or "ties".
        nu: Inclination to call a tie, for "ties"; the others ignore it.

    Raises:
        ValueError: The name is unknown, or nu <= 0 for "ties".
    """
    check_choice_of(name, "response model", RESPONSE_MODELS)
    if name == "ties":
        return WithTies(nu)
    plain: dict[str, ResponseModel] = {"best": BestOf(), "best_worst": BestWorst(), "ranking": Ranking()}
    return plain[name]
