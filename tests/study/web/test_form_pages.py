"""Pages with other questions through the server: when they come, what is refused, what is kept, exported, deleted."""

from __future__ import annotations

import json
import re

import pandas
import pytest
from starlette.testclient import TestClient

from edpbrl_gym.study.checks import examine
from edpbrl_gym.study.config_reading import read_config
from edpbrl_gym.study.export import export
from edpbrl_gym.study.forms.pages import entries_of
from edpbrl_gym.study.records import Timing
from edpbrl_gym.study.web import create_app
from edpbrl_gym.study.wording import load_messages
from tests.helpers.oracle_studies import Server
from tests.helpers.studies import SMALL
from tests.helpers.study_client import Person

pytestmark = pytest.mark.needs("study", "experiments")

KINDS = """
[[pages]]
name = "kinds"
place = "before"
title = "All kinds"
text = "Some **words** first."
[[pages.questions]]
name = "one"
kind = "choice"
text = "One?"
choices = ["red", "green, dark", "blue"]
[[pages.questions]]
name = "some"
kind = "choices"
text = "Some?"
choices = ["a", "b", "c"]
at_most = 2
[[pages.questions]]
name = "scale"
kind = "scale"
text = "How much?"
from = -2
to = 2
low = "little"
high = "much"
rather_not_say = true
[[pages.questions]]
name = "age"
kind = "number"
text = "How old?"
least = 18
most = 99
rather_not_say = true
[[pages.questions]]
name = "height"
kind = "number"
text = "How tall?"
least = 0.5
most = 2.5
whole = false
required = false
[[pages.questions]]
name = "short"
kind = "short_text"
text = "In short?"
length = 10
[[pages.questions]]
name = "long"
kind = "long_text"
text = "At length?"
required = false
rather_not_say = true
"""
GOOD = {"q-one": 1, "q-some-0": 1, "q-some-2": 1, "q-scale": 0, "q-age": "42", "q-height": "1,75", "q-short": " ok "}


def begun(serve, pages, text=SMALL, **options):
    """A person who has read the instructions of a study with pages."""
    served = serve(text + pages, **options)
    person = served.person()
    person.arrive(PROLIFIC_PID="p1")
    if person.at == "/instructions":
        person.post("/instructions")
    return served, person


def stored(served):
    """What the only participant answered on pages, by page."""
    [record] = served.store.records()
    return {key: detail["answers"] for key, detail in entries_of(record.events).items()}


def test_every_kind_of_question_is_stored(serve):
    served, person = begun(serve, KINDS)
    assert person.at == "/page" and "<strong>words</strong>" in person.page.text
    person.post("/page", answer_ms=1200, **GOOD)
    assert person.at == "/question" and person.get("/page").url.path == "/question"
    assert stored(served) == {
        "kinds": {
            **{"one": "green, dark", "some": ["a", "c"], "scale": -2, "age": 42, "height": 1.75, "short": "ok"},
            "long": None,
        }
    }


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("q-one", "", "Please answer this question"),
        ("q-one", "3", "Please answer this question"),
        ("q-one", "not", "Please answer this question"),
        ("q-some-1", "1", "Please choose at most 2"),
        ("q-scale", "5", "Please answer this question"),
        ("q-age", "17", "a number from 18 to 99"),
        ("q-age", "1e2", "a whole number from 18 to 99"),
        ("q-age", "42.5", "a whole number from 18 to 99"),
        ("q-age-not", "1", "Please either answer or say that you would rather not"),
        ("q-height", "tall", "a number from 0.5 to 2.5, in digits"),
        ("q-height", "1,7,5", "a number from 0.5 to 2.5, in digits"),
        ("q-height", "nan", "a number from 0.5 to 2.5, in digits"),
        ("q-short", "", "Please answer this question"),
        ("q-short", "twelve signs", "at most 10 characters; these are 12"),
        ("q-long", "x" * 2001, "at most 2000 characters; these are 2001"),
    ],
)
def test_what_cannot_be_taken_is_said_at_its_question_and_nothing_typed_is_lost(serve, field, value, said):
    served, person = begun(serve, KINDS)
    form = {**GOOD, "q-long": "line\nline", field: value}
    page = person.post("/page", **form)
    assert page.status_code == 422 and stored(served) == {}
    question = field.removesuffix("-not").rstrip("-0123456789")
    assert page.text.count('class="problem"') == 1 and f'href="#{question}"' in page.text
    problem = page.text[page.text.index(f'id="{question}-problem"') :]
    assert said in problem[: problem.index("</p>")]
    for name, typed in form.items():
        if name in ("q-age", "q-height", "q-short"):
            assert (
                f'name="{name}" id="{name}" value="{str(typed).strip() if name != "q-short" else typed}"' in page.text
            )
        elif name == "q-long":
            assert f">\n{typed}</textarea>" in page.text
        elif name != field:
            assert f'name="{name}" value="{typed}" checked' in page.text
    person.post("/page", **{**GOOD, **({field: ""} if field in ("q-some-1", "q-age-not") else {})})
    assert person.at == "/question" and "kinds" in stored(served)


