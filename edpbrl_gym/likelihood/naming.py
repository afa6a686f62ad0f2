"""Response models by name, for options and files."""

from __future__ import annotations

from collections.abc import Iterable

from edpbrl_gym._validation import check_choice_of
from edpbrl_gym.likelihood.models import BestOf, ResponseModel, WithTies
from edpbrl_gym.likelihood.partial import PartialRanking
from edpbrl_gym.likelihood.rankings import BestWorst, Ranking
from edpbrl_gym.likelihood.response import Response

__all__ = ["RESPONSE_MODELS", "make_response_model", "response_model_of"]

RESPONSE_MODELS = ("best", "best_worst", "ranking", "partial", "ties")


def make_response_model(name: str, *, nu: float = 1.0, taps: int = 3) -> ResponseModel:
    """Return the response model with a name.

    Args:
        name: "best", "best_worst", "ranking", "partial" or "ties".
        nu: Inclination to call a tie, for "ties"; the others ignore it.
        taps: Number of options that a simulated user names, for "partial"; the others ignore it.

    Raises:
        ValueError: The name is unknown, nu <= 0 for "ties", or taps < 1 for "partial".
    """
    check_choice_of(name, "response model", RESPONSE_MODELS)
    if name == "ties":
        return WithTies(nu)
    if name == "partial":
        return PartialRanking(taps)
    plain: dict[str, ResponseModel] = {"best": BestOf(), "best_worst": BestWorst(), "ranking": Ranking()}
    return plain[name]


def response_model_of(responses: Iterable[Response]) -> ResponseModel:
    """Return a response model that takes all of these answers; "best" alone fits every model, skips do not count.

    Raises:
        ValueError: No single model takes them (a ranking and a worst option, for example).
    """
    kinds = {response.kind for response in responses} - {"skip", "best"}
    models: tuple[ResponseModel, ...] = (BestOf(), BestWorst(), Ranking(), PartialRanking(), WithTies())
    for model in models:
        if kinds <= set(model.kinds):
            return model
    raise ValueError(f"Expected answers that one response model takes, got the kinds {', '.join(sorted(kinds))}")
