"""Design solvers side by side: time to a certified gap, memory, and the cost of one product of the features as unit.

python -m benchmarks.solvers run       # every solver on every problem, each in a process of its own; resumes
python -m benchmarks.solvers report    # tables of docs/performance.md, from the results alone

`vocabularies` makes the features, `cases` the problems, `suites` the list of runs; `competitors` knows the solvers, of
which `paper` is not the library's; `certificate` measures every gap alike; `worker` runs one solver on one problem;
`results` and `tables` are what is left of it.
"""
