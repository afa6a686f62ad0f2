"""Files with the answers of one person each: which are found, told apart and refused."""

import pandas
import pytest

from edpbrl_gym.comparisons.answer_files import (
    answer_files,
    form_of,
    holds_answers_of_a_person,
    read_people,
    read_person,
)
from edpbrl_gym.comparisons.question_files import write_questions
from edpbrl_gym.likelihood import Response
from tests.helpers.answered import assert_equal, comparisons
from tests.helpers.encoders import CountingEncoder


def refuse():
    raise AssertionError("no encoder is needed")


@pytest.fixture
def folder(tmp_path):
    comparisons(kinds=("best",)).to_parquet(tmp_path / "b.parquet")
    for name in ("a.csv", "c.parquet"):
        write_questions(tmp_path / name, [(0, 0, ["a fox", "a harbour"]), (1, 0, ["a gate, fog", "a fox"])])
    table = pandas.read_csv(tmp_path / "a.csv").assign(choice=[2, None])
    table.to_csv(tmp_path / "a.csv", index=False)
    (tmp_path / "notes.txt").write_text("nothing")
    return tmp_path


def test_kinds_of_files_are_told_apart(folder):
    assert [path.name for path in answer_files([folder])] == ["a.csv", "b.parquet", "c.parquet"]
    assert [form_of(path) for path in answer_files([folder])] == ["questions", "comparisons", "questions"]
    assert all(map(holds_answers_of_a_person, answer_files([folder])))
    assert not holds_answers_of_a_person(folder / "notes.txt")
    (folder / "broken.parquet").write_bytes(b"PAR1 not really")
    assert form_of(folder / "broken.parquet") == "comparisons"  # reading it says what is wrong
    with pytest.raises(ValueError, match=r"broken\.parquet"):
        holds_answers_of_a_person(folder / "broken.parquet")


def test_other_files_of_a_folder_are_named(folder, caplog):
    (folder / "design.json").write_text("{}")
    (folder / ".hidden").write_text("")
    (folder / "d.TSV").write_text("option_1\toption_2\tchoice\na, b\tc\t1\n")
    files = answer_files([folder])
    assert [path.name for path in files] == ["a.csv", "b.parquet", "c.parquet", "d.TSV"]
    assert [one.getMessage() for one in caplog.records] == [
        f"Ignored in {folder}: notes.txt; answers are .parquet, .csv or .tsv files"
    ]
    assert holds_answers_of_a_person(files[-1])  # episode and step may be missing, as `edpbrl estimate` reads it
    assert read_people([files[-1]], lambda path: CountingEncoder())[0].texts == [["a, b", "c"]]


def test_a_person_is_read_from_either_form(folder):
    found, missing = read_person(folder / "a.csv", CountingEncoder)
    assert missing == 1 and found.texts == [["a fox", "a harbour"]] and found.choice.tolist() == [1]
    answered = comparisons(kinds=("best",))
    found, missing = read_person(folder / "b.parquet", refuse)
    assert missing == 0
    assert_equal(found, answered)
    skip = {"response": Response.skip(), "episode": 9, "step": 0, "texts": ["a", "b", "c"]}
    answered.appended(answered.features[0], **skip).to_parquet(folder / "b.parquet")
    assert read_person(folder / "b.parquet", refuse)[1] == 1
    comparisons(kinds=("skip",)).to_parquet(folder / "b.parquet")
    with pytest.raises(ValueError, match="name a best option"):
        read_person(folder / "b.parquet", refuse)


def test_people_have_the_same_features(folder, tmp_path):
    asked = []

    def encoder(path):
        asked.append(path.name)
        return CountingEncoder(4)

    metadata = {"encoder": "counting", "encoder_fingerprint": CountingEncoder().fingerprint}
    comparisons(kinds=("best",), metadata=metadata).to_parquet(folder / "b.parquet")
    people = read_people([folder / "a.csv", folder / "b.parquet"], encoder)
    assert asked == ["a.csv"] and [len(one) for one in people] == [1, 6]
    for changes in ({"d": 5}, {"metadata": {**metadata, "encoder_fingerprint": "ab" * 32}}, {"metadata": {}}):
        comparisons(kinds=("best",), **{"metadata": metadata, **changes}).to_parquet(folder / "b.parquet")
        with pytest.raises(ValueError, match=r"same features .*a\.csv.*b\.parquet"):
            read_people([folder / "a.csv", folder / "b.parquet"], encoder)
    with pytest.raises(ValueError, match=r"got columns x"):
        (folder / "x.csv").write_text("x\n1\n")
        read_people([folder / "x.csv"], encoder)


def test_wrong_places_are_refused(folder, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        answer_files([folder / "nowhere"])
    with pytest.raises(ValueError, match=r"a\.csv twice"):
        answer_files([folder, folder / "a.csv"])
    (folder / "empty").mkdir()
    with pytest.raises(ValueError, match="got none"):
        answer_files([folder / "empty"])
    (folder / "link.csv").symlink_to(folder / "a.csv")
    with pytest.raises(ValueError, match="twice"):
        answer_files([folder])
