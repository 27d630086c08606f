"""`python -m idgraph`."""

from idgraph.app.cli import main

if __name__ == "__main__":
    main()
