"""What encoders say about texts that they don't read in full, whether their embeddings are computed or cached."""

from __future__ import annotations

import pytest

from edpbrl_gym.features import MemoEncoder, encode_to_file, load_encoder
from edpbrl_gym.features.notices import notices_of
from edpbrl_gym.vocabulary import BUILT_IN, load_vocabulary
from edpbrl_gym.workers import LocalProcesses
from tests.helpers.encoders import save_tiny_clip, save_tiny_sentence_model


@pytest.fixture(scope="module")
def specs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    clip = save_tiny_clip(folder / "clip")
    return {
        "minilm": ("minilm", 256, "word pieces"),
        "sentences": (f"sentence-transformers:{save_tiny_sentence_model(folder / 'sentences')}", 64, "tokens"),
        "clip": (f"open_clip:local-dir:{clip}", 77, "tokens"),
    }


def said(caplog):
    messages = [record.getMessage() for record in caplog.records if record.name == "edpbrl_gym.features.notices"]
    caplog.clear()
    return messages


def words(count, last="x"):
    return " ".join(["a"] * (count - 1) + [last])


@pytest.mark.parametrize(("kind", "cache"), [("minilm", True), ("sentences", False), ("clip", True)])
def test_texts_that_are_cut_are_named_also_from_the_cache(kind, cache, specs, tmp_path, caplog):
    spec, limit, unit = specs[kind]
    whole, cut = words(limit - 2), [words(limit - 1), words(limit - 1, "b"), words(limit + 5)]
    for _ in range(2):  # the second run finds all in the cache
        encoder = load_encoder(spec, cache=cache, cache_folder=tmp_path)
        rows = encoder.encode(["a fox", whole, "a fox", *cut, cut[0]])
        (message,) = said(caplog)
        assert message.startswith(f"{encoder.name} reads the first {limit} {unit} of a text: 3 texts are longer, so ")
        assert f"the first: '{cut[0][:60]}...' ({limit + 1} {unit})" in message
        assert (rows[3] == rows[4]).all() and (rows[1] != rows[3]).any()
        encoder.encode([*cut, whole])
        MemoEncoder(encoder).encode(cut)
        assert said(caplog) == []  # each text is told once
        encoder.encode([words(limit + 6), "b"])
        assert said(caplog) == []
        encoder.encode([words(limit + 7), words(limit + 8)])
        (message,) = said(caplog)  # twice as many
        assert "6 texts are longer" in message


def test_the_same_is_said_where_texts_are_written_to_a_file_and_by_workers(specs, tmp_path, caplog, capfd):
    encoder = load_encoder("minilm", cache_folder=tmp_path, executor=LocalProcesses(1))
    encode_to_file(encoder, [words(300), "a"], tmp_path / "rows.npy")
    assert len(said(caplog)) == 1
    assert "reads the first" not in capfd.readouterr().err  # of the worker


def test_characters_that_minilm_does_not_know_are_told(specs, caplog):
    encoder = load_encoder("minilm", cache=False)
    encoder.encode(["a lighthouse", "ein Leuchtturm bei Kerzenschein", "un café", "灯塔", "狐狸"])
    (message,) = said(caplog)
    assert message == (
        "minilm does not know characters of 2 texts (100% of their word pieces), such as '灯塔': texts that differ "
        "in these alone get one embedding; it reads English, without accents and capitals; for other languages take an "
        "encoder that reads them, such as "
        "sentence-transformers:sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2"
    )
    other = load_encoder(specs["sentences"][0], cache=False)
    other.encode(["灯塔 fog"])
    assert "does not know characters of 1 text (40% of their tokens)" in said(caplog)[0]


def test_a_vocabulary_in_another_language_is_noticed_and_the_built_in_ones_are_not(minilm):
    notices = notices_of(MemoEncoder(minilm))
    german = ["ein alter Leuchtturm im Nebel", "verschneite Berge", "warmes Abendlicht", "dunkle Wolken über dem Meer"]
    assert "it reads English" in notices.reads_poorly(german)
    assert not any(notices.reads_poorly(load_vocabulary(name).all_tokens) for name in BUILT_IN)
    assert notices_of(object()) is None
