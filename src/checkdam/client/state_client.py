"""Queries a running job's state from any Python program.

    from checkdam.client import StateClient

    client = StateClient("localhost:8081")
    client.get("4fa1…", "count", "_op_state", "word").value

Values have their JSON form: dataclasses and named tuples are dicts, bytes are {"base64": …}, dates and Decimals text.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote

from checkdam.client.direct_states import AskDriverError, DirectStates, Place
from checkdam.client.rest_client import DEFAULT_TIMEOUT, RestClient
from checkdam.errors import RequestRefusedError, ServerUnreachableError
from checkdam.types.json_values import to_json

__all__ = ["StateAnswer", "StateClient"]

_ID = re.compile("[0-9a-fA-F]{32}")
_AT_ONCE = 1000
_PAGE = 500
_ENDED = frozenset({"FINISHED", "CANCELED", "FAILED", "SUSPENDED"})


@dataclass(frozen=True)
class StateAnswer:
    """The value of a key as of the end of `epoch`. For a missing key `found` is False and the value None.

    The value of window state is a list of pairs of window and value, unless one window was asked for.
    """

    epoch: int
    key: Any
    found: bool
    value: Any
    key_group: int
    subtask: int


class StateClient:
    """Live state of the jobs of one server. Thread-safe; connections are kept open until `close`.

    Keys are asked for in the slots that own them, where these can be reached; the server tells where they are.
    Everything else, and all that a slot does not answer, is asked of the server.

    JOB is a job's id, or a name that only one job, or only one running job, has. Calls raise ServerUnreachableError if
    the server does not answer and RequestRefusedError for an unknown job, operator, state or key type. Its `status` is
    503 while the job fails over or before its first epoch has ended: then a retry helps. A missing key is not an error.
    """

    def __init__(
        self,
        address: str,
        token: str | None = None,
        *,
        timeout: timedelta = DEFAULT_TIMEOUT,
        asks_slots: bool = True,
    ) -> None:
        """With `asks_slots=False` the server is asked for everything, such as where slots are behind a firewall."""
        self._rest = RestClient(address, token=token, timeout=timeout)
        self._lock = threading.Lock()
        self._idle: list[HTTPConnection] = []
        self._ids: dict[str, str] = {}
        self._direct = DirectStates(self._slots_of, timeout.total_seconds()) if asks_slots else None

    def get(self, job: str, uid: str, name: str, key: Any, *, map_key: Any = None, window: Any = None) -> StateAnswer:
        """Return the value of one key; of a map state all entries, or with `map_key` only that one.

        For window state that is the value of each window of the key, or with `window` (a TimeWindow, or a dict of its
        fields) only that one. Each call is one request: for many keys `get_many` costs far less.
        """
        found = self._from_slots(job, uid, name, [key], map_key, window, is_text=True)
        if found is not None:
            return found[0]
        entry = "" if map_key is None else f"&map-key={_text(map_key)}"
        entry += "" if window is None else f"&window={_text(window)}"
        return _answer(self._call("GET", f"{self._path(job, uid, name)}?key={_text(key)}{entry}"))

    def get_many(
        self, job: str, uid: str, name: str, keys: Iterable[Any], *, map_key: Any = None, window: Any = None
    ) -> list[StateAnswer]:
        """Return one answer per key, in order. Up to 1000 keys of one slot are answered as of the same epoch."""
        wanted = list(keys)
        answers: list[StateAnswer] = []
        for start in range(0, len(wanted), _AT_ONCE):
            part = wanted[start : start + _AT_ONCE]
            found = self._from_slots(job, uid, name, part, map_key, window, is_text=False)
            answers += self._many(job, uid, name, part, map_key, window) if found is None else found
        return answers

    def _many(self, job: str, uid: str, name: str, keys: Sequence[Any], map_key: Any, window: Any) -> list[StateAnswer]:
        more = {} if map_key is None else {"map-key": to_json(map_key)}
        more |= {} if window is None else {"window": to_json(window)}
        answer = self._call("POST", self._path(job, uid, name), {"keys": [to_json(key) for key in keys], **more})
        return [_answer(each) for each in answer["answers"]]

    def states(self, job: str) -> list[dict[str, Any]]:
        """Return the job's operators that have state, each with its states and their types, and its timers."""
        operators: list[dict[str, Any]] = self._call("GET", f"/jobs/{self._id(job)}/state")["operators"]
        return operators

    def keys(self, job: str, uid: str, name: str, *, containing: str | None = None) -> Iterator[tuple[Any, Any]]:
        """Iterate over all keys with their values, page by page; of window state over pairs of key and window.

        With `containing` only keys whose JSON contains this text, ignoring case; the server looks for them. Each page
        is as of one epoch. Entries added or removed between pages may be missed or seen twice.
        """
        for entry in self._entries(f"{self._path(job, uid, name)}/keys", containing):
            key = (entry["key"], entry["window"]) if "window" in entry else entry["key"]
            yield key, entry["value"]

    def operator_state(self, job: str, uid: str, name: str, *, containing: str | None = None) -> Iterator[Any]:
        """Iterate over an operator state: over its elements, or for broadcast state over pairs of key and value.

        With `containing` only elements whose JSON contains this text, of broadcast state those whose key does.
        """
        path = f"/jobs/{self._id(job)}/operator-state/{quote(uid, safe='')}/{quote(name, safe='')}"
        for entry in self._entries(path, containing):
            yield (entry["key"], entry["value"]) if "key" in entry else entry["value"]

    def timers(self, job: str, uid: str, *, containing: str | None = None, limit: int = 100) -> list[dict[str, Any]]:
        """Return the next timers of an operator, at most `limit` of each time domain, the earliest first.

        Each has its `key`, `timestamp`, `time-domain` and `key-group`, those of windows also their `window`.
        """
        path = f"/jobs/{self._id(job)}/timers/{quote(uid, safe='')}?limit={limit}{_filter(containing)}"
        found: list[dict[str, Any]] = self._call("GET", path)["entries"]
        return found

    def _entries(self, path: str, containing: str | None) -> Iterator[dict[str, Any]]:
        path, cursor = f"{path}?limit={_PAGE}{_filter(containing)}", ""
        while True:
            page = self._call("GET", path + cursor)
            yield from page["entries"]
            if page["next"] is None:
                return
            cursor = f"&cursor={quote(page['next'], safe='')}"

    def close(self) -> None:
        """Close the connections. The client stays usable and opens new ones."""
        if self._direct is not None:
            self._direct.close()
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def __enter__(self) -> StateClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _from_slots(
        self, job: str, uid: str, name: str, keys: Sequence[Any], map_key: Any, window: Any, *, is_text: bool
    ) -> list[StateAnswer] | None:
        """Return the answers of the slots; None if the server has to be asked."""
        if self._direct is None:
            return None
        try:
            place = (self._id(job), uid, name)
            return [StateAnswer(*each) for each in self._direct.get(place, keys, map_key, window, is_text=is_text)]
        except AskDriverError:
            return None

    def _slots_of(self, place: Place) -> Any:
        return self._call("GET", f"{self._path(*place)}/slots")

    def _path(self, job: str, uid: str, name: str) -> str:
        return f"/jobs/{self._id(job)}/state/{quote(uid, safe='')}/{quote(name, safe='')}"

    def _id(self, job: str) -> str:
        """Return the id of a job given by id or name; a running one takes precedence. A name is looked up once."""
        if _ID.fullmatch(job):
            return job
        if job not in self._ids:
            jobs = [each for each in self._call("GET", "/jobs/overview")["jobs"] if each["name"] == job]
            named = [each["jid"] for each in jobs if each["state"] not in _ENDED] or [each["jid"] for each in jobs]
            if len(named) != 1:
                many = f"{len(named)} jobs are" if named else "there is no job"
                raise RequestRefusedError(f'{many} called "{job}"', hint="Give the id of one.")
            self._ids[job] = named[0]
        return self._ids[job]

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        with self._lock:
            connection = self._idle.pop() if self._idle else self._rest.connection()
        was_open = connection.sock is not None
        try:
            return self._rest.ask(connection, method, path, body)
        except ServerUnreachableError as error:
            if not was_open or isinstance(error.__cause__, TimeoutError):
                raise
            # The server closed the connection since the last call. All calls only read, so send this one again.
            return self._rest.ask(connection, method, path, body)
        finally:
            with self._lock:
                self._idle.append(connection)


def _filter(containing: str | None) -> str:
    return "" if containing is None else f"&filter={quote(containing, safe='')}"


def _text(key: Any) -> str:
    return quote(json.dumps(to_json(key)), safe="")


def _answer(answer: Mapping[str, Any]) -> StateAnswer:
    return StateAnswer(
        answer["epoch"], answer["key"], answer["found"], answer["value"], answer["key-group"], answer["subtask"]
    )
