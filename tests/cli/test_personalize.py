"""``edpbrl personalize`` with several tastes, a policy, pictures and score guidance, on tiny models."""

from __future__ import annotations

import gymnasium
import numpy as np
import pandas
import pytest
from PIL import Image

import edpbrl_gym  # noqa: F401  (registers the environments)
from edpbrl_gym.cli import main
from edpbrl_gym.features import load_encoder, save_precomputed
from edpbrl_gym.personalize.taste import save_taste
from edpbrl_gym.vocabulary import load_vocabulary
from tests.helpers.commands import refused
from tests.helpers.extras import skip_without
from tests.helpers.tiny_diffusion import DIMENSION, save_projection, save_tiny_stable_diffusion

BASES = ("my dog", "a gate")
TRUTH = "a calm sea by moonlight"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A tiny Stable Diffusion, its projection, a vocabulary, and the encoder that both make, as a file."""
    folder = tmp_path_factory.mktemp("personalize")
    model = save_tiny_stable_diffusion(folder / "model")
    projection = save_projection(model, folder / "clip")
    words = folder / "words"
    words.mkdir()
    for name, tokens in {"1-base": ["a fox", "a hut"], "2-ambient": ["first snow", "hot noon", "fog"],
                         "3-light": ["moonlight", "neon glow"]}.items():  # fmt: skip
        (words / f"{name}.txt").write_text("\n".join(tokens) + "\n")
    vocabulary = load_vocabulary(words)
    firsts = [*BASES, *vocabulary.tokens[0]]
    seconds = [f"{first}, {token}" for first in firsts for token in vocabulary.tokens[1]]
    texts = [*firsts, *seconds, *(f"{text}, {token}" for text in seconds for token in vocabulary.tokens[2])]
    texts = list(dict.fromkeys([*texts, *vocabulary.all_tokens, TRUTH]))
    save_precomputed(folder / "clip.npz", texts, reference(model, projection, texts))
    spec = f"precomputed:{folder / 'clip.npz'}"
    encoder = load_encoder(spec)
    rng = np.random.default_rng(1000)
    for name in ("designed", "random"):
        note = {"encoder": spec, "encoder_fingerprint": encoder.fingerprint}
        save_taste(folder / f"{name}.safetensors", rng.normal(size=DIMENSION), note)
    return folder


def reference(model, projection, texts):
    """Embeddings by transformers alone, as a text encoder of CLIP makes them."""
    import torch
    from transformers import CLIPTextModelWithProjection, CLIPTokenizer

    tokenizer = CLIPTokenizer.from_pretrained(model / "tokenizer")
    whole = CLIPTextModelWithProjection.from_pretrained(projection)
    with torch.no_grad():
        rows = [whole(**tokenizer([text], return_tensors="pt")).text_embeds[0].numpy() for text in texts]
    return np.stack(rows)


def given(tiny, out, *more):
    return [str(word) for word in ("personalize", tiny / "designed.safetensors", "--vocabulary", tiny / "words",
                                   "--compare", f"Random={tiny / 'random.safetensors'}", "--count", 3,
                                   "--out", out / "prompts.csv", *more)]  # fmt: skip


def pictured(tiny, out, *more):
    return given(tiny, out, "--model", tiny / "model", "--steps", 2, "--height", 32, "--width", 32,
                 "--pictures", 2, "--cache", tiny / "images", *more)  # fmt: skip


def scores(tiny, name, texts):
    from edpbrl_gym.personalize.taste import load_taste

    encoder = load_encoder(f"precomputed:{tiny / 'clip.npz'}")
    theta = encoder.encode([TRUTH])[0] if name == "truth" else load_taste(tiny / f"{name}.safetensors").theta
    return encoder.encode(list(texts)).astype(float) @ theta


def test_two_tastes_and_the_truth_for_two_bases(tiny, tmp_path, capsys):
    assert main(given(tiny, tmp_path, "--base", *BASES, "--truth", TRUTH)) == 0
    printed = capsys.readouterr().out
    for text in ("ED-PBRL", "Random", "RankScore", "GTScore", "for 'my dog'", "for 'a gate'"):
        assert text in printed
    table = pandas.read_csv(tmp_path / "prompts.csv")
    assert list(table.groupby(["base", "taste"], sort=False).size()) == [3, 3, 3, 3] and set(table["base"]) == {*BASES}
    for taste, name in (("ED-PBRL", "designed"), ("Random", "random")):
        rows = table[table["taste"] == taste]
        assert rows["score"].to_numpy() == pytest.approx(scores(tiny, name, rows["prompt"]), abs=1e-6)
        assert rows["base_score"].to_numpy() == pytest.approx(scores(tiny, name, rows["base"]), abs=1e-6)
    assert table["true_score"].to_numpy() == pytest.approx(scores(tiny, "truth", table["prompt"]), abs=1e-6)
    assert "image" not in table and not list(tmp_path.glob("*.png"))
    # the true taste may be a file, and tastes are compared by name
    random, again = tiny / "random.safetensors", tiny / "designed.safetensors"
    more = (
        *("--compare", f"Random={random}", f"Again={again}"),
        *("--truth", str(random)),
    )
    assert main(given(tiny, tmp_path, "--base", BASES[0], *more)) == 0
    again = pandas.read_csv(tmp_path / "prompts.csv")
    assert list(dict.fromkeys(again["taste"])) == ["ED-PBRL", "Random", "Again"]
    random = again[again["taste"] == "Random"]
    assert random["true_score"].to_numpy() == pytest.approx(random["score"].to_numpy())


def test_pictures_and_sheet_with_score_guidance(tiny, tmp_path, capsys):
    more = ("--score-guided", "0.3", "--projection", str(tiny / "clip"), "--truth", TRUTH)
    command = pictured(tiny, tmp_path, "--base", *BASES, *more)
    assert main(command) == 0
    assert "Contact sheet" in capsys.readouterr().out
    table = pandas.read_csv(tmp_path / "prompts.csv")
    drawn = table[table["image"].notna()]
    best = table[(table["rank"] <= 2) & (table["source"] == "beam")]
    assert len(best) == 8 and best["image"].notna().all() and (drawn["source"] == "guided").sum() == 4
    assert drawn.groupby("prompt")["image"].nunique().drop(list(BASES)).eq(1).all() and not drawn["flagged"].any()
    for path in drawn["image"]:
        assert Image.open(path).size == (32, 32)
    guided = table[table["source"] == "guided"]
    assert (guided["score"] > guided["base_score"]).all() and guided["image"].nunique() == 4
    assert set(guided["strength"]) == {0.3} and guided["true_score"].notna().all()
    sheet = Image.open(tmp_path / "prompts.png")
    assert sheet.width == 48 + 128 + 3 * 256 + 2 * 20
    written = sorted((path.name, path.stat().st_mtime_ns) for path in (tiny / "images").rglob("*.png"))
    bytes_before = (tmp_path / "prompts.png").read_bytes()
    assert main(command) == 0  # nothing is drawn twice, and the sheet is the same
    assert sorted((path.name, path.stat().st_mtime_ns) for path in (tiny / "images").rglob("*.png")) == written
    assert (tmp_path / "prompts.png").read_bytes() == bytes_before


def test_a_trained_policy_proposes_prompts_too(tiny, tmp_path, capsys):
    skip_without("rl")
    import sb3_contrib

    from edpbrl_gym.personalize.policy import save_policy

    spec = f"precomputed:{tiny / 'clip.npz'}"
    env = gymnasium.make("edpbrl/PromptConstruction-v0", vocabulary=str(tiny / "words"), encoder=spec)
    policy = save_policy(sb3_contrib.MaskablePPO("MlpPolicy", env, seed=0, device="cpu"), tmp_path / "p.zip", env)
    more = ("--policy", str(policy), "--base", BASES[0], "--sheet", str(tmp_path / "sheet.png"))
    assert main(pictured(tiny, tmp_path, *more)) == 0
    table = pandas.read_csv(tmp_path / "prompts.csv")
    found = table[table["source"] == "policy"]
    assert set(found["taste"]) == {"ED-PBRL"} and list(found["rank"]) == [1, 2, 3]
    assert found["score"].to_numpy() == pytest.approx(scores(tiny, "designed", found["prompt"]), abs=1e-6)
    assert found["score"].is_monotonic_decreasing and (tmp_path / "sheet.png").is_file()
    assert "policy prompts by the estimated taste ED-PBRL for 'my dog'" in capsys.readouterr().out
    refused(capsys, given(tiny, tmp_path, "--policy", policy, "--tokens-per-step", 1), 1, "was trained", "--vocabulary")
    refused(capsys, given(tiny, tmp_path, "--policy", tmp_path / "none.zip"), 1, "personalize_policy.py")


def test_flagged_pictures_are_marked_in_the_table_and_hidden_on_the_sheet(tiny, tmp_path):
    model = save_tiny_stable_diffusion(tmp_path / "checked", safety_checker=True, flagging=True)
    command = [*pictured(tiny, tmp_path, "--base", BASES[0]), "--model", str(model)]
    assert main(command) == 0
    assert pandas.read_csv(tmp_path / "prompts.csv")["flagged"].dropna().all()
    seen = np.asarray(Image.open(tmp_path / "prompts.png").convert("RGB"))
    assert (seen == 205).all(axis=2).sum() > 5 * 200 * 200  # grey tiles


def test_a_stop_while_drawing_leaves_the_prompts(tiny, tmp_path, capsys, monkeypatch):
    from edpbrl_gym.rendering import Renderer

    def stopped(*given, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(Renderer, "render", stopped)
    assert main(pictured(tiny, tmp_path, "--base", BASES[0])) == 130
    error = capsys.readouterr().err
    assert "the same command resumes" in error and "Traceback" not in error
    assert len(pandas.read_csv(tmp_path / "prompts.csv")) == 6


def test_mistakes_are_told_in_one_line(tiny, tmp_path, capsys, minilm):
    ask = given(tiny, tmp_path)
    refused(capsys, [*ask, "--compare", "nothing"], 2, "NAME=FILE")
    random = tiny / "random.safetensors"
    refused(capsys, [*ask, "--compare", f"Random={random}", f"Random={random}"], 2, "'Random' twice")
    refused(capsys, [*ask, "--compare", "x=none"], 2, "edpbrl estimate")
    refused(capsys, [*ask, "--base", "a gate", " a gate "], 2, "different base prompts")
    refused(capsys, [*ask, "--compare", f"Random={random}", f"Random = {random}"], 2, "'Random' twice")
    refused(capsys, [*ask, "--base", " "], 2, "with words in them")
    refused(capsys, [*ask, "--truth", "none.safetensors"], 1, "none.safetensors")
    refused(capsys, [*ask, "--sheet", "x.png"], 2, "--model")
    refused(capsys, [*ask, "--score-guided", "0.1"], 2, "--model and --base")
    refused(capsys, [*ask, "--projection", tiny / "clip"], 2, "--score-guided with --projection")
    refused(capsys, [*ask, "--model", tiny / "model", "--out", "x.png"], 2, "different files")
    refused(capsys, [*ask, "--policy-samples", "0"], 2, "--policy-samples >= 1")
    refused(capsys, [*ask, "--model", tmp_path / "none"], 1, "none")
    refused(capsys, [*ask, "--model", tiny / "model", "--steps", "0"], 2, "steps >= 1")
    guided = [*pictured(tiny, tmp_path, "--base", BASES[0]), "--score-guided", "0.1"]
    refused(capsys, guided, 1, "ships without one")
    refused(capsys, [*guided, "--projection", tiny / "model" / "text_encoder"], 1, "text_projection.weight")
    other = save_projection(tiny / "model", tmp_path / "other", seed=9)
    refused(capsys, [*guided, "--projection", other], 1, "theta has no meaning for this pipeline")
    assert not (tmp_path / "prompts.csv").exists()

    foreign = save_taste(tmp_path / "minilm.safetensors", np.ones(384),
                         {"encoder": "minilm", "encoder_fingerprint": minilm.fingerprint})  # fmt: skip
    refused(capsys, [*ask, "--compare", f"other={foreign}"], 1, "load the same weights")
    more = ["--model", tiny / "model", "--base", "a gate", "--score-guided", "0.1", "--projection", tiny / "clip"]
    small = ["--vocabulary", tiny / "words", "--out", tmp_path / "prompts.csv"]
    refused(capsys, ["personalize", foreign, *small, *more], 1, "another space", "open_clip:ViT-L-14/openai")
