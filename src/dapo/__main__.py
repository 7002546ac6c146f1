"""`python -m dapo` is the `dapo` command."""

from dapo.cli import main

main()
