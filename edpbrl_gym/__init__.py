"""edpbrl-gym: learn a person's taste from as few "which one is best?" questions as possible.

``import edpbrl_gym as eg`` registers the ``edpbrl/...`` environments with Gymnasium and provides the names that most
programs need, each imported when it is first used. Importing the package loads nothing heavier than gymnasium and
numpy.
"""

import os

import gymnasium

from edpbrl_gym._lazy import lazy_names

if not os.path.isdir(os.path.join(__path__[0], "agents")) and __name__ == "edpbrl_gym":
    __path__.append(os.path.dirname(__path__[0]))  # a checkout whose links are text files, as on Windows

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "agents": ("Agent", "make_agent"),
        "collection": ("collect",),
        "comparisons": ("Comparisons", "load_comparisons", "load_people"),
        "design": ("DesignProblem", "make_criterion", "solve", "verify"),
        "envs.wrappers": ("LearnedReward", "LegalActions", "PreferenceQuery"),
        "estimation": ("GaussianPrior", "VocabularyPrior", "estimate"),
        "features": ("load_encoder",),
        "mdp": ("FiniteHorizonMDP",),
        "oracles": ("Answers", "ImperfectUser", "SyntheticUser"),
        "oracles.judge": ("Judge", "JudgeOracle", "JudgeSettings"),
        "personalize": ("best_prompts", "load_taste", "save_taste"),
        "pictures": ("load_pictures",),
        "planners": ("make_planner",),
        "rendering": ("Renderer", "load_renderer"),
        "session": ("Session", "StoppingRule"),
        "vocabulary": ("Vocabulary", "load_vocabulary"),
    },
)


def _register_environments() -> None:
    """Register every environment once, by string entry points (no environment module is imported)."""
    from edpbrl_gym.envs import ENVIRONMENTS

    for spec in ENVIRONMENTS:
        if spec["id"] not in gymnasium.registry:
            gymnasium.register(**spec)


_register_environments()
