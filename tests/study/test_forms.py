"""Pages of questions without a server: conditions, what a configuration may say, messages, translations, Markdown."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.study.checks import examine
from edpbrl_gym.study.config_reading import Mistakes, config_of, read_config
from edpbrl_gym.study.forms.conditions import RATHER_NOT, Condition, Test, all_hold
from edpbrl_gym.study.forms.instruments import INSTRUMENTS, load_instrument
from edpbrl_gym.study.forms.kinds import Number, RefusedError
from edpbrl_gym.study.forms.lists import LISTS, list_choices, list_translations
from edpbrl_gym.study.forms.pages import due, read_form
from edpbrl_gym.study.prose import images_of, render
from edpbrl_gym.study.wording import available_languages, load_messages, messages_with
from tests.helpers.encoders import CountingEncoder
from tests.helpers.studies import SMALL, write_study

PAGE = """
[[pages]]
name = "about"
place = "before"
title = "About you"
[[pages.questions]]
name = "student"
kind = "choice"
text = "Student?"
choices = ["Yes", "No"]
[[pages.questions]]
name = "age"
kind = "number"
text = "Age?"
least = 18
most = 99
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_study(tmp_path_factory.mktemp("study") / "small")


# conditions

words = st.sampled_from(["a", "b", "c", "d"])
numbers = st.integers(-3, 3)
answers = st.one_of(st.none(), st.just(RATHER_NOT), words, st.lists(words, unique=True, min_size=1))


@settings(max_examples=300)
@given(answer=answers, among=st.none() | st.lists(words, min_size=1), outside=st.none() | st.lists(words, min_size=1))
def test_a_test_of_choices_holds_as_sets_say(answer, among, outside):
    test = Test(None if among is None else tuple(among), None if outside is None else tuple(outside))
    if answer is None or answer == RATHER_NOT:
        assert not test.passes(answer)
    else:
        given = {answer} if isinstance(answer, str) else set(answer)
        assert test.passes(answer) == (
            (among is None or bool(given & set(among))) and (outside is None or given.isdisjoint(outside))
        )


@given(answer=numbers, least=st.none() | numbers, most=st.none() | numbers)
def test_a_test_of_numbers_holds_in_its_range(answer, least, most):
    low, high = (-10 if least is None else least), (10 if most is None else most)
    assert Test(None, None, least, most).passes(answer) == (answer in range(low, high + 1))


@settings(max_examples=200)
@given(st.lists(st.tuples(words, st.sets(words, min_size=1)), max_size=4), st.dictionaries(words, words))
def test_all_conditions_must_hold_and_one_about_what_was_not_asked_never_does(wanted, known):
    conditions = tuple(Condition(name, Test(among=tuple(values))) for name, values in wanted)
    assert all_hold(conditions, known) == all(known.get(name) in values for name, values in wanted)


@settings(max_examples=300)
@given(data=st.data())
def test_the_questions_of_a_page_are_those_that_a_walk_down_the_page_finds(data):
    """Chains of conditions on one page, against a walk that knows only the texts of the configuration."""
    count = data.draw(st.integers(2, 5))
    about = [data.draw(st.none() | st.integers(0, place - 1)) if place else None for place in range(count)]
    wanted = [data.draw(st.sampled_from(["Yes", "No"])) for _ in range(count)]
    tables = [
        f'[[pages.questions]]\nname = "q{place}"\nkind = "choice"\ntext = "?"\nchoices = ["Yes", "No"]\n'
        + (
            f'show_if = {{ question = "q{about[place]}", is = "{wanted[place]}" }}\n'
            if about[place] is not None
            else ""
        )
        for place in range(count)
    ]
    document = tomllib.loads(SMALL + '[[pages]]\nname = "p"\nplace = "before"\ntitle = "P"\n' + "".join(tables))
    [page] = config_of(document, write_once()).pages
    given = [data.draw(st.sampled_from(["0", "1", ""])) for _ in range(count)]
    shown = data.draw(st.sets(st.integers(0, count - 1)))
    form = {f"q-q{place}": value for place, value in enumerate(given)}
    form["shown"] = " ".join(f"q{place}" for place in shown)
    read = read_form(page, form, {})
    visible: dict[int, str | None] = {}
    for place in range(count):
        if about[place] is None or visible.get(about[place]) == wanted[place]:
            visible[place] = {"0": "Yes", "1": "No", "": None}[given[place]] if place in shown else None
    assert read.answers == {f"q{place}": value for place, value in visible.items()}
    assert set(read.problems) == {f"q{place}" for place in visible if place in shown and not given[place]}
    assert read.new == any(place not in shown for place in visible)


