"""The same alerts by a plain loop, to compare: `python examples/fraud_detection/reference.py DIRECTORY`.

Says whether the alerts of a job below the directory, whose rule was never changed, are those that a loop over the same
transactions finds: none missing, none twice, none too many.
"""

import json
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from detector import FIRST_RULE, Alert, Rule
from transactions import transactions


def expected_alerts(rule_at: Callable[[int], Rule] = lambda number: FIRST_RULE) -> Iterator[Alert]:
    """Without end, in the order of their transactions; `rule_at` tells the rule in force at a transaction."""
    trials: dict[str, tuple[int, int]] = {}
    for each in transactions():
        rule = rule_at(each.number)
        small, deadline = trials.get(each.account, (0, 0))
        if each.amount > rule.large and each.at < deadline:
            yield Alert(rule.name, each.account, small, each.number, each.amount)
            del trials[each.account]
        if each.amount < rule.small:
            trials[each.account] = each.number, each.at + 1000 * rule.within


def published_alerts(directory: Path) -> list[Alert]:
    """What the job has published so far, in the order of the transactions."""
    lines = [line for file in directory.glob("alerts/*.json") for line in file.read_text().splitlines()]
    return sorted((Alert(**json.loads(line)) for line in lines), key=lambda alert: alert.large)


if __name__ == "__main__":
    published = published_alerts(Path(sys.argv[1]))
    if not published:
        sys.exit(f"no alerts below {sys.argv[1]} yet")
    is_right = published == list(islice(expected_alerts(), len(published)))
    print(f"{len(published)} alerts: {'exactly' if is_right else 'NOT'} those of the plain loop")
    sys.exit(not is_right)
