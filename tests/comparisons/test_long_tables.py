"""Long tables as R, Python packages and people write them, and tables of pandas; what is refused, in one line."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import edpbrl_gym as eg
from edpbrl_gym.comparisons import Comparisons, load_comparisons, load_people
from edpbrl_gym.likelihood import Response
from tests.helpers.encoders import CountingEncoder

NAMES = ("bus", "car", "train", "bike")


def people(count=3, sizes=(3, 2, 4), seed=0):
    """Answers of several people about prices and times; the numbers of questions begin anew with every person."""
    rng = np.random.default_rng(seed)
    return [
        Comparisons.of_choices(
            [rng.normal(size=(size, 2)).round(3) for size in sizes],
            [int(rng.integers(size)) for size in sizes],
            np.arange(len(sizes)),
            np.zeros(len(sizes), int),
            texts=[list(NAMES[:size]) for size in sizes],
            who=f"p{number}",
            metadata={"attributes": ["price", "time"]},
        )
        for number in range(count)
    ]


def rows(answers, *, names=True):
    """A row for each option: person, question, option, chosen, price, time."""
    found = []
    for one in answers:
        for number, question in enumerate(one):
            for place, option in enumerate(question.options):
                label = NAMES[place] if names else place + 1
                found.append([one.who, number, label, place == question.choice, *map(float, option)])
    return pd.DataFrame(found, columns=["person", "question", "option", "chosen", "price", "time"])


def chosen_names(table):
    """The name of the chosen option in all rows of a question."""
    names = table[table.chosen].set_index(["person", "question"])["option"]
    return [names[key] for key in zip(table.person, table.question, strict=True)]


def of_mlogit(table):
    """mlogit: id, chid over all people, alt, choice TRUE or FALSE; R's row names, one as 1.bus."""
    chid = pd.factorize(pd.Series(list(zip(table.person, table.question, strict=True))))[0] + 1
    names = [f"{number}.{name}" for number, name in zip(chid, table.option, strict=True)]
    found = {"": names, "id": table.person, "chid": chid, "alt": table.option}
    found["choice"] = np.where(table.chosen, "TRUE", "FALSE")
    return pd.DataFrame({**found, "price": table.price, "time": table.time})


FORMS = {
    "ours": lambda t: t,
    "0 and 1": lambda t: t.assign(chosen=t.chosen.astype(int)),
    "floats": lambda t: t.assign(chosen=t.chosen.astype(float)),
    "True": lambda t: t.assign(chosen=t.chosen.map({True: "True", False: "False"})),
    "yes": lambda t: t.assign(chosen=t.chosen.map({True: "yes", False: "no"})),
    "R": lambda t: t.assign(chosen=t.chosen.map({True: "T", False: "F"})),
    "mlogit": of_mlogit,
    "xlogit": lambda t: of_mlogit(t).drop(columns="").assign(choice=t.chosen.astype(int)),
    "choice-learn": lambda t: t.assign(choice=chosen_names(t)).drop(columns="chosen").rename(
        columns={"person": "session.user", "question": "choice_id", "option": "item_id"}
    ).rename(columns={"session.user": "user_id"}),
    "logitr": lambda t: t.rename(
        columns={"person": "respID", "question": "qID", "option": "altID", "chosen": "choice"}
    ),
    "pylogit": lambda t: t.rename(
        columns={"person": "Individual ID", "question": "obs_id", "option": "alt_id", "chosen": "CHOICE"}
    ),
    "named choice": lambda t: t.assign(chosen=chosen_names(t)),
    "mixed rows": lambda t: t.sample(frac=1, random_state=0),
    "by option": lambda t: t.sort_values("option", kind="stable"),
    "age of the person": lambda t: t.assign(age=t.person.str[1:].astype(int) + 30, city="a b"),
    "rows counted": lambda t: t.assign(row=np.arange(len(t))).rename(columns={"row": "Unnamed: 0"}),
    "episodes": lambda t: t.assign(episode=t.question, step=0),
}  # fmt: skip


