"""Soft Overlong Punishment (DAPO eq. 13)."""


def soft_overlong_punishment(length: int, L_max: int, L_cache: int) -> float:
    """0 up to L_max - L_cache tokens, then linearly down to -1 at L_max, and -1 beyond.

    length: response tokens, prompt excluded. Errors: ValueError unless 0 < L_cache < L_max.
    """
    if not 0 < L_cache < L_max:
        raise ValueError(f"need 0 < L_cache < L_max, got L_cache = {L_cache}, L_max = {L_max}")
    return max(-1.0, min(0.0, (L_max - L_cache - length) / L_cache))
