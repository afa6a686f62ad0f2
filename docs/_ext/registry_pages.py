"""Pages of what is registered or can be plugged in: agents, planners, rules, oracles, experiments."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import api_pages
from docstrings import as_rst
from texts import first_paragraph, rst_heading, rst_table

from edpbrl_gym._compat import Need
from edpbrl_gym.agents.registry import AGENTS, agent_class
from edpbrl_gym.experiments.registry import EXPERIMENTS, get_experiment
from edpbrl_gym.planners.registry import PLANNERS, RULES, planner_class, planner_options, rule_function

__all__ = ["pages"]


def pages() -> Mapping[str, str | bytes]:
    """The four pages and the landing page of the section."""
    return {
        "index.md": _INDEX,
        "agents.rst": _agents(),
        "planners.rst": _planners(),
        "oracles.rst": _oracles(),
        "experiments.rst": _experiments(),
    }


def described() -> list[Any]:
    """The classes and functions whose docstrings are on these pages."""
    return [*_agent_classes(), *_planner_classes(), *_rules(), *(cls for _, cls in _oracle_classes())]


def _agent_classes() -> list[Any]:
    return list(dict.fromkeys(agent_class(name) for name in AGENTS))


def _planner_classes() -> list[Any]:
    return list(dict.fromkeys(planner_class(name) for name in PLANNERS))


def _rules() -> list[Any]:
    return [rule_function(name) for name in RULES]


def _oracle_classes() -> list[tuple[str, Any]]:
    """Full name and class of everything public that can answer."""
    from edpbrl_gym.oracles import Oracle

    return [
        (full, cls)
        for full, (_, cls) in api_pages.documented().items()
        if inspect.isclass(cls) and cls is not Oracle and callable(getattr(cls, "answer", None))
    ]


_INDEX = """# Environments and agents

What is there, written out of the code when this site is built.

- [Environments](environments/index.md): what is built step by step, with an episode that was played.
- [Agents](agents.rst): who plays an environment, by name.
- [Planners](planners.rst): who chooses the next question, by name, and the rules of the literature.
- [Oracles](oracles.rst): who answers.
- [Experiments](experiments.rst): what is run and reported, with all settings.
- [The command line](commands.md): every command with its options.

Your own: [agent](../own-agent.md), [environment](../own-environment.md), [people](../own-people.md),
[experiment](../own-experiment.md).

