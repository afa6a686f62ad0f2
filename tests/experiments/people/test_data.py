"""People and their answers: checks, scaling, the likelihood with missing options, the protocol."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.experiments.people.data import People, Person, same_size
from edpbrl_gym.experiments.people.protocol import make_fold
from tests.helpers.made_people import made_people


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"options": np.zeros((2, 1, 3))}, "at least 2 options"),
        ({"sizes": np.array([3, 4])}, "in 2..3"),
        ({"sizes": np.array([3, 1])}, "in 2..3"),
        ({"chosen": np.array([0, 3])}, "in 0..2"),
        ({"chosen": np.array([0, 2])}, "in 0..1 in question 1, got 2"),
        ({"options": np.full((2, 3, 3), np.nan)}, "finite"),
    ],
)
def test_answers_that_make_no_sense_are_refused(change, said):
    fields = {"name": "p", "options": np.zeros((2, 3, 3)), "sizes": np.array([3, 2]), "chosen": np.array([0, 1])}
    Person(**fields)
    with pytest.raises(ValueError, match=said):
        Person(**{**fields, **change})


def test_people_who_do_not_fit_together_are_refused():
    people = made_people(3)
    with pytest.raises(ValueError, match="at least one person"):
        People("a", (), ("x",), "there")
    with pytest.raises(ValueError, match="2 attributes for person p0"):
        People("a", people.people, ("x", "y"), "there")
    with pytest.raises(ValueError, match="'p0' more than once"):
        People("a", (*people.people, people.people[0]), people.attributes, "there")


def test_missing_options_do_not_count():
    """The likelihood of padded questions is that of the questions as they are, whatever the padding holds."""
    person = made_people(1, sizes=(3, 2)).people[0]
    theta = np.array([0.3, 0.1, -2.0])
    expected = 0.0
    for row in range(len(person)):
        utilities = person.options[row, : person.sizes[row]] @ theta
        expected += utilities[person.chosen[row]] - np.log(np.exp(utilities).sum())
    assert person.terms().log_likelihood(theta) == pytest.approx(expected, rel=1e-12)
    padded = person.options.copy()
    padded[np.arange(3)[None, :] >= person.sizes[:, None]] = 17.0
    again = Person(person.name, padded, person.sizes, person.chosen)
    assert np.array_equal(again.options, person.options)


def test_attributes_are_divided_by_their_deviation_over_real_options():
    people = made_people(6, sizes=(3, 2))
    rows = np.concatenate([p.options[i, : p.sizes[i]] for p in people.people for i in range(len(p))])
    scaled = people.standardised()
    assert np.allclose(scaled.people[4].options[1, :2] * rows.std(axis=0), people.people[4].options[1, :2])
    constant = People(
        "c", tuple(Person(p.name, p.options * [1, 1, 0] + [0, 0, 7], p.sizes, p.chosen) for p in people.people),
        people.attributes, "c",
    )  # fmt: skip
    assert constant.standardised().people[0].options[0, 0, 2] == 7.0  # nothing is divided by 0


def test_the_fingerprint_sees_every_change():
    people = made_people(4)
    first = people.people[0]
    other = Person(first.name, first.options, first.sizes, (first.chosen + 1) % 3)
    changed = People(people.name, (other, *people.people[1:]), people.attributes, people.source)
    renamed = People(people.name, people.people, ("a", "b", "c"), people.source)
    assert len({people.fingerprint, changed.fingerprint, renamed.fingerprint}) == 3
    assert made_people(4).fingerprint == people.fingerprint


def test_questions_by_size():
    groups = same_size(np.array([3, 2, 3, 4]))
    assert [(size, rows.tolist()) for size, rows in groups] == [(2, [1]), (3, [0, 2]), (4, [3])]


# -- protocol --------------------------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(count=st.integers(5, 40), folds=st.integers(2, 5), held_out=st.integers(1, 4), most=st.integers(1, 50))
def test_every_person_is_new_once_and_never_known_then(count, folds, held_out, most):
    people = made_people(count, 6)
    new, unlimited = [], []
    for number in range(folds):
        fold = make_fold(people, number, folds=folds, most=most, held_out=held_out)
        whole = make_fold(people, number, folds=folds, most=count, held_out=held_out)
        places = [person.place for person in fold.new]
        assert len(places) <= most and places == [person.place for person in whole.new][:most]
        assert not {people.people[place].name for place in places} & {person.name for person in fold.known}
        assert len(fold.known) + len(whole.new) == count
        new += places
        unlimited += [person.place for person in whole.new]
    assert len(set(new)) == len(new) and sorted(unlimited) == list(range(count))


def test_held_out_questions_are_never_asked_and_do_not_depend_on_others():
    people, fewer = made_people(20), made_people(20)
    fewer = People("f", (*fewer.people[:10], *(p.select(range(5)) for p in fewer.people[10:])), fewer.attributes, "f")
    found = {}
    for data in (people, fewer):
        for number in range(5):
            for one in make_fold(data, number, folds=5, most=9, held_out=4).new:
                rows = np.concatenate([one.asked.options, one.held_out.options])
                assert len(one.held_out) == 4 and len(rows) == len(data.people[one.place])
                assert len(np.unique(rows.reshape(len(rows), -1), axis=0)) == len(rows)
                found.setdefault(one.place, []).append(one.held_out.options)
    assert all(np.array_equal(*found[place]) for place in range(10))


def test_people_with_too_few_questions_are_known_but_not_new():
    people = made_people(10)
    short = People("s", (*people.people[:9], people.people[9].select([0, 1])), people.attributes, "s")
    folds = [make_fold(short, number, folds=2, most=10, held_out=4) for number in range(2)]
    assert sum(fold.left_out for fold in folds) == 1 and sum(len(fold.new) for fold in folds) == 9
    assert any(person.name == "p9" for fold in folds for person in fold.known)
    with pytest.raises(ValueError, match="more than 9 questions in fold 0.*smaller --held-out"):
        make_fold(people, 0, folds=2, most=10, held_out=9)
    with pytest.raises(ValueError, match="at least 11 people for 11 folds"):
        make_fold(people, 0, folds=11, most=10, held_out=4)
