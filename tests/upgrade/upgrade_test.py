#!/usr/bin/python3
"""A rolling upgrade of a strict run, program by program, changes no bit.

In the suite both sides are the programs under test. rolling_upgrade.sh gives
older programs as ATOLL_UPGRADE_BEFORE, a directory with cli/atoll and so on,
and in ATOLL_UPGRADE_BACK the kinds of programs that can go back: their formats
on disk are those of the older ones.
"""

import os
import sys

_HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [_HERE, os.path.join(_HERE, "..", "integration")]

from harness import cases  # noqa: E402
from harness import cluster as cluster_module  # noqa: E402
import rolling  # noqa: E402

_BEFORE = os.environ.get("ATOLL_UPGRADE_BEFORE")
_KINDS = {"coordinator": rolling.COORDINATOR, "server": rolling.SERVERS,
          "island": rolling.ISLANDS}
_BACK = os.environ.get("ATOLL_UPGRADE_BACK",
                       "" if _BEFORE else "island,server,coordinator")


class RollingUpgradeTest(cluster_module.IntegrationTest):

    def test_a_rolling_upgrade_and_the_way_back_change_no_bit(self):
        values = self.run_values(rolling.CHANGES)
        cluster = self.cluster
        rolling.start(cluster, values, _BEFORE)
        cluster.wait_commits(2)
        for name in rolling.ALL:
            rolling.replace(cluster, name, None)
        for kind in filter(None, _BACK.split(",")):
            for name in _KINDS[kind]:
                rolling.replace(cluster, name, _BEFORE)
        values = rolling.pause(cluster, values)
        self.assert_strict_run_whole(cluster, values)
        changed = cluster.parameters_sha256()
        cluster.close()
        self.assertEqual(changed, rolling.undisturbed(
            self.new_cluster("undisturbed"), values))


if __name__ == "__main__":
    cases.main()
