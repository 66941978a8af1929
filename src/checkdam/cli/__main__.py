"""`python -m checkdam.cli` is `checkdam`."""

from checkdam.cli.main import main

if __name__ == "__main__":
    main()
