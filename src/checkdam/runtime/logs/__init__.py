"""The log files of a job: where they are, how they are written, and how they are read."""
