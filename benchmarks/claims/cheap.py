"""Numbers of the pages that take seconds and do not depend on the machine, computed once more.

A function here returns values by name; ``{name}`` in a quotation of docs/claims.toml is the number of the page that has
to be the value, rounded as it is written there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.claims.checks import Pages
from benchmarks.claims.pages import ROOT, pattern, value
from benchmarks.claims.registry import Claim
from benchmarks.claims.summaries import (
    comparison_summary,
    efficiency_summary,
    first_answers_summary,
    people_summary,
)

__all__ = ["RECOMPUTED", "differences"]

Values = Mapping[str, float]
_SLACK = 1.1  # of the rounding, for what processors do to the last digits


def vocabularies() -> Values:
    """Tokens of the built-in vocabularies and of the training part, and what a token may be."""
    from edpbrl_gym.vocabulary import load_vocabulary
    from edpbrl_gym.vocabulary.tokens import MAX_LENGTH

    images, interiors = load_vocabulary("images"), load_vocabulary("interiors")
    held_out = [len(tokens) for tokens in images.split(seed=0)[1].tokens]
    return {
        "images": len(images.all_tokens),
        "interiors": len(interiors.all_tokens),
        "training": len(images.split(seed=0)[0].all_tokens),
        "steps": images.horizon,
        "fewest": min(held_out),
        "most": max(held_out),
        "characters": MAX_LENGTH,
    }


def legal_actions() -> Values:
    """How far from uniform over the legal tokens a uniform policy is behind ``LegalActions``, at the worst step."""
    from edpbrl_gym.envs.wrappers.legal_actions import legal_actions as deal
    from edpbrl_gym.vocabulary import load_vocabulary

    sizes = load_vocabulary().sizes
    distances = []
    for size in sizes:
        played = np.bincount(deal(np.arange(max(sizes)) < size), minlength=size) / max(sizes)
        distances.append(0.5 * np.abs(played[:size] - 1.0 / size).sum())
    return {"distance": max(distances)}


def runs() -> Values:
    """How many runs each study of ``python -m benchmarks.planners`` consists of."""
    from benchmarks.planners.settings import STUDIES, PlannerSettings, plan_units

    found: dict[str, float] = {}
    for name, study in STUDIES.items():
        units = plan_units(PlannerSettings(**study.settings), study=study)
        key = name.replace("-", "_")
        found[key] = len(units)
        found[f"{key}_arms"] = len({unit.arm for unit in units})
        found[f"{key}_settings"] = len({unit.regime for unit in units})
        found[f"{key}_seeds"] = len({unit.seed for unit in units})
        found[f"{key}_users"] = len({(unit.seed, unit.regime, unit.user) for unit in units})
    return found


def prompt_model() -> Values:
    """Size and perplexity of the prompt model that ships, by its record (``test_shipped.py`` measures them)."""
    folder = ROOT / "edpbrl_gym" / "language" / "data" / "prompt-lm"
    report = json.loads((folder / "training.json").read_text(encoding="utf-8"))["report"]
    return {
        "parameters": _weights(folder / "model.safetensors") / 1e6,
        "megabytes": sum(path.stat().st_size for path in folder.iterdir()) / 1e6,
        "per_token": report["perplexity_held_out"],
        "per_word": report["perplexity_held_out_per_word"],
        "held_out": report["held_out"],
    }


def digits() -> Values:
    """Parameters of the model of digits that ships."""
    (file,) = (ROOT / "edpbrl_gym" / "diffusion" / "data").glob("**/diffusion_pytorch_model.safetensors")
    return {"parameters": _weights(file)}


def _weights(file: Path) -> int:
    from safetensors import safe_open

    with safe_open(file, "numpy") as weights:
        return sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())


def exact_gains() -> Values:
    """What K different policies gain on the example of docs/exact-designs.md."""
    from edpbrl_gym.design import DesignProblem, exact_design, exact_information, make_criterion, newton
    from edpbrl_gym.mdp import PromptMDP

    gains: dict[str, float] = {}
    for options in (2, 4):
        problem = DesignProblem(
            mdp=PromptMDP((12, 9, 10)),
            features=np.random.default_rng(0).standard_normal((31, 5)),
            num_policies=options,
            episodes=60,
            criterion=make_criterion("D"),
            regularization=1.0,
        )
        surrogate = newton(problem)
        rows = np.stack([surrogate.mean_rows] * options)
        identical = problem.criterion.value(exact_information(problem.features, rows, 60) + problem.prior)
        value = exact_design(problem, surrogate=surrogate).value
        gains[f"gain{options}"] = 1.0 / problem.criterion.efficiency(identical, value, problem.dimension)
    return gains


def uniform_questions() -> Values:
    """Finding F9: D-efficiency of uniform questions against the certified bound; T = 60, lambda = 1."""
    from benchmarks.common import training_tokens
    from edpbrl_gym.design import (
        DesignProblem,
        exact_information,
        make_criterion,
        newton,
        surrogate_information,
    )
    from edpbrl_gym.likelihood.choice import fisher_information
    from edpbrl_gym.mdp import PromptMDP

    vocabulary, _, tokens = training_tokens()
    features, mdp = tokens.astype(np.float64), PromptMDP(vocabulary.sizes)
    problem = DesignProblem(
        mdp=mdp, features=features, num_policies=4, episodes=60, criterion=make_criterion("D"), regularization=1.0
    )
    bound = newton(problem).upper_bound
    uniform = mdp.row_occupancy(mdp.occupancy(mdp.uniform_policy()))

    def efficiency(information: Any) -> float:
        determinant = np.linalg.slogdet(information + np.eye(features.shape[1]))[1]
        return float(np.exp((determinant - bound) / features.shape[1]))

    found = {"surrogate": efficiency(surrogate_information(features, uniform, 60))}
    for k in (4, 2):
        found[f"expected{k}"] = efficiency(exact_information(features, np.stack([uniform] * k), 60))
        drawn = []
        for seed in range(1000, 1005):
            rows = mdp.sample(mdp.uniform_policy(), 60 * k, np.random.default_rng(seed)).rows.reshape(60, k, -1)
            options = features[rows].transpose(0, 2, 1, 3).reshape(-1, k, features.shape[1])
            drawn.append(efficiency(fisher_information(options)))
        found[f"drawn{k}"] = float(np.mean(drawn))
    return found


def prompt_model_of_questions() -> Values:
    """How much of the variance of complete prompts the planner's model of them explains."""
    from benchmarks.common import training_tokens
    from edpbrl_gym.planners.option_features import PromptFeatures

    vocabulary, encoder, tokens = training_tokens()
    return {"share": 100.0 * PromptFeatures(vocabulary, tokens, encoder).explained}


