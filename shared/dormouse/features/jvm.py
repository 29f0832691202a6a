"""How the virtual machines of Spark's jobs run."""

from __future__ import annotations

OPTIONS = "-XX:TieredStopAtLevel=1"
"""Executors only move bytes between Python processes, disks and the network. What optimizing their
code costs, in the minutes that a job takes, is a fifth of the CPU time of a small import."""