_ONCE: list[Path] = []


def write_once():
    """One folder with the texts of a study."""
    import tempfile

    if not _ONCE:
        _ONCE.append(write_study(Path(tempfile.mkdtemp()) / "study"))
    return _ONCE[0]


@settings(max_examples=200)
@given(st.floats(-1e6, 1e6).map(lambda value: round(value, 4)), st.sampled_from([".", ",", "\u066b"]))
def test_numbers_are_read_as_they_are_written(value, mark):
    question = Number(name="n", text="?", least=-1e6, most=1e6, whole=False)
    written = f"{value:.4f}".replace(".", mark)
    assert question.given({"q-n": f" {written} "}) == value
    arabic = written.translate({ord(str(digit)): chr(0x660 + digit) for digit in range(10)})
    assert question.given({"q-n": arabic}) == value
    for wrong in (f"{written}x", f"{written}{mark}1", "1e5", "inf", "\u00b2"):
        with pytest.raises(RefusedError):
            question.given({"q-n": wrong})


@given(st.integers(0, 40), st.integers(1, 12), st.integers(2, 40))
def test_a_page_that_comes_again_comes_after_each_so_many_choices_but_not_the_last(answered, every, total):
    document = tomllib.loads(SMALL.replace("number = 6", "number = 40") + PAGE)
    document["pages"][0] |= {"place": "between", "every": every}
    pages = config_of(document, write_once()).pages
    found = due(pages, "between", {}, answered=answered, total=total)
    comes = answered in range(every, total, every)
    assert (found is not None) == comes
    if found is not None:
        assert found.key == f"about.{answered // every}"
        assert due(pages, "between", {found.key: {"answers": {}}}, answered=answered, total=total) is None


