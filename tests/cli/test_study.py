"""`edpbrl study` end to end."""

import json
import re

import numpy as np
import pandas
import pytest

from edpbrl_gym.cli import main
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.likelihood import Response
from edpbrl_gym.personalize.taste import load_taste
from edpbrl_gym.study.config_reading import read_config
from tests.helpers.commands import refused
from tests.helpers.extras import skip_without
from tests.helpers.small_vocabulary import write_embedded
from tests.helpers.studies import SMALL, write_study


@pytest.fixture
def folder(tmp_path):
    """A study whose encoder needs no model."""
    words, encoder = write_embedded(tmp_path)
    text = SMALL.replace('vocabulary = "words"', f'vocabulary = "{words}"\nencoder = "{encoder}"')
    return write_study(tmp_path / "study", text)


def test_init_writes_a_study_that_check_reads(tmp_path, capsys):
    place = tmp_path / "new"
    assert main(["study", "init", str(place)]) == 0
    assert "edpbrl study check" in capsys.readouterr().out
    path = place / "study.toml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("options = 4", 'options = "four"\ncolor = 1'), encoding="utf-8")
    assert main(["study", "check", str(place)]) == 2
    printed = capsys.readouterr()
    assert "questions.options: expected a whole number" in printed.out and "questions.color" in printed.out
    assert printed.err.count("\n") == 1 and "found 2" in printed.err
    refused(capsys, ["study", "init", place], 2, "new or empty folder")


