"""Errors that a user can act on. Imports nothing of ours."""

from collections.abc import Iterable
from difflib import get_close_matches


class InputError(ValueError):
    """Bad input: one line that names the field, the value and what would be accepted."""

    def __init__(self, field: str, value: object, accepted: str) -> None:
        self.field, self.value, self.accepted = field, value, accepted
        super().__init__(f"{field}: got {value!r}; accepted: {accepted}")


class RunFailed(RuntimeError):
    """A run that started and could not finish (a NaN loss, say); its state was saved."""


def unknown_name(field: str, value: str, known: Iterable[str]) -> InputError:
    """An :class:`InputError` for a name not in ``known``, with the nearest one first."""
    names = sorted(known)
    by_lower_case = {name.lower(): name for name in names}
    near = get_close_matches(str(value).lower(), by_lower_case, n=1, cutoff=0.4)
    hint = f"did you mean {by_lower_case[near[0]]!r}? " if near else ""
    return InputError(field, value, f"{hint}one of {', '.join(names)}")
