"""The configuration of a study: everything that is wrong in it is said, and nothing else is."""

from __future__ import annotations

import copy
import tomllib
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.comparisons.question_files import write_questions
from edpbrl_gym.study.checks import examine
from edpbrl_gym.study.config import Arm
from edpbrl_gym.study.config_reading import Mistakes, config_of, read_config
from edpbrl_gym.study.schedule import arm_of
from edpbrl_gym.vocabulary import load_vocabulary
from tests.helpers.encoders import CountingEncoder
from tests.helpers.studies import SMALL, write_study

LATER = datetime(2027, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_study(tmp_path_factory.mktemp("study") / "small")


def changed(*path, value):
    document = tomllib.loads(SMALL)
    place = document
    for key in path[:-1]:
        place = place[key] if isinstance(key, int) else place.setdefault(key, {})
    place[path[-1]] = value
    return document


def mistakes(document, folder):
    with pytest.raises(Mistakes) as error:
        config_of(document, folder)
    return error.value.mistakes


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("questions", "number"), "thirty", "questions.number: expected a whole number of at least 1 and at most 1000"),
        (("questions", "number"), True, "questions.number"),
        (("questions", "format"), "bestworst", "did you mean 'best_worst'?"),
        (("questions", "nubmer"), 3, "did you mean 'number'?"),
        (("questions", "undo"), "yes", "questions.undo: expected true or false"),
        (("arms", 0, "planner"), "adaptve", "arms[1].planner"),
        (("arms", 1, "name"), "adaptive", "'adaptive' twice"),
        (("arms",), [], "expected at least one arm, got none"),
        (("arms", 0, "prior"), "nobody.safetensors", "arms[1].prior"),
        (("arms", 0, "file"), "study.toml", "arms[1].file"),
        (("arms", 0), {"name": "loop", "planner": "oracle", "options": {"draws": 3}}, "come from HumanOracle"),
        (("languages",), ["en", "de"], "consent.de.txt"),
        (("languages",), ["english language"], "languages"),
        (("title",), " ", "title: expected the title in quotes"),
        (("database",), "mysql://x", "database"),
        (("questions", "stop_when_sure"), {"minimum": 7}, "questions.stop_when_sure.minimum"),
        (("checks", "test"), 7, "checks.test: expected a whole number of at least 0 and at most 6"),
        (("practice", "comprehension"), [{"text": "?"}], "write [[pages]] with name"),
        (("pictures",), {"height": 512}, "pictures.renderer"),
        (("consent",), "1", "expected a table, got '1'; begin it with a line [consent]"),
        (("completion_code",), "C1", "[recruitment.codes], got completion_code; move it there: complete = 'C1'"),
        (("recruitment", "platform"), "prolifc", "did you mean 'prolific'?"),
        (("recruitment",), {"platform": "mturk"}, "recruitment.codes.complete: expected the code by which Mechanical"),
        (
            ("recruitment",),
            {"completion_url": "https://x.org/{code}"},
            "recruitment.codes.complete: expected the code by which the page to which people go back knows who",
        ),
        (("recruitment", "platform"), "sona", "recruitment.experiment_id: expected what stands in the platform's"),
        (("recruitment",), {"platform": "sona", "school": "a.b/c"}, "recruitment.school: expected the first part"),
        (("recruitment", "codes", "done"), "x", "recruitment.codes.done: expected one of the keys"),
        (("recruitment", "pay"), 3.0, "recruitment.pay: expected a table"),
        (("recruitment", "pay"), {"currency": "EUR"}, "recruitment.pay.amount: expected what somebody who finishes"),
        (("recruitment", "pay"), {"amount": 3, "currency": "Euro"}, "recruitment.pay.currency: expected three capital"),
        (("recruitment", "pay"), {"amount": -1, "currency": "EUR"}, "recruitment.pay.amount: expected a number from 0"),
        (("exclusions", "failed_check"), 1, "did you mean 'failed_checks'?"),
        (
            ("exclusions", "failed_checks"),
            2,
            "exclusions.failed_checks: expected at most 1, as many as [checks] attenti",
        ),
        (("exclusions", "changed_repeats"), 0, "exclusions.changed_repeats: expected a whole number of at least 1"),
        (("exclusions", "median_seconds"), "1", "exclusions.median_seconds: expected a number from 0.1 to 600"),
        (("recruitment", "opens"), "tomorrow", "write opens = 2027-01-31T09:00:00+01:00"),
        (("recruitment", "opens"), datetime(2027, 1, 1), "with its offset from UTC"),
        (
            ("recruitment",),
            {"opens": LATER, "closes": LATER},
            "recruitment.closes: expected a time after that of opens",
        ),
        (("recruitment", "people"), 0, "recruitment.people: expected a whole number of at least 1"),
        (("recruitment", "poeple"), 5, "did you mean 'people'?"),
        (
            ("recruitment", "arms"),
            {"adaptve": 5},
            "recruitment.arms.adaptve: expected the name of an arm: adaptive, ra",
        ),
        (("recruitment", "redirect"), True, "recruitment.redirect: expected an address to go to"),
        (("recruitment", "completion_url"), "https://x.org/{who}", "with the names PROLIFIC_PID"),
        (("recruitment", "completion_url"), "https://x.org/{", "a brace that stands alone"),
        (("recruitment", "completion_url"), "javascript:alert(1)", "begins with https:// and a host"),
        (("recruitment", "completion_url"), "https://{id}/x", "begins with https:// and a host"),
    ],
)
def test_a_mistake_is_explained_by_its_key_also_beside_others(folder, path, value, said):
    document = changed(*path, value=value)
    document["colour"] = "blue"
    found = mistakes(document, folder)
    assert any(said in one for one in found) and any(one.startswith("colour: expected") for one in found)


