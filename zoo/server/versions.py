"""Serves the highest version of each model that is on disk, also when it changes."""

import asyncio

from zoo.server.errors import ServerError
from zoo.server.loading import find, load


class VersionWatcher:
    """Looks for other versions of the served models, loads them and has them served.

    Args:
        service: `zoo.server.app.Service`.
        folders: the models as named on the command line; see `zoo.server.loading.find`.
        report: called with one line if a version cannot be loaded.
    """

    def __init__(self, service, folders, report):
        self._service = service
        self._folders = folders
        self._report = report
        self._failed = set()
        self._seen = {}  # folder: the files of its highest version at the last look
        self._tried = {}  # folder: those that have been loaded

    async def run(self, seconds):
        """Looks for versions, with a pause of so many seconds, until it is cancelled."""
        while True:
            await asyncio.sleep(seconds)
            for folder in self._folders:
                await self.look(folder)

    async def look(self, given):
        """Loads the highest version in a folder and serves it, unless it is served already.

        It is loaded once its files are the same at two looks, and if that fails, when they have
        changed: what a failed attempt has loaded stays in memory for long.
        """
        try:
            name, version, folder = await asyncio.to_thread(find, given)
            if version == self._service.batchers[name].model.version:
                return
            files = await asyncio.to_thread(_files, folder)
            before, self._seen[given] = self._seen.get(given), files
            if files != before or files == self._tried.get(given):
                return
            self._tried[given] = files
            model = await asyncio.to_thread(load, name, version, folder)
            await self._service.replace(model)
        except Exception as error:  # such as that of a version that is still being copied
            told = error if isinstance(error, ServerError) else f"{type(error).__name__}: {error}"
            if str(told) not in self._failed:
                self._failed.add(str(told))
                self._report(f"Another version of {given} is not served yet: {told}")


def _files(folder):
    """{path: when it was changed and its size} of all files in a folder."""
    found = {str(path): path.stat() for path in folder.rglob("*")}
    return {path: (status.st_mtime_ns, status.st_size) for path, status in found.items()}