def test_the_longest_texts_of_any_language_fit_into_a_form_and_larger_forms_are_refused(serve):
    pages = KINDS.replace("length = 10", "length = 500").replace('text = "At length?"', 'text = "?"\nlength = 4500')
    served, person = begun(serve, pages)
    long = "\u98ce" * 4500
    assert person.post("/page", **{**GOOD, "q-short": "\u98ce" * 500, "q-long": long}).url.path == "/question"
    assert stored(served)["kinds"]["long"] == long
    other = served.person()
    other.arrive()
    other.post("/instructions")
    assert other.post("/page", **{**GOOD, "q-long": long * 2}).status_code == 413


def test_rather_not_say_is_an_answer_and_digits_of_any_script_are_numbers(serve):
    served, person = begun(serve, KINDS)
    person.post("/page", **{**GOOD, "q-scale": "not", "q-age": "", "q-age-not": 1, "q-height": "\u0661\u066b\u0665"})
    answers = stored(served)["kinds"]
    assert answers["scale"] == answers["age"] == {"rather_not_say": True} and answers["height"] == 1.5


ROUND = """
[[pages]]
name = "start"
place = "start"
title = "Start"
[[pages.questions]]
name = "student"
kind = "choice"
text = "Student?"
choices = ["Yes", "No"]
[[pages.questions]]
name = "subject"
kind = "short_text"
text = "Subject?"
show_if = { question = "student", is = "Yes" }
[[pages]]
name = "load"
place = "between"
every = 3
template = "nasa-tlx"
[[pages]]
name = "once"
place = "between"
after = 4
title = "Halfway"
text = "Only text."
[[pages]]
name = "end"
place = "after"
title = "End"
[[pages.questions]]
name = "why"
kind = "long_text"
text = "Why?"
show_if = { question = "start.student", is_not = "No" }
[[pages.questions]]
name = "fun"
kind = "scale"
text = "Fun?"
"""


def play(person, start=("0", "physics")):
    """Answer everything; the titles of the pages and the number of choices before each."""
    seen, choices = [], 0
    for _ in range(60):
        if person.at == "/question":
            person.post("/answer", best=person.form("/answer")["choices"]["best"][0])
            choices += 1
        elif person.at == "/page":
            form = person.form("/page")
            key = form["fields"]["page"]
            if not seen or seen[-1] != (key, choices):
                seen.append((key, choices))
            fields = {name: "2" for name in form["choices"]}
            if key == "start":
                fields = {"q-student": start[0], "q-subject": start[1]}
            if key == "end":
                fields["q-why"] = "because"
            person.post("/page", **fields)
        elif person.at == "/instructions":
            person.post("/instructions")
        else:
            return seen, choices
    raise AssertionError("the study does not end")


