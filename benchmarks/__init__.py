"""How fast the core is, against a floor and against the parsers that engines ship. `python -m benchmarks`; see
README.md."""
