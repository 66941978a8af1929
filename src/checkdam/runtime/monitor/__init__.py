"""Gathers what a job tells into records."""

from checkdam.runtime.monitor.job_monitor import JobMonitor
from checkdam.runtime.monitor.joint_listener import Together

__all__ = ["JobMonitor", "Together"]
