"""Looking at runs and agents: learning curves, comparisons, filters, attention, saliency.

A module with a ``main`` is a command: ``python -m torchbeast.analysis.NAME``. Others are its parts.
"""
