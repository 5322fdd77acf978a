"""The scripts that look at a machine, with invented machines."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

_HERE = os.path.dirname(os.path.abspath(__file__))
_DEPLOY = os.path.join(_HERE, '../deploy')
sys.path[:0] = [os.path.join(_HERE, 'integration')]

from harness import cases  # pylint: disable=wrong-import-position

_GIB = 1 << 30


class ScriptTest(unittest.TestCase):
  """A test with a folder of its own, and verbs."""

  def setUp(self):
    super().setUp()
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.folder = folder.name
    self.memory(64)

  def path(self, name):
    return os.path.join(self.folder, name)

  def write(self, name, text, mode=0o644):
    os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
    with open(self.path(name), 'w', encoding='utf-8') as file:
      file.write(text)
    os.chmod(self.path(name), mode)

  def read(self, name):
    with open(self.path(name), encoding='utf-8') as file:
      return file.read()

  def copy(self, *names):
    """Copies scripts of deploy/ into the folder."""
    for name in names:
      os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
      shutil.copy(os.path.join(_DEPLOY, name[len('deploy/'):]),
                  self.path(name))

  def memory(self, gib, cgroup='0::/\n'):
    self.write('proc/meminfo', 'MemTotal: 1 kB\nMemAvailable:  %d kB\n' %
               (gib << 20))
    self.write('proc/self/cgroup', cgroup)

  def bash(self, command, **environment):
    """(output, errors, exit code) of a command in the folder."""
    done = subprocess.run(
        ['bash', '-c', command], cwd=self.folder, text=True,
        capture_output=True, check=False,
        env={'HOME': self.folder, 'TMPDIR': self.folder,
             'PATH': self.path('bin') + ':/usr/bin:/bin', **environment})
    return done.stdout, done.stderr, done.returncode


class JobsTest(ScriptTest):

  def jobs(self, processors):
    out, error, code = self.bash('source "%s/bazel/machine.sh"; '
                                 'machine_jobs %d "$PWD"' %
                                 (_DEPLOY, processors))
    self.assertEqual(('', 0), (error, code))
    return int(out)

  def test_processors_or_free_memory_whichever_is_less(self):
    self.assertEqual(16, self.jobs(16))
    self.memory(5)
    self.assertEqual(5, self.jobs(16))
    self.memory(0)
    self.assertEqual(1, self.jobs(16))

  def test_limits_of_cgroups_v2_at_each_level(self):
    self.memory(64, '0::/a/b\n')
    for name, text in (('a/memory.max', 6 * _GIB), ('a/memory.current', _GIB),
                       ('a/b/memory.max', 'max'), ('a/b/memory.current', 5),
                       ('a/memory.stat', 'anon 7\ninactive_file 0'),
                       ('a/b/cpu.max', 'max 100000')):
      self.write('sys/fs/cgroup/' + name, '%s\n' % text)
    self.assertEqual(5, self.jobs(16))
    self.write('sys/fs/cgroup/a/b/cpu.max', '350000 100000\n')
    self.assertEqual(3, self.jobs(16))

  def test_the_page_cache_of_a_cgroup_is_free(self):
    for name, text in (('max', 4 * _GIB), ('current', 4 * _GIB),
                       ('stat', 'inactive_file %d' % (3 * _GIB))):
      self.write('sys/fs/cgroup/memory.' + name, '%s\n' % text)
    self.assertEqual(3, self.jobs(16))

  def test_limits_of_cgroups_v1_as_a_container_sees_them(self):
    self.memory(64, '5:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n0::/\n')
    for name, number in (('memory/memory.limit_in_bytes', 8 * _GIB),
                         ('memory/memory.usage_in_bytes', 2 * _GIB),
                         ('memory/memory.stat', 0),
                         ('cpu/cpu.cfs_quota_us', -1),
                         ('cpu/cpu.cfs_period_us', 100000)):
      self.write('sys/fs/cgroup/' + name, '%d\n' % number)
    self.assertEqual(6, self.jobs(16))
    self.write('sys/fs/cgroup/cpu/cpu.cfs_quota_us', '400000\n')
    self.assertEqual(4, self.jobs(16))

  def test_two_processors_compile_two_files_and_run_three_tests(self):
    out, _, _ = self.bash('source "%s/bazel/machine.sh"; machine_options 2' %
                          _DEPLOY)
    self.assertEqual('build --local_cpu_resources=2 --jobs=5 '
                     '--local_test_jobs=3\n', out)


class PrepareTest(ScriptTest):

  def prepare(self, cache):
    self.copy('deploy/bazel/machine.sh', 'deploy/bazel/prepare.sh',
              'deploy/bazel/prune_cache.sh')
    self.write('.bazelrc', 'build --disk_cache=%s\n' % cache)
    _, error, code = self.bash('set -euo pipefail; '
                               'source deploy/bazel/prepare.sh')
    self.assertEqual(0, code, error)
    return error

  def test_writes_the_options_only_if_they_differ(self):
    self.prepare(self.path('cache'))
    self.assertRegex(self.read('machine.bazelrc'), '^build --local_cpu.*\n$')
    before = os.stat(self.path('machine.bazelrc')).st_ino
    self.prepare(self.path('cache'))
    self.assertEqual(before, os.stat(self.path('machine.bazelrc')).st_ino)

  def test_names_another_cache_once_and_leaves_user_bazelrc_alone(self):
    self.write('file', '')
    self.assertIn('cannot be written', self.prepare(self.path('file/cache')))
    self.assertIn('\nbuild --disk_cache=%s/.cache/atoll-bazel\n' % self.folder,
                  self.read('machine.bazelrc'))
    self.assertEqual('', self.prepare(self.path('file/cache')))
    self.assertFalse(os.path.exists(self.path('user.bazelrc')))


class PruneTest(ScriptTest):

  def entry(self, name, age, mib=1):
    """A file that was last used `age` days ago."""
    self.write('cache/' + name, '')
    with open(self.path('cache/' + name), 'wb') as file:
      os.posix_fallocate(file.fileno(), 0, mib << 20)
    seconds = os.stat(self.path('cache')).st_mtime - age * 86400
    os.utime(self.path('cache/' + name), (seconds, 0))

  def prune(self, most, keep):
    script = os.path.join(_DEPLOY, 'bazel/prune_cache.sh')
    _, error, code = self.bash('"%s" cache %s %s' % (script, most, keep))
    self.assertEqual(('', 0), (error, code))
    return sorted(
        os.path.relpath(os.path.join(folder, name), self.path('cache'))
        for folder, _, names in os.walk(self.path('cache')) for name in names
        if name != 'pruned')

  def test_removes_the_least_recently_used_entries_and_nothing_else(self):
    names = ['%s/%02x/%064x' % (kind, i, i) for i in range(4)
             for kind in ('ac', 'cas')]
    for age, name in enumerate(names):
      self.entry(name, age)
    others = ['notes', 'cas/00/notes', 'cas/00/sub/%064x' % 1, 'ac/%064x' % 2,
              'other/00/%064x' % 3]
    for name in others:
      self.entry(name, 100)
    gib = 1 / 1024
    self.assertEqual(sorted(names + others), self.prune(8.5 * gib, 3.5 * gib))
    os.unlink(self.path('cache/pruned'))
    self.assertEqual(sorted(names[:3] + others),
                     self.prune(7.5 * gib, 3.5 * gib))

  def test_looks_once_a_day(self):
    self.entry('ac/00/%064x' % 0, 1)
    self.assertEqual(1, len(self.prune(1, 1)))
    self.assertEqual(1, len(self.prune(0, 0)))

  def test_does_nothing_without_a_cache(self):
    self.assertEqual([], self.prune(0, 0))


class CheckTest(ScriptTest):

  def setUp(self):
    super().setUp()
    self.copy('deploy/check_machine.sh', 'deploy/bazel/machine.sh')
    self.write('deploy/install_packages.sh', '#!/bin/sh\n', 0o755)
    self.write('etc/os-release', 'ID=debian\nVERSION_ID="12"\n')
    self.write('proc/cpuinfo', 'flags : sse avx avx2 fma\n')
    self.disk(100)

  def disk(self, gib):
    self.write('bin/df', '#!/bin/sh\necho Filesystem\necho x 0 0 %d\n' %
               (gib << 20), 0o755)

  def check(self):
    _, error, code = self.bash('deploy/check_machine.sh build',
                               ATOLL_MACHINE_ROOT=self.folder)
    return error.splitlines(), code

  def test_says_nothing_about_a_machine_that_is_right(self):
    self.assertEqual(([], 0), self.check())

  def test_warns_in_one_line_each(self):
    self.write('etc/os-release', 'ID=fedora\nVERSION_ID=40\n')
    self.memory(1)
    self.disk(2)
    lines, code = self.check()
    self.assertEqual((4, 0), (len(lines), code), lines)  # Two folders.

  def test_ends_if_the_programs_could_not_run(self):
    self.write('proc/cpuinfo', 'flags : sse avx avx2\n')
    lines, code = self.check()
    self.assertEqual((1, 1), (len(lines), code), lines)
    self.assertIn('FMA', lines[0])

  def test_ends_if_packages_cannot_be_installed(self):
    self.write('deploy/install_packages.sh', '#!/bin/sh\nexit 1\n', 0o755)
    self.assertEqual(([], 1), self.check())


class BuildTest(ScriptTest):

  def build(self, script):
    self.write('bin/bazel', '#!/bin/sh\n' + script, 0o755)
    _, error, code = self.bash('"%s/bazel/build.sh" //a:a' % _DEPLOY)
    return error.splitlines(), code

  def test_shows_progress_and_no_compiler_output(self):
    lines, code = self.build('echo "a.cc: warning: x"; echo "[1 / 4] b.cc"')
    self.assertEqual((['reading the build files'], 0), (lines, code))

  def test_a_failure_shows_the_errors_and_keeps_the_log(self):
    lines, code = self.build('echo noise; echo "a.cc:1: error: x" >&2; exit 1')
    self.assertEqual(('a.cc:1: error: x', 1), (lines[-2], code))
    self.assertIn('noise', self.read(lines[-1].rsplit(': ', 1)[1]))


if __name__ == '__main__':
  cases.main()
