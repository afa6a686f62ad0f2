"""Planners choose the next question and learn from its answer: one protocol, and one table of names (`PLANNERS`)."""

from edpbrl_gym._lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "adaptive": ("AdaptivePlanner",),
        "base": ("Planner",),
        "option_features": ("ComposedFeatures", "PromptFeatures", "TokenFeatures"),
        "random": ("RandomPlanner",),
        "registry": ("PLANNERS", "PlannerEntry", "make_planner", "planner_class"),
        "replay": ("ReplayPlanner",),
        "scores": ("ExpectedBest", "ExpectedInformation", "ExpectedVariance", "MutualInformation", "QuestionScore"),
    },
)