```{toctree}
:hidden:

environments/index
agents
planners
oracles
experiments
commands
```
"""


# -- agents ----------------------------------------------------------------------------------------------------------


def _agents() -> str:
    rows: list[tuple[str, ...]] = []
    for name, entry in AGENTS.items():
        if name in PLANNERS and name != "random":
            continue  # they are on the page of the planners
        cls = agent_class(name)
        packages = cls.needed_packages(**entry.options)
        extras = dict.fromkeys(Need(package, name).brought_by() for package in packages)
        needs = ", ".join(f"``[{extra}]``" for extra in extras) or "-"
        rows.append((f"``{name}``", entry.title, _link(cls), _names(cls.option_names(**entry.options)), needs))
    return (
        rst_heading("Agents")
        + "\n:py:obj:`make_agent <edpbrl_gym.agents.make_agent>` makes an agent by its name here, by the name of a "
        ":doc:`planner <planners>` (it then asks through that planner), or by the import string of "
        ":doc:`your own </own-agent>`.\n\n"
        + rst_table(("name", "title in tables", "class", "options", "extra"), rows)
        + "\n"
        + "".join(_section(cls) for cls in _agent_classes())
    )


# -- planners --------------------------------------------------------------------------------------------------------

_FAMILIES = {
    "adaptive": "This package's",
    "literature": "Rules of the literature",
    "baseline": "Baselines",
}


def _planners() -> str:
    parts = [
        rst_heading("Planners"),
        "\n:py:obj:`make_planner <edpbrl_gym.planners.make_planner>` makes a planner by its name. Every name is also "
        "one of an :doc:`agent <agents>`. :doc:`/planner-comparison` compares them.\n",
    ]
    for family in dict.fromkeys(entry.family for entry in PLANNERS.values()):
        rows = [
            (
                f"``{name}``",
                entry.title,
                "after every answer" if entry.adaptive else "before the first answer",
                _link(planner_class(name)),
                _settings(entry.options),
                _names(planner_options(name)),
            )
            for name, entry in PLANNERS.items()
            if entry.family == family
        ]
        parts += [rst_heading(_FAMILIES.get(family, family), "-")]
        parts += [rst_table(("name", "title in tables", "chooses", "class", "stands for", "options"), rows)]
    parts += [rst_heading("Classes", "-"), *(_section(cls, "~") for cls in _planner_classes())]
    parts += [
        rst_heading("Rules", "-"),
        ":py:obj:`make_rule <edpbrl_gym.planners.registry.make_rule>` makes a rule alone, for pools of your own.\n",
        rst_table(
            ("name", "function", "what"),
            [(f"``{name}``", _link(rule), first_paragraph(rule)) for name, rule in zip(RULES, _rules(), strict=True)],
        ),
        *(_section(rule, "~") for rule in _rules()),
    ]
    return "\n".join(parts)


# -- oracles ---------------------------------------------------------------------------------------------------------


def _oracles() -> str:
    found = _oracle_classes()
    rows = [
        (f":py:obj:`{cls.__name__} <{full}>`", f"``{cls.__module__}``", first_paragraph(cls)) for full, cls in found
    ]
    return (
        rst_heading("Oracles")
        + "\nWho answers. An oracle has a ``name`` and a method ``answer(queries)`` that returns "
        ":py:obj:`Answers <edpbrl_gym.oracles.Answers>`; anything with these two is one, :doc:`your own </own-people>` "
        "too.\n\n" + rst_table(("class", "where", "what"), rows) + "\n" + "".join(_section(cls) for _, cls in found)
    )


# -- experiments -----------------------------------------------------------------------------------------------------


def _experiments() -> str:
    kinds = [(kind, get_experiment(kind)) for kind in EXPERIMENTS]
    rows = [
        (f":ref:`{kind} <experiment-{kind}>`", f"``{e.command}``", first_paragraph(_module(kind))) for kind, e in kinds
    ]
    parts = [
        rst_heading("Experiments"),
        "\nAn experiment has settings, which decide all numbers, units of work, and a report; "
        ":py:obj:`Experiment <edpbrl_gym.experiments.framework.Experiment>` says how they fit together. Every run "
        "folder can be resumed, and ``edpbrl report RUN`` makes its report again.\n",
        rst_table(("kind", "command", "what"), rows),
    ]
    for kind, experiment in kinds:
        parts += [
            f".. _experiment-{kind}:\n",
            rst_heading(kind, "-"),
            "\n".join(as_rst((_module(kind).__doc__ or "").splitlines())),
            "",
        ]
        parts += [f"Settings, ``{experiment.settings.__module__}.{experiment.settings.__qualname__}``:\n"]
        parts += [rst_table(("name", "default", "what"), _fields(experiment.settings))]
    return "\n".join(parts)


def _module(kind: str) -> Any:
    return importlib.import_module(EXPERIMENTS[kind].partition(":")[0])


def _fields(settings: type) -> list[tuple[str, str, str]]:
    """Name, default and description of every field of a dataclass."""
    import docstring_parser

    described = {
        param.arg_name: param.description
        for cls in reversed(settings.__mro__)
        for param in docstring_parser.parse(inspect.getdoc(cls) or "").params
    }
    rows = []
    for field in dataclasses.fields(settings):
        if field.default is not dataclasses.MISSING:
            default = repr(field.default)
        elif field.default_factory is not dataclasses.MISSING:
            default = repr(field.default_factory())
        else:
            default = ""
        cell = f"``{default}``" if default else "required"
        rows.append((f"``{field.name}``", cell, " ".join((described.get(field.name) or "").split())))
    return rows


# -- pieces ----------------------------------------------------------------------------------------------------------


def _section(cls: Any, underline: str = "-") -> str:
    """A class with its docstring and methods; the API links here."""
    return f"{rst_heading(cls.__name__, underline)}\n{api_pages.entry(_full_name(cls), cls)}\n"


def _full_name(cls: Any) -> str:
    """The public name of a class where it has one, else where it is defined."""
    return _documented_as(cls) or f"{cls.__module__}.{cls.__qualname__}"


def _documented_as(cls: Any) -> str | None:
    for full, (_, value) in api_pages.documented().items():
        if value is cls:
            return full
    return None


def _link(cls: Any) -> str:
    return f":py:obj:`{cls.__name__} <{_full_name(cls)}>`"


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"``{name}``" for name in names) or "-"


def _settings(options: Mapping[str, Any]) -> str:
    return ", ".join(f"``{name}={value!r}``" for name, value in options.items()) or "-"
