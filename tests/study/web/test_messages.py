"""The texts of the pages in their languages: complete, with the same values, and chosen as browsers ask for them."""

from __future__ import annotations

from string import Formatter

import pytest

from edpbrl_gym.study.web.frame import available_languages, has_messages, load_messages, preferred_language
from tests.helpers.studies import SMALL

ENGLISH = load_messages("en")
LETTERS = {"en": ("a", "z"), "de": ("a", "z"), "zh": ("一", "鿿"), "ar": ("ا", "ي")}


def names(messages):
    """The names of all texts with those of their values."""
    parsed = {name: Formatter().parse(text) for name, text in messages.texts.items()}
    return {name: {field for _, field, _, _ in pieces if field} for name, pieces in parsed.items()}


@pytest.mark.parametrize("language", available_languages())
def test_a_language_has_every_text_with_its_values(language):
    messages = load_messages(language)
    assert names(messages) == names(ENGLISH)
    assert messages.direction == ("rtl" if language == "ar" else "ltr")
    first, last = LETTERS[language]
    for name, values in names(messages).items():
        text = messages(name, **{value: f"<{value}>" for value in values})
        assert all(text.count(f"<{value}>") == 1 for value in values) and text == text.strip()
        if name == "direction":
            continue
        assert any(first <= letter.lower() <= last for letter in text), f"{name} is not in {language}: {text}"
        if language != "en" and (language, name) != ("de", "option"):  # Option 1
            assert text != ENGLISH(name, **{value: f"<{value}>" for value in values})


ACCEPTED = {
    "de-AT,de;q=0.9,en;q=0.5": "de",
    "fr, en;q=0.3, zh-CN;q=0.8": "zh-Hans",
    "AR": "ar",
    "": "de",
    "en;q=x, ;;, ar;q=0.1": "ar",
}


def test_a_browser_gets_the_language_that_it_asks_for_and_the_texts_of_its_base_language_or_english():
    assert {said: preferred_language(said, ("de", "zh-Hans", "ar")) for said in ACCEPTED} == ACCEPTED
    assert load_messages("de-AT")("next") == "Weiter" and load_messages("zh-Hans")("next") == "下一题"
    assert load_messages("fi")("next") == "Next"
    assert has_messages("zh-Hans") and has_messages("ar") and not has_messages("fi")


def test_pages_are_served_in_the_languages_of_the_study(serve):
    text = SMALL.replace("seed = 3", 'seed = 3\nlanguages = ["en", "ar"]')
    served = serve(text, languages=("ar",))
    person = served.person()
    page = person.get("/", params={"lang": "ar"}).text
    assert '<html lang="ar" dir="rtl">' in page and "قبل أن تبدأ" in page
    person.post("/consent", agree="yes", language="ar")
    assert "كيف تسير الدراسة" in person.page.text and served.store.participants()[0].language == "ar"
    assert "Before you begin" in served.person().get("/", headers={"accept-language": "fi"}).text
