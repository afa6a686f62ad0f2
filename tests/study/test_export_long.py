"""Long tables of an export, and the scripts that fit a conditional logit to them."""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys

import numpy as np
import pandas
import pytest
from scipy.optimize import minimize

from edpbrl_gym.cli import main
from edpbrl_gym.features import load_encoder, save_precomputed
from edpbrl_gym.likelihood import Response
from edpbrl_gym.study.config_reading import read_config
from edpbrl_gym.study.export_long import long_tables, ordered_pairs
from edpbrl_gym.study.export_scripts import write_scripts
from edpbrl_gym.study.export_tables import Column, StudyTables
from edpbrl_gym.study.materials import Materials
from edpbrl_gym.vocabulary import load_vocabulary
from tests.helpers.extras import skip_without
from tests.helpers.small_vocabulary import write_embedded
from tests.helpers.studies import SMALL, write_study
from tests.helpers.study_people import take_part
from tests.helpers.study_rows import STUDY, answer, participant


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    """The export of a study that twenty people came to, some of whom left, could not tell or took an answer back."""
    place = tmp_path_factory.mktemp("long")
    words, encoder = write_embedded(place)
    text = SMALL.replace('vocabulary = "words"', f'vocabulary = "{words}"\nencoder = "{encoder}"')
    folder = write_study(place / "study", text + "\n[exclusions]\nmedian_seconds = 5.5\n")
    take_part(folder, 20)
    assert main(["study", "export", str(folder), "--out", str(place / "export")]) == 0
    return place / "export"


def test_options_say_what_answers_say(export):
    options, answers = (pandas.read_csv(export / f"{name}.csv") for name in ("options", "answers"))
    people = pandas.read_csv(export / "participants.csv").set_index("participant")
    kept = answers[answers.answer.notna() & ~answers.taken_back]
    assert len(options) == 3 * len(kept) and len(kept) < answers.answer.notna().sum()
    assert options.groupby("question").size().eq(3).all()
    assert (options.position.groupby(options.question).sum() == 6).all()  # 1, 2 and 3
    assert options.chosen.sum() == (kept.answer == "best").sum()
    joined = options.merge(kept, on=["participant", "asked"], suffixes=("", "_asked"))
    best = joined[joined.chosen == 1]
    assert (best.order == "[" + best.option.astype(str) + "]").all() and (best["rank"] == 1).all()
    assert (joined.answer_s == joined.answer_ms / 1000).all()
    assert (joined.excluded == joined.participant.map(people.excluded.notna())).all() and 0 < joined.excluded.mean() < 1
    assert (joined.status == joined.participant.map(people.status)).all()
    tokens = joined.token_1 + ", " + joined.token_2 + ", " + joined.token_3
    assert (tokens == joined.text).all()
    assert options.filter(like="feature_").shape[1] == 10
    dictionary = pandas.read_csv(export / "dictionary.csv")
    for name in ("options", "pairs"):
        with open(export / f"{name}.csv", encoding="utf-8") as file:
            assert dictionary[dictionary.file == name].column.tolist() == next(csv.reader(file))
    assert dictionary[dictionary.file.isin(["options", "pairs"])].meaning.notna().all()


def test_pairs_are_of_the_winner_and_each_other_option(export):
    pairs, options = (pandas.read_csv(export / f"{name}.csv") for name in ("pairs", "options"))
    assert len(pairs) == 2 * options.chosen.sum()
    assert np.allclose(pairs.groupby("question").weight.sum(), 1.0)
    texts = options.set_index(["question", "option"]).text
    for number, name in (("winner", "chosen"), ("loser", "rejected")):
        assert texts.loc[list(zip(pairs.question, pairs[number], strict=True))].tolist() == pairs[name].tolist()


@pytest.mark.parametrize(
    ("response", "pairs"),
    [
        (Response.best(2), [(2, 0), (2, 1), (2, 3)]),
        (Response.best_worst(1, 0), [(1, 0), (1, 2), (1, 3), (2, 0), (3, 0)]),
        (Response.ranking([3, 1, 0, 2]), [(0, 2), (1, 0), (1, 2), (3, 0), (3, 1), (3, 2)]),
        (Response.partial([2, 0]), [(0, 1), (0, 3), (2, 0), (2, 1), (2, 3)]),
        (Response.rating([1, 0, 1, 4]), [(0, 1), (2, 1), (3, 0), (3, 1), (3, 2)]),
        (Response.rating([2, 2, 2, 2]), []),
        (Response.tie(), []),
        (Response.skip(), []),
    ],
)
def test_pairs_are_those_that_an_answer_orders(response, pairs):
    assert ordered_pairs(response, 4) == pairs


