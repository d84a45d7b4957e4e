"""_native.py - the library's functions in this process, by ctypes: include/hakmem/hakmem.h says what they do."""
import ctypes
import functools
from typing import Callable, Optional


class _Place(ctypes.Structure):  # Dl_info
    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


def _base_of(process: ctypes.CDLL, name: str) -> Optional[int]:
    """Where the object lies in memory from which the process has a function of that name."""
    try:
        function, find = process[name], process["dladdr"]
    except AttributeError:
        return None
    place = _Place()
    found = find(ctypes.cast(function, ctypes.c_void_p), ctypes.byref(place))
    return place.base if found else None


@functools.lru_cache(maxsize=None)
def functions() -> Optional[ctypes.CDLL]:
    """The library's functions, or None where the process's malloc is another's, though the library may have been opened later.

    Of the malloc family valloc is asked for: the address of malloc itself is in some builds of CPython that of a stub in the program.
    """
    process = ctypes.CDLL(None)
    own = _base_of(process, "hak_version")
    if own is None or own != _base_of(process, "valloc"):
        return None
    for name, result, arguments in (
        ("hak_collect", ctypes.c_size_t, []),
        ("hak_stats_json", ctypes.c_size_t, [ctypes.c_char_p, ctypes.c_size_t]),
        ("hak_option_get", ctypes.c_size_t, [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]),
        ("hak_option_set", ctypes.c_int, [ctypes.c_char_p, ctypes.c_char_p]),
    ):
        function = getattr(process, name)
        function.restype, function.argtypes = result, arguments
    return process


def text_of(write: Callable[[Optional["ctypes.Array[ctypes.c_char]"], int], int]) -> bytes:
    """What a function writes that, like snprintf, returns the length of the whole: it may grow between two calls."""
    length = write(None, 0)
    while True:
        room = ctypes.create_string_buffer(length + 256)
        length = write(room, len(room))
        if length < len(room):
            return room.value
