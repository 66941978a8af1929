"""Queries a job's state at a steady rate, in its own process: `python -m benchmarks.sides.asking …`."""

from __future__ import annotations

import json
import random
import resource
import sys
import threading
import time

from benchmarks.words import SEED, word
from checkdam.client import StateClient
from checkdam.errors import CheckdamError

_CONNECTIONS = 16


class Asker:
    """Sends `rate` queries per second with `batch` keys each; a late one is sent at once, and its delay is counted."""

    def __init__(self, url: str, job: str, keys: int, rate: float, batch: int, *, asks_slots: bool) -> None:
        self._client = StateClient(url, asks_slots=asks_slots)
        self._job = job
        self._keys = keys
        self._pause = 1 / rate
        self._batch = batch
        self._lock = threading.Lock()
        self._next_at = 0.0
        self._is_over = threading.Event()
        self.latencies: list[float] = []
        self.failures: list[str] = []
        self.seconds = 0.0  # from the first query of the rate to the last

    def run(self) -> None:
        """Send queries until standard input ends."""
        # A slot publishes at the end of an epoch after its first query: send enough keys for every slot to get one.
        self._client.get_many(self._job, "count", "count", [word(number) for number in range(64)])
        self._next_at = began = time.perf_counter()
        threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(_CONNECTIONS)]
        for thread in threads:
            thread.start()
        sys.stdin.read()
        self._is_over.set()
        for thread in threads:
            thread.join()
        self.seconds = time.perf_counter() - began

    def _ask(self, number: int) -> None:
        draw = random.Random(SEED + number)
        while not self._is_over.is_set():
            with self._lock:
                due = self._next_at
                self._next_at += self._pause
            early = due - time.perf_counter()
            if early > 0:
                time.sleep(early)  # some milliseconds; a wait for the end would cost as much as a question
            self._one(draw, due)

    def _one(self, draw: random.Random, due: float) -> None:
        try:
            if self._batch == 1:
                self._client.get(self._job, "count", "count", word(draw.randrange(self._keys)))
            else:
                wanted = [word(draw.randrange(self._keys)) for _ in range(self._batch)]
                self._client.get_many(self._job, "count", "count", wanted)
        except CheckdamError as error:
            if not self._is_over.is_set():
                self.failures.append(str(error))
            return
        self.latencies.append(time.perf_counter() - due)


def main() -> None:
    url, job, keys, rate, batch, asks_slots = sys.argv[1:]
    asker = Asker(url, job, int(keys), float(rate), int(batch), asks_slots=asks_slots == "1")
    asker.run()
    used = resource.getrusage(resource.RUSAGE_SELF)
    told = {
        "seconds": asker.seconds,
        "cpu": used.ru_utime + used.ru_stime,
        "latencies": asker.latencies,
        "failures": len(asker.failures),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