# configurations


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ('place = "befor"', "pages[1].place: expected one of 'start', 'instructions', 'before', 'between', 'after'"),
        ('place = "between"', "pages[1].after: expected either after = N or every = N"),
        ('place = "between"\nafter = 10', "pages[1].after: expected a whole number of at least 1 and at most 9"),
        ('place = "before"\ntemplate = "nasatlx"', "pages[1].template: expected one of 'demographics', 'nasa-tlx'"),
        ('place = "before"\ntemplate = "sus"\nleave_out = ["sus11"]', "pages[1].leave_out: expected names among sus1"),
        ('place = "before"\nattempts = 2', "pages[1].attempts: expected attempts only where a question has accept"),
        ('place = "before"\nshow_if = { question = "age", is = 3 }', "pages[1].show_if: expected an earlier question"),
        ('place = "before"\nshow_if = "student"', "pages[1].show_if: expected a table such as"),
        ('place = "before"\ntitel = "x"', "did you mean 'title'?"),
    ],
)
def test_a_mistake_of_a_page_is_said_with_its_key(folder, change, said):
    check_mistake(folder, PAGE.replace('place = "before"', change), said)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('kind = "choice"', 'kind = "chioce"', "pages[1].questions[1].kind: expected one of 'choice', 'choices'"),
        ('kind = "choice"', "", "pages[1].questions[1].kind: expected one of 'choice'"),
        ('name = "student"', 'name = "Student?"', "pages[1].questions[1].name: expected a name of at most 30"),
        ('name = "student"', 'name = "sent_s"', "expected another name than 'sent_s', a column of the page"),
        ('name = "student"', 'name = "age"', "expected a name of its own for each question, got 'age' twice"),
        ('name = "about"', 'name = "consent"', "pages[1].name: expected another name than those of the study's texts"),
        ('choices = ["Yes", "No"]', 'choices = ["Yes"]', "pages[1].questions[1].choices: expected a list of choices"),
        ('choices = ["Yes", "No"]', 'choices = "planets"', "the name of a list (countries, languages)"),
        ('choices = ["Yes", "No"]', "", "pages[1].questions[1].choices"),
        ("least = 18", "", "pages[1].questions[2].least: expected a number, the end of the range"),
        ("most = 99", "most = 9", "pages[1].questions[2].most: expected a number from 18"),
        ("most = 99", "most = 99\naccept = { is = 'x' }", "pages[1].questions[2].accept: expected for is a number"),
        ("most = 99", "most = 99\naccept = { over = 3 }", "at least one of the keys is, is_not, at_least, at_most"),
        ("most = 99", "most = 99\naccept = { at_least = '3' }", "expected numbers for at_least and at_most"),
        (
            "most = 99",
            'most = 99\nshow_if = { question = "student", is = "yes" }',
            "show_if: expected for is one of its choices, such as 'Yes'",
        ),
        (
            "most = 99",
            'most = 99\nshow_if = { question = "student", at_least = 2 }',
            "show_if: expected for at_least one of the keys is, is_not",
        ),
        (
            'kind = "number"\ntext = "Age?"\nleast = 18\nmost = 99',
            'kind = "scale"\ntext = "?"\nfrom = 0\nto = 100',
            "pages[1].questions[2].to: expected at most 25 points",
        ),
        (
            'kind = "number"\ntext = "Age?"\nleast = 18\nmost = 99',
            'kind = "scale"\ntext = "?"\nlabels = ["a", "b"]\nto = 5',
            "pages[1].questions[2].labels: expected a label for each of the 5 points",
        ),
        (
            'kind = "number"\ntext = "Age?"\nleast = 18\nmost = 99',
            'kind = "long_text"\ntext = "?"\nlength = 5000\n[[pages.questions]]\nname = "more"\nkind = "short_text"\n'
            'text = "?"',
            "expected texts of at most 5000 characters on a page, got 5200",
        ),
        (
            'kind = "number"\ntext = "Age?"\nleast = 18\nmost = 99',
            f'kind = "choices"\ntext = "?"\nchoices = {[str(one) for one in range(60)]}',
            "expected at most 55 fields on a page",
        ),
    ],
)
def test_a_mistake_of_a_question_is_said_with_its_key(folder, old, new, said):
    assert old in PAGE
    check_mistake(folder, PAGE.replace(old, new, 1), said)


def check_mistake(folder, page, said):
    with pytest.raises(Mistakes) as error:
        config_of(tomllib.loads(SMALL + page), folder)
    assert any(said in one for one in error.value.mistakes), error.value.mistakes
    assert str(folder) in str(error.value)


def test_two_pages_have_two_names_and_one_is_below_the_instructions(folder):
    check_mistake(folder, PAGE + PAGE, "expected a name of its own for each page")
    two = PAGE.replace('"before"', '"instructions"')
    check_mistake(folder, two + two.replace('"about"', '"more"'), "expected one page below the instructions")


@pytest.mark.parametrize("name", INSTRUMENTS)
def test_an_instrument_is_a_page_in_every_language(folder, name):
    page = f'[[pages]]\nname = "p"\nplace = "after"\ntemplate = "{name}"\n'
    [found] = config_of(tomllib.loads(SMALL + page), folder).pages
    assert found.title and found.text and len(found.questions) >= 6
    for language in available_languages():
        if language != "en":
            missing = [text for text in found.parts if text not in found.translations[language]]
            assert missing == [] and set(load_instrument(name)["translations"][language]) <= set(found.parts)


