"""What is known before anybody answers is what people are shown then, and its pictures are drawn ahead."""

from __future__ import annotations

from contextlib import closing

import pytest

from edpbrl_gym.cli import main
from edpbrl_gym.comparisons.question_files import write_questions
from edpbrl_gym.likelihood import Response
from edpbrl_gym.study.ahead import known_options
from edpbrl_gym.study.config_reading import read_config
from edpbrl_gym.study.materials import Materials
from edpbrl_gym.study.pictures import make_pictures, study_renderer
from edpbrl_gym.study.queue import StudyQueue
from edpbrl_gym.study.store import Store
from edpbrl_gym.vocabulary import load_vocabulary
from tests.helpers.encoders import CountingEncoder
from tests.helpers.picture_files import made_picture
from tests.helpers.small_vocabulary import write_embedded
from tests.helpers.studies import SMALL, write_study

PEOPLE = 4
TESTED = SMALL.replace("repeated = 2", "repeated = 2\ntest = 2")
PICTURES = '[pictures]\nrenderer = "tests.helpers.renderers:Picky"\nseed = 4\n'


def shown(materials):
    """The texts that people see, by arm and kind of question, as the queue asks them."""
    seen: dict[tuple[str, str], set[str]] = {}
    store = Store(materials.config.database_url, config=materials.config.fingerprint)
    with closing(store), closing(StudyQueue(materials.config, store, materials)) as queue:
        for number in range(PEOPLE):
            person = queue.consent(queue.enrol({"PROLIFIC_PID": f"p{number}"}))
            while (question := queue.next_question(person)) is not None:
                seen.setdefault((person.arm, question.kind), set()).update(question.texts)
                queue.answer(person, question.key, Response.best(0))
    return seen


@pytest.mark.parametrize("feedback", ["prompt", "truncated"])
def test_all_that_follows_no_answer_is_known(tmp_path, feedback):
    text = TESTED.replace("[questions]", f'[questions]\nfeedback = "{feedback}"')
    materials = Materials(read_config(write_study(tmp_path, text)), encoder=CountingEncoder())
    seen = shown(materials)
    assert {kind for _, kind in seen} == {"practice", "normal", "attention", "repeat", "test"}
    independent = [texts for (arm, kind), texts in seen.items() if arm == "random" or kind not in ("normal", "repeat")]
    assert set(known_options(materials, PEOPLE)) == set().union(*independent)
    assert set(known_options(materials)) == set(known_options(materials, 3)) < set(known_options(materials, PEOPLE))


def test_of_a_file_of_questions_and_of_a_pool_all_is_known(tmp_path):
    only = TESTED[: TESTED.index("[[arms]]")] + '[[arms]]\nname = "fixed"\nplanner = "questions"\nfile = "q.csv"\n'
    folder = write_study(tmp_path / "fixed", only)
    words = load_vocabulary(folder / "words")
    asked = [
        (i, 0, [words.prompt([(i + lane + step) % 8 for step in range(3)]) for lane in range(3)]) for i in range(8)
    ]
    write_questions(folder / "q.csv", asked)
    materials = Materials(read_config(folder), encoder=CountingEncoder())
    known = set(known_options(materials))
    assert {text for _, _, texts in asked[:6] for text in texts} <= known  # number = 6
    assert set().union(*(texts for (_, kind), texts in shown(materials).items() if kind in ("normal", "test"))) <= known

    folder = write_study(tmp_path / "pool")
    for path in sorted((folder / "words").iterdir())[1:]:
        path.unlink()
    materials = Materials(read_config(folder), encoder=CountingEncoder())
    [tokens] = materials.vocabulary.tokens
    assert known_options(materials) == list(tokens)


