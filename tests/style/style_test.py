#!/usr/bin/python3
"""Checks the tree that this test was built from."""

import os
import sys
import unittest

_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [_HERE, os.path.join(_HERE, '../integration')]

from harness import cases  # pylint: disable=wrong-import-position
import phrases  # pylint: disable=wrong-import-position
import rooms_table  # pylint: disable=wrong-import-position
import rules  # pylint: disable=wrong-import-position
import tree  # pylint: disable=wrong-import-position


def workspace_root():
  """The sources' folder: the target of the runfiles' link to WORKSPACE."""
  runfiles = os.environ.get('TEST_SRCDIR')
  if runfiles:
    link = os.path.join(runfiles, os.environ['TEST_WORKSPACE'], 'WORKSPACE')
  else:
    link = os.path.join(os.path.dirname(__file__), '../../WORKSPACE')
  return os.path.dirname(os.path.realpath(link))


class StyleTest(unittest.TestCase):

  def test_the_tree_keeps_its_rules(self):
    files = tree.read_tree(workspace_root())
    self.assertIn('tests/style/BUILD', files)
    self.assertIn('BUILD', files)
    violations, warnings = rules.check(files)
    for v in warnings:
      print('warning: %s:%d: [%s] %s' % v, file=sys.stderr)
    for v in violations:
      print('%s:%d: [%s] %s' % v, file=sys.stderr)
    for line in phrases.slack(files):
      print(line, file=sys.stderr)
    self.assertFalse(violations, '%d violations, above' % len(violations))

  def test_the_design_lists_all_rooms(self):
    files = tree.read_tree(workspace_root())
    self.assertTrue(files['DESIGN.md'].endswith(rooms_table.make(files)),
                    'run tests/style/rooms_table.py')

  def test_units_bzl_has_what_files_include(self):
    root = workspace_root()
    sys.path.insert(0, os.path.join(root, 'deploy', 'bazel'))
    import make_units  # pylint: disable=import-outside-toplevel,import-error
    with open(os.path.join(root, make_units.PATH), encoding='utf-8') as file:
      self.assertEqual(file.read(), make_units.make(root),
                       'run deploy/bazel/make_units.py')


if __name__ == '__main__':
  cases.main()