def same_answers(found, expected, *, order=True):
    """Whether answers agree, whatever the order of options and questions where rows were mixed."""
    assert [one.who for one in found] == [one.who for one in expected]
    for one, other in zip(found, expected, strict=True):
        if order:
            assert one.sizes.tolist() == other.sizes.tolist() and one.choice.tolist() == other.choice.tolist()
            np.testing.assert_array_equal(one.features, other.features)
        assert len(one) == len(other)
        np.testing.assert_allclose(eg.estimate(one).theta, eg.estimate(other).theta, atol=1e-10)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", ["csv", "tsv", "parquet", "frame"])
def test_every_form_gives_the_same_answers(tmp_path, form, way):
    expected = people()
    table = FORMS[form](rows(expected))
    path = tmp_path / f"choices.{way}"
    if way == "frame":
        found = load_people(table.rename(columns={"": "unnamed_level"}).drop(columns="unnamed_level", errors="ignore"))
    else:
        if way == "parquet":
            table.to_parquet(path, index=form == "mixed rows")
        else:
            table.to_csv(path, index=form == "mixed rows", sep="\t" if way == "tsv" else ",")
        found = load_people(path)
    found = sorted(found, key=lambda one: one.who)
    assert all(one.attributes == ("price", "time") for one in found)
    same_answers(found, expected, order=form not in ("mixed rows", "by option"))
    if form != "mixed rows":
        assert all(one.metadata == {"attributes": ["price", "time"]} for one in found)


def test_options_without_names_and_one_person():
    table = rows(people(1)).drop(columns=["person", "option"])
    found = load_comparisons(table)
    assert found.who == "" and found.texts is None
    np.testing.assert_array_equal(found.features, people(1)[0].features)
    assert load_comparisons(table.rename(columns={"question": "id"})).choice.tolist() == found.choice.tolist()


def test_what_was_not_available_or_not_answered_is_left_out(caplog):
    table = rows(people())
    table["av"] = 1
    first = table.index[(table.person == "p0") & (table.question == 0) & ~table.chosen][0]
    table.loc[first, ["av", "price"]] = 0, None  # its attributes need not be known
    table["chosen"] = table.chosen.astype(object)
    table.loc[(table.person == "p1") & (table.question == 2), "chosen"] = None
    pair = (table.person == "p2") & (table.question == 1)
    table.loc[pair & (table.chosen == False), "av"] = 0  # noqa: E712
    found = load_people(table)
    assert [one.sizes.tolist() for one in found] == [[2, 2, 4], [3, 2], [3, 4]]
    assert "1 questions with one available option; 1 questions without an answer" in caplog.text
    table.loc[(table.chosen == True), "av"] = 0  # noqa: E712
    with pytest.raises(ValueError, match="available in row [123] of the DataFrame"):
        load_people(table)


def test_rankings_in_a_column():
    data = people(1)[0]
    ranks = [[2, 1, 3], [1, 2], [None, 2, 1, None]]
    table = rows([data]).drop(columns="chosen").assign(rank=[rank for each in ranks for rank in each])
    found = load_comparisons(table)
    assert found.responses == (Response.ranking([1, 0, 2]), Response.ranking([0, 1]), Response.partial([2, 1]))
    assert found.attributes == ("price", "time")


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(2, 5), min_size=1, max_size=5), st.integers(0, 1000), st.booleans(), st.booleans())
def test_a_table_of_pandas_is_read_back(tmp_path, sizes, seed, ranked, to_file):
    rng = np.random.default_rng(seed)
    answers = [
        Response.ranking(rng.permutation(size).tolist()) if ranked else Response.best(int(rng.integers(size)))
        for size in sizes
    ]
    data = Comparisons(
        [rng.normal(size=(size, 2)) for size in sizes], tuple(answers), rng.integers(9, size=len(sizes)),
        rng.integers(3, size=len(sizes)), [[f"t{i}{k}" for k in range(size)] for i, size in enumerate(sizes)], "anna",
        metadata={"attributes": ["price", "time"]},
    )  # fmt: skip
    table = data.to_pandas()
    if to_file:
        table.to_csv(tmp_path / "long.csv", index=False)
    assert load_comparisons(tmp_path / "long.csv" if to_file else table) == data


