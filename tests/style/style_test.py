#!/usr/bin/python3
"""The checker finds what is planted, and the tree has nothing to find."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_tree  # pylint: disable=wrong-import-position


def found(path, text):
    return [what for _, what in check_tree.check_file(path, text)]


class PlantedTest(unittest.TestCase):

    def assert_found(self, path, text, what):
        self.assertTrue(any(what in f for f in found(path, text)),
                        '%s in %s: %s' % (text, path, found(path, text)))

    def test_a_core_may_not_include_shells(self):
        for include in ('<grpcpp/grpcpp.h>', '"rocksdb/db.h"', '<thread>',
                        '"base/io/files.h"', '"atoll/v1/x.grpc.pb.h"'):
            self.assert_found('server/core/x.cc', '#include ' + include,
                              'a core file includes')
        self.assertEqual(
            [], found('server/core/x.cc', '#include "base/codec/f32.h"'))

    def test_dependencies_have_one_direction(self):
        self.assert_found('base/io/x.cc', '#include "server/client/x.h"',
                          'base stands on nothing')
        self.assert_found('worker/api/x.cc', '#include "server/store/x.h"',
                          'dependencies run')
        self.assert_found('cli/x.cc', '#include "worker/core/x.h"',
                          'worker/api')
        self.assert_found('server/service/x.cc', '#include <rocksdb/db.h>',
                          'by its interface')

    def test_a_core_may_not_read_the_clock_or_roll_dice(self):
        for call in ('absl::Now();', 'std::random_device r;', 'getenv("A");',
                     'std::chrono::steady_clock::now();'):
            self.assert_found('worker/core/x.cc', call, 'a core')
        self.assertEqual([], found('worker/core/x.cc', '// not absl::Now()'))

    def test_the_environment_is_read_in_main_alone(self):
        self.assert_found('cli/output/x.cc', 'getenv("A");', 'main alone')
        self.assertEqual([], found('cli/main.cc', 'getenv("A");'))

    def test_a_todo_gives_its_reason(self):
        self.assert_found('a.cc', '// TODO: later', 'without a reason')
        self.assertEqual([], found('a.cc', '// TODO(needs NCCL): later'))

    def test_files_have_a_ceiling(self):
        self.assert_found('a.h', '\n' * 600, 'longer than 500')
        self.assert_found('a.cc', '\n' * 1300, 'longer than 1200')
        self.assertEqual([], found('a_test.cc', '\n' * 1300))

    def test_build_files_name_their_sources(self):
        self.assert_found('a/BUILD', 'srcs = glob(["*.cc"])', 'a glob')

    def test_no_machine_is_mentioned(self):
        self.assert_found('a.md', 'see /work/x', 'a path of one machine')


class TreeTest(unittest.TestCase):

    def test_the_tree_keeps_the_rules(self):
        # The link in the runfiles leads to the tree itself.
        root = os.path.dirname(os.path.realpath('WORKSPACE'))
        self.assertTrue(os.path.isdir(os.path.join(root, 'proto')), root)
        self.assertEqual('', '\n'.join(check_tree.check_tree(root)))


if __name__ == '__main__':
    unittest.main(verbosity=2)
