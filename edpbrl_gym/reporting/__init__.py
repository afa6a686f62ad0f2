"""What every experiment's summary and report is made of: statistics, ranks, tables, figures, the report itself."""
