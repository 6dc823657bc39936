"""`python -m probes` is the command line."""

from probes.cli import main

if __name__ == "__main__":
    main()
