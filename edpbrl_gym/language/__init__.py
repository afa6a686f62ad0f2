"""Language models as query policies: loading, sampling, training; heavy packages are imported where they are used."""
