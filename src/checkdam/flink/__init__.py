"""Flink's file formats, and nothing of Checkdam's own."""
