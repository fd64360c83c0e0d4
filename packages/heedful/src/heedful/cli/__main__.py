"""Run the command line with `python -m heedful.cli`."""

from heedful.cli import main

if __name__ == "__main__":
    main()