def test_the_raw_tlx_has_six_scales_from_0_to_100_in_steps_of_5(folder):
    page = '[[pages]]\nname = "p"\nplace = "after"\ntemplate = "nasa-tlx"\n'
    [found] = config_of(tomllib.loads(SMALL + page), folder).pages
    assert [one.name for one in found.questions] == [
        "mental", "physical", "temporal", "performance", "effort", "frustration"
    ]  # fmt: skip
    assert {one.points for one in found.questions} == {tuple(range(0, 101, 5))}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_has_different_names_in_every_language(name):
    choices = list_choices(name)
    assert len(set(choices)) == len(choices) > 150
    translations = list_translations(name)
    assert {*translations, "en"} == {*available_languages()}
    assert all(
        set(texts) == set(choices) and len(set(texts.values())) == len(choices) for texts in translations.values()
    )


def test_pages_change_the_fingerprint_but_not_that_of_what_is_asked(folder):
    plain, paged = (config_of(tomllib.loads(SMALL + more), folder) for more in ("", PAGE))
    assert plain.fingerprint != paged.fingerprint and plain.asking_fingerprint == paged.asking_fingerprint


# messages and translations


def with_language(tmp_path, language="fi"):
    return write_study(
        tmp_path / "study",
        SMALL.replace("seed = 3", f'seed = 3\nlanguages = ["en", "{language}"]') + PAGE,
        languages=(language,),
    )


def write_messages(folder, code, **changes):
    """A file of all messages with changes; None leaves one out."""
    english = {name: text for name, text in load_messages("en").texts.items() if not name.startswith("ask_")}
    texts = {name: text for name, text in {**english, **changes}.items() if text is not None}
    (folder / "messages").mkdir(exist_ok=True)
    lines = [f"{name} = {text!r}" if "'" not in text else f'{name} = "{text}"' for name, text in texts.items()]
    (folder / "messages" / f"{code}.toml").write_text("\n".join(lines), encoding="utf-8")


def test_a_study_brings_the_messages_of_another_language(tmp_path):
    folder = with_language(tmp_path)
    write_messages(folder, "fi", next="Seuraava", language="suomi")
    config = read_config(folder)
    messages = messages_with("fi", config.messages["fi"])
    assert messages("next") == "Seuraava" and messages("left", number=3) == "about 3 left"
    assert messages.language == "fi"
    before = config.fingerprint
    write_messages(folder, "fi", next="Eteenpäin", language="suomi")
    assert read_config(folder).fingerprint != before


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"next": None}, "expected all messages, since this package has none in fi, 1 are missing: next"),
        ({"nxt": "x"}, "got the unknown 'nxt'; did you mean 'next'?"),
        ({"left": "noin {count} jäljellä"}, "left: expected {number}, got {count}"),
        ({"left": "noin {number jäljellä"}, "left: expected a text with whole words in braces"),
        ({"next": " "}, "next: expected a text in quotes"),
        ({"direction": "right"}, "direction: expected 'ltr' or 'rtl'"),
    ],
)
def test_messages_that_are_missing_unknown_or_wrong_are_said(tmp_path, changes, said):
    folder = with_language(tmp_path)
    write_messages(folder, "fi", **changes)
    with pytest.raises(Mistakes) as error:
        read_config(folder)
    assert [said in one and "fi.toml" in one for one in error.value.mistakes] == [True], error.value.mistakes


def test_a_language_of_the_package_needs_only_what_is_to_be_another_text(tmp_path):
    folder = with_language(tmp_path, "de")
    (folder / "messages").mkdir()
    (folder / "messages" / "de.toml").write_text('next = "Los"\n')
    messages = messages_with("de", read_config(folder).messages["de"])
    assert messages("next") == "Los" and messages("undo") == load_messages("de")("undo")
    (folder / "messages" / "fr.toml").write_text('next = "x"\n')
    with pytest.raises(Mistakes, match="expected a file of one of the study"):
        read_config(folder)


