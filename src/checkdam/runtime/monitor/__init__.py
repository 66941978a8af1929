"""Gathers what a job tells into records."""

from checkdam.runtime.monitor.monitor import JobMonitor
from checkdam.runtime.monitor.together import Together

__all__ = ["JobMonitor", "Together"]
