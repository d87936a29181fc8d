"""`python -m chaos`."""

from chaos.run import main

main()
