"""Agents for researchers of reinforcement learning: what the answers to their questions teach, in one table.

    python -m benchmarks.agents                                        # the table and the figures of the docs
    python -m benchmarks.agents --agents my_agent:MyAgent random       # your own, beside the baseline
    python -m benchmarks.agents --quick                                # seconds: it runs, its numbers mean nothing

An agent plays the four lanes of edpbrl/PromptConstruction-v0 with 30 tokens for each of six steps. A simulated user
chooses the best of the four partial prompts after every step (sampled answers at scale 20); an agent that adapts
observes each answer before the next step. Whoever asked, the taste is then estimated in the same way, by the library's
default: the prior "words" of the same tokens. "reinforce" can't play that environment, in which there is no language
model: it writes six words in edpbrl/TextGeneration-v0, and its answers are estimated and judged as the others' are.

After 6, 12, 24 and 36 answers an estimate is judged on 1,000 random complete prompts of the vocabulary: the preference
error is the share of 5,000 pairs of them that it orders wrongly, the regret the share of the attainable gain that is
lost by taking what it says are the ten best. Users are sentences; newton's criterion and lambda were chosen on others
(``--development``), the effort of deep and reinforce by the time it takes. An agent that does not adapt learns once,
with seed 0, so the standard errors are over users and the draws of their questions, not over trainings; one that adapts
is made anew for each user. Seconds are of the CPU, in one thread.
"""

from __future__ import annotations

import functools
import itertools
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

import edpbrl_gym  # noqa: F401  (registers the environments)
from benchmarks.common import make_parser
from benchmarks.kit.sentences import DEVELOPMENT, FRESH
from benchmarks.kit.worlds import random_prompts, regret_of_the_best
from edpbrl_gym._arrays import Floats
from edpbrl_gym._seeds import derive_seed, generator
from edpbrl_gym._threads import one_thread
from edpbrl_gym.agents.base import Agent
from edpbrl_gym.agents.registry import check_agent, make_agent
from edpbrl_gym.collection.collect import ENVIRONMENT, collect, is_static, reseed
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.envs.wrappers import WordSteps
from edpbrl_gym.estimation.metrics import preference_error
from edpbrl_gym.estimation.other_texts import other_texts
from edpbrl_gym.estimation.priors import make_prior
from edpbrl_gym.estimation.taste_prior import TastePrior
from edpbrl_gym.features import load_encoder
from edpbrl_gym.features.memo import MemoEncoder
from edpbrl_gym.oracles import SyntheticUser
from edpbrl_gym.reporting.figures import Curve, Panel, curves_figure, look, save_figure
from edpbrl_gym.reporting.tables import TextTable
from edpbrl_gym.workers.processes import LocalProcesses

TEXT = "edpbrl/TextGeneration-v0"
NAMES = ("random", "frank_wolfe", "newton", "deep", "reinforce", "adaptive")
K, WORDS, SCALE = 4, 6, 20.0
MEASURES = {"wrong": "preference error", "regret": "regret"}

_DESIGN = {"criterion": "V", "regularization": 100.0}
OPTIONS: dict[str, dict[str, Any]] = {
    "frank_wolfe": _DESIGN,
    "newton": _DESIGN,
    "deep": {**_DESIGN, "feedback": "state", "iterations": 6, "timesteps": 8192, "rollouts": 1024},
    "reinforce": {
        "criterion": "D",
        "regularization": 10.0,
        "kind": "copies",
        "training": {
            "iterations": 20,
            "meta_samples": 4,
            "learning_rate": 1e-3,
            "optimiser": "adamw",
            "credit": "marginal_causal",
            "kl_weight": 0.015,
            "evaluate_every": 10,
            "evaluation_samples": 4,
        },
    },
}
"""Name -> options of ``make_agent``; none for other agents."""

_OWN_WORDS = (
    " reinforce writes its own words (edpbrl/TextGeneration-v0), the others choose from the vocabulary that the "
    "prompts judged are made of."
)


