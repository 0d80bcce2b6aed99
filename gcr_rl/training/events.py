"""The rows of a run's logs as TensorBoard event files, one folder per seed.

An event file is a sequence of TFRecords; each holds an ``Event`` message of a few fields, which
is little enough to write here without TensorBoard or TensorFlow.
"""

import struct
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_PLACE = ("step", "seed")
_LARGEST = (2.0 - 2.0**-23) * 2.0**127


class EventFiles:
    """Event files in ``folder``/seed-N, new ones for each pass over a run.

    A resumed run repeats the steps after its checkpoint. Its files begin with the start of a
    session at its first step: readers drop what earlier files say of that step and later ones.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[int, Path] = {}

    def append(self, log: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write every number of each row under LOG/FIELD, in the file of the row's seed."""
        for row in rows:
            now, step, seed = time.time(), int(row["step"]), int(row["seed"])
            scalars = {
                f"{log}/{name}": value
                for name, value in row.items()
                if name not in _PLACE and _is_scalar(value)
            }
            begin = b"" if seed in self._files else self._begun(seed, now, step)
            with open(self._files[seed], "ab") as file:  # not kept open: seeds may be thousands
                file.write(begin + record(scalar_event(now, step, scalars)))

    def _begun(self, seed: int, now: float, step: int) -> bytes:
        """A new file of ``seed``, after those that are there; how it begins."""
        folder = self._folder / f"seed-{seed}"
        folder.mkdir(parents=True, exist_ok=True)
        number = len(list(folder.iterdir())) + 1
        self._files[seed] = folder / f"events.out.tfevents.{number:010d}"
        return record(version_event(now)) + record(start_event(now, step))


def _is_scalar(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def scalar_event(now: float, step: int, scalars: Mapping[str, float]) -> bytes:
    """Event(wall_time, step, summary): all scalars of one step."""
    values = [
        _bytes(1, _bytes(1, tag.encode()) + _key(2, 5) + _float32(value))
        for tag, value in scalars.items()
    ]
    return _head(now, step) + _bytes(5, b"".join(values))


def version_event(now: float) -> bytes:
    """The event that every file begins with."""
    return _head(now, 0) + _bytes(3, b"brain.Event:2")


def start_event(now: float, step: int) -> bytes:
    """Event(session_log = START): what other files have of ``step`` and later no longer counts."""
    return _head(now, step) + _bytes(7, _key(1, 0) + _varint(1))


def record(data: bytes) -> bytes:
    """TFRecord: length, its checksum, data, its checksum."""
    length = struct.pack("<Q", len(data))
    return length + _checksum(length) + data + _checksum(data)


def _float32(value: float) -> bytes:
    """The nearest number that 32 bits hold; beyond their range the largest one."""
    return struct.pack("<f", min(max(value, -_LARGEST), _LARGEST))


def _head(now: float, step: int) -> bytes:
    return _key(1, 1) + struct.pack("<d", now) + _key(2, 0) + _varint(step)


def _key(field: int, wire_type: int) -> bytes:
    return _varint(field << 3 | wire_type)


def _bytes(field: int, data: bytes) -> bytes:
    return _key(field, 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _table() -> tuple[int, ...]:
    """CRC-32C (Castagnoli) of every byte."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return tuple(table)


_CASTAGNOLI = _table()


def _checksum(data: bytes) -> bytes:
    """CRC-32C, masked as TFRecords want it: rotated by 15 bits, and a constant added."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CASTAGNOLI[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return struct.pack("<I", masked)
