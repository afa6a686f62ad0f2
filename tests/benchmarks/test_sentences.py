"""The sentences of simulated users: which may be reported on, and which constants may be chosen on."""

import itertools

from benchmarks.kit.sentences import DEVELOPMENT, FRESH, REPORTED, REPORTED_STYLES, SENTENCES, style_sentences


def test_groups_of_both_vocabularies():
    assert SENTENCES is REPORTED["images"] and FRESH["interiors"] == REPORTED["interiors"]
    for table, sizes in ((REPORTED, (10, 10)), (FRESH, (12, 10)), (DEVELOPMENT, (12, 12)), (REPORTED_STYLES, (8, 8))):
        assert tuple(len(table[name]) for name in ("images", "interiors")) == sizes
    groups = [REPORTED["images"], FRESH["images"], REPORTED["interiors"], *DEVELOPMENT.values()]
    for one, other in itertools.combinations(groups, 2):
        assert not set(one) & set(other)
    sentences = [sentence.casefold() for group in groups for sentence in group.values()]
    assert len(set(sentences)) == len(sentences)
    assert style_sentences("images", development=True).items() <= DEVELOPMENT["images"].items()


def test_development_sentences_do_not_resemble_reported_ones(minilm):
    groups = (*REPORTED.values(), *FRESH.values(), *REPORTED_STYLES.values())
    reported = list({text for group in groups for text in group.values()})
    development = [text for group in DEVELOPMENT.values() for text in group.values()]
    cosines = minilm.encode(development) @ minilm.encode(reported).T
    found = [
        f"{cosines[row, column]:.2f}: {development[row]!r} and {reported[column]!r}"
        for row, column in zip(*(cosines >= 0.5).nonzero(), strict=True)
    ]
    assert not found, found
    # the measure sees what resembles: a development sentence of an old benchmark
    old = minilm.encode(["rusty machines in an abandoned hall"]) @ minilm.encode([SENTENCES["industrial"]]).T
    assert old.item() > 0.7