@dataclass(frozen=True)
class Size:
    """How much is done."""

    tokens: int = 30  # of each step
    answers: tuple[int, ...] = (6, 12, 24, 36)  # after which an estimate is judged: multiples of the six steps
    prompts: int = 1000  # on which it is judged
    pairs: int = 5000
    others: bool = True  # the prior learns from other texts too, as by default
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: OPTIONS)  # of agents by name


QUICK = Size(
    tokens=6,
    answers=(6,),
    prompts=60,
    pairs=300,
    others=False,
    options={
        **OPTIONS,
        "frank_wolfe": {**_DESIGN, "max_iterations": 5},
        "deep": {
            **OPTIONS["deep"], "iterations": 1, "timesteps": 96, "rollouts": 16, "num_envs": 16,
            "hyperparameters": {"n_steps": 6, "batch_size": 96},
        },
        "reinforce": {
            **OPTIONS["reinforce"],
            "training": {
                **OPTIONS["reinforce"]["training"], "iterations": 1, "meta_samples": 1, "evaluation_samples": 2,
            },
        },
    },
)  # fmt: skip


class World:
    """What all agents share: texts and their embeddings, the estimate, what is judged."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self.encoder = MemoEncoder(load_encoder("minilm", cache=False))
        with closing(self.lanes(K)) as lanes:
            vocabulary, tokens = lanes.unwrapped.vocabulary, lanes.unwrapped.features
        others = other_texts(vocabulary, self.encoder) if size.others else None
        self.prior: TastePrior = make_prior("words", tokens, others=others)
        texts = random_prompts(vocabulary, size.prompts, generator(0, "judged"))
        self.prompts: Floats = self.encoder.encode(texts).astype(np.float64)
        pairs = generator(0, "pairs").integers(len(texts), size=(2 * size.pairs, 2))
        self.pairs: NDArray[np.int64] = pairs[pairs[:, 0] != pairs[:, 1]][: size.pairs]

    def lanes(self, count: int, **more: Any) -> Any:
        """Lanes of the environment that write prompts of the vocabulary; all share one memory of embeddings."""
        env = gymnasium.make_vec(ENVIRONMENT, num_envs=count, tokens_per_step=self.size.tokens, **more)
        env.unwrapped.model.use_encoder(self.encoder)  # type: ignore[attr-defined]
        return env

    def writers(self) -> Any:
        """Lanes in which language models write."""
        env = gymnasium.make_vec(TEXT, num_envs=K, words=WORDS, max_tokens=4 * WORDS)
        env.unwrapped.model.use_encoder(self.encoder)  # type: ignore[attr-defined]
        return env

    def user(self, name: str, sentence: str) -> SyntheticUser:
        """A simulated user, who answers every agent with the same draws."""
        seed = derive_seed(0, "user", name)
        return SyntheticUser.from_text(sentence, self.encoder, mode="sampled", scale=SCALE, seed=seed, name=name)

    def judged(self, answers: Comparisons, user: SyntheticUser) -> dict[str, list[float]]:
        """Each measure after each number of answers."""
        rows: dict[str, list[float]] = {measure: [] for measure in MEASURES}
        for count in self.size.answers:
            theta = self.prior.fit(answers.select(np.arange(count))).estimate.theta
            rows["wrong"].append(preference_error(theta, user.theta, self.prompts, self.pairs))
            rows["regret"].append(regret_of_the_best(self.prompts @ theta, self.prompts @ user.theta))
        return rows

    @property
    def episodes(self) -> int:
        """Episodes of so many answers."""
        return -(-self.size.answers[-1] // WORDS)


class Player:
    """An agent in its environment: learns, then asks users.

    Args:
        name: Of the agent, or its import string.
        world: What all agents share.
    """

    def __init__(self, name: str, world: World) -> None:
        self.name, self.world = name, world
        self.learning: list[float] = []  # CPU seconds
        self._lanes = world.writers() if name == "reinforce" else world.lanes(K)
        self._agent: Agent | None = None  # that has learnt, and asks everyone

    def ask(self, user: SyntheticUser) -> Comparisons:
        """Answers of a user, in the order in which they were given."""
        most, seed = self.world.size.answers[-1], derive_seed(0, "questions", user.name) % 2**31
        agent = self._agent or self._learnt(seed)
        adapts = not is_static(agent)
        if not adapts:
            self._agent = agent
            reseed(agent, seed)
        answers = collect(self._lanes, agent, user, episodes=self.world.episodes, seed=seed, observe=adapts)
        return answers.select(np.arange(most))

    def _learnt(self, seed: int) -> Agent:
        agent = self._made(0)
        if not is_static(agent):
            agent = self._made(seed)
        start = time.process_time()
        agent.learn()
        self.learning.append(time.process_time() - start)
        if self.name == "reinforce":
            self._lanes = WordSteps(self._lanes, agent.policies.language_models())  # type: ignore[attr-defined]
        return agent

    def close(self) -> None:
        """Close the lanes."""
        self._lanes.close()

    def _made(self, seed: int) -> Agent:
        options: dict[str, Any] = dict(self.world.size.options.get(self.name, {}))
        if self.name == "deep":
            options["make_lanes"] = lambda count: self.world.lanes(count, autoreset_mode="same_step")
        episodes = self.world.episodes
        agent = make_agent(self.name, self._lanes, num_options=K, episodes=episodes, seed=seed, **options)
        if self.name == "adaptive":
            agent.prior = self.world.prior  # type: ignore[attr-defined]  # it plans with the estimate that is judged
        return agent


class Found(NamedTuple):
    """What the users' answers to one agent taught."""

    name: str
    values: dict[str, Floats]  # of each measure, (users, numbers of answers)
    learning: float  # CPU seconds
    asking: float  # CPU seconds a question, with its estimate where the agent adapts


