"""Whether an array is still the one that was opened: `DescriptionCheck`."""

from __future__ import annotations

from ..._storage.open_folder import replaced
from ...exceptions import FormatError, UsageError

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable

    from ..folder import Folder


class DescriptionCheck:
    """Call it after a file of items is opened, and before the items are decoded.

    A writer may have removed the array since it was opened, and put one with other
    items under its name. The call raises `StorageError` then. As long as the file of
    the description is the same, a call costs one look at its inode.

    Make it before the description is read, and then call `expect`.

    Parameters
    ----------
    folder, name
        The file of the description.

    Attributes
    ----------
    identity
        What `Folder.identity` returns for the file; None at a URL.
    """

    def __init__(self, folder: Folder, name: str) -> None:
        self._folder = folder
        self._name = name
        self.identity = None if folder.is_remote else folder.identity(name)
        self._path = folder.path()
        self._expected: object = None
        self._read: Callable[[], object] = object

    def expect(self, path: str, read: Callable[[], object], expected: object) -> None:
        """Set how the items are stored.

        Parameters
        ----------
        path
            The folder of the array.
        read
            Returns how the items are stored now, according to the file.
        expected
            The value that `read` must return.
        """
        self._path, self._read, self._expected = path, read, expected

    def __call__(self) -> None:
        if self._folder.is_remote:  # a look at the file would be a round trip
            return
        identity = self._folder.identity(self._name)
        if identity is not None and identity == self.identity:
            return
        try:
            if self._read() == self._expected:
                self.identity = identity
                return
        except (FileNotFoundError, NotADirectoryError, UsageError):
            pass
        except FormatError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
        raise replaced(self._path)
