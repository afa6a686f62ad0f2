"""Who takes part: our planner, the paper's designs, every rule of the literature, and rivals from other packages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from edpbrl_gym.experiments.query_bench.arms import STATIC_RULES
from edpbrl_gym.experiments.race.settings import RaceRegime
from edpbrl_gym.planners.registry import PLANNERS, RULES

__all__ = ["CONTENDERS", "FAMILIES", "OURS_MARK", "Contender", "default_contenders", "get_contender"]

FAMILIES: tuple[str, ...] = ("ours", "paper", "literature", "packages", "baseline")
OURS_MARK = "@ours"


def _anywhere(regime: RaceRegime) -> bool:
    return True


def _mdp(regime: RaceRegime) -> bool:
    return not regime.items


def _small_pairs(regime: RaceRegime) -> bool:
    return regime.items and regime.num_options == 2 and regime.num_items <= 1000


def _low_pairs(regime: RaceRegime) -> bool:
    return _small_pairs(regime) and 0 < regime.dimension <= 10


@dataclass(frozen=True)
class Contender:
    """One way of asking, and of estimating from the answers.

    Attributes:
        name: On the command line and in the table.
        title: In tables and figures.
        family: One of ``FAMILIES``.
        kind: What makes its planner: "ours" (`AdaptivePlanner`), "rule" (`RulePlanner`), "static" (an agent whose
            questions are drawn before the first answer), "gp" or "optuna" (other packages).
        options: Of that planner; for "static" the name of the rule in the benchmark of questions.
        own: Its own estimator: a name of the benchmark of questions, "planner" (what the planner itself estimates), or
            "item" (a best item, no theta).
        runs_in: Whether it can run in a regime.
        adaptive: Whether its questions depend on the answers.
    """

    name: str
    title: str
    family: str
    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)
    own: str = "planner"
    runs_in: Callable[[RaceRegime], bool] = _anywhere
    adaptive: bool = True


def _contenders() -> dict[str, Contender]:
    found = [
        Contender("ours", "ours", "ours", "ours"),
        Contender("ours-best", "ours, seeks the best", "ours", "ours", {"mode": "best"}),
        _static("tuples", "tuples (ours, without answers)", "ours", "tuples", "ours"),
        _static("paper-text", "ED-PBRL (paper's text)", "paper", "static-V100", "ridge100"),
        _static("paper-scripts", "ED-PBRL (paper's scripts)", "paper", "exact-V100", "ridge100"),
    ]
    for name in RULES:
        if name != "rollout_pool":  # with nothing said it draws at random, as "random" does
            row = PLANNERS[name]
            known = "random" if name == "random_distinct" else name
            found.append(Contender(known, row.title, row.family, "rule", {"rule": name}, adaptive=row.adaptive))
    for name in ("bald", "adaptive_a", "adaptive_d"):
        found.append(
            Contender(
                f"rollouts-{name}",
                f"{PLANNERS[name].title}, random rollouts",
                "baseline",
                "rule",
                {"rule": "rollout_pool", "rule_options": {"rule": name}},
                runs_in=_mdp,
            )  # fmt: skip
        )
    found += [
        Contender("botorch-bald", "BoTorch, BALD", "packages", "gp", {"acquisition": "bald"}, runs_in=_small_pairs),
        Contender("botorch-eubo", "BoTorch, EUBO", "packages", "gp", {"acquisition": "eubo"}, runs_in=_small_pairs),
        Contender("optuna", "Optuna", "packages", "optuna", own="item", runs_in=_low_pairs),
    ]
    return {contender.name: contender for contender in found}


def _static(name: str, title: str, family: str, rule: str, own: str) -> Contender:
    if rule not in STATIC_RULES:
        raise ValueError(f"Expected a static rule among {', '.join(STATIC_RULES)}, got {rule!r}")
    return Contender(name, title, family, "static", {"rule": rule}, own, adaptive=False)


CONTENDERS: dict[str, Contender] = _contenders()


def get_contender(name: str) -> Contender:
    """Return the contender of that name, ``rule@ours`` being an adaptive rule that plans with our posterior.

    Raises:
        ValueError: There is none; the message lists them.
    """
    plain = name.removesuffix(OURS_MARK)
    known = CONTENDERS.get(plain)
    if known is not None and plain == name:
        return known
    if known is not None and known.kind == "rule" and known.adaptive:
        return replace(
            known, name=name, title=f"{known.title} + our posterior", options={**known.options, "ours": True}
        )
    rules = [one.name for one in CONTENDERS.values() if one.kind == "rule" and one.adaptive]
    raise ValueError(
        f"Expected a contender among {', '.join(CONTENDERS)}, or an adaptive rule with our posterior, such as "
        f"'bald{OURS_MARK}' ({', '.join(rules)}), got {name!r}"
    )


def default_contenders(regime: RaceRegime) -> list[str]:
    """Names of all that can run in a regime, without the variants of ``@ours``."""
    return [name for name, contender in CONTENDERS.items() if contender.runs_in(regime)]
