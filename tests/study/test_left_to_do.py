"""What `edpbrl study check` complains about before a study begins."""

from __future__ import annotations

import pytest

from edpbrl_gym.study.config_reading import read_config
from edpbrl_gym.study.left_to_do import left_to_do
from edpbrl_gym.study.materials import Materials
from tests.helpers.studies import write_study

WORDS = {
    "english": ["an old lighthouse in the fog", "snowy mountains", "warm evening light", "dark clouds over the sea"],
    "german": ["ein alter Leuchtturm im Nebel", "verschneite Berge", "warmes Abendlicht", "dunkle Wolken am Meer"],
    "chinese": ["雾中的旧灯塔", "雪山", "温暖的晚霞", "海上的乌云"],
}


@pytest.mark.needs("text")
@pytest.mark.parametrize(("language", "complained"), [("english", False), ("german", True), ("chinese", True)])
def test_words_that_the_encoder_does_not_read_are_complained_about(language, complained, minilm, tmp_path):
    folder = write_study(tmp_path / "study")
    for path in (folder / "words").iterdir():
        path.unlink()
    for step in range(2):
        (folder / "words" / f"{step}.txt").write_text("\n".join(WORDS[language]) + "\n", encoding="utf-8")
    config = read_config(folder)
    notes = [note for note in left_to_do(config, Materials(config, encoder=minilm)) if "minilm" in note]
    assert len(notes) == complained, notes


@pytest.mark.needs("text")
def test_what_is_left_of_the_template_is_named(minilm, tmp_path):
    folder = write_study(tmp_path / "study")
    config = read_config(folder)
    unfinished = [note for note in left_to_do(config, Materials(config, encoder=minilm)) if "not finished" in note]
    assert unfinished and all("consent.en.txt" in note for note in unfinished)
    (folder / "texts" / "consent.en.txt").write_text("We ask what you like. You may stop at any time.\n")
    config = read_config(folder)
    assert not any("not finished" in note for note in left_to_do(config, Materials(config, encoder=minilm)))
