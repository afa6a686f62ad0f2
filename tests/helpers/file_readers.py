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
    from edpbrl_gym.comparisons.answer_files import holds_answers_of_a_person, read_person

    path = folder / "answers.parquet"
    comparisons().to_parquet(path)

    def read() -> Any:
        holds_answers_of_a_person(path), check_comparisons(read_person(path, CountingEncoder)[0])
        return Comparisons.from_parquet(path)

    return [path], read


def check_comparisons(found: Any) -> None:
    finite(found.features)
    assert len(found.responses) == len(found.features) == len(found.episode) == len(found.step)
    for response in found.responses:
        assert all(0 <= option < found.features.shape[1] for option in response.order)


def uneven(folder: Path) -> Made:
    from edpbrl_gym.comparisons import Comparisons

    path = folder / "answers.parquet"
    options = [np.random.default_rng(size).normal(size=(size, 3)) for size in (2, 4, 3)]
    Comparisons.of_choices(options, [1, 3, 0], [0, 1, 2], [0, 0, 0]).to_parquet(path)
    return [path], lambda: Comparisons.from_parquet(path)


def questions(suffix: str) -> Callable[[Path], Made]:
    def make(folder: Path) -> Made:
        import pandas

        from edpbrl_gym.comparisons.question_files import holds_answers, read_answers, read_questions

        path = folder / f"questions{suffix}"
        cells = [[0, 0, "fog", "sea", 1], [0, 1, "fog, dusk", "sea, dawn", 2], [1, 0, "sun", "rain", 1]]
        table = pandas.DataFrame(cells, columns=["episode", "step", "option_1", "option_2", "choice"])
        table.to_csv(path, index=False) if suffix == ".csv" else table.to_parquet(path, index=False)

        def read() -> Any:
            holds_answers(path), read_questions(path)
            return read_answers(path, CountingEncoder())[0]

        return [path], read

    return make


def vocabulary(folder: Path) -> Made:
    from edpbrl_gym.vocabulary import load_vocabulary

    write_vocabulary(folder)
    return sorted(folder.glob("*.txt"))[:2], lambda: load_vocabulary(folder)


def check_vocabulary(found: Any) -> None:
    assert all(token.strip() and token.isprintable() for token in found.all_tokens)


def population(folder: Path) -> Made:
    from edpbrl_gym.estimation.population import Population, fit_population

    people = [comparisons(8, d=3, seed=seed, kinds=("best",), texts=None) for seed in range(4)]
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
    from edpbrl_gym.design import QuerySet, frank_wolfe, query_set
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
    answer = {"kind": "answer", "key": "k", "answer_key": "k", "choice": 1, "reason": "answered", "order": [0, 1]}
    with_answer.append({**answer, "lost": 0, "retries": 0, "latency": 0.5, "usage": usage}, durable=True)
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

    return [folder / "run" / name for name in ("config.json", "provenance.json", "parts/a.parquet")], read


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
    ImageCache(folder).put_all([NewImage(key, data, prompt="p", seed=1, flagged=False, cut=False)], {})
    return sorted(path for path in folder.rglob("*") if path.is_file()), lambda: ImageCache(folder).get(key)


def check_image(found: Any) -> None:
    assert found is None or found.load().size == (8, 8)


def embedding_cache(folder: Path) -> Made:
    from edpbrl_gym.features.loading import CachedEncoder

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


def people(suffix: str, **how: Any) -> Callable[[Path], Made]:
    """A long table; ``how`` it is written, or the columns that are levels of its index."""

    def make(folder: Path) -> Made:
        from edpbrl_gym.comparisons import load_people
        from tests.helpers.made_people import long_table

        path, table = folder / f"people{suffix}", long_table(3, 2).assign(available=1)
        if suffix == ".parquet":
            table.set_index(how.get("index", [])).to_parquet(path) if how else table.to_parquet(path)
        else:
            table.to_csv(path, **{"index": False, **how})
        return [path], lambda: load_people(path)

    return make


def texts(suffix: str) -> Callable[[Path], Made]:
    def make(folder: Path) -> Made:
        import pandas

        from edpbrl_gym.cli.texts import read_texts

        path = folder / f"texts{suffix}"
        table = pandas.DataFrame(
            {"option_1": ["a cat", "a dog"], "option_2": ["fog, dusk", "می\u200cخواهم"], "choice": [1, 2]}
        )
        if suffix == ".txt":
            path.write_text("a cat\na dog\n", encoding="utf-8")
        else:
            table.to_parquet(path) if suffix == ".parquet" else table.to_csv(path, sep="\t", index=False)
        return [path], lambda: read_texts(path, (), "text")

    return make


def check_texts(found: Any) -> None:
    assert all(text.strip() for text in found[0]) and len(found[1]) >= 1


def check_people(found: Any) -> None:
    assert found
    for one in found:
        check_comparisons(one)
        assert ((one.choice >= 0) & (one.choice < one.sizes)).all()


def study(folder: Path) -> Made:
    from edpbrl_gym.study.config_reading import read_config
    from tests.helpers.studies import write_study

    place = write_study(folder / "study")
    return [place / "study.toml", *sorted((place / "texts").glob("*.txt"))[:1]], lambda: read_config(place)


def exported(folder: Path) -> Made:
    from edpbrl_gym.study.export_tables import columns_of, read_tables

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
    import dataclasses
    import json

    from edpbrl_gym.cli.ask_folder import SETTINGS, AskSettings, chosen_settings

    document = {"format_of_file": "edpbrl-gym ask 1", **dataclasses.asdict(AskSettings())}
    (folder / SETTINGS).write_text(json.dumps(document), encoding="utf-8")
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


def model_shape(folder: Path) -> Made:
    import json

    from edpbrl_gym.diffusion.denoiser import ModelShape

    (folder / "unet").mkdir()
    config = {"sample_size": 8, "in_channels": 1, "out_channels": 1, "num_class_embeds": 11}
    (folder / "unet" / "config.json").write_text(json.dumps(config))
    return [folder / "unet" / "config.json"], lambda: ModelShape(folder)


READERS: dict[str, Reader] = {
    "taste": Reader(taste, lambda found: finite(found.theta)),
    "precomputed .npz": Reader(rows(".npz"), check_rows),
    "precomputed .safetensors": Reader(rows(".safetensors"), check_rows),
    "comparisons": Reader(parquet, check_comparisons),
    "comparisons of uneven questions": Reader(uneven, check_comparisons),
    "questions .csv": Reader(questions(".csv"), check_comparisons),
    "questions .parquet": Reader(questions(".parquet"), check_comparisons),
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
    "people of a spreadsheet": Reader(people(".csv", sep=";", decimal=",", encoding="utf-8-sig"), check_people),
    "people with row numbers, in UTF-16": Reader(people(".csv", sep="\t", index=True, encoding="utf-16"), check_people),
    "people by the levels of an index": Reader(people(".parquet", index=["person", "question"]), check_people),
    "texts .txt": Reader(texts(".txt")),
    "texts .tsv": Reader(texts(".tsv"), check_texts),
    "texts .parquet": Reader(texts(".parquet"), check_texts),
    "study": Reader(study, says="Expected|mistake|expected"),
    "exported study": Reader(exported),
    "settings of edpbrl ask": Reader(ask_settings, check_settings),
    "settings of edpbrl design": Reader(design_settings),
    "shape of a diffusion model": Reader(model_shape),
}
