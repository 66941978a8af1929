"""The jobs of chaos rounds, by name."""

from __future__ import annotations

from chaos.all_states import AllStates
from chaos.contract import ChaosJob
from chaos.windows import Windows
from chaos.words import Words

JOBS: dict[str, ChaosJob] = {job.name: job for job in (Words(), AllStates(), Windows())}
