"""tests/run.sh with a fake Bazel: repeats, skips and its last lines."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(_HERE, 'integration')]

from harness import cases  # pylint: disable=wrong-import-position

# Writes its arguments, and the events that the test planned for this call.
_BAZEL = '''#!/usr/bin/python3
import json, os, sys
plan = json.load(open('plan.json'))
calls = open('calls').read().splitlines() if os.path.exists('calls') else []
with open('calls', 'a') as file:
  file.write(' '.join(sys.argv[1:]) + '\\n')
run = plan[len(calls)]
events = next(a for a in sys.argv if a.startswith('--build_event_json_file='))
with open(events.split('=', 1)[1], 'w') as file:
  for label, status in run['results'].items():
    if status == 'NO BUILD':
      event = {'id': {'targetCompleted': {'label': label}}, 'completed': {}}
    else:
      log = os.path.abspath('test.log')
      open(log, 'w').write('%s of call %d' % (label, len(calls)))
      event = {'id': {'testResult': {'label': label, 'shard': 1, 'run': 1}},
               'testResult': {'status': status, 'testActionOutput': [
                   {'name': 'test.log', 'uri': 'file://' + log}]}}
    file.write(json.dumps(event) + '\\n')
sys.exit(run['exit'])
'''


class RunTest(unittest.TestCase):

  def setUp(self):
    super().setUp()
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.tree = folder.name
    for name in ('run.sh', 'count_cases.py'):
      self.write('tests/' + name, None)
    for name in ('deploy/check_machine.sh', 'deploy/install_packages.sh',
                 'deploy/bazel/prepare.sh', 'tests/kubernetes/install_tools.sh',
                 'tests/metrics/install_prometheus.sh'):
      self.write(name, '#!/bin/sh\n')
    self.write('deploy/bazel/cuda/find_cuda.sh', '#!/bin/sh\nexit 1\n')
    self.write('bin/bazel', _BAZEL)

  def write(self, name, text):
    """An executable file in the fake tree; None: a copy of the real one."""
    path = os.path.join(self.tree, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if text is None:
      shutil.copyfile(os.path.join(_HERE, os.path.basename(name)), path)
    else:
      with open(path, 'w', encoding='utf-8') as file:
        file.write(text)
    os.chmod(path, 0o755)

  def run_tests(self, plan, *arguments):
    """(lines of run.sh, its exit code, Bazel's calls)."""
    with open(os.path.join(self.tree, 'plan.json'), 'w',
              encoding='utf-8') as file:
      json.dump([{'exit': code, 'results': results} for code, results in plan],
                file)
    done = subprocess.run(
        [os.path.join(self.tree, 'tests/run.sh'), *arguments], text=True,
        stdout=subprocess.PIPE, check=False,
        env={'HOME': self.tree,
             'PATH': os.path.join(self.tree, 'bin') + ':/usr/bin:/bin'})
    with open(os.path.join(self.tree, 'calls'), encoding='utf-8') as file:
      calls = file.read().splitlines()
    return done.stdout.splitlines(), done.returncode, calls

  def test_a_green_run_is_one_call(self):
    lines, code, calls = self.run_tests([(0, {'//a:x_test': 'PASSED'})])
    self.assertEqual(('1 passed, 0 failed', 0), (lines[-1], code))
    self.assertEqual(1, len(calls))
    self.assertTrue(calls[0].endswith(' //...'), calls)

  def test_a_test_that_passes_the_second_time_is_flaky_and_its_log_kept(self):
    lines, code, calls = self.run_tests(
        [(3, {'//a:x_test': 'PASSED', '//a:y_test': 'FAILED'}),
         (0, {'//a:y_test': 'PASSED'})], '--config=asan', '//a/...')
    self.assertEqual('2 passed, 0 failed', lines[-1])
    self.assertEqual('1 flaky: passed only the second time, alone', lines[-2])
    self.assertEqual(0, code)
    label, log = lines[-3].split(': first log ')
    self.assertEqual('FLAKY //a:y_test', label)
    with open(log, encoding='utf-8') as file:
      self.assertEqual('//a:y_test of call 0', file.read())
    self.assertTrue(calls[1].endswith(
        ' --config=asan --local_test_jobs=1 -- //a:y_test'), calls)

  def test_a_test_that_fails_twice_has_failed(self):
    lines, code, _ = self.run_tests(
        [(3, {'//a:x_test': 'FAILED', '//a:y_test': 'TIMEOUT'}),
         (3, {'//a:x_test': 'PASSED', '//a:y_test': 'FAILED'})])
    self.assertEqual(['FAILED //a:y_test: failed', '1 passed, 1 failed'],
                     [lines[-4], lines[-1]])
    self.assertTrue(lines[-3].startswith('FLAKY //a:x_test: '), lines)
    self.assertEqual(1, code)

  def test_a_target_that_does_not_build_is_not_run_again(self):
    lines, code, calls = self.run_tests([(1, {'//a:x_test': 'NO BUILD'})])
    self.assertEqual(
        (['FAILED build of //a:x_test', '0 passed, 1 failed'], 1, 1),
        (lines[-2:], code, len(calls)))

  def test_a_flaky_test_does_not_hide_a_target_that_does_not_build(self):
    lines, code, calls = self.run_tests(
        [(1, {'//a:x_test': 'NO BUILD', '//a:y_test': 'FAILED'}),
         (0, {'//a:y_test': 'PASSED'})])
    self.assertEqual(('1 passed, 1 failed', 1), (lines[-1], code))
    self.assertTrue(calls[1].endswith(' -- //a:y_test'), calls)

  def test_an_interrupted_run_is_not_repeated(self):
    lines, code, calls = self.run_tests([(8, {'//a:x_test': 'FAILED'})])
    self.assertEqual(('0 passed, 1 failed', 1, 1),
                     (lines[-1], code, len(calls)))

  def test_a_second_run_that_breaks_leaves_the_first_failure(self):
    lines, code, _ = self.run_tests([(3, {'//a:x_test': 'FAILED'}), (37, {})])
    self.assertEqual(('0 passed, 1 failed', 1), (lines[-1], code))

  def test_times_are_of_the_first_run_and_no_argument_of_bazel(self):
    lines, code, calls = self.run_tests(
        [(0, {'//a:x_test': 'PASSED'})], '//a/...', '--times')
    self.assertEqual(['The ten slowest tests:', '    0.0 s //a:x_test',
                      '1 passed, 0 failed'], lines[-3:])
    self.assertEqual(0, code)
    self.assertTrue(calls[0].endswith(' //a/...'), calls)

  def test_missing_tools_are_told_to_the_tests(self):
    self.write('tests/kubernetes/install_tools.sh', '#!/bin/sh\nexit 1\n')
    lines, code, calls = self.run_tests([(0, {'//a:x_test': 'PASSED'})])
    self.assertEqual(('1 passed, 0 failed, 0 skipped', 0), (lines[-1], code))
    self.assertIn('--test_env=ATOLL_WITHOUT=pypi ', calls[0])


if __name__ == '__main__':
  cases.main()