@pytest.mark.needs("images")
def test_pictures_are_drawn_ahead_within_a_budget_and_once(tmp_path, capsys):
    words, encoder = write_embedded(tmp_path)
    text = SMALL.replace('vocabulary = "words"', f'vocabulary = "{words}"\nencoder = "{encoder}"')
    folder = write_study(tmp_path / "study", text)
    draw = ["study", "draw", str(folder)]
    assert main(draw) == 2
    assert "Expected a table [pictures]" in capsys.readouterr().err
    (folder / "study.toml").write_text(text + PICTURES, encoding="utf-8")
    config = read_config(folder)
    known = known_options(Materials(config))
    refused = {text for text in known if len(text) % 5 == 0}
    some = len(known) - 4
    assert refused and main(["study", "check", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert f"{len(known)} pictures of questions that follow no answer, {len(known)} not yet" in printed
    assert main([*draw, "--budget-pictures", str(some)]) == 1
    printed = capsys.readouterr()
    assert f"{len(known)} pictures by a picky one: 0 in the cache, {some} to be drawn of {len(known)}" in printed.out
    assert f"for {some / 4:g} (at 0.25 each)" in printed.out and "used up" in printed.err
    with closing(make_pictures(config, config.pictures, budget=1)) as served:  # as `edpbrl study serve` has them
        found = [served.get(f"four{'!' * number}") for number in (0, 2)]
        assert found[0].result(30).startswith(b"\x89PNG") and "budget of 1 new images" in str(found[1].exception(30))
    assert main(["study", "serve", str(folder), "--budget-pictures", "-1"]) == 2
    assert "--budget-pictures >= 0, got -1" in capsys.readouterr().err
    assert main([*draw, "--participants", "0"]) == 2 and main(draw) == 1
    printed = capsys.readouterr()
    assert f"Drawn: {len(known) - len(refused)} of {len(known)} pictures" in printed.out
    assert f"got none of {len(refused)} (too long)" in printed.err
    with study_renderer(config, config.pictures) as renderer:
        assert renderer.missing(known, seed=4) == (len(known), len(refused))
        assert renderer.missing(known, seed=5) == (len(known), len(known))
        images, _ = renderer.render_some(known, seed=4)
        assert renderer.spent == 0 and [image is None for image in images] == [text in refused for text in known]
    (folder / "study.toml").write_text(text + PICTURES + "every = 1000\n", encoding="utf-8")
    assert main(draw) == 0 and main(["study", "check", str(folder)]) == 0
    assert f"{len(known)} pictures of questions that follow no answer, all drawn" in capsys.readouterr().out


def test_a_study_about_the_pictures_of_a_folder(tmp_path, capsys):
    encoder = 'encoder = "picture:tests.helpers.picture_files:PixelEncoder"'
    folder = write_study(tmp_path, SMALL.replace('vocabulary = "words"', f'vocabulary = "folder:photos"\n{encoder}'))
    (folder / "photos").mkdir()
    for number in range(8):
        made_picture(number).save(folder / "photos" / f"photo {number}.png")
    (folder / "photos" / "cut.png").write_bytes(b"\x89PNG")
    config = read_config(folder)
    assert config.pictures is not None and config.pictures.renderer == "folder:photos" and config.questions.options == 3
    materials = Materials(config)
    names = [f"photo {number}" for number in range(8)]
    assert materials.vocabulary.all_tokens == names == known_options(materials)
    assert materials.tokens.shape == (8, 12)
    assert set().union(*shown(materials).values()) <= set(names)
    assert main(["study", "draw", str(folder)]) == 0
    assert "Drawn: 8 of 8 pictures" in capsys.readouterr().out
    without = SMALL.replace('vocabulary = "words"', 'vocabulary = "folder:photos"')
    default = read_config(write_study(tmp_path / "default", without)).questions.encoder
    assert default == "picture:efficientnet-lite0+picture:colours"


@pytest.mark.needs("pictures")
def test_posters_are_drawn_in_processes_with_the_same_bytes(tmp_path, capsys):
    words, encoder = write_embedded(tmp_path)
    only = SMALL[: SMALL.index("[[arms]]")].replace(
        'vocabulary = "words"', f'vocabulary = "{words}"\nencoder = "{encoder}"'
    )
    only += '[[arms]]\nname = "fixed"\nplanner = "questions"\nfile = "q.csv"\n'
    only += '[pictures]\nrenderer = "posters"\nwidth = 64\nheight = 64\n'
    asked = [
        (i, 0, [load_vocabulary(words).prompt([(i + lane + step) % 8 for step in range(3)]) for lane in range(3)])
        for i in range(6)
    ]
    drawn = {}
    for name, arguments in (("one", []), ("two", ["--workers", "2"])):
        folder = write_study(tmp_path / name, only)
        write_questions(folder / "q.csv", asked)
        assert main(["study", "draw", str(folder), *arguments]) == 0
        config = read_config(folder)
        with study_renderer(config, config.pictures) as renderer:  # a fixed design, whole
            assert renderer.missing([text for _, _, texts in asked for text in texts], seed=0)[1] == 0
            drawn[name] = {path.name: path.read_bytes() for path in (folder / "pictures").rglob("*.png")}
    assert drawn["one"] == drawn["two"] != {}
    assert main(["study", "draw", str(folder), "--workers", "0"]) == 2
    capsys.readouterr()

    folder = write_study(tmp_path / "served", only)
    write_questions(folder / "q.csv", asked)
    here = (folder / "study.toml").read_text() + "workers = 0\n"
    with closing(make_pictures(read_config(folder), read_config(folder).pictures)) as served:
        assert served._processes is not None and served.shape == "square"
        png = served.get("A lighthouse").result(60)
        assert len(served._processes._pool._processes) == 1
    (folder / "study.toml").write_text(here)
    with closing(make_pictures(read_config(folder), read_config(folder).pictures)) as served:
        assert served._processes is None and served.get("A lighthouse").result(60) == png
