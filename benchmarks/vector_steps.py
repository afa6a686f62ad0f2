"""Steps per second of vector environments beside Gymnasium's CartPole: docs/benchmarks.md.

    python -m benchmarks.vector_steps [--lanes 1 64 512] [--repeats 7]

Each environment plays random legal actions with automatic resets; the actions are drawn beforehand. "steps alone" reads
nothing of the infos, "prompts" reads ``infos["prompt"]`` after each step, "prompts and masks" also
``infos["action_mask"]``. A step counts once for each lane. CartPole is Gymnasium's own vector environment, in one array
as these are. CPU time; the environments take turns, and the fastest of the repeats counts. Set OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium

import edpbrl_gym  # noqa: F401  (registers the environments)
from benchmarks.common import make_parser, show
from edpbrl_gym.reporting.tables import TextTable

WRITTEN = {
    "prompts by tokens of a vocabulary": "edpbrl/PromptConstruction-v0",
    "prompts by tokens of a language model": "edpbrl/TextGeneration-v0",
}
READ: dict[str, Sequence[str]] = {
    "steps alone": (),
    "prompts": ("prompt",),
    "prompts and masks": ("prompt", "action_mask"),
}


def player(identifier: str, lanes: int, steps: int, read: Sequence[str]) -> Callable[[], float]:
    """A function that plays ``steps`` steps and returns their CPU time in seconds."""
    env = gymnasium.make_vec(identifier, num_envs=lanes, vectorization_mode="vector_entry_point")
    env.action_space.seed(0)
    env.reset(seed=0)
    actions = [env.action_space.sample() for _ in range(steps)]

    def play() -> float:
        start = time.process_time()
        for chosen in actions:
            infos = env.step(chosen)[-1]
            for key in read:
                infos[key]
        return time.process_time() - start

    return play


def measure(lanes: int, repeats: int, steps: int) -> list[dict[str, Any]]:
    """Steps per second of all environments with so many lanes."""
    players = {("CartPole", "steps alone"): player("CartPole-v1", lanes, steps, ())}
    for name, identifier in WRITTEN.items():
        players |= {(name, how): player(identifier, lanes, steps, read) for how, read in READ.items()}
    seconds = {key: [play() for _ in range(1)] for key, play in players.items()}  # warm-up
    for _ in range(repeats):
        for key, play in players.items():
            seconds[key].append(play())
    rates = {key: lanes * steps / min(found[1:]) for key, found in seconds.items()}
    unit = rates["CartPole", "steps alone"]
    return [
        {"lanes": lanes, "environment": name, "read": how, "rate": rate, "ratio": rate / unit}
        for (name, how), rate in rates.items()
    ]


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--lanes", type=int, nargs="+", default=[1, 64, 512], help="numbers of lanes")
    parser.add_argument("--repeats", type=int, default=7, help="timed rounds of every environment (default 7)")
    parser.add_argument("--steps", type=int, default=120, help="steps of all lanes in a round (default 120)")
    arguments = parser.parse_args()
    for name in ("repeats", "steps"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name}: expected at least 1, got {getattr(arguments, name)}")
    rows = [row for lanes in arguments.lanes for row in measure(lanes, arguments.repeats, arguments.steps)]
    texts = [
        [str(row["lanes"]), row["environment"], row["read"], f"{row['rate']:,.0f}", f"{row['ratio']:.2f}"]
        for row in rows
    ]
    header = ("lanes", "environment", "what is read", "steps per second", "of CartPole's")
    show(TextTable(f"Vector environments, fastest of {arguments.repeats}", header, texts))


if __name__ == "__main__":
    main()