def test_quotas_and_times_may_change_while_a_study_runs(folder):
    plain = config_of(tomllib.loads(SMALL), folder)
    recruitment = {"platform": "prolific", "people": 9, "arms": {"random": 5}, "time_out": 30, "pilot": True,
                   "opens": LATER, "codes": {"complete": "C"}}  # fmt: skip
    other = config_of(changed("recruitment", value=recruitment), folder)
    assert other.recruitment.people == 9 and other.recruitment.arms == {"random": 5} and other.recruitment.pilot
    assert other.asking_fingerprint == plain.asking_fingerprint and other.fingerprint != plain.fingerprint


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def places(value, path=()):
    """Every place of a document."""
    if path:
        yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


PLACES = sorted(places(tomllib.loads(SMALL)), key=str)


@settings(max_examples=150)
@given(changes=st.lists(st.tuples(st.sampled_from(PLACES), VALUES), min_size=1, max_size=4))
def test_any_document_gives_a_configuration_or_its_mistakes(folder, changes):
    document = tomllib.loads(SMALL)
    for path, value in changes:
        place = document
        try:
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = copy.deepcopy(value)
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took the place away
    try:
        config = config_of(document, folder)
    except Mistakes as error:
        assert error.mistakes and all(": expected " in one for one in error.mistakes)
    else:
        assert len(config.fingerprint) == 64 and config.arms


def test_what_is_no_toml_is_one_mistake_with_its_line(tmp_path):
    write_study(tmp_path, 'title = "a"\nseed = \n')
    with pytest.raises(Mistakes, match="line 2"):
        read_config(tmp_path)
    (tmp_path / "study.toml").write_bytes(b'title = "a"\nx = "\xff"')
    with pytest.raises(Mistakes, match="line 2"):
        read_config(tmp_path)


def test_fingerprints_tell_what_is_shown_from_what_is_asked(folder):
    first = config_of(tomllib.loads(SMALL), folder)
    other_title = config_of(changed("title", value="Another"), folder)
    other_seed = config_of(changed("seed", value=4), folder)
    elsewhere = config_of(changed("database", value="sqlite:///other.db"), folder)
    assert elsewhere.fingerprint == first.fingerprint
    assert other_title.fingerprint != first.fingerprint
    assert other_title.asking_fingerprint == first.asking_fingerprint
    assert other_seed.asking_fingerprint != first.asking_fingerprint


@given(
    weights=st.lists(st.integers(1, 4), min_size=1, max_size=4), seed=st.integers(0, 2**40), blocks=st.integers(1, 4)
)
@settings(max_examples=50)
def test_every_block_has_each_arm_as_often_as_its_weight(weights, seed, blocks):
    arms = [Arm(str(index), "random", weight) for index, weight in enumerate(weights)]
    for block in range(blocks):
        names = [arm_of(arms, block * sum(weights) + place, seed).name for place in range(sum(weights))]
        assert sorted(names) == sorted(arm.name for arm in arms for _ in range(arm.weight))


