"""Renders the chart, and asks the programs for their flags."""

import copy
import functools
import hashlib
import os
import re
import subprocess
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(_HERE, '../..'))
CHART = os.path.join(ROOT, 'deploy/kubernetes/atoll')
RENDERED = os.path.join(ROOT, 'deploy/kubernetes/quickstart.rendered.yaml')


def _tools():
  """The directory that install_tools.sh fills. Never absent silently."""
  if 'pypi' in os.environ.get('ATOLL_WITHOUT', ''):
    from harness import cases  # pylint: disable=import-outside-toplevel
    cases.skip_all('install_tools.sh could not get helm and the validators '
                   'from PyPI')
  with open(os.path.join(_HERE, 'requirements.txt'), 'rb') as file:
    version = hashlib.sha256(file.read()).hexdigest()[:12]
  tools = os.environ.get('ATOLL_TOOLS') or '/var/tmp/atoll-tools-' + version
  try:
    with open(os.path.join(tools, 'version'), encoding='utf-8') as file:
      present = file.read().strip()
  except OSError:
    present = 'nothing'
  if present != version:
    sys.exit('%s holds %s, not %s: run tests/kubernetes/install_tools.sh' %
             (tools, present, version))
  return tools


TOOLS = _tools()
HELM = os.path.join(TOOLS, 'bin/helm')
sys.path.insert(0, os.path.join(TOOLS, 'python'))

import yaml  # pylint: disable=wrong-import-position

_LOADER = getattr(yaml, 'CSafeLoader', yaml.SafeLoader)


@functools.cache  # Most documents are the same in many renderings.
def _parse_one(text):
  return yaml.load(text, _LOADER)


def parse(text):
  """The documents; the caller must not change them."""
  texts = re.split('^---\n', text, flags=re.M)
  return [d for d in map(_parse_one, texts) if d]


class Refused(Exception):
  """Helm refused the values; the text says why."""


def helm(*arguments, values=None):
  """What helm prints, with `values` merged over the files'."""
  command = [HELM] + list(arguments)
  if values is not None:
    command += ['-f', '-']
  result = subprocess.run(
      command, input=yaml.safe_dump(values or {}), text=True,
      capture_output=True, timeout=60, check=False,
      env={'HOME': os.environ.get('TEST_TMPDIR', '/tmp'), 'PATH': '/usr/bin',
           'GOGC': 'off'})  # It ends before its garbage matters.
  if result.returncode != 0:
    raise Refused(result.stderr)
  return result.stdout


def render_text(*files, values=None, chart=CHART):
  arguments = ['template', 'atoll', chart, '--namespace', 'atoll']
  for file in files:
    arguments += ['-f', os.path.join(CHART, file)]
  return helm(*arguments, values=values)


_RENDERED = {}


def render(*files, values=None):
  """The documents; the caller may change them."""
  key = (files, repr(values))
  if key not in _RENDERED:
    _RENDERED[key] = parse(render_text(*files, values=values))
  return copy.deepcopy(_RENDERED[key])


_HEADER = '''\
# The quickstart for those without helm: one coordinator, 2 servers, 3 islands.
#
#     kubectl apply -f quickstart.rendered.yaml
#
# Pods wait until the Job atoll-certificates has made their Secrets.
# tests/kubernetes/render.py writes this file from the chart.
apiVersion: v1
kind: Namespace
metadata:
  name: atoll
  labels:
    pod-security.kubernetes.io/enforce: restricted
'''


# Of each cluster that the file makes. Their logs' secrets still differ.
_CLUSTER_ID = 'a701100000000000000000000000a701'


def quickstart():
  """The text of quickstart.rendered.yaml."""
  text = render_text('quickstart.yaml',
                     values={'coordinator': {'clusterId': _CLUSTER_ID}})
  documents = [d for d in re.split(r'^---\n', text, flags=re.M) if d.strip()]
  # Accounts first: a Job's first pod needs its own.
  first = re.compile(r'^kind: (ServiceAccount|Role|RoleBinding)$', re.M)
  documents.sort(key=lambda d: not first.search(d))
  return _HEADER + ''.join('---\n' + d.rstrip() + '\n' for d in documents)


_COMMANDS = [
    ('atoll',), ('atoll', 'join'), ('atoll', 'run'), ('atoll', 'run', 'create'),
    ('atoll', 'run', 'export'), ('atoll', 'ca'), ('atoll', 'ca', 'init'),
    ('atoll', 'ca', 'issue'), ('atoll', 'ca', 'publish'),
    ('atoll-coordinator',), ('atoll-coordinator', 'init'),
    ('atoll-coordinator', 'restore'), ('atoll-server',), ('atoll-gate',)
]
_PLACES = {'atoll': 'cli', 'atoll-coordinator': 'coordinator',
           'atoll-server': 'server', 'atoll-gate': 'coordinator/gate'}


def program(name):
  below = os.path.join(_PLACES[name], name)
  for root in (os.environ.get('ATOLL_BIN', ''), os.path.join(ROOT, 'bazel-bin'),
               ROOT):
    path = os.path.join(root, below)
    if root and os.path.isfile(path):
      return path
  raise FileNotFoundError('%s: build it, or set ATOLL_BIN to a bazel-bin' %
                          below)


def flags(help_text):
  """The flags that a --help lists."""
  found = set()
  for line in re.findall(r'^  (-\S+)', help_text, re.M):
    found.update(w for w in line.split(',') if w.startswith('--'))
  return found


def helps():
  """{words of a command: its flags}; those of `atoll` fit its subcommands."""
  result = {}
  for words in _COMMANDS:
    run = subprocess.run([program(words[0])] + list(words[1:]) + ['--help'],
                         text=True, capture_output=True, timeout=30,
                         check=False)
    if run.returncode != 0:
      raise ValueError('%s --help: %s' % (' '.join(words), run.stderr))
    result[words] = flags(run.stdout)
  for words, own in result.items():
    if words[0] == 'atoll':
      own |= result[('atoll',)]
  return result