def test_pages_come_at_their_places_and_the_code_after_the_last(serve):
    served, person = begun(serve, ROUND)
    assert person.at == "/page"  # before the instructions
    seen, choices = play(person)
    assert choices == 10 and seen == [
        ("start", 0), ("load.1", 3), ("once", 4), ("load.2", 6), ("load.3", 9), ("end", 10)
    ]  # fmt: skip
    assert person.at == "/end" and "C1" in person.page.text
    assert stored(served)["start"] == {"student": "Yes", "subject": "physics"}
    assert stored(served)["end"] == {"why": "because", "fun": 3}


def test_the_code_waits_for_the_last_page(serve):
    served, person = begun(serve, ROUND.replace('place = "between"\nevery = 3', 'place = "before"'))
    play_until_end = 0
    while person.at != "/page" or person.form("/page")["fields"]["page"] != "end":
        play_until_end += 1
        assert play_until_end < 40
        if person.at == "/question":
            person.post("/answer", best=person.form("/answer")["choices"]["best"][0])
        elif person.at == "/instructions":
            person.post("/instructions")
        else:
            person.post("/page", **{name: "1" for name in person.form("/page")["choices"]})
    for address in ("/end", "/question", "/page"):
        assert person.get(address).url.path == "/page" and "C1" not in person.page.text
    assert "Why?" not in person.page.text  # no student
    person.post("/page", **{"q-fun": 0})
    assert person.at == "/end" and "C1" in person.page.text
    assert stored(served)["end"] == {"fun": 1}


def test_a_question_that_an_answer_on_the_same_page_calls_for_comes_with_what_was_typed(serve):
    served, person = begun(serve, ROUND)
    assert "Subject?" not in person.page.text
    page = person.post("/page", **{"q-student": 0})
    assert page.status_code == 422 and "Subject?" in page.text and 'class="problem"' not in page.text
    assert 'name="q-student" value="0" checked' in page.text
    person.post("/page", **{"q-student": 1, "q-subject": "ignored"})  # changed: it is asked no more
    assert person.at == "/instructions" and stored(served) == {"start": {"student": "No"}}


def test_a_page_counts_once_whatever_is_sent_again_and_survives_undo_and_a_new_server(serve):
    served, person = begun(serve, ROUND)
    person.post("/page", **{"q-student": 1})
    old = {"q-student": "0", "q-subject": "x", "page": "start", "shown": "student subject"}
    person.client.post("/page", data={**old, "token": served.token(person)})
    assert stored(served) == {"start": {"student": "No"}}
    person.get("/instructions")
    person.post("/instructions")
    for _ in range(3):
        person.post("/answer", best=person.form("/answer")["choices"]["best"][0])
    assert person.at == "/page"
    again = served.person()  # through another server
    again.client = TestClient(create_app(served.queue), base_url="http://study.test", cookies=person.client.cookies)
    for address in ("/question", "/instructions", "/page"):
        again.get(address)
    assert again.at == "/page" and again.form("/page")["fields"]["page"] == "load.1"
    person.post("/page", **{name: "20" for name in person.form("/page")["choices"]})
    assert person.at == "/question"
    person.post("/answer", to="/undo")
    assert "taken back" in person.page.text
    person.post("/answer", best=0)
    assert person.at == "/question"  # not the page again
    assert stored(served)["load.1"]["mental"] == 100


SCREEN = """
[[pages]]
name = "screen"
place = "start"
title = "First"
[[pages.questions]]
name = "age"
kind = "number"
text = "Age?"
least = 0
most = 120
accept = { at_least = 18 }
"""


def test_who_is_screened_out_is_told_so_at_once(serve):
    served, person = begun(serve, SCREEN)
    assert person.post("/page", **{"q-age": "old"}).status_code == 422  # no attempt
    person.post("/page", **{"q-age": "17"})
    assert person.at == "/end" and "people with other answers" in person.page.text
    for address in ("/question", "/page", "/instructions"):
        assert person.get(address).url.path == "/end"
    [participant] = served.store.participants()
    assert participant.status == "failed" and stored(served) == {}
    other = served.person()
    other.arrive()
    other.post("/page", **{"q-age": "18"})
    assert other.at == "/instructions"