def by_hand(export, dummies=False):
    """The conditional logit, by the definition of its likelihood."""
    rows = pandas.read_csv(export / "options.csv")
    rows = rows[(rows.counts == 1) & (rows.status == "finished") & (rows.excluded == 0)]
    rows = rows[rows.groupby("question").chosen.transform("sum") == 1]
    if dummies:
        parts = []
        for name in ("token_1", "token_2", "token_3"):
            chosen = rows[name][rows.chosen == 1].value_counts()
            rare = [token for token in rows[name].dropna().unique() if chosen.get(token, 0) < 5]
            token = rows[name].where(~rows[name].isin(rare) | (len(rare) < 2), "(rare)")
            most = sorted(token.value_counts().items(), key=lambda pair: (-pair[1], pair[0]))[0][0]
            parts.append(pandas.get_dummies(token, prefix=name, prefix_sep="").drop(columns=name + most))
        table = pandas.concat(parts, axis=1).astype(float)
    else:
        table = rows.filter(like="feature_")
    values = table.to_numpy().reshape(-1, 3, table.shape[1])
    chosen = rows.chosen.to_numpy().reshape(-1, 3).argmax(axis=1)

    def loss(theta):
        utilities = values @ theta
        return np.sum(np.logaddexp.reduce(utilities, axis=1) - utilities[np.arange(len(chosen)), chosen])

    found = minimize(loss, np.zeros(table.shape[1]), method="BFGS", options={"gtol": 1e-6})
    return pandas.Series(found.x, table.columns)


def _run(command, folder, file):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return pandas.read_csv(folder / file).set_index("name")


def _rscript():
    found = shutil.which("Rscript")
    if found is None or subprocess.run([found, "-e", "library(survival)"], capture_output=True).returncode:
        pytest.skip("there is no Rscript with the package survival")
    return found


@pytest.fixture(params=["features", "tokens", "partial"])
def table(request, export, tmp_path):
    """The export, as it is or without the columns of features, or with prompts that end early; what its logit is."""
    out = shutil.copytree(export, tmp_path / "out")
    if request.param != "features":
        rows = pandas.read_csv(out / "options.csv", keep_default_na=False)
        if request.param == "partial":
            rows.loc[rows.question.astype(int) % 3 == 0, "token_3"] = ""
        rows.loc[:, ~rows.columns.str.startswith("feature_")].to_csv(out / "options.csv", index=False)
    return out, by_hand(out, dummies=request.param != "features")


@pytest.mark.needs("test")
def test_the_python_script_fits_the_conditional_logit_and_clusters_by_person_as_r_does(table):
    out, expected = table
    fit = _run([sys.executable, "logit.py"], out, "logit_python.csv")
    assert set(fit.index) == set(expected.index)
    assert np.allclose(fit.estimate[expected.index], expected, atol=2e-3, rtol=1e-3)
    again = _run([_rscript(), "logit.R"], out, "logit_R.csv")
    assert set(again.index) == set(fit.index) and (again.robust_se > 0).all()
    assert np.allclose(fit, again.loc[fit.index], atol=1e-4)


def test_the_scripts_say_what_is_missing(export, tmp_path):
    out = shutil.copytree(export, tmp_path / "out")
    rows = pandas.read_csv(out / "options.csv", keep_default_na=False)
    rows.assign(chosen=0).to_csv(out / "options.csv", index=False)  # as with ratings
    done = subprocess.run([sys.executable, "logit.py"], cwd=out, capture_output=True, text=True)
    assert done.returncode == 1 and "found none; pairs.csv" in done.stderr and "Traceback" not in done.stderr


def test_the_spss_syntax_names_every_column_with_room_for_its_texts(export):
    syntax = (export / "logit.sps").read_text(encoding="utf-8")
    rows = pandas.read_csv(export / "options.csv", dtype=str, keep_default_na=False)
    lines = syntax.partition("/VARIABLES=\n")[2].partition(".\n\n")[0].splitlines()
    formats = dict(line.split() for line in lines)
    assert list(formats) == list(rows.columns) and "{" not in syntax
    for name, kind in formats.items():
        if kind.startswith("A"):
            assert rows[name].str.encode("utf-8").str.len().max() <= int(kind[1:]) <= 100
    assert " ".join(f"feature_{place}" for place in range(1, 11)) in syntax


