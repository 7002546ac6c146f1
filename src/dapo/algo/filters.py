"""Dynamic sampling's criterion (DAPO eq. 11): 0 < #correct < G.

It sees counts of correct answers and never a reward: with the length punishment in it, an all-wrong group whose
responses differ only by length would pass, and teach brevity to a model that is wrong.
"""


def is_informative(n_correct: int, n_graded: int) -> bool:
    """True if some but not all of the graded responses of a group are correct."""
    return 0 < n_correct < n_graded
