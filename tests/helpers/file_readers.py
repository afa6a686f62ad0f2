"""Every reader of files that a user or a stranger may give: what it reads, and how to call it.

A reader's ``make`` writes a good file and returns its path (or a folder and the files in it) and what reads it. What is
read without an error is handed to ``check``, which raises an AssertionError where it is only half good.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.helpers.answered import comparisons
from tests.helpers.encoders import CountingEncoder
from tests.helpers.small_vocabulary import write_vocabulary

Made = tuple[list[Path], Callable[[], Any]]  # the files that are damaged in turn, and what reads them


@dataclass(frozen=True)
class Reader:
    """A row of the table.

    Attributes:
        make: Writes good files to a folder.
        check: Looks at what was read.
        needs: Package without which it can't be tested.
        says: What else its errors may say instead of "Expected": words of errors that name the damage itself.
        ignores: It replaces damaged files by new ones and raises nothing.
    """

    make: Callable[[Path], Made]
    check: Callable[[Any], None] = lambda found: None
    needs: tuple[str, ...] = ()
    says: str = "Expected"
    ignores: bool = field(default=False)


def finite(*arrays: Any) -> None:
    for array in arrays:
        assert np.isfinite(np.asarray(array, dtype=np.float64)).all()


def taste(folder: Path) -> Made:
    from edpbrl_gym.personalize import load_taste, save_taste

    path = save_taste(folder / "theta.safetensors", np.linspace(-1, 1, 4), {"encoder": "minilm", "questions": 7})
    return [path], lambda: load_taste(path)


def rows(suffix: str) -> Callable[[Path], Made]:
    def make(folder: Path) -> Made:
        from edpbrl_gym.features.precomputed import PrecomputedEncoder, save_precomputed

        path = folder / f"rows{suffix}"
        save_precomputed(path, ["a", "b", "c d"], np.random.default_rng(0).normal(size=(3, 4)))
        return [path], lambda: PrecomputedEncoder(path)

    return make


def check_rows(found: Any) -> None:
    assert found.rows.ndim == 2 and found.rows.shape == (len(found.index), found.dimension)
    np.testing.assert_allclose(np.linalg.norm(found.rows, axis=1), 1, atol=1e-5)


def parquet(folder: Path) -> Made:
    from edpbrl_gym.comparisons import Comparisons

    path = folder / "answers.parquet"
    comparisons().to_parquet(path)
    return [path], lambda: Comparisons.from_parquet(path)


def check_comparisons(found: Any) -> None:
    finite(found.features)
    assert len(found.responses) == len(found.features) == len(found.episode) == len(found.step)
    for response in found.responses:
        assert all(0 <= option < found.features.shape[1] for option in response.order)


def questions(suffix: str) -> Callable[[Path], Made]:
    def make(folder: Path) -> Made:
        import pandas

        from edpbrl_gym.comparisons.question_files import holds_answers, read_answers, read_questions

        path = folder / f"questions{suffix}"
        table = pandas.DataFrame(
            {
                "episode": [0, 0, 1],
                "step": [0, 1, 0],
                "option_1": ["fog", "fog, dusk", "sun"],
                "option_2": ["sea", "sea, dawn", "rain"],
                "choice": [1, 2, 1],
            }  # fmt: skip
        )
        table.to_csv(path, index=False) if suffix == ".csv" else table.to_parquet(path, index=False)

        def read() -> Any:
            holds_answers(path), read_questions(path)
            return read_answers(path, CountingEncoder())[0]

        return [path], read

    return make


def person(folder: Path) -> Made:
    from edpbrl_gym.comparisons.answer_files import holds_answers_of_a_person, read_person

    comparisons().to_parquet(folder / "one.parquet")
    path = folder / "one.parquet"

    def read() -> Any:
        holds_answers_of_a_person(path)
        return read_person(path, CountingEncoder)[0]

    return [path], read


def vocabulary(folder: Path) -> Made:
    from edpbrl_gym.vocabulary import load_vocabulary

    write_vocabulary(folder)
    return sorted(folder.glob("*.txt"))[:2], lambda: load_vocabulary(folder)


def check_vocabulary(found: Any) -> None:
    assert all(token.strip() and token.isprintable() for token in found.all_tokens)


def population(folder: Path) -> Made:
    from edpbrl_gym.estimation.population import Population, fit_population
    from tests.helpers.answered import comparisons as answered

    people = [answered(8, d=3, seed=seed, kinds=("best",), texts=None) for seed in range(4)]
    path = folder / "population.safetensors"
    fit_population(people, features="encoder", minimum_people=2).save(path)
    return [path], lambda: Population.load(path)


def design(folder: Path) -> Made:
    from edpbrl_gym.design import Design, frank_wolfe
    from tests.helpers.design_cases import prompt_problem

    problem = prompt_problem("V", sizes=(3, 2), dimension=2)
    path = frank_wolfe(problem, max_iterations=3).save(folder / "design.npz")
    return [path], lambda: Design.load(path, problem)


def check_design(found: Any) -> None:
    finite(found.occupancies, found.value)
    np.testing.assert_allclose(found.occupancies.sum(axis=2), 1, atol=1e-6)


def query_set(folder: Path) -> Made:
    from edpbrl_gym.design import frank_wolfe, query_set
    from edpbrl_gym.design.query_sets.result import QuerySet
    from tests.helpers.design_cases import prompt_problem

    problem = prompt_problem("V", sizes=(4, 4), dimension=2)
    path = query_set(frank_wolfe(problem, max_iterations=3)).save(folder / "set.npz")
    return [path], lambda: QuerySet.load(path, problem)


def session(folder: Path) -> Made:
    from edpbrl_gym.session import Session
    from tests.helpers.session_planners import WORDS as words
    from tests.helpers.session_planners import D, random_planner

    place = folder / "session"
    with Session(random_planner(), vocabulary=words, encoder=CountingEncoder(D), num_options=3, folder=place) as begun:
        for choice in range(4):
            begun.ask()
            begun.tell(choice % 3)

    def read() -> Any:
        with Session.resume(place, random_planner(), vocabulary=words, encoder=CountingEncoder(D)) as again:
            return again.comparisons

    return sorted(path for path in place.iterdir() if path.is_file()), read


def ledger(folder: Path) -> Made:
    from edpbrl_gym.oracles.judge.ledger import Ledger

    path = folder / "ledger.jsonl"
    usage = {"input_tokens": 5, "output_tokens": 1, "unreported": 0}
    with_answer = Ledger(path)
    with_answer.append({"kind": "sent", "key": "k", "tokens": 6, "identity": "i"}, durable=True)
    with_answer.append(
        {
            "kind": "answer",
            "key": "k",
            "choice": 1,
            "reason": "answered",
            "order": [0, 1],
            "lost": 0,
            "retries": 0,
            "latency": 0.5,
            "usage": usage,
        },  # fmt: skip
        durable=True,
    )
    with_answer.close()

    def read() -> Any:
        found = Ledger(path)
        found.close()
        return found

    return [path], read


def results(folder: Path) -> Made:
    import pandas

    from edpbrl_gym.experiments.runs import RunFolder, read_results

    run = RunFolder.open(folder / "run", kind="synthetic", config={"runs": 3})
    run.begin()
    path = run.write_results(pandas.DataFrame({"x": [1.0, 2.0], "agent": ["a", "b"]}))
    return [path], lambda: read_results(path)


def run_folder(folder: Path) -> Made:
    import pandas

    from edpbrl_gym.experiments.runs import RunFolder

    def opened() -> Any:
        return RunFolder.open(folder / "run", kind="synthetic", config={"runs": 3})

    run = opened()
    run.begin()
    run.write_part("a", pandas.DataFrame({"x": [1.0, 2.0]}))
    del run

    def read() -> Any:
        again = opened()
        again.begin()
        return again.read_parts(["a"]) if again.has_part("a") else None

    return [folder / "run" / "config.json", folder / "run" / "provenance.json", again_part(folder)], read


def again_part(folder: Path) -> Path:
    return folder / "run" / "parts" / "a.parquet"


def agent(kind: str) -> Callable[[Path], Made]:
    def make(folder: Path) -> Made:
        from edpbrl_gym.agents import make_agent
        from tests.helpers.lane_environments import ChainEnv

        env = ChainEnv()
        made = make_agent(kind, env, num_options=2, episodes=2, regularization=1.0).learn()
        made.save(folder / "agent")
        return sorted((folder / "agent").iterdir()), lambda: type(made).load(folder / "agent", env)

    return make


def asking_agent(folder: Path) -> Made:
    import gymnasium

    import edpbrl_gym  # noqa: F401  (registers the environments)
    from edpbrl_gym.agents import make_agent
    from edpbrl_gym.estimation import GaussianPrior
    from tests.helpers.lane_environments import write_summed_world

    (folder / "world").mkdir()
    world = write_summed_world(folder / "world", dimension=3, seed=1)
    lanes = gymnasium.make_vec(
        "edpbrl/PromptConstruction-v0", num_envs=2, vectorization_mode="vector_entry_point", **world
    )
    made = make_agent("bald", lanes, num_options=2, episodes=2, seed=3, prior=GaussianPrior.isotropic(3, 1.0)).learn()
    made.predict(lanes.reset(seed=0)[0])
    made.save(folder / "agent")
    files = sorted((folder / "agent").iterdir())
    return files, lambda: type(made).load(folder / "agent", lanes)


def image_cache(folder: Path) -> Made:
    from edpbrl_gym.rendering import ImageCache
    from edpbrl_gym.rendering.cache import NewImage, encode_png

    key, data = "a" * 64, encode_png(np.zeros((8, 8, 3), dtype=np.float32))
    ImageCache(folder).put(NewImage(key, data, prompt="p", seed=1, flagged=False, cut=False), {})
    return sorted(path for path in folder.rglob("*") if path.is_file()), lambda: ImageCache(folder).get(key)


def check_image(found: Any) -> None:
    assert found is None or found.load().size == (8, 8)


def embedding_cache(folder: Path) -> Made:
    from edpbrl_gym.features.cache import CachedEncoder

    def read() -> Any:
        return CachedEncoder(CountingEncoder(), folder=folder).encode(["a", "b c"])

    expected = read()
    assert expected.shape == (2, 8)
    return sorted(path for path in folder.rglob("*") if path.is_file()), read


def check_embeddings(found: Any) -> None:
    np.testing.assert_allclose(found, CountingEncoder().encode(["a", "b c"]), atol=1e-6)


def picture(folder: Path) -> Made:
    from edpbrl_gym._pictures import open_picture
    from edpbrl_gym.rendering.cache import encode_png

    path = folder / "picture.png"
    path.write_bytes(encode_png(np.random.default_rng(0).random((9, 7, 3)).astype(np.float32)))

    def read() -> Any:
        with open_picture(path) as found:
            return np.asarray(found)

    return [path], read


def people(suffix: str) -> Callable[[Path], Made]:
    def make(folder: Path) -> Made:
        from edpbrl_gym.experiments.people.loading import load_people
        from tests.helpers.made_people import long_table, made_people

        path, table = folder / f"people{suffix}", long_table(made_people(3, 2))
        table.to_parquet(path) if suffix == ".parquet" else table.to_csv(path, index=False)
        return [path], lambda: load_people(str(path), CountingEncoder)

    return make


def check_people(found: Any) -> None:
    for one in found.people:
        for question, size in enumerate(one.sizes):
            finite(one.options[question, :size])
            assert 0 <= one.chosen[question] < size


def study(folder: Path) -> Made:
    from edpbrl_gym.study.config_reading import read_config
    from tests.helpers.studies import write_study

    place = write_study(folder / "study")
    return [place / "study.toml", *sorted((place / "texts").glob("*.txt"))[:1]], lambda: read_config(place)


def exported(folder: Path) -> Made:
    from edpbrl_gym.study.exported import columns_of, read_tables

    (folder / "study.json").write_text(
        '{"title": "A", "fingerprint": "f", "arms": ["adaptive"], "options": 3, "least": 2, "deleted": 0}\n'
    )
    values = {"text": "a", "time": "2026-01-01T00:00:00+00:00", "boolean": "True"}
    for name, columns in columns_of().items():
        cells = [values.get(column.type, "1") for column in columns]
        header = ",".join(column.name for column in columns)
        (folder / f"{name}.csv").write_text(f"{header}\n{','.join(cells)}\n", encoding="utf-8")
    return sorted(folder.glob("*")), lambda: read_tables(folder)


def ask_settings(folder: Path) -> Made:
    from edpbrl_gym.cli.ask_folder import SETTINGS, AskSettings, chosen_settings, write_settings

    write_settings(folder, AskSettings())
    (folder / "session").mkdir()
    (folder / "session" / "session.json").write_text("{}")
    return [folder / SETTINGS], lambda: chosen_settings(folder, {})


def check_settings(found: Any) -> None:
    assert isinstance(found.vocabulary, str) and isinstance(found.encoder, str) and isinstance(found.planner, str)
    assert type(found.num_options) is int and type(found.seed) is int
    assert found.prior is None or isinstance(found.prior, str)


def design_settings(folder: Path) -> Made:
    import json

    from edpbrl_gym.cli.design_file import read_study

    settings = {"encoder": "minilm", "vocabulary": "images", "split": "all", "seed": 0}
    document = {"settings": settings, "vocabulary_fingerprint": "f", "vocabulary": None}
    (folder / "design.json").write_text(json.dumps(document))
    return [folder / "design.json"], lambda: read_study(folder / "answers.csv")


def prompts(suffix: str) -> Callable[[Path], Made]:
    def make(folder: Path) -> Made:
        from edpbrl_gym.cli.render import Render, _prompts
        from edpbrl_gym.rendering import RenderSettings

        path = folder / f"prompts{suffix}"
        path.write_text("prompt,seed\na cat,1\na dog,2\n" if suffix == ".csv" else "a cat\na dog\n", encoding="utf-8")
        return [path], lambda: _prompts(Render(path, RenderSettings(model="none")))

    return make


def policy(folder: Path) -> Made:
    import gymnasium
    from gymnasium import spaces
    from stable_baselines3 import PPO

    from edpbrl_gym.personalize.policy_file import read_policy

    class Steps(gymnasium.Env):
        observation_space, action_space = spaces.MultiDiscrete([3, 3]), spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return np.zeros(2, dtype=np.int64), {}

    path = folder / "policy.zip"
    PPO("MlpPolicy", Steps(), policy_kwargs={"net_arch": [3]}, n_steps=4, batch_size=4, device="cpu").save(path)
    return [path], lambda: read_policy(path)


def check_policy(found: Any) -> None:
    for weights, biases in found.layers:
        finite(weights, biases)


def model_shape(folder: Path) -> Made:
    import json

    from edpbrl_gym.diffusion.denoiser import ModelShape

    (folder / "unet").mkdir()
    config = {"sample_size": 8, "in_channels": 1, "out_channels": 1, "num_class_embeds": 11}
    (folder / "unet" / "config.json").write_text(json.dumps(config))
    return [folder / "unet" / "config.json"], lambda: ModelShape(folder)


def checkpoint(folder: Path) -> Made:
    import torch

    from edpbrl_gym.language.checkpoints import CHECKPOINT, read_checkpoint

    torch.save({"run": {}, "iteration": 1, "history": {}}, folder / CHECKPOINT)

    def read() -> Any:
        class Nothing:
            kind, options, num_options, base, fingerprint = "", {}, 2, None, "f"

        return read_checkpoint(
            folder,
            policies=Nothing,
            optimiser=None,
            credit=None,
            settings=None,
            encoder=Nothing,  # type: ignore
        )

    return [folder / CHECKPOINT], read


READERS: dict[str, Reader] = {
    "taste": Reader(taste, lambda found: finite(found.theta)),
    "precomputed .npz": Reader(rows(".npz"), check_rows),
    "precomputed .safetensors": Reader(rows(".safetensors"), check_rows),
    "comparisons": Reader(parquet, check_comparisons),
    "questions .csv": Reader(questions(".csv"), check_comparisons),
    "questions .parquet": Reader(questions(".parquet"), check_comparisons),
    "a person's answers": Reader(person, check_comparisons),
    "vocabulary": Reader(vocabulary, check_vocabulary),
    "population": Reader(population),
    "design": Reader(design, check_design, says="Expected|made for another problem"),
    "query set": Reader(query_set, says="Expected|made for another problem"),
    "session": Reader(session, check_comparisons, says="Expected|is damaged"),
    "ledger": Reader(ledger, says="Expected|is damaged"),
    "results": Reader(results),
    "run folder": Reader(run_folder),
    "agent of a design": Reader(agent("frank_wolfe")),
    "random agent": Reader(agent("random")),
    "agent that asks": Reader(asking_agent),
    "image cache": Reader(image_cache, check_image, ignores=True),
    "embedding cache": Reader(embedding_cache, check_embeddings, ignores=True),
    "picture": Reader(picture),
    "people .csv": Reader(people(".csv"), check_people),
    "people .parquet": Reader(people(".parquet"), check_people),
    "study": Reader(study, says="Expected|mistake|expected"),
    "exported study": Reader(exported),
    "settings of edpbrl ask": Reader(ask_settings, check_settings),
    "settings of edpbrl design": Reader(design_settings),
    "prompts .txt": Reader(prompts(".txt")),
    "prompts .csv": Reader(prompts(".csv")),
    "policy": Reader(policy, check_policy, needs=("stable_baselines3",)),
    "shape of a diffusion model": Reader(model_shape),
}