@functools.lru_cache(maxsize=1)
def shared_world(quick: bool) -> World:
    """The world of this process."""
    return World(QUICK if quick else Size())


def run(name: str, quick: bool, sentences: Mapping[str, str]) -> Found:
    """Let an agent ask all users, in one thread."""
    with one_thread():
        return _run(name, shared_world(quick), sentences)


def _run(name: str, world: World, sentences: Mapping[str, str]) -> Found:
    player = Player(name, world)
    values: dict[str, list[list[float]]] = {measure: [] for measure in MEASURES}
    asking = 0.0
    for number, (user_name, sentence) in enumerate(sentences.items(), start=1):
        user, learnt = world.user(user_name, sentence), sum(player.learning)
        start = time.process_time()
        answers = player.ask(user)
        asking += time.process_time() - start - (sum(player.learning) - learnt)
        for measure, row in world.judged(answers, user).items():
            values[measure].append(row)
        print(f"{name}: {number} of {len(sentences)} users", file=sys.stderr, flush=True)
    player.close()
    asked = len(sentences) * world.size.answers[-1]
    return Found(
        name, {measure: np.array(rows) for measure, rows in values.items()}, float(np.mean(player.learning)),
        asking / asked,
    )  # fmt: skip


def estimated(values: Floats) -> tuple[float, float]:
    """Mean and standard error of the values of users."""
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def table(found: Sequence[Found], size: Size) -> TextTable:
    """A row for each measure and agent."""
    base = next((one for one in found if one.name == "random"), None)
    rows = []
    for measure, title in MEASURES.items():
        for one in found:
            values = one.values[measure]
            less = "" if base is None or one is base else _cell(base.values[measure][:, -1] - values[:, -1], "+")
            cells = [_cell(column) for column in values.T]
            rows.append([title, one.name, *cells, less, f"{one.learning:.1f}", f"{one.asking:.2f}"])
    writes = "reinforce" in [one.name for one in found]
    users, counts = len(found[0].values["wrong"]), [f"{count} answers" for count in size.answers]
    return TextTable(
        "",
        ["measure", "agent", *counts, "less than random", "learning", "a question"],
        rows,
        f"Mean and standard error of {users} users; less than random: difference of the same users after "
        f"{size.answers[-1]} answers; learning and a question: CPU seconds." + (_OWN_WORDS if writes else ""),
    )  # fmt: skip


