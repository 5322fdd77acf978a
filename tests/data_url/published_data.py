"""Data that `atoll data publish` wrote, and the run file that reads it."""

from harness import processes


def publish(text, directory, shard_bytes="8kB"):
    """Publishes the files of `text` to `directory`."""
    processes.run_cli("data", "publish", text, "--to", "file://" + directory,
                      "--shard-bytes", shard_bytes, check=0)


def by_url(url, **more):
    """The change of run values that reads published data at `url`; `more` are
    further keys of [data]."""
    return {"data": dict({"path": None, "validation_fraction": None,
                          "seed": None, "order": "by_file",
                          "url": url + "/manifest.json"}, **more)}
