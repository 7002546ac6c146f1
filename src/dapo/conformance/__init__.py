"""Was a run DAPO? Numbered clauses over what was observed while it ran; reads only the run directory, needs no torch."""
