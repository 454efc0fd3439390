"""Read: datasets from files, from official archives, and built in."""