def ranking_information() -> Values:
    """Finding F11: information at theta = 0 over that of a best-of-4 answer; a choice of m carries (m - 1)/m."""
    from edpbrl_gym.likelihood import BestOf, BestWorst, Ranking

    options, theta = np.random.default_rng(0).normal(size=(1, 4, 3)), np.zeros(3)
    best = np.trace(BestOf().information(options, theta).squeeze())
    return {
        "ranking": float(np.trace(Ranking().information(options, theta).squeeze()) / best),
        "best_worst": float(np.trace(BestWorst().information(options, theta).squeeze()) / best),
    }


def constants() -> Values:
    """Limits and settings that pages name, from the code."""
    from edpbrl_gym import _pictures
    from edpbrl_gym._http.transport import MAX_BYTES
    from edpbrl_gym.cli import ask_terminal
    from edpbrl_gym.design import problem
    from edpbrl_gym.diffusion.enumeration import MAX_SEQUENCES
    from edpbrl_gym.oracles.judge import JudgeSettings
    from edpbrl_gym.planners import adaptive, shortlist

    return {
        "pause": ask_terminal._QUIET,
        "large": adaptive._LARGE,
        "list": shortlist._BEST + shortlist._RANDOM,
        "best": shortlist._BEST,
        "random": shortlist._RANDOM,
        "directions": shortlist._DIRECTIONS,
        "sequences": MAX_SEQUENCES,
        "bytes": MAX_BYTES,
        "megabytes": MAX_BYTES / 1e6,
        "image_tokens": JudgeSettings.__dataclass_fields__["tokens_per_image"].default,
        "pixels": _pictures.MAX_PIXELS / 1e6,
        "largest": problem._LARGEST,
    }


RECOMPUTED: dict[str, Callable[[], Values]] = {
    each.__name__: each
    for each in (
        vocabularies,
        legal_actions,
        runs,
        prompt_model,
        digits,
        exact_gains,
        uniform_questions,
        prompt_model_of_questions,
        ranking_information,
        constants,
        first_answers_summary,
        efficiency_summary,
        people_summary,
        comparison_summary,
    )
}


def differences(claims: list[Claim], pages: Pages) -> Iterator[str]:
    """One sentence for every number of a page that is not, to its last digit, what is computed now."""
    for claim in (claim for claim in claims if claim.recompute):
        values = {name: number for each in claim.recompute for name, number in RECOMPUTED[each]().items()}
        shown = set()
        for page, quotes in claim.quotes.items():
            for quote in quotes:
                found = [match for section in pages[page].values() for match in pattern(quote).finditer(section.text)]
                for name, number in ((name, number) for match in found for name, number in match.groupdict().items()):
                    shown.add(name)
                    written, half = value(number)
                    if abs(written - values[name]) > _SLACK * half + 1e-12 * abs(written):
                        now = f"computed now: {values[name]:.6g}"
                        yield f"{page} says {number} for {name} of claim {claim.id!r}; {now}."
        if not shown:
            yield f"Claim {claim.id!r} recomputes and quotes none of {', '.join(values)}."
