"""Watches the folders of models and serves the highest version on disk."""

import asyncio

from zoo.server.models import find, load


async def watch(service, folders, seconds):
    """Checks for other versions of models, named as on the command line, until it is cancelled.

    A version is loaded when its files are the same in two checks. If that fails, it is loaded again
    only when they have changed, as a failed attempt can leave much in memory.
    """
    seen, tried, reported = {}, {}, set()
    while True:
        await asyncio.sleep(seconds)
        for given in folders:
            try:
                name, version, folder = await asyncio.to_thread(find, given)
                if version == service.batchers[name].model.version:
                    continue
                files = await asyncio.to_thread(_files, folder)
                before, seen[given] = seen.get(given), files
                if files == before and files != tried.get(given):
                    tried[given] = files
                    service.serve(await asyncio.to_thread(load, name, version, folder))
            except Exception as error:  # a version may still be being copied
                reason = f"{type(error).__name__}: {error}"
                line = f"Another version of {given} is not served yet. {reason}"
                if line not in reported:
                    reported.add(line)
                    print(line, flush=True)


def _files(folder):
    """{path: (modification time, size)} of all files in a folder."""
    found = {str(path): path.stat() for path in folder.rglob("*")}
    return {path: (status.st_mtime_ns, status.st_size) for path, status in found.items()}
