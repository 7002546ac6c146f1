"""Other systems' configurations against DAPO, part by part. Files are parsed and never executed; no torch.

config.py: what a file says, and how one asks it. read.py, shell.py, python.py: from a file to that. parts.py: findings and the
rules that all systems share. verl.py, hugging_face.py, flags.py, trees.py: the systems. inspect.py: whose file it is, and the
verdict.
"""
