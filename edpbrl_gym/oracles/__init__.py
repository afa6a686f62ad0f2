"""Oracles: simulated users and models that answer questions."""

from edpbrl_gym._lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "base": ("Answers", "Oracle", "answers_of", "check_oracle"),
        "image_score": ("ImageScoreUser",),
        "synthetic": ("ImperfectUser", "SyntheticUser"),
    },
)
