"""Mistakes on the command line: one line that says what to do, the right exit code, and nothing is written."""

import shlex

import numpy as np
import pandas
import pytest

from edpbrl_gym.cli import main
from edpbrl_gym.personalize.taste import save_taste
from edpbrl_gym.vocabulary import load_vocabulary
from tests.helpers.commands import refused
from tests.helpers.small_vocabulary import write_vocabulary

SYNTHETIC = "reproduce synthetic --jobs 1"
ESTIMATE = "estimate {answers}"
PERSONALIZE = "personalize {taste} --vocabulary {words}"
RENDER = "render {prompts} --renderer none"

# command, exit code, what the line says; in braces files of the fixture
REFUSED = [
    # numbers out of range
    *(
        (f"{command} {option}", 2, said)
        for command in ("design", "reproduce synthetic")
        for option, said in (
            ("--num-options 5000", "(K) of at most 50, got 5000"),
            ("--episodes 0", "(T) >= 1, got 0"),
            ("--regularization -1", "0, got -1"),
            ("--seed -3", "got -3"),
        )
    ),
    ("demo --text ' '", 2, "taste"),
    ("ask --count 1000000000", 2, "--count of at most 100000"),
    ("ask --num-options 1", 2, "num_options"),
    ("ask --num-options 2 --format best-worst", 2, ">= 3"),
    ("design --vocabulary {words} --num-options 9", 2, "8 at step 0 (1-bases); ask with at most K = 8 options"),
    ("design --vocabulary {words} --num-options 9 --feedback state --solver random", 2, "8 at step 2 (3-lighting)"),
    ("design --tolerance 2", 2, "--tolerance below 1, a gap relative to the gain such as 1e-4, got 2"),
    ("design --time-limit=-1", 2, "--time-limit (seconds) >= 0, got -1"),
    ("reproduce synthetic --runs 0", 2, "runs >= 1"),
    ("reproduce synthetic --scales", 2, "at least one scale"),
    # names
    ("reproduce synthetic --users windy", 2, "sunny, medieval, technological or as name=sentence, got 'windy'"),
    ("reproduce synthetic --agents random random", 2, "label="),
    ("ask --planner foo", 2, "Expected a planner among"),
    ("design --solver newtonn", 2, "'newtonn'; did you mean 'newton'"),
    ("design --vocabulary {words} --solver bald", 2, "bald chooses each by the answers before it: ask with it in a"),
    ("design --vocabulary {words} --solver random --iterations 5", 2, "'random' has no option 'max_iterations'"),
    ("design --vocabulary {words} --encoder precomputed:none.npz", 1, "none.npz"),
    # vocabularies
    *(
        (f"{command} --vocabulary {folder}", 1, said)
        for command in ("demo", "design", SYNTHETIC)
        for folder, said in (
            ("nowhere", "check the path"),
            ("{empty}", "at least one .txt file"),
            ("{twice}", "got 'cheerful' at line 2"),
        )
    ),
    *((f"{command} --vocabulary ''", 2, "an empty path; leave the option out") for command in ("demo", "design")),
    ("reproduce synthetic --out ''", 2, "leave the option out"),
    # answers and their priors
    ("ask --prior nothing.safetensors", 2, "found none"),
    ("estimate none", 2, "check the path"),
    ("estimate {broken}", 1, "broken.parquet"),
    ("estimate {unanswered}", 1, "fill in 1..2"),
    (f"{ESTIMATE} --vocabulary ''", 2, "an empty path; leave the option out"),
    (f"{ESTIMATE} --regularization -1", 2, "(lambda) >= 0"),
    (f"{ESTIMATE} --scale 3", 2, "--prior embeddings or ridge with --scale"),
    (f"{ESTIMATE} --regularization 3", 2, "--prior ridge with --regularization"),
    (f"{ESTIMATE} --prior ridge --regularization 3 --scale 2", 2, "got both"),
    (f"{ESTIMATE} --prior ridge --power 1", 2, "which ridge doesn't have"),
    (f"{ESTIMATE} --prior ridge --vocabulary .", 2, "which ridge doesn't need"),
    (f"{ESTIMATE} --prior flat", 2, "'words', 'embeddings', 'ridge'"),
    ("fit-population {answers} --out p.npz", 2, ".safetensors"),
    ("fit-population {answers} --factors 2", 2, "--kind factors with --factors"),
    ("fit-population {answers} --forgetting 0.1", 2, "--update with --forgetting"),
    ("fit-population {answers} --base identity --vocabulary images", 2, "leave one out"),
    ("fit-population {answers} --encoder nonsense", 2, "'nonsense'"),
    # tastes and pictures
    ("personalize none", 2, "edpbrl estimate"),
    (f"{PERSONALIZE} --count 1000000000", 2, "--count of at most 100000"),
    (f"{PERSONALIZE} --compare a={{taste}} 'a = {{taste}}'", 2, "'a' twice"),
    (f"{PERSONALIZE} --base 'a gate' ' a gate '", 2, "different base prompts"),
    (f"{PERSONALIZE} --sheet x.png", 2, "--renderer"),
    (f"{PERSONALIZE} --shared 1.5", 2, "Expected --shared from 0 to 1"),
    (PERSONALIZE, 1, "(384,)"),
    ("personalize {foreign} --vocabulary {words}", 1, "load the same weights"),
    ("personalize {unnamed} --vocabulary {words}", 2, "--encoder"),
    ("personalize {answers} --vocabulary {words}", 1, "edpbrl estimate"),
    (f"{PERSONALIZE} --compare x=none", 2, "edpbrl estimate"),
    (f"{PERSONALIZE} --renderer none --out x.png", 2, "different files"),
    ("render none.txt --renderer none", 2, "Expected a file of prompts"),
    ("render {foreign_run}/results.parquet --renderer none", 2, "Expected the column(s) prompt, text or option_1"),
    (f"{RENDER} --out {{prompts}}", 2, "Expected a folder for the images with --out, got the file"),
    (f"{RENDER} --height 100", 2, "multiple of 8"),
    (f"{RENDER} --column x", 2, "Expected a table (.csv, .tsv or .parquet) with --column"),
    (f"{RENDER} --dtype int8", 2, "int8"),
    # workers
    ("reproduce synthetic --jobs 2 --dask x", 2, "--jobs or --dask"),
    ("reproduce synthetic --dask x --dask-timeout 0", 2, "timeout > 0"),
    # the language model as the user
    ("reproduce llm --styles baroque", 2, "Expected styles among futuristic"),
    ("reproduce llm --base-url ftp://host", 2, "base_url"),
    ("reproduce reinforce --recipe best", 2, "--recipe"),
    # commands and options that there are not
    ("fly", 2, "Unrecognized options: fly; Available subcommands: demo, ask, design"),
    ("demo --colour red", 2, "--colour, red"),
    ("design --criterion E", 2, "a criterion among A, V"),
    ("design --criterion V:none.npy", 2, "none.npy"),
    ("reproduce synthetic --criterion E", 1, "a criterion among A, V"),
    ("reproduce", 2, "synthetic, reinforce"),
    # reports
    ("report {empty}", 1, "run the experiment"),
    ("report {foreign_run}", 1, "Expected a results file written by an edpbrl experiment"),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files that commands are given, by name."""
    folder = tmp_path_factory.mktemp("files")
    found = {name: folder / name for name in ("empty", "foreign_run")}
    for path in found.values():
        path.mkdir()
    pandas.DataFrame({"x": [1.0]}).to_parquet(found["foreign_run"] / "results.parquet")
    for name in ("words", "twice"):
        found[name] = write_vocabulary(folder / name)
    (found["twice"] / "2-ambient.txt").write_text("cheerful\ncheerful\n")
    found |= {"answers": folder / "answers.csv", "broken": folder / "broken.parquet", "prompts": folder / "p.txt"}
    found["answers"].write_text("option_1,option_2,choice\na gate,fog,1\n")
    found["unanswered"] = folder / "unanswered.csv"
    found["unanswered"].write_text("option_1,option_2,choice\na,c,\nb,d,\n")
    found["broken"].write_bytes(b"PAR1 and nothing else")
    found["prompts"].write_text("a gate")
    found["taste"] = save_taste(folder / "taste", np.ones(7), {"encoder": "minilm"})
    about = {"encoder": "minilm", "encoder_fingerprint": "0" * 64}
    found["foreign"] = save_taste(folder / "foreign", np.ones(384), about)
    found["unnamed"] = save_taste(folder / "unnamed", np.ones(384), {})
    return {name: shlex.quote(str(path)) for name, path in found.items()}


@pytest.mark.parametrize(("command", "code", "said"), REFUSED, ids=[command for command, *_ in REFUSED])
def test_refusals(command, code, said, files, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = shlex.split(command.format(**files))
    out = [] if "--out" in words or command in ("fly", "reproduce") else ["--out", "out.safetensors"]
    refused(capsys, [*words, *out], code, said)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_too_little_memory_is_no_bug(monkeypatch, capsys):
    import edpbrl_gym.cli.design as design

    def full(_):
        raise MemoryError("Unable to allocate 745. GiB")

    monkeypatch.setattr(design, "run", full)
    refused(capsys, ["design"], 1, "more memory than there is", "745. GiB", "fewer options")


def test_features_with_nan_or_missing_tokens(capsys, tmp_path, files):
    words = shlex.split(files["words"])[0]
    tokens = load_vocabulary(words).all_tokens
    rows = np.random.default_rng(0).normal(size=(len(tokens), 8)).astype(np.float32)
    file = tmp_path / "features.npz"
    given = ["design", "--vocabulary", words, "--encoder", f"precomputed:{file}", "--episodes", "3"]
    given += ["--out", str(tmp_path / "out")]
    np.savez(file, texts=np.array(tokens), embeddings=rows)
    assert main(given) == 0  # single tokens are all that a design needs
    capsys.readouterr()
    np.savez(file, texts=np.array(tokens[1:]), embeddings=rows[1:])
    refused(capsys, given, 1, tokens[0], "features.npz")
    rows[3, 5] = np.nan
    np.savez(file, texts=np.array(tokens), embeddings=rows)
    refused(capsys, given, 1, "features.npz", "NaN")


def test_folders_that_cannot_be_written(capsys, tmp_path, files):
    words = shlex.split(files["words"])[0]
    (tmp_path / "file").write_text("")
    for command in (["demo"], ["design"], SYNTHETIC.split()):
        refused(capsys, [*command, "--vocabulary", words, "--out", tmp_path / "file" / "run"], 1, "choose")


def test_debug_shows_the_traceback_an_interrupt_exits_with_130_and_a_bug_is_named_as_one(capsys, tmp_path, monkeypatch):
    assert main(["report", str(tmp_path / "\x1b[2Jnone"), "--debug"]) == 1
    errors = capsys.readouterr().err
    assert errors.startswith("Traceback") and "FileNotFoundError: Expected" in errors and "\x1b" not in errors

    def raising(error):
        def read(path):
            raise error

        monkeypatch.setattr("edpbrl_gym.experiments.runs.read_results", read)

    raising(KeyboardInterrupt())
    refused(capsys, ["report", tmp_path], 130, "interrupted")
    raising(KeyError("surprise"))
    refused(capsys, ["report", tmp_path], 1, "KeyError", "--debug")
