"""edpbrl-gym: learn a person's taste from as few "which one is best?" questions as possible.

Importing the package registers the ``edpbrl/...`` environments with Gymnasium and loads nothing heavier than
gymnasium and numpy; models, solvers and plotting are imported by the modules that need them.
"""

import gymnasium

__version__ = "0.1.0"

__all__ = ["__version__"]


def _register_environments() -> None:
    """Register every environment once, by string entry points (no environment module is imported)."""
    from edpbrl_gym.envs.registration import ENVIRONMENTS

    for spec in ENVIRONMENTS:
        if spec["id"] not in gymnasium.registry:
            gymnasium.register(**spec)


_register_environments()
