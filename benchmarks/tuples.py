"""Measure realised query sets on the built-in vocabulary: the figures of docs/query-sets.md.

    python -m benchmarks.tuples --out tuples.jsonl           # about 20 minutes on one core, features are cached
    python -m benchmarks.tuples --out tuples.jsonl --quick   # a small vocabulary, about a minute

Every block appends its rows to the file and is skipped where the file has them already; tables are printed at the end.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import make_parser
from edpbrl_gym.design import (
    Design,
    DesignProblem,
    Restrictions,
    given_query_set,
    make_criterion,
    newton,
    query_set,
    question_bound,
    token_difference_matrix,
    truncated_query_set,
)
from edpbrl_gym.features import TextEncoder, load_encoder
from edpbrl_gym.mdp import PromptMDP
from edpbrl_gym.vocabulary import Vocabulary, load_vocabulary

Row = dict[str, Any]
EPISODES = 60


def problem_of(vocabulary: Vocabulary, features: np.ndarray, criterion: str, lanes: int) -> DesignProblem:
    """T = 60, lambda = 1; V aims at the differences of tokens of a category, the bases left out."""
    mdp = PromptMDP(vocabulary.sizes)
    groups = [np.arange(mdp.offsets[h], mdp.offsets[h + 1]) for h in range(1, mdp.horizon)]
    target = token_difference_matrix(features, groups) if criterion == "V" else None
    return DesignProblem(
        mdp=mdp,
        features=features,
        num_policies=lanes,
        episodes=EPISODES,
        criterion=make_criterion(criterion, v_matrix=target),
        regularization=1.0,
    )


def drawn(design: Design, policy: np.ndarray, seed: int) -> np.ndarray:
    """Tokens (T, K, H) of independent draws."""
    problem = design.problem
    size = problem.episodes * problem.num_policies
    actions = problem.mdp.sample(policy, size, np.random.default_rng(seed)).actions
    return actions.reshape(problem.episodes, problem.num_policies, -1)


def state_rows(
    vocabulary: Vocabulary, features: np.ndarray, criterion: str, lanes: int, seeds: int, rounds: int
) -> Iterator[Row]:
    """Efficiencies of draws, roundings and exchanges, and the bound for all questions."""
    problem = problem_of(vocabulary, features, criterion, lanes)
    design = newton(problem)
    bound, dimension = design.upper_bound, problem.dimension
    yield {"what": "bound", "seconds": design.seconds, "efficiency": design.efficiency}
    best = None
    for seed in range(seeds):
        for what, policy in (("uniform draws", problem.mdp.uniform_policy()), ("design draws", design.policies[0])):
            found = given_query_set(problem, drawn(design, policy, seed), upper_bound=bound)
            yield {"what": what, "seed": seed, "efficiency": found.efficiency, "value": found.value}
        rounded = query_set(design, max_sweeps=0, seed=seed)
        yield {"what": "rounded", "seed": seed, "efficiency": rounded.efficiency, "seconds": rounded.seconds}
        exchanged = query_set(design, seed=seed, max_sweeps=100)
        sweeps, seconds = len(exchanged.history) - 1, exchanged.seconds
        first = problem.criterion.efficiency(exchanged.history[1].value, bound, dimension)
        yield {
            "what": "exchanged",
            "seed": seed,
            "efficiency": exchanged.efficiency,
            "after one sweep": first,
            "seconds": seconds,
            "sweeps": sweeps,
            "status": exchanged.status,
        }
        if best is None or exchanged.value > best.value:
            best = exchanged
    if rounds and best is not None:
        limit = question_bound(problem, best, rounds=rounds)
        efficiency = problem.criterion.efficiency
        yield {
            "what": "question bound",
            "efficiency": efficiency(limit.upper_bound, bound, dimension),
            "reached": efficiency(limit.value, bound, dimension),
            "best exchange against it": efficiency(best.value, limit.upper_bound, dimension),
            "seconds": limit.seconds,
            "columns": limit.columns,
        }


def restricted_rows(vocabulary: Vocabulary, features: np.ndarray) -> Iterator[Row]:
    """What restrictions cost, K = 4, D."""
    problem = problem_of(vocabulary, features, "D", 4)
    design = newton(problem)
    rng = np.random.default_rng(0)
    pairs = tuple((int(a), int(b)) for a, b in rng.integers(len(features), size=(20_000, 2)))
    cases = {
        "distinct options (default)": Restrictions(),
        "equal options allowed": Restrictions(distinct=False),
        "no overlap": Restrictions(no_overlap=True),
        "20,000 forbidden pairs": Restrictions(forbidden=pairs),
        "one base in each episode": Restrictions(shared_base="episode"),
    }
    for name, restrictions in cases.items():
        found = query_set(design, restrictions=restrictions, max_sweeps=100)
        wrong = restrictions.rules(problem.mdp).violations(found.tokens)
        yield {"what": name, "efficiency": found.efficiency, "seconds": found.seconds, "violations": len(wrong)}


def truncated_rows(
    vocabulary: Vocabulary, features: np.ndarray, encoder: TextEncoder, criterion: str, lanes: int, budget: int
) -> Iterator[Row]:
    """Values on embeddings of partial prompts; efficiencies are relative to uniform draws."""
    problem = problem_of(vocabulary, features, criterion, lanes)
    design = newton(problem)
    starts = {
        "uniform draws": given_query_set(problem, drawn(design, problem.mdp.uniform_policy(), 0)),
        "design draws": given_query_set(problem, drawn(design, design.policies[0], 0)),
        "exchanged on state features": query_set(design, max_sweeps=100),
    }
    reference = 0.0
    for name, start in starts.items():
        count = start.tokens.size
        shown = truncated_query_set(
            problem, start, vocabulary=vocabulary, embed=encoder.encode, budget=count, max_sweeps=0
        )
        reference = shown.value if name == "uniform draws" else reference
        yield {"what": name, "value": shown.value, "relative": relative(problem, shown.value, reference)}
    for proposal in ("linear", "mean") if criterion == "D" else ("linear",):
        begin = time.perf_counter()
        found = truncated_query_set(
            problem,
            starts["exchanged on state features"],
            vocabulary=vocabulary,
            embed=encoder.encode,
            budget=budget,
            proposal=proposal,
        )
        yield {
            "what": f"exchanged on partial prompts ({proposal})",
            "value": found.value,
            "relative": relative(problem, found.value, reference),
            "texts": found.encoded_texts,
            "exchanges": found.history[-1].exchanges,
            "status": found.status,
            "seconds": time.perf_counter() - begin,
        }


def relative(problem: DesignProblem, value: float, reference: float) -> float:
    """Information relative to uniform draws: exp of the difference of log det over d, or the ratio of traces."""
    if problem.criterion.name == "D":
        return float(np.exp((value - reference) / problem.dimension))
    return reference / value


def run(path: Path, key: str, rows: Callable[[], Iterator[Row]]) -> None:
    """Append the rows of a block unless the file has them; a block is written when it is complete."""
    if any(row["block"] == key for row in read(path)):
        return
    begin = time.perf_counter()
    found = list(rows())
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps({"block": key, **row}) + "\n" for row in found)
    print(f"{key}: {time.perf_counter() - begin:.0f} s", flush=True)


def read(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []


def print_tables(rows: list[Row]) -> None:
    """One Markdown table for each block: means over the seeds, with their range."""
    for block in dict.fromkeys(row["block"] for row in rows):
        print(f"\n### {block}\n")
        own = [row for row in rows if row["block"] == block]
        columns = [name for name in dict.fromkeys(key for row in own for key in row) if name not in ("block", "seed")]
        print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
        for what in dict.fromkeys(row["what"] for row in own):
            same = [row for row in own if row["what"] == what]
            print("| " + " | ".join(cell([row[name] for row in same if name in row]) for name in columns) + " |")


def cell(values: list[Any]) -> str:
    if not values or isinstance(values[0], str):
        return "" if not values else ", ".join(dict.fromkeys(values))
    if isinstance(values[0], int):
        return ", ".join(str(value) for value in dict.fromkeys(values))
    spread = f" ({min(values):.4g} to {max(values):.4g})" if len(values) > 1 else ""
    return f"{np.mean(values):.4f}{spread}"


def main() -> None:
    """Run all blocks."""
    parser = make_parser(__doc__)
    parser.add_argument("--out", type=Path, required=True, help="JSON lines file")
    parser.add_argument("--quick", action="store_true", help="30 tokens a step, one seed")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each state block (default: 3)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of the question bound (default: 3)")
    parser.add_argument("--budget", type=int, default=5000, help="texts of the truncated exchange (default: 5000)")
    parser.add_argument("--only", default="", help='only the blocks whose names begin so, such as "state, K = 4"')
    arguments = parser.parse_args()
    vocabulary = load_vocabulary()
    encoder = load_encoder("minilm")
    if arguments.quick:
        vocabulary, arguments.seeds, arguments.budget = vocabulary.subset(30, seed=0), 1, 2500
    features = encoder.encode(vocabulary.all_tokens)
    small = load_vocabulary().subset(67, seed=0)
    rows_of = {text: row for text, row in zip(vocabulary.all_tokens, features, strict=True)}
    out = arguments.out
    blocks: dict[str, Callable[[], Iterator[Row]]] = {}
    for lanes, criterion in ((4, "D"), (2, "D"), (4, "V"), (4, "A"), (2, "V"), (2, "A")):
        rounds = arguments.rounds if criterion == "D" else max(1, arguments.rounds - 1) if lanes == 4 else 0
        blocks[f"state, K = {lanes}, {criterion}"] = lambda lanes=lanes, criterion=criterion, rounds=rounds: state_rows(
            vocabulary, features, criterion, lanes, arguments.seeds, rounds
        )
    if not arguments.quick:
        few = np.stack([rows_of[text] for text in small.all_tokens])
        blocks["state, K = 4, D, 402 tokens"] = lambda: state_rows(
            small, few, "D", 4, arguments.seeds, arguments.rounds
        )
    blocks["restrictions, K = 4, D"] = lambda: restricted_rows(vocabulary, features)
    for lanes, criterion in ((4, "D"), (4, "V")):
        blocks[f"truncated, K = {lanes}, {criterion}"] = lambda lanes=lanes, criterion=criterion: truncated_rows(
            vocabulary, features, encoder, criterion, lanes, arguments.budget
        )
    for key, rows in blocks.items():
        if key.startswith(arguments.only):
            run(out, key, rows)
    print_tables(read(out))


if __name__ == "__main__":
    main()