def test_checks_ask_the_first_question_of_every_arm(folder):
    plan, _ = examine(read_config(folder), encoder=CountingEncoder())
    assert [len(set(arm.texts)) for arm in plan.arms] == [3, 3]
    assert plan.questions == 6 + 1 + 1 + 2 and plan.minutes > 2
    assert [arm.share for arm in plan.arms] == pytest.approx([1 / 3, 2 / 3])


def test_checks_list_the_mistakes_of_all_arms(tmp_path):
    text = SMALL.replace('planner = "adaptive"', 'planner = "adaptive"\noptions = {drews = 3}')
    text += '\n[[arms]]\nname = "pool"\nplanner = "bald"\noptions = {rule_options = {beta = 1}}\n'
    config = read_config(write_study(tmp_path, text))
    with pytest.raises(Mistakes) as error:
        examine(config, encoder=CountingEncoder())
    first, second = error.value.mistakes
    assert "has no option 'drews'" in first and second.startswith("arms[3] (pool): ")
    (tmp_path / "words").rename(tmp_path / "worlds")
    with pytest.raises(Mistakes, match="questions: .*words"):
        examine(config, encoder=CountingEncoder())


@pytest.mark.parametrize(("feedback", "per_episode"), [("prompt", 1), ("truncated", 3), ("state", 3)])
def test_the_questions_of_a_file_are_asked_as_they_are(tmp_path, feedback, per_episode):
    text = SMALL[: SMALL.index("[[arms]]")].replace("number = 6", f'number = 6\nfeedback = "{feedback}"')
    folder = write_study(tmp_path / "study", text + '[[arms]]\nname = "fixed"\nplanner = "questions"\nfile = "q.csv"\n')
    words = load_vocabulary(folder / "words")
    questions = []
    for episode in range(6 // per_episode):
        rows = [[(episode + lane + step) % 8 for step in range(3)] for lane in range(3)]
        for step in range(3 if per_episode == 3 else 1):
            if feedback == "state":
                texts = [words.tokens[step][row[step]] for row in rows]
            else:
                texts = [words.prompt(row if feedback == "prompt" else row[: step + 1]) for row in rows]
            questions.append((episode, step, texts))
    write_questions(folder / "q.csv", questions)
    plan, materials = examine(read_config(folder), encoder=CountingEncoder())
    session = materials.session(plan.arms[0].arm, 0)
    for _, _, texts in questions:
        assert list(session.ask().texts) == texts
        session.tell(0)
    short = [(episode, step, texts[:2]) for episode, step, texts in questions]
    for others, said in (
        (questions[:-1], "questions"),
        ([questions[0], *short[1:]], "3 options in .*got 2 in question 2"),
    ):
        write_questions(folder / "q.csv", others)
        with pytest.raises(Mistakes, match=said):
            examine(read_config(folder), encoder=CountingEncoder())


def test_pictures_come_from_any_renderer_and_options_that_it_has_not_are_refused(tmp_path):
    pytest.importorskip("PIL", reason="pictures are of the extra render")
    own = '[pictures]\nrenderer = "tests.rendering.test_loading:Service"\n'
    folder = write_study(tmp_path, SMALL + own)
    examine(read_config(folder), encoder=CountingEncoder())
    (folder / "study.toml").write_text(SMALL + own + "steps = 3\n", encoding="utf-8")
    with pytest.raises(Mistakes, match="pictures: Expected an option of the renderer .*got 'steps'"):
        examine(read_config(folder), encoder=CountingEncoder())
    for old, said in (
        (own.replace("[pictures]", "[renderer]"), r"renderer: expected the table \[pictures\]"),
        ('[pictures]\nmodel = "posters"\n', "pictures.model: expected its new name.*renderer = 'posters'$"),
        ("[pictures]\nseed = 1\n", "pictures.renderer: expected who draws them in quotes, got nothing; add it"),
    ):
        (folder / "study.toml").write_text(SMALL + old, encoding="utf-8")
        with pytest.raises(Mistakes, match=said):
            read_config(folder)
