"""``python -m ecbm.show.cli``: the ``ecbm`` command."""

from ecbm.show.cli import main

main()
