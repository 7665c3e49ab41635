"""`python -m townlet` runs the `townlet` command."""

from townlet.cli.app import main

if __name__ == "__main__":
    main()
