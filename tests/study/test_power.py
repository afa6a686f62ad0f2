"""`edpbrl study power` from the command line to its report, on a tiny study."""

from __future__ import annotations

import re

import pytest

from edpbrl_gym.cli import main, study_power
from edpbrl_gym.study.config_reading import read_config
from edpbrl_gym.study.materials import Materials
from edpbrl_gym.study.reporting.arm_test import ArmTest, Parts, values_of
from edpbrl_gym.study.reporting.power import power_figure
from edpbrl_gym.study.simulated import SimulatedPeople, simulate, simulated_config
from edpbrl_gym.study.template import write_template
from tests.helpers.commands import refused
from tests.helpers.small_vocabulary import write_embedded

ARM = '[[arms]]\nname = "{name}"\nplanner = "random"\nprior = "ridge"\n'
STUDY = """
title = "Tiny"
[consent]
version = "1"
[questions]
vocabulary = "{vocabulary}"
encoder = "{encoder}"
options = 3
number = {number}
[practice]
questions = 0
[checks]
attention = 0
repeated = 0
test = 2
"""


@pytest.fixture
def study(tmp_path):
    """Write a study with these arms about the small vocabulary; return its folder."""

    def write(*arms, number=2):
        folder = tmp_path / f"study of {len(arms)}"
        write_template(folder)
        vocabulary, encoder = write_embedded(tmp_path)
        text = STUDY.format(vocabulary=vocabulary, encoder=encoder, number=number)
        (folder / "study.toml").write_text(text + "".join(ARM.format(name=name) for name in arms), encoding="utf-8")
        return folder

    return write


@pytest.mark.needs("study", "experiments")
def test_the_command_says_how_many_people_and_goes_on_with_more(study, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(study_power, "_TEST_QUESTIONS", 10)
    folder = study("one", "other")
    out = tmp_path / "out"
    assert main(["study", "power", str(folder), "--out", str(out), "--people", "3"]) == 0
    first = (out / "REPORT.md").read_text(encoding="utf-8")
    assert "## People of each arm for a power of 80%" in first and (out / "figures" / "power.png").is_file()
    assert "3 people of each arm took part" in first and "Real people are noisier" in first
    # both arms ask random questions: three people can't say which is better, and the page does not claim to know
    assert "simulate more --people" in first and first.count("| uncertain |") >= 1
    table = first[first.index("## The smallest difference") :].split("\n\n")[1].splitlines()[2:]
    least = [[float(cell) for cell in row.split("|")[3:-1]] for row in table]
    assert len(least) == 6 and all(row == sorted(row, reverse=True) for row in least)
    # with two test questions the part of the questions has one degree of freedom, and more people may help little
    assert all(list(column) == sorted(column, reverse=True) for column in list(zip(*least, strict=True))[1:])
    assert "People for Tiny" in first and "simulate more --people" in " ".join(capsys.readouterr().out.split())
    assert main(["study", "power", str(folder), "--out", str(out), "--people", "4"]) == 0
    more = (out / "REPORT.md").read_text(encoding="utf-8")
    assert main(["study", "power", str(folder), "--out", str(tmp_path / "new"), "--people", "4"]) == 0
    assert more == (tmp_path / "new" / "REPORT.md").read_text(encoding="utf-8") != first
    capsys.readouterr()
    refused(capsys, ["study", "power", folder, "--out", out, "--seed", 1], 2, "another --out")
    assert main(["study", "power", str(folder), "--out", str(out), "--people", "4", "--difference", "0.4"]) == 0
    page = (out / "REPORT.md").read_text(encoding="utf-8")
    assert "+0.400 nats an answer (assumed)" in page and "uncertain" not in page.lower()
    table = page[page.index("## People of each arm") :].split("\n\n")[1].splitlines()
    needed = [int(cell.replace(",", "")) for cell in re.findall(r"\| ([\d,]+) (?=\|)", table[-1])][1:]
    assert len(needed) == 5 and needed == sorted(needed, reverse=True) and needed[0] > needed[-1]


@pytest.mark.needs("study", "experiments")
def test_people_who_were_stopped_go_on_and_answer_the_same(study, tmp_path):
    given = read_config(study("one", "other"))
    found = []
    for name in ("stopped", "whole"):
        config = simulated_config(given, tmp_path / f"{name}.db", test=4)
        materials = Materials(config)

        def stop(name, total, steps):
            for number, step in enumerate(steps):
                if number == 3:
                    raise KeyboardInterrupt
                yield step

        if name == "stopped":
            with pytest.raises(KeyboardInterrupt):
                simulate(materials, SimulatedPeople(3), track=stop)
        tables, tastes = simulate(materials, SimulatedPeople(3))
        assert len(tables.participants) == 6 and sorted(tastes.values()) == [0, 0, 1, 1, 2, 2]
        found.append({arm: values.tolist() for arm, values in values_of(tables, order=tastes).items()})
    assert found[0] == found[1] and set(found[0]) == {"one", "other"}
    assert all(len(values) == 3 and len(values[0]) == 4 for values in found[0].values())


@pytest.mark.needs("study", "experiments")
def test_bad_input_is_one_line(study, tmp_path, capsys):
    folder = study("one", "other")
    out = ["--out", tmp_path / "out"]
    refused(capsys, ["study", "power", folder, *out, "--people", 0], 2, "people")
    refused(capsys, ["study", "power", folder, *out, "--scale", "nan"], 2, "--scale above 0")
    refused(capsys, ["study", "power", folder, *out, "--level", 1], 2, "--level between 0 and 1")
    refused(capsys, ["study", "power", folder, *out, "--difference", 0], 2, "other than 0")
    (tmp_path / "empty").mkdir()
    refused(capsys, ["study", "power", tmp_path / "empty", *out], 2, "edpbrl study init")
    refused(capsys, ["study", "power", study("alone"), *out], 2, "two arms or more to compare, got 1")
    assert not (tmp_path / "out").exists()


@pytest.mark.needs("experiments")
@pytest.mark.filterwarnings("error")
def test_the_figure_shows_all_of_power_whatever_the_difference():
    parts = Parts(people=(0.02, 0.02), answers=(0.3, 0.3), questions=0.01)
    tests = [
        ArmTest("adaptive", name, size, low, high, 0.04, float("nan"), (12, 12), 32, parts)
        for name, size, low, high in (("random", -0.15, -0.2, -0.1), ("an arm " * 8, 0.001, -0.1, 0.1))
    ]
    for shown in (tests, tests[1:]):
        figure = power_figure(shown, [4, 32], 0.05)
        figure.canvas.draw()
        assert all(axis.get_ylim() == (0, 1.02) for axis in figure.axes)
        assert "+0.001 nats (uncertain)" in figure.axes[-1].get_title()
