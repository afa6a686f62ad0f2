"""Optimal experimental design over occupancy measures: problems, criteria, solvers, certificates."""
