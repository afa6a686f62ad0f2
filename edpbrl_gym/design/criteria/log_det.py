"""D-optimality."""

from __future__ import annotations

from edpbrl_gym.design.criteria.base import Criterion, Form

__all__ = ["DCriterion"]


class DCriterion(Criterion):
    """D-optimality: s(I) = log det I."""

    name = "D"
    logarithmic = True
    form = Form(trace=False)
