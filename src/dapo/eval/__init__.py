"""Evaluation: held-out suites, sampled k times, scored with intervals that respect clusters of problems."""