def test_check_says_what_the_study_will_be(folder, capsys):
    assert main(["study", "check", str(folder)]) == 0
    printed = capsys.readouterr().out
    for text in ("at most 10 (6 that count", "adaptive, 33% of the participants", "2026-11", "minutes"):
        assert text in printed
    with open(folder / "study.toml", "a", encoding="utf-8") as file:
        file.write('\n[exclusions]\nfailed_checks = 1\n[recruitment]\npay = { amount = 3, currency = "EUR" }\n')
        file.write('\n[[arms]]\nname = "loop"\nplanner = "oracle"\n')
    assert main(["study", "check", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert "loop: questions come from HumanOracle, 25% of the participants" in printed
    minutes = int(re.search(r"about (\d+) minutes", printed)[1])
    hourly = float(re.search(r"3.00 EUR, ([\d.]+) an hour", printed)[1])
    assert minutes == round(60 * 3 / hourly) and "attention checks failed: 1 or more" in printed


def test_check_says_what_is_left_to_do(folder, capsys):
    consent = folder / "texts" / "consent.en.txt"
    assert main(["study", "check", str(folder)]) == 0
    assert "texts/consent.en.txt is not finished: (Write here who runs" in " ".join(capsys.readouterr().out.split())
    consent.write_text(consent.read_text(encoding="utf-8").partition("(Write here")[0] + "We do.", encoding="utf-8")
    assert main(["study", "check", str(folder)]) == 0
    assert "Left to do" not in capsys.readouterr().out


PEOPLE = 6
STOLEN = "=HYPERLINK(1)"  # an identifier that a spreadsheet would run


@pytest.fixture
def answered(folder):
    """The study, answered by simulated people with one taste; returns the folder, the taste and the queue."""
    skip_without("study")
    from edpbrl_gym.study.materials import Materials
    from edpbrl_gym.study.queue import StudyQueue
    from edpbrl_gym.study.records import Timing
    from edpbrl_gym.study.store import Store

    config = read_config(folder)
    store = Store(config.database_url, config=config.fingerprint)
    queue = StudyQueue(config, store, Materials(config))
    theta = np.random.default_rng(5).normal(size=10)
    for number in range(PEOPLE):
        person = queue.consent(queue.enrol({"PROLIFIC_PID": f"{STOLEN}{number}"}))
        undone, unsure = False, number != 0  # one person can't tell once, another takes an answer back
        while (question := queue.next_question(person)) is not None:
            best = int((queue.materials.encoder.encode(question.texts) @ theta).argmax())
            response = Response.best(best if question.expected is None else question.expected)
            if question.kind == "normal" and not unsure:
                response, unsure = Response.tie(), True
            queue.answer(
                person, question.key, response, Timing(first_input_ms=400, answer_ms=1500, viewport=(390, 844))
            )
            if question.number == 4 and number == 1 and not undone:
                queue.next_question(person)
                undone = queue.undo(person, question.key) is not None
    queue.enrol({"PROLIFIC_PID": "left"})
    queue.close()
    store.close()
    return folder, theta


def test_answers_are_exported_and_estimated(answered, tmp_path, capsys):
    folder, theta = answered
    out = tmp_path / "export"
    assert main(["study", "export", str(folder), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "7, 6 of them with answers" in printed and "edpbrl fit-population" in printed
    table = pandas.read_csv(out / "answers.csv")
    assert len(table) == PEOPLE * 10 + 2  # an undone answer, and the question asked after it
    assert table.taken_back.sum() == 2
    kept = table[~table.taken_back].groupby("kind").size()
    assert kept.to_dict() == {"attention": 6, "normal": 36, "practice": 6, "repeat": 12}
    assert table.counts.sum() == PEOPLE * 6 and set(table.device) <= {"phone", np.nan}
    lines = [json.loads(line) for line in (out / "answers.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(lines) == len(pandas.read_parquet(out / "answers.parquet")) == len(table)
    assert all(sorted(line["positions"]) == [1, 2, 3] for line in lines)
    people = pandas.read_csv(out / "participants.csv")
    assert people.attention_passed.sum() == PEOPLE and people.undone.sum() == 1 and len(people) == PEOPLE + 1
    assert (people.repeats_agreed == people.repeats_asked).all() and people.status.value_counts()["finished"] == PEOPLE
    text = b"".join(path.read_bytes() for path in out.rglob("*") if path.is_file()).decode("utf-8", "replace")
    assert "HYPERLINK" not in text and "created_at" not in text
    dictionary = pandas.read_csv(out / "dictionary.csv")
    for name, columns in (("answers", table.columns), ("participants", people.columns)):
        assert dictionary[dictionary.file == name].column.tolist() == list(columns)

    files = sorted((out / "comparisons").glob("*.parquet"))
    one = Comparisons.from_parquet(files[0])
    assert len(one) == 6 and one.who == files[0].stem and one.answered_at is None
    for comparisons in map(Comparisons.from_parquet, files):
        values = comparisons.decided.features.astype(float) @ theta
        assert (values.argmax(axis=1) == comparisons.decided.choice).all()
    taste = tmp_path / "theta.safetensors"
    assert main(["estimate", str(files[0]), "--out", str(taste)]) == 0
    assert load_taste(taste).theta @ theta > 0
    population = tmp_path / "population.safetensors"
    fitted = ["fit-population", str(out / "comparisons"), "--minimum-people", "6", "--out", str(population)]
    assert main(fitted) == 0 and population.is_file()


def test_identified_exports_name_people_and_replace_only_exports(answered, tmp_path, capsys):
    folder, _ = answered
    out = tmp_path / "export"
    for flags in ([], ["--identified"]):
        assert main(["study", "export", str(folder), "--out", str(out), *flags]) == 0
    people = pandas.read_csv(out / "identities.csv")
    assert list(people.columns) == ["participant", "code", "created_at", "consented_at", "PROLIFIC_PID"]
    assert (
        people.PROLIFIC_PID.str.contains("HYPERLINK").sum() == PEOPLE
        and not people.PROLIFIC_PID.str.startswith("=").any()
    )
    assert people.participant.tolist() == pandas.read_csv(out / "participants.csv").participant.tolist()
    dictionary = pandas.read_csv(out / "dictionary.csv")
    assert dictionary[dictionary.file == "identities"].column.tolist() == list(people.columns)
    answers = (out / "answers.csv").read_text(encoding="utf-8") + (out / "participants.csv").read_text(encoding="utf-8")
    assert "HYPERLINK" not in answers
    assert Comparisons.from_parquet(next((out / "comparisons").glob("*.parquet"))).answered_at is not None
    capsys.readouterr()
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.png").write_bytes(b"")
    refused(capsys, ["study", "export", folder, "--out", tmp_path / "photos"], 1, "former export")
    assert (tmp_path / "photos" / "cat.png").is_file()


def test_one_participant_is_deleted_on_request(answered, tmp_path, capsys):
    folder, _ = answered
    wanted = ["study", "delete", folder]
    refused(capsys, [*wanted, "--yes", "--", "-nobody"], 2, "'-nobody' is that of 0")
    refused(capsys, [*wanted, f"{STOLEN}2"], 2, "10 answers for good", "--yes")
    refused(capsys, [*wanted, "nobody", "--yes"], 2, "is that of 0")
    assert main([str(word) for word in [*wanted, f"{STOLEN}2", "--yes"]]) == 0
    assert f"{STOLEN}2".encode() not in b"".join(path.read_bytes() for path in folder.glob("study.db*"))
    refused(capsys, [*wanted, f"{STOLEN}2", "--yes"], 2, "is that of 0")
    out = tmp_path / "export"
    assert main(["study", "export", str(folder), "--out", str(out)]) == 0
    people = pandas.read_csv(out / "participants.csv")
    assert len(people) == PEOPLE
    pseudonym = people.participant[people.answered > 0].iloc[0]
    assert main([str(word) for word in [*wanted, pseudonym, "--yes"]]) == 0


def test_there_is_nothing_to_export_before_the_first_answer(folder, tmp_path, capsys):
    refused(capsys, ["study", "check", tmp_path], 2, "edpbrl study init")
    refused(capsys, ["study", "export", folder, "--out", tmp_path / "export"], 2, "found none yet")
    address = "--public-url=https://me:secret@study.example.org"
    refused(capsys, ["study", "serve", folder, address], 2, "Expected --public-url such as")
    assert not (folder / "study.db").exists() and not (tmp_path / "export").exists()
