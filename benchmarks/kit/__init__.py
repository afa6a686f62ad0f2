"""What the benchmarks with run folders share: command line, curves with intervals, users' sentences, measures."""
