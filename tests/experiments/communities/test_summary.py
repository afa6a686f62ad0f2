"""The numbers of the report, by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pandas
import pytest

from edpbrl_gym.experiments.communities.summary import Communities, worse
from edpbrl_gym.experiments.communities.tables import difference_table, needed_table, verdict
from edpbrl_gym.experiments.people.summary import Series

ALONE, POPULATION = Series("alone", "random"), Series("population-factors", "random")


@pytest.fixture(scope="module")
def found():
    """Errors of people 0 to 3 in two regimes: alone 0.4, 0.3, 0.2, and with the population 0.1 less; a person adds
    0.01 for each number."""
    rows = []
    for regime, person, (place, answers) in itertools.product(
        ("interiors-argmax", "interiors-scale-20"), range(4), enumerate((0, 10, 40))
    ):
        for series, gain in ((ALONE, 0.0), (POPULATION, 0.1)):
            error = 0.4 - 0.1 * place - gain + 0.01 * person
            rows.append(
                {
                    **{"regime": regime, "words": "interiors", "kind": "same style", "person": person},
                    **{"estimator": series.estimator, "rule": series.rule, "answers": answers},
                    **{"preference_error": error, "regret_ten": 2 * error, "log_likelihood": -error},
                    **{"seconds_fit": 0.1, "seconds_question": 0.2, "seconds_population": 3.0},
                }
            )
    return Communities(pandas.DataFrame(rows))


def test_means_differences_and_answers_needed(found):
    assert found.series == [ALONE, POPULATION] and found.answers == [0, 10, 40] and found.kinds == ["same style"]
    mean = found.mean(ALONE, "same style", "preference_error", 10)
    assert mean.value == pytest.approx(0.315) and 0.3 <= mean.low < mean.value < mean.high <= 0.33
    gap = found.difference(POPULATION, ALONE, "same style", "regret_ten", 40)
    assert gap.value == pytest.approx(-0.2) and gap.low == pytest.approx(-0.2)
    # alone is at 0.2 after 40 what the population is after 10; at 0.3 after 10 what it is after none
    assert found.needed(ALONE, POPULATION, "same style", "preference_error", 10).value == pytest.approx(40.0)
    assert found.needed(ALONE, POPULATION, "same style", "log_likelihood", 0).value == pytest.approx(10.0)
    assert found.needed(POPULATION, ALONE, "same style", "preference_error", 0).value == 0.0
    assert np.isinf(found.needed(ALONE, POPULATION, "same style", "preference_error", 40).value)
    assert found.mean(ALONE, "same style", "preference_error", 7) is None
    assert found.difference(POPULATION, Series("pal", "random"), "same style", "preference_error", 10) is None


def test_what_is_worse_depends_on_the_measure(found):
    for metric in ("preference_error", "log_likelihood"):
        gap = found.difference(POPULATION, ALONE, "same style", metric, 10)
        assert worse(metric, gap) == -1
        assert worse(metric, found.difference(ALONE, POPULATION, "same style", metric, 10)) == 1
    (line,) = verdict(found)
    swapped = found.table.replace({"estimator": {"alone": "population-factors", "population-factors": "alone"}})
    (bad,) = verdict(Communities(swapped[swapped["answers"] < 40]))
    assert "0 are surely for the better and 6 surely for the worse" in bad
    assert "(preference error, random: after 0, 10 answers; regret" in bad
    assert "of 9 differences" in line and "9 are surely for the better and 0 surely for the worse." in line
    assert needed_table(found, "preference_error").rows == [
        ["same style", "random", "40.0 [40.0, 40.0]", "> 40 [> 40, > 40]"]
    ]
    assert difference_table(found, "preference_error").rows[0][:3] == [
        "same style",
        "random",
        "-0.100 [-0.100, -0.100]",
    ]
    assert found.seconds(ALONE) == pytest.approx((0.1, 0.2, 3.0))
