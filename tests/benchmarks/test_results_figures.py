"""The figures of docs/results.md show what the tables of the pages say."""

from __future__ import annotations

import pytest

pytest.importorskip("matplotlib", reason="needs the extra experiments: pip install 'edpbrl-gym[experiments]'")

from benchmarks.results_figures import main, pictures_figure, questions_figure, taps_figure


def test_they_show_the_numbers_of_the_tables(tmp_path):
    lines = {line.get_label(): line.get_ydata() for line in pictures_figure().axes[0].lines}
    assert lines["with others' answers"][0] == pytest.approx(74.2)  # before the first answer, as the page says
    assert lines["alone, random"][-1] == pytest.approx(63.6) and lines["alone, adaptive"][-1] == pytest.approx(66.2)
    widths = [bar.get_width() for bar in taps_figure().axes[0].patches]
    assert widths[-1] == 36 and sorted(widths) == widths  # the upper bar is the last
    assert all(10 < bar.get_width() < 25 for bar in questions_figure().axes[0].patches)
    main(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "results-answers.png", "results-pictures.png", "results-questions.png",
    ]  # fmt: skip
