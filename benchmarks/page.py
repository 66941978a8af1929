"""The time until the web page can be used."""

from __future__ import annotations

import statistics

from benchmarks.processes import Sides
from benchmarks.report import Figure
from benchmarks.sizes import Sizes


class WebPage:
    def __init__(self, sides: Sides, sizes: Sizes) -> None:
        self._sides = sides
        self._sizes = sizes

    def interactive(self) -> list[Figure]:
        """Compare the slowest view with the bar."""
        known = self._sizes.page_checkpoints
        result = self._sides.run(
            "web_page",
            f"the web page with {known} checkpoints",
            checkpoints=known,
            rounds=self._sizes.page_rounds,
        )
        medians = {view: statistics.median(taken) / 1e3 for view, taken in result["milliseconds"].items()}
        return [
            Figure(f"web page: until it can be used, {known} checkpoints", max(medians.values()), "s", at_most=1),
            *(Figure(f"web page: {view}", seconds, "s") for view, seconds in medians.items()),
        ]
