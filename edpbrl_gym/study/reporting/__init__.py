"""What a study found so far, from the tables of its export: counts, times, agreement, arms compared, the report."""
