"""`python -m townlet` is the same program as `townlet`."""

from townlet.cli.app import main

if __name__ == "__main__":
    main()
