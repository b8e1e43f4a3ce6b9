"""galgo beside its peers: one run measures every server on the same programs.

Read in this order: `plan.py` (what is measured), `measure.py` (how a cell is measured),
`servers.py` (who takes part), `load.py` (the load generators), `report.py` and `charts.py`.
"""
