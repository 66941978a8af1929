"""`python -m tools.quick_java`: make the Java ready that tests start Spark with. See `chaos.warm_start`."""

from __future__ import annotations

from chaos.rounds import prepare_quick_java

if __name__ == "__main__":
    prepare_quick_java()