def test_an_export_has_a_wide_table_that_pandas_reads_and_a_meaning_for_each_column(serve, tmp_path):
    served, person = begun(serve, KINDS + ROUND)
    while person.at != "/end":
        form = person.form("/page") if person.at == "/page" else None
        if person.at == "/question":
            person.post("/answer", best=0)
        elif person.at == "/instructions":
            person.post("/instructions")
        elif form["fields"]["page"] == "kinds":
            person.post("/page", answer_ms=1200, **{**GOOD, "q-long": "a\n=1+1", "q-scale": "not"})
        else:
            fields = {name: "1" for name in form["choices"]}
            person.post("/page", **fields)
    other = served.person()
    other.arrive()
    out = tmp_path / "export"
    export(served.store, served.queue.materials, out)
    table = pandas.read_csv(out / "pages.csv").set_index("participant")
    meanings = pandas.read_csv(out / "dictionary.csv")
    meanings = meanings[meanings["file"] == "pages"].set_index("column")
    assert [*meanings.index] == ["participant", *table.columns] and meanings["meaning"].notna().all()
    assert len(table) == 2
    row = table.dropna(subset="kinds.one").iloc[0]
    empty = table[table["kinds.one"].isna()].iloc[0]
    assert row["kinds.one"] == "green, dark" and row["kinds.age"] == 42 and row["kinds.height"] == 1.75
    assert [row[f"kinds.some.{number}"] for number in (1, 2, 3)] == [True, False, True]
    assert row["kinds.scale.rather_not"] and pandas.isna(row["kinds.scale"]) and not row["kinds.age.rather_not"]
    assert row["kinds.long"] == "a\n=1+1" and row["kinds.answer_ms"] == 1200 and row["kinds.sent_s"] >= 0
    assert row["start.student"] == "No" and pandas.isna(row["start.subject"]) and pandas.isna(row["end.why"])
    assert row["load.1.mental"] == row["load.3.frustration"] == 5
    assert empty.drop("kinds.long").isna().all()
    events = pandas.read_csv(out / "events.csv")
    assert events[events["kind"] == "page"]["detail"].isna().all()


def test_whoever_is_deleted_leaves_no_answer_of_a_page(serve, tmp_path):
    served, person = begun(serve, KINDS)
    person.post("/page", **{**GOOD, "q-short": "zebra9"})
    database = served.config.folder / "study.db"
    [participant] = served.store.participants()
    assert any(b"zebra9" in path.read_bytes() for path in database.parent.glob("study.db*"))
    served.store.delete(participant.id)
    assert not any(b"zebra9" in path.read_bytes() for path in database.parent.glob("study.db*"))
    export(served.store, served.queue.materials, tmp_path / "export")
    assert pandas.read_csv(tmp_path / "export" / "pages.csv").empty


def test_a_page_answered_before_the_configuration_changed_is_exported_all_the_same(serve, tmp_path):
    served, person = begun(serve, KINDS)
    person.post("/page", **GOOD)
    [participant] = served.store.participants()
    served.queue.store_page(participant, "gone", {"old": ["x"]}, Timing())
    export(served.store, served.queue.materials, tmp_path / "export")
    table = pandas.read_csv(tmp_path / "export" / "pages.csv")
    assert json.loads(table["gone.old"][0]) == ["x"] and table["kinds.age"][0] == 42


def test_a_page_that_arrives_at_the_same_moment_as_a_time_out_is_refused(serve, monkeypatch):
    served, person = begun(serve, KINDS)
    [participant] = served.store.participants()
    store_page = served.queue.store_page

    def later(*arguments):
        served.store.set_status(participant.id, "timed_out")  # by another request, after this one had looked
        store_page(*arguments)

    monkeypatch.setattr(served.queue, "store_page", later)
    assert person.post("/page", **GOOD).status_code == 409
    assert person.get("/question").url.path == "/end"
    assert entries_of(served.store.events(participant.id)) == {}