def test_people_and_persons(tmp_path):
    table, path = rows(people()), tmp_path / "choices.csv"
    table.to_csv(path, index=False)
    assert load_comparisons(path, person="p1") == people()[1] == load_comparisons(table, person="p1")
    for source in (path, table):
        with pytest.raises(ValueError, match=r"one person in .*, got 3 people \(p0, p1, p2, ...\); name one"):
            load_comparisons(source)
        with pytest.raises(ValueError, match=r"'nobody' in .*, got those of p0, p1, p2"):
            load_comparisons(source, person="nobody")
    (tmp_path / "more").mkdir()
    people()[0].to_parquet(tmp_path / "more" / "one.parquet")
    assert [one.who for one in load_people([tmp_path / "more", path])] == ["p0", "p0", "p1", "p2"]


UNEVEN = (
    "episode,step,option_1,option_2,option_3,option_4,choice\n"
    '0,0,"a cat, oil","a dog, oil","a bird, ink","a fox, ink",2\n'
    '1,0,"a cat, ink","a dog, ink",,,1\n'
    '2,0,"a cat, ink","a dog, ink","a fox, ink",,3 > 1\n'
)


def test_a_questions_file_with_different_numbers_of_options(tmp_path):
    path = tmp_path / "answers.csv"
    path.write_text(UNEVEN)
    found = load_comparisons(path, encoder=CountingEncoder())
    assert found.sizes.tolist() == [4, 2, 3] and [len(texts) for texts in found.texts] == [4, 2, 3]
    assert found.responses == (Response.best(1), Response.best(0), Response.partial((2, 0)))
    np.testing.assert_array_equal(found[1].options, CountingEncoder().encode(["a cat, ink", "a dog, ink"]))
    from edpbrl_gym.comparisons.question_files import read_questions, write_questions

    questions = [(0, 0, ["a", "b", "c"]), (1, 0, ["d", "e"])]
    for name in ("q.csv", "q.parquet"):
        assert read_questions(write_questions(tmp_path / name, questions[::-1])) == questions[::-1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace(",,,1", ",,,3"), r"choices 1\.\.2 .*got '3' in question 2 \(line 3\)"),
        (lambda text: text.replace('"a dog, ink",,,1', ",,,1"), "empty cell in column option_2 of question 2"),
        *(
            (lambda text, tie=tie: text.replace(",,,1\n", f",,,{tie}\n"), f"got the tie '{tie}'; ties can't be read")
            for tie in ("tie", "1 = 2", "1=2", "equal", "Draw", "0.5", "same", "1 = 2 > 3")
        ),
    ],
)
def test_questions_files_that_are_refused(tmp_path, change, said):
    (tmp_path / "answers.csv").write_text(change(UNEVEN))
    with pytest.raises(ValueError, match=said) as caught:
        load_comparisons(tmp_path / "answers.csv", encoder=CountingEncoder())
    assert "\n" not in str(caught.value)