def test_the_spss_syntax_reads_and_keeps_what_the_other_scripts_do(export, tmp_path):
    """By PSPP, which reads the syntax of SPSS up to its last command: it has no COXREG."""
    pspp = shutil.which("pspp")
    if pspp is None:
        pytest.skip("there is no pspp")
    out = shutil.copytree(export, tmp_path / "out")
    syntax = (out / "logit.sps").read_text(encoding="utf-8").replace("'C:\\export'", f"'{out}'")
    read = syntax.rpartition("COXREG")[0] + "SAVE TRANSLATE /OUTFILE='kept.csv' /TYPE=CSV /FIELDNAMES.\n"
    command = [pspp, "--syntax=compatible", "-"]
    done = subprocess.run(command, input=read, capture_output=True, text=True, cwd=out, timeout=300)
    assert done.returncode == 0 and "error" not in done.stdout, done.stdout + done.stderr
    kept, rows = pandas.read_csv(out / "kept.csv"), pandas.read_csv(out / "options.csv")
    rows = rows[(rows.counts == 1) & (rows.status == "finished") & (rows.excluded == 0)]
    rows = rows[rows.groupby("question").chosen.transform("sum") == 1]
    assert kept.text.tolist() == rows.text.tolist() and kept.participant.tolist() == rows.participant.tolist()
    assert np.allclose(kept.filter(like="feature_"), rows.filter(like="feature_"))
    assert (kept.time == 2 - rows.chosen.to_numpy()).all()


def test_the_spss_syntax_recodes_tokens_which_it_would_cut(tmp_path):
    rows = [{"question": 1, "token_1": "a red bicycle", "token_2": "é" * 9}]
    columns = [
        Column(name, kind, "") for name, kind in (("question", "integer"), ("token_1", "text"), ("token_2", "text"))
    ]
    write_scripts(tmp_path, columns, rows)
    syntax = (tmp_path / "logit.sps").read_text(encoding="utf-8")
    assert "    token_1 A14\n    token_2 A19.\n" in syntax
    assert "AUTORECODE VARIABLES=token_1 token_2\n  /INTO token_1_code token_2_code" in syntax
    assert "COXREG time WITH token_1_code token_2_code" in syntax and "/CATEGORICAL=token_1_code token_2_code" in syntax
    assert "/CONTRAST(token_2_code)=INDICATOR" in syntax


def test_many_features_of_many_tokens_are_written_as_principal_components(tmp_path):
    """Against sklearn, up to the sign."""
    skip_without("experiments")
    from sklearn.decomposition import PCA

    folder = write_study(tmp_path / "study")
    shutil.rmtree(folder / "words")
    for name, tokens in (("1", [f"thing {number}" for number in range(101)]), ("2", ["red", "blue", "green"])):
        (folder / "words").mkdir(exist_ok=True)
        (folder / "words" / f"{name}.txt").write_text("\n".join(tokens), encoding="utf-8")
    words = load_vocabulary(folder / "words")
    rng = np.random.default_rng(0)
    texts = [words.prompt([first, second]) for first in range(101) for second in range(3)]
    vectors = dict(zip(texts, rng.normal(size=(len(texts), 40)) * np.geomspace(3, 0.1, 40), strict=True))
    save_precomputed(tmp_path / "vectors.npz", texts, np.stack(list(vectors.values())))
    materials = Materials(read_config(folder), encoder=load_encoder(f"precomputed:{tmp_path / 'vectors.npz'}"))
    vectors = {text: materials.encoder.encode([text])[0].astype(float) for text in texts}  # of length 1
    answers = [
        answer("p", "adaptive", asked) | {"tokens": tokens, "options": [words.prompt(one) for one in tokens]}
        for asked in range(80)
        for tokens in [[[int(first), int(rng.integers(3))] for first in rng.choice(101, 4, replace=False)]]
    ]
    tables = StudyTables(STUDY, [participant("p", "adaptive", "finished", 80)], answers, [])
    columns, rows = long_tables(tables, materials)["options"]
    names = [column.name for column in columns if column.name.startswith("feature_")]
    assert len(names) == 10 and rows[0]["token_1"] == words.tokens[0][answers[0]["tokens"][0][0]]
    distinct = list({row["text"]: row for row in rows}.values())
    fitted = PCA(10).fit(np.array([vectors[row["text"]] for row in distinct]))
    expected = fitted.transform(np.array([vectors[row["text"]] for row in distinct]))
    found = np.array([[row[name] for name in names] for row in distinct])
    assert np.allclose(np.abs(found), np.abs(expected), atol=1e-5)
    meanings = [column.meaning for column in columns if column.name.startswith("feature_")]
    assert all(
        f"{share:.1%} of var" in one for one, share in zip(meanings, fitted.explained_variance_ratio_, strict=True)
    )
