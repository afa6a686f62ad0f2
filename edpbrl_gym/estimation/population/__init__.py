"""Populations: what other people's answers say about a new person's taste.

population = fit_population(people)          # one item of answers per person
fit = population.fit(data)                   # a new person's own answers
fit.choice_probabilities(options)
"""

from edpbrl_gym.estimation.population.fitting import PopulationChoice, choose_population, fit_population
from edpbrl_gym.estimation.population.model import Population
from edpbrl_gym.estimation.population.person import PersonFit, PersonPart

__all__ = ["PersonFit", "PersonPart", "Population", "PopulationChoice", "choose_population", "fit_population"]
