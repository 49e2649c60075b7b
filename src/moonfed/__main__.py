"""python -m moonfed: the command line."""

from moonfed.cli import main

if __name__ == "__main__":
    main()
