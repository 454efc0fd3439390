"""``python -m ecbm.show.cli``: the ``ecbm`` command."""

from ecbm.show.cli import main

if __name__ == "__main__":
    main()