def test_an_answer_that_arrives_at_the_same_moment_as_a_time_out_is_refused(serve, monkeypatch):
    served = serve()
    person = served.begin()
    answer, [participant] = served.queue.answer, served.store.participants()
    first = {"best": person.form("/answer")["choices"]["best"][0]}

    def later(*arguments, **options):
        served.store.set_status(participant.id, "timed_out")  # by another request, after this one had looked
        return answer(*arguments, **options)

    monkeypatch.setattr(served.queue, "answer", later)
    assert person.post("/answer", **first).status_code == 409
    assert all(given is None for _, given in served.history())


def test_a_participant_sees_translations_and_the_original_is_stored(serve, tmp_path):
    text = SMALL.replace("seed = 3", 'seed = 3\nlanguages = ["en", "fi"]')
    served, page = serve(text, languages=("fi",)), 'lang="fi"'
    folder = served.config.folder
    words = [token for step in served.queue.materials.vocabulary.tokens for token in step]
    (folder / "translations").mkdir()
    rows = [f'"{token}","sana {number}"' for number, token in enumerate(words)]
    rows += ['"One?","Yksi?"', '"green, dark","vihreä"', '"All kinds","Kaikki"']
    (folder / "translations" / "fi.csv").write_text("\n".join(["original,shown", *rows]), encoding="utf-8")
    (folder / "messages").mkdir()
    english = load_messages("en").texts
    lines = [f"{name} = {json.dumps(value)}" for name, value in {**english, "next": "Seuraava"}.items()]
    (folder / "messages" / "fi.toml").write_text("\n".join(lines), encoding="utf-8")
    (folder / "study.toml").write_text(text + KINDS, encoding="utf-8")
    examine(read_config(folder), encoder=served.queue.materials.encoder)
    again = Server(folder)
    try:
        person = Person(TestClient(create_app(again.queue), base_url="http://study.test"))
        person.get("/", params={"lang": "fi"})
        person.post("/consent", agree="yes", language="fi")
        person.post("/instructions")
        assert page in person.page.text and "Seuraava" in person.page.text
        assert "<h1" in person.page.text and "Kaikki" in person.page.text and "vihreä" in person.page.text
        person.post("/page", **GOOD)
        assert person.at == "/question" and "sana" in person.page.text
        assert not any(f">{token}<" in person.page.text for token in words)
        person.post("/answer", best=0)
        [record] = again.store.records()
        assert entries_of(record.events)["kinds"]["answers"]["one"] == "green, dark"
        assert all(
            part in words for question, _ in record.history for text in question.texts for part in text.split(", ")
        )
    finally:
        again.close()


def test_images_of_texts_are_served_and_nothing_else_of_the_folder(serve):
    from PIL import Image

    served = serve()
    folder = served.config.folder
    (folder / "images").mkdir()
    Image.new("RGB", (8, 8)).save(folder / "images" / "one.png")
    Image.new("RGB", (8, 9)).save(folder / "images" / "two.png")
    (folder / "texts" / "consent.en.txt").write_text("Look: ![a square](images/one.png) <b>x</b>")
    again = Server(folder)
    try:
        client = TestClient(create_app(again.queue), base_url="http://study.test")
        page = client.get("/").text
        [name] = re.findall(r'<img src="/images/([0-9a-f]+\.png)" alt="a square"', page)
        assert "&lt;b&gt;x&lt;/b&gt;" in page
        response = client.get(f"/images/{name}")
        assert response.content == (folder / "images" / "one.png").read_bytes()
        assert response.headers["content-type"] == "image/png"
        for other in ("one.png", "images%2fone.png", "..%2fstudy.toml", "two.png"):
            assert client.get(f"/images/{other}").status_code == 404
    finally:
        again.close()