def _cell(values: Floats, sign: str = "") -> str:
    mean, error = estimated(values)
    return f"{mean:{sign}.3f} ± {error:.3f}"


def draw(found: Sequence[Found], size: Size, folder: Path) -> None:
    """A figure of each measure: agents.png and agents-regret.png."""
    folder.mkdir(parents=True, exist_ok=True)
    for measure, name in (("wrong", "agents"), ("regret", "agents-regret")):
        curves = []
        for number, one in enumerate(found):
            mean, error = np.array([estimated(column) for column in one.values[measure].T]).T
            band = (mean - error, mean + error) if one.name == "random" else ()
            label = "reinforce (its own words)" if one.name == "reinforce" else one.name
            curves.append(Curve(label, size.answers, mean, look(number), *band))
        figure = curves_figure(
            [Panel(curves, ylabel=MEASURES[measure])],
            columns=1,
            xlabel="answers",
            title=f"{MEASURES[measure].capitalize()} against answers",
            subtitle=f"mean of {len(found[0].values[measure])} simulated users; shaded: standard error of random",
            size=(5.6, 3.8),
            zero=False,
        )
        save_figure(figure, folder, name)


def write_values(found: Sequence[Found], size: Size, users: Sequence[str], file: Path) -> None:
    """Write a row for each agent, user and number of answers."""
    lines = [",".join(["agent", "user", "answers", *MEASURES])]
    for one in found:
        for (row, user), (column, count) in itertools.product(enumerate(users), enumerate(size.answers)):
            values = [f"{one.values[measure][row, column]:.6f}" for measure in MEASURES]
            lines.append(",".join([one.name, user, str(count), *values]))
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table; with ``--out`` write it and the figures too."""
    parser = make_parser(__doc__)
    parser.add_argument("--agents", nargs="+", default=list(NAMES), help="names or import strings package.module:Class")
    parser.add_argument("--users", type=int, default=12, help="number of simulated users, 2 to 12 (default: 12)")
    parser.add_argument("--out", type=Path, help="folder of agents.md, agents.csv and the figures")
    parser.add_argument("--jobs", type=int, default=2, help="processes, one agent each (default: 2)")
    parser.add_argument("--quick", action="store_true", help="two users, few tokens, hardly any training")
    parser.add_argument("--development", action="store_true", help="users on whom settings may be chosen")
    parsed = parser.parse_args(arguments)
    if parsed.jobs < 1:
        parser.error(f"expected at least one job, got {parsed.jobs}")
    jobs = 1 if parsed.quick else parsed.jobs
    sentences = (DEVELOPMENT if parsed.development else FRESH)["images"]
    if not 2 <= parsed.users <= len(sentences):
        parser.error(f"expected 2 to {len(sentences)} users, got {parsed.users}")
    try:
        for name in parsed.agents:
            check_agent(name)
    except (ValueError, TypeError, ImportError) as error:
        parser.error(str(error))
    size, users = (QUICK, 2) if parsed.quick else (Size(), parsed.users)
    chosen = dict(list(sentences.items())[:users])
    names = list(dict.fromkeys(parsed.agents))
    work = [(name, parsed.quick, chosen) for name in sorted(names, key=_slow_first)]
    done = {one.name: one for one in LocalProcesses(jobs).map_unordered(run, work, Path.cwd())}
    found = [done[name] for name in names]
    lines = table(found, size).markdown()
    print("\n".join(lines))
    if parsed.out is not None:
        draw(found, size, parsed.out)
        write_values(found, size, list(chosen), parsed.out / "agents.csv")
        (parsed.out / "agents.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _slow_first(name: str) -> bool:
    return name not in ("reinforce", "adaptive", "deep")


if __name__ == "__main__":
    from benchmarks.agents import main as importable  # other processes import what they run

    importable()