HPD = '[{"prompt": "a cat", "image_path": ["a0.jpg", "a1.jpg"], "rank": [2, 1]}]'
LINES = '{"prompt": "a cat", "image_0_uid": "x", "image_1_uid": "y", "label_0": 0.5, "label_1": 0.5}\n' * 3
OTHERS = {
    "hpd.json": (HPD, "pictures and a ranking"),
    "pick.jsonl": (LINES, r"pictures \(image_path\) and their rank .* in entry 1"),
    "other.json": ('{"a": 1}', "got JSON; write it as one"),
    "reward.csv": ("image_path,prompt_id,prompt,rank\na.png,1,a cat,1\nb.png,1,a cat,2\n", "pictures and a ranking"),
    "pick.csv": ("prompt,image_0_url,image_1_url,label_0,label_1\na,b,c,0.5,0.5\n", "got their addresses; download"),
    "hps.csv": ("prompt,image_path,human_preference\na,b,1\n", "pictures and a ranking"),
    "fishing.csv": (
        "mode,price.beach,price.pier,catch.beach,catch.pier,income\nbeach,1,2,3,4,5\n",
        "a row for each question.*price.beach",
    ),
    "biogeme.csv": ("ID,CHOICE,BUS_TT,CAR_TT,BUS_CO,CAR_CO\n1,1,2,3,4,5\n", "a row for each question.*BUS_TT"),
    "tie.csv": ("question,option,choice,price\n1,a,tie,2\n1,b,tie,3\n", "got the tie 'tie'; ties can't be read"),
    "half.csv": ("question,option,chosen,price\n1,a,0.5,2\n1,b,0.5,3\n", "got the tie '0.5'"),
    "two.csv": ("question,option,chosen,price\n1,a,1,2\n1,b,1,3\n", "one chosen option in question 1 .*got 2; ties"),
    "none.csv": ("question,option,chosen,price\n1,a,0,2\n1,b,0,3\n", "exactly one chosen option in question 1 .*got 0"),
    "stranger.csv": ("question,option,choice,price\n1,a,c,2\n1,b,c,3\n", "0 or 1 .*name of one of its opt.*got 'c'"),
    "ranks.csv": ("question,option,rank,price\n1,a,1,2\n1,b,1,3\n", "got the tie 'rank 1'"),
    "ranks2.csv": ("question,option,rank,price\n1,a,1,2\n1,b,3,3\n", "ranks 1, 2, ... .*got 1, 3"),
    "ranks3.csv": (
        "question,option,chosen,place,price\n1,a,0,1,2\n1,b,1,2,3\n", "option of place 1 as the chosen .*rename place"
    ),
    "again.csv": (
        "id,alt,choice,price\n1,a,1,2\n1,b,0,3\n1,a,1,4\n1,b,0,1\n", "option once in question 1 .*different numbers"
    ),
    "text.csv": ("question,option,chosen,brand\n1,a,1,Nike\n1,b,0,Puma\n", "finite number in the column brand, line 2"),
    "ranks5.csv": (
        "question,option,rank,price\n1,a,1,2\n1,b,NA,3\n1,c,NA,3\n", "ranks 1, 2, ... .*line 3 .*'NA'; leave .* empty"
    ),
    "na.csv": ("question,option,chosen,price\n1,a,NA,2\n1,b,NA,3\n", "got 'NA'; leave the cells of a .* empty"),
    "no_question.csv": (
        "person,option,chosen,price\nann,a,1,2\nann,b,0,3\nann,a,0,2\nann,b,1,3\n", "long table .*it lacks question"
    ),
    "no_choice.csv": ("choice_id,item_id,price\n1,a,2\n1,b,3\n", "long table .*it lacks chosen"),
    "one_attribute.csv": ("mode,price.car,price.bus\ncar,1,2\nbus,2,1\n", "a row for each question.*price.car"),
    "seconds.csv": (
        "question,option,chosen,price,time\n1,a,1,2,1700000001\n1,b,0,3,1700000005\n",
        "attribute time .*7 digits.*got 1700000005 in line 3 of .*; subtract",
    ),
    "huge.csv": ("question,option,chosen,price\n1,a,1,1e300\n1,b,0,2e300\n", "attribute price .*got 1e300 in line 2"),
    "nothing.csv": ("person,colour\n1,red\n", "or a long table .* got columns person, colour"),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_what_has_no_reader_is_said_in_one_line(tmp_path, name):
    content, said = OTHERS[name]
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=f"Expected .*{said}") as caught:
        load_people(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_numbers_of_rows_and_profiles_are_no_attributes():
    table = rows(people()).assign(profileID=np.random.default_rng(0).permutation(27), id=np.arange(27)[::-1])
    assert load_people(table)[0].attributes == ("price", "time")


def test_the_individual_of_a_table_with_a_choice_each_is_the_question(tmp_path):
    text = "individual,mode,choice,wait\n1,air,no,60\n1,car,yes,0\n2,air,yes,40\n2,car,no,0\n"
    (tmp_path / "travel.csv").write_text(text)
    found = load_comparisons(tmp_path / "travel.csv")
    assert found.choice.tolist() == [1, 0] and found.attributes == ("wait",) and found.texts[0] == ["air", "car"]
