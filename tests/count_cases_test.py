"""Counts cases of invented build events, as tests/run.sh would."""

import base64
import contextlib
import io
import json
import os
import sys
import tempfile
import unittest

_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [_HERE, os.path.join(_HERE, 'integration')]

from harness import cases  # pylint: disable=wrong-import-position
import count_cases  # pylint: disable=wrong-import-position

_GREEN = '<testcase classname="A" name="%s" status="run"/>'
_RED = '<testcase classname="A" name="%s"><failure message="no"/></testcase>'
_SKIPPED = '<testcase classname="A" name="%s"><skipped message="%s"/></testcase>'
_OFF = '<testcase classname="A" name="%s" status="notrun"/>'


class CountCasesTest(unittest.TestCase):

  def setUp(self):
    super().setUp()
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.folder = folder.name
    self.events = []

  def report(self, label, status, *test_cases, cached=False):
    """A test that ran, or was cached, and the cases of its report."""
    xml = os.path.join(self.folder, '%d.xml' % len(self.events))
    if test_cases:
      with open(xml, 'w', encoding='utf-8') as file:
        file.write('<testsuites><testsuite>%s</testsuite></testsuites>' %
                   ''.join(test_cases))
    self.events.append({
        'id': {'testResult': {'label': label, 'run': 1, 'shard': 1}},
        'testResult': {
            'status': status,
            'cachedLocally': cached,
            'testActionOutput': [{'name': 'test.xml', 'uri': 'file://' + xml}],
        },
    })

  def completed(self, label, success):
    self.events.append({
        'id': {'targetCompleted': {'label': label}},
        'completed': {'success': success},
    })

  def ends(self, bazel_status):
    """The last line and the exit code."""
    lines, code = self.lines(bazel_status)
    return lines[-1], code

  def lines(self, bazel_status):
    """All lines and the exit code."""
    path = os.path.join(self.folder, 'events.json')
    with open(path, 'w', encoding='utf-8') as file:
      file.writelines(json.dumps(event) + '\n' for event in self.events)
    sys.argv = ['count_cases.py', path, str(bazel_status)]
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
      with self.assertRaises(SystemExit) as exit_:
        count_cases.main()
    return out.getvalue().rstrip('\n').split('\n'), exit_.exception.code

  def test_counts_cases_of_tests_that_ran_and_of_cached_ones(self):
    self.report('//a:a_test', 'PASSED', _GREEN % 'x', _GREEN % 'y')
    self.report('//b:b_test', 'PASSED', _GREEN % 'z', _OFF % 'w', cached=True)
    self.assertEqual(('3 passed, 0 failed', 0), self.ends(0))

  def test_counts_a_test_without_cases_as_one(self):
    self.report('//a:sh_test', 'PASSED')
    self.assertEqual(('1 passed, 0 failed', 0), self.ends(0))

  def test_names_skipped_cases_and_counts_them_as_neither(self):
    self.report('//a:a_test', 'PASSED', _GREEN % 'x', _SKIPPED % ('y', 'no z'))
    self.report('//b:b_test', 'PASSED', _SKIPPED % ('w', 'no root'))
    self.assertEqual(([
        'SKIPPED //a:a_test: A.y: no z', 'SKIPPED //b:b_test: A.w: no root',
        '2 skipped: this machine lacks what they need', '1 passed, 0 failed'
    ], 0), self.lines(0))
    os.environ['ATOLL_WITHOUT'] = 'pypi'
    self.addCleanup(os.environ.pop, 'ATOLL_WITHOUT')
    self.assertEqual(('1 passed, 0 failed, 2 skipped', 0), self.ends(0))

  def test_names_a_test_that_this_machine_cannot_build(self):
    self.report('//a:a_test', 'PASSED')
    for label, size in (('//b:b_test', {'testSize': 'SMALL'}), ('//b:b', {})):
      self.events += [
          {'id': {'targetConfigured': {'label': label}}, 'configured': size},
          {'id': {'targetCompleted': {'label': label}},
           'aborted': {'reason': 'SKIPPED'}}]
    lines, code = self.lines(0)
    self.assertTrue(lines[0].startswith('SKIPPED //b:b_test: '), lines)
    self.assertEqual(('1 passed, 0 failed', 0), (lines[-1], code))

  def test_counts_a_failed_case_and_one_that_died_before_its_report(self):
    self.report('//a:a_test', 'FAILED', _GREEN % 'x', _RED % 'y')
    self.report('//b:b_test', 'TIMEOUT')
    self.assertEqual(('1 passed, 2 failed', 1), self.ends(3))

  def test_counts_a_target_that_does_not_build(self):
    self.report('//a:a_test', 'PASSED', _GREEN % 'x')
    self.completed('//b:b_test', False)
    self.assertEqual(('1 passed, 1 failed', 1), self.ends(1))

  def test_is_red_when_nothing_ran_or_bazel_broke(self):
    self.assertEqual(('0 passed, 0 failed', 1), self.ends(0))
    self.report('//a:a_test', 'PASSED', _GREEN % 'x')
    self.assertEqual(('1 passed, 1 failed', 1), self.ends(37))

  def test_times_are_of_the_ten_slowest_tests_and_the_critical_path(self):
    for index in range(11):
      self.report('//a:%d_test' % index, 'PASSED', _GREEN % 'x',
                  cached=index == 10)
      self.events[-1]['testResult']['testAttemptDurationMillis'] = str(
          1000 * index)
    self.events.append({'id': {}, 'buildToolLogs': {'log': [
        {'name': 'critical path',
         'contents': base64.b64encode(b'Critical Path: 9.00s\n').decode()}]}})
    lines = list(count_cases.time_lines(self.events))
    self.assertEqual(['The ten slowest tests:', '   10.0 s //a:10_test, cached',
                      '            A.x 0.0 s', '    9.0 s //a:9_test'],
                     lines[:4])
    self.assertEqual([20 + 2, 'Critical Path: 9.00s'], [len(lines), lines[-1]])


if __name__ == '__main__':
  cases.main()
