"""A language model that answers questions, behind any OpenAI-compatible chat endpoint."""

from edpbrl_gym._lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "judge": ("Judge", "JudgeOracle"),
        "ledger": ("Ledger",),
        "questions": ("JudgeQuestion", "Usage", "Verdict"),
        "settings": ("JudgeSettings",),
    },
)