def test_translations_are_of_texts_that_there_are(tmp_path):
    folder = with_language(tmp_path, "de")
    (folder / "translations").mkdir()
    table = folder / "translations" / "de.csv"
    table.write_text('original,shown\nStudent?,Studierend?\nYes,Ja\n"About you",Über Sie\n')
    config = read_config(folder)
    plan, materials = examine(config, encoder=CountingEncoder())
    assert config.shown_in("de") == {"Student?": "Studierend?", "Yes": "Ja", "About you": "Über Sie"}
    [(language, count, example)] = plan.untranslated
    assert language == "de" and example == "A small study" and count == 3 + sum(materials.vocabulary.sizes)
    for rows, said in (
        ("original,shown\nStudnt?,x\n", "got the unknown 'Studnt?'; did you mean 'Student?'?"),
        ("original;shown\n", "expected the columns original,shown"),
        ("original,shown\nYes\n", "row 2: expected two texts"),
        ("original,shown\nYes,Ja\nYes,Jo\n", "row 3: expected each original once"),
    ):
        table.write_text(rows)
        with pytest.raises(Mistakes) as error:
            examine(read_config(folder), encoder=CountingEncoder())
        assert [said in one and "de.csv" in one for one in error.value.mistakes] == [True]


# Markdown


def test_markdown_has_links_emphasis_lists_and_images():
    text = "# Top\n\nA *b* [c](https://e.org) ![d](images/e%20f.png)\n\n- one\n- two"
    html = render(text, lambda address: f"/images/{len(address)}")
    assert images_of(text) == ["images/e f.png"]
    for part in (
        '<h2 dir="auto">Top</h2>',
        "<em>b</em>",
        '<a href="https://e.org" target="_blank" rel="noopener noreferrer">c</a>',
        '<img src="/images/14" alt="d" />',
        '<li dir="auto">one</li>',
    ):
        assert part in html


DANGEROUS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[x](javascript:alert(1))",
    "[x](JaVaScript:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](java\tscript:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "![x](data:image/svg+xml;base64,AAAA)",
    "[x](vbscript:x)",
    "[x](file:///etc/passwd)",
    '[x](https://e.org "\\"><script>")',
    "<javascript:alert(1)>",
    "[x]: javascript:alert(1)\n\n[x]",
    '!["><script>](a.png)',
]


@pytest.mark.parametrize("text", DANGEROUS)
def test_nothing_dangerous_comes_out_of_markdown(text):
    from html.parser import HTMLParser

    class Seen(HTMLParser):
        def handle_starttag(self, tag, attributes):
            assert tag in ("p", "a", "img"), tag
            for name, value in attributes:
                assert name in ("dir", "href", "target", "rel", "src", "alt", "title"), name
                if name in ("href", "src"):
                    assert value.startswith(("https://", "/images/")), value

    Seen().feed(render(text, lambda address: "/images/x"))


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("https://e.org/a.png", "a file in"),
        ("../a.png", "a file in"),
        ("none.png", "a file that is there"),
        ("study.toml", "a file .png"),
    ],
)
def test_an_image_is_a_file_of_the_study(tmp_path, address, said):
    folder = write_study(tmp_path / "study")
    (tmp_path / "a.png").write_bytes(b"x")
    (folder / "texts" / "instructions.en.txt").write_text(f"![x]({address})")
    with pytest.raises(Mistakes) as error:
        read_config(folder)
    assert any(said in one and address in one and "instructions.en.txt" in one for one in error.value.mistakes)


def test_files_of_forms_are_in_the_package():
    for package, names in (("instruments", INSTRUMENTS), ("lists", LISTS)):
        for name in names.values():
            assert (files(f"edpbrl_gym.study.forms.{package}") / name).is_file()
