"""Tries the chart's gate on a real cluster, with a volunteer outside of it.

usage: KUBECONFIG=FILE e2e.sh IMAGE:TAG NODE_ADDRESS DATA_URL [CA_FILE]

NODE_ADDRESS is an address of a node that this machine reaches. DATA_URL is a
manifest of `atoll data publish`, which this machine and the pods reach. CA_FILE
signs its host's certificate; this machine must trust it already. For s3:// the
coordinator and the run's Job get this process's AWS_*, and no island does.
ATOLL_ALLOW_DATA_HOST names its host if that is private and not in the block of
NODE_ADDRESS.

The run has two islands: one of the chart, and one here, a process with nothing
but the program and a join string. Meanwhile a gate's pod is deleted, the
volunteer pauses, all other programs are restarted by `helm upgrade`, and the
coordinator is away for a minute. The run's end is awaited, and its model
exported. Needs the namespace and volumes of e2e.py, and bazel-bin (or
ATOLL_BIN). Prints one line a check.
"""

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import chart
import e2e
from e2e import Failed, kubectl, wait_for

RUN = 'outside'
_SECRET = ('tls.crt', 'tls.key', 'ca.crt')
# The planned steps of the first progress line that has made one.
_STEP = re.compile(r'step ([1-9]\d*)/')
_ROUND = re.compile(r'^round (\d+)', re.MULTILINE)
_KEYS = ('AWS_ACCESS_KEY_ID', 'AWS_SECRET_ACCESS_KEY', 'AWS_REGION',
         'AWS_ENDPOINT_URL')
_AWAY_S = 60
# Shorter rounds than the preset's, and no more files than two islands read.
_FILE = """preset = "volunteers"
[data]
url = "%s"
order = "by_file"
data_shard_count = 2
[schedule]
inner_step_count = 20
"""


def values(image, address, url, ca_file):
  repository, _, tag = image.rpartition(':')
  in_bucket = url.startswith('s3://')
  host = os.environ.get('AWS_ENDPOINT_URL', '') + '/' if in_bucket else url
  port = re.match(r'https://[^/:]+:(\d+)/', host)
  result = ['image.repository=' + repository, 'image.tag=' + tag,
            'gate.enabled=true', 'islands[0].replicas=1', 'data.url=' + url,
            'data.port=%s' % (port.group(1) if port else 443),
            'run.id=' + RUN, 'run.preset=', 'run.file=' + _FILE % url,
            'run.islands=2', 'run.tokens=' + e2e.TOKENS]
  if ca_file:
    result.append('data.authorities=data-ca')
  if in_bucket:
    result.append('data.credentials=bucket')
  for name in ('gate', 'coordinator', 'server'):
    result += [name + '.expose.type=NodePort',
               '%s.expose.address=%s' % (name, address)]
  return [part for value in result for part in ('--set', value)]


class Volunteer:
  """`atoll join` with a string, in a home of its own."""

  def __init__(self, folder, string):
    os.mkdir(folder)
    self.folder = folder
    self.string = string
    self.log = os.path.join(folder, 'log')
    self.started = 0.
    self.process = None

  def join(self):
    self.started = time.monotonic()
    with open(self.log, 'w', encoding='utf-8') as log:
      self.process = subprocess.Popen(
          [chart.program('atoll'), 'join', '-', '--threads=1'], text=True,
          stdin=subprocess.PIPE, stdout=log, stderr=log, env=self.environment())
    self.process.stdin.write(self.string)
    self.process.stdin.close()

  def environment(self):
    return {'HOME': self.folder, 'PATH': '/usr/bin',
            'ATOLL_ALLOW_DATA_HOST': os.environ.get('ATOLL_ALLOW_DATA_HOST',
                                                    '')}

  def call(self, *arguments):
    """What another command of `atoll` prints here."""
    run = subprocess.run([chart.program('atoll'), *arguments], text=True,
                         input=self.string, capture_output=True, check=False,
                         timeout=120, env=self.environment())
    if run.returncode != 0:
      raise Failed('atoll %s: %s%s' % (' '.join(arguments), run.stdout,
                                       run.stderr))
    return run.stdout

  def says(self, pattern):
    """The first match in the log; None yet. Failed: it has ended."""
    with open(self.log, encoding='utf-8') as file:
      text = file.read()
    found = re.search(pattern, text)
    if not found and self.process.poll() is not None:
      raise Failed('atoll join ended: ' + text[-500:])
    return found

  def round(self):
    if self.process.poll() is not None:
      raise Failed('atoll join ended too early: set E2E_TOKENS higher')
    with open(self.log, encoding='utf-8') as file:
      return int(([0] + _ROUND.findall(file.read()))[-1])

  def goes_on(self):
    """Waits for a round that begins after now."""
    begin, now = time.monotonic(), self.round()
    wait_for('round after %d' % now, lambda: self.round() > now + 1)
    return 'round %d after %.0f s' % (self.round(), time.monotonic() - begin)

  def wait_until(self, pattern):
    wait_for('line with ' + pattern, lambda: self.says(pattern), 120)
    return '%.0f s after its start' % (time.monotonic() - self.started)

  def stop(self):
    if not self.process:
      return 0
    if self.process.poll() is None:
      self.process.send_signal(signal.SIGINT)
    return self.process.wait(60)


class Outside:

  def __init__(self, folder, image, address, url, ca_file=''):
    self.folder = folder
    self.ca_file = ca_file
    self.in_bucket = url.startswith('s3://')
    self.values = values(image, address, url, ca_file)
    self.started = 0.
    self.forward = None
    self.flags = []
    self.string = ''
    self.volunteers = []

  def path(self, name):
    return os.path.join(self.folder, name)

  def install(self):
    kubectl('create', 'namespace', e2e.NAMESPACE)
    kubectl('label', 'namespace', e2e.NAMESPACE,
            'pod-security.kubernetes.io/enforce=restricted')
    if self.ca_file:
      kubectl('create', 'configmap', 'data-ca',
              '--from-file=ca.crt=' + self.ca_file)
    if self.in_bucket:
      kubectl('create', 'secret', 'generic', 'bucket',
              *['--from-literal=%s=%s' % (key, os.environ[key])
                for key in _KEYS if key in os.environ])
    self.started = time.monotonic()
    self.helm('install')

  def helm(self, verb):
    e2e.helm(verb, 'atoll', chart.CHART, '-f',
             os.path.join(chart.CHART, 'quickstart.yaml'), *self.values,
             '--timeout', '5m')

  def ready(self):
    def is_ready():
      gates, = e2e.items('deployments')
      now = gates['status']
      return e2e.all_ready() and now.get('observedGeneration') == gates[
          'metadata']['generation'] and all(
              now.get(count) == gates['spec']['replicas']
              for count in ('replicas', 'readyReplicas', 'updatedReplicas'))
    wait_for('ready pod of each kind', is_ready)
    return '%.0f s after install' % (time.monotonic() - self.started)

  def operate(self, *arguments):
    """What a command of `atoll` prints here, as the operator."""
    status, out, error = e2e.call(chart.program('atoll'), *arguments,
                                  *self.flags)
    if status != 0:
      raise Failed('atoll %s: %s' % (' '.join(arguments), out + error))
    return out

  def operator(self):
    secret = json.loads(kubectl('get', 'secret', 'atoll-operator-tls', '-o',
                                'json'))['data']
    for name in _SECRET:
      with open(os.open(self.path(name), os.O_CREAT | os.O_WRONLY, 0o600),
                'wb') as file:
        file.write(base64.b64decode(secret[name]))
    self.connect()
    self.string = wait_for('join string', lambda: self.operate(
        'token', 'create', '--run', RUN, '--uses=2'), 60)
    return '%.0f s after install' % (time.monotonic() - self.started)

  def connect(self):
    """Forwards a port to the coordinator's pod of now."""
    self.disconnect()
    self.forward = subprocess.Popen(
        [e2e.KUBECTL, '-n', e2e.NAMESPACE, 'port-forward',
         'service/atoll-coordinator', ':7400'], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    line = self.forward.stdout.readline()
    found = re.search(r'127\.0\.0\.1:(\d+)', line)
    if not found:
      raise Failed('port-forward says: ' + line)
    self.flags = ['--coordinator=localhost:' + found.group(1)] + [
        '--tls-%s=%s' % (flag, self.path(name))
        for flag, name in zip(('cert', 'key', 'ca'), _SECRET)]

  def disconnect(self):
    if self.forward:
      self.forward.terminate()
      self.forward.wait(10)

  def volunteer(self, name):
    self.volunteers.append(Volunteer(self.path(name), self.string))
    return self.volunteers[-1]

  def doctors(self):
    for text in (self.volunteer('first').call('doctor', '-'),
                 self.operate('doctor', '--operator')):
      print(text)

  def first_step(self):
    self.volunteers[0].join()
    return self.volunteers[0].wait_until(_STEP.pattern)

  def one_gate(self):
    gates = [p['metadata']['name'] for p in e2e.items('pods')
             if p['metadata']['name'].startswith('atoll-gate-')]
    kubectl('delete', 'pod', gates[0], '--wait=false')
    late = self.volunteer('second')
    late.join()
    note = late.wait_until('enrolled in run ' + RUN)
    late.stop()
    return note

  def pause(self):
    volunteer = self.volunteers[0]
    for command in ('pause', 'resume'):
      volunteer.call('local', command)
      wait_for('state after ' + command, lambda c=command: (c == 'pause') == (
          'paused' in volunteer.call('local', 'status')), 120)
    return volunteer.goes_on()

  def upgrade(self):
    self.values += [part for kind in ('gate', 'coordinator', 'server')
                    for part in ('--set', kind + '.podLabels.revision=b')]
    self.helm('upgrade')
    self.ready()
    self.connect()
    return self.volunteers[0].goes_on()

  def away(self):
    scale = ('scale', 'statefulset/atoll-coordinator')
    kubectl(*scale, '--replicas=0')
    time.sleep(_AWAY_S)
    kubectl(*scale, '--replicas=1')
    self.ready()
    self.connect()
    return self.volunteers[0].goes_on()

  def keys(self):
    """Islands have no keys: neither pods, nor the volunteer's files."""
    have = {p['metadata']['labels']['app.kubernetes.io/component']
            for p in e2e.items('pods')
            if any('envFrom' in c for c in p['spec']['containers'])}
    if have != ({'coordinator', 'operator'} if self.in_bucket else set()):
      raise Failed('with keys: ' + ', '.join(sorted(have)))
    found = self.in_bucket and any(
        e2e.call('grep', '-raqF', os.environ[key], self.path('first'))[0] == 0
        for key in _KEYS[:2])
    if found:
      raise Failed('a key in the volunteer\'s home')

  def end(self):
    code = self.volunteers[0].process.wait(e2e.WAIT_S)
    if code != 0:
      raise Failed('atoll join exited with %d' % code)
    run = json.loads(self.operate('run', 'show', RUN, '-o', 'json'))['data']
    if not run['run']['state'].endswith('COMPLETED'):
      raise Failed('the run is ' + run['run']['state'])
    return '%.0f s after its start' % (
        time.monotonic() - self.volunteers[0].started)

  def export(self):
    data = json.loads(self.operate('run', 'export', RUN, self.path('model'),
                                   '-o', 'json'))['data']
    return 'sha256 ' + data['parameters_sha256']

  def audit(self):
    text = self.operate('audit')
    if text.count('island.enrol') != 2:
      raise Failed('not two volunteers: ' + text)

  def close(self):
    for volunteer in self.volunteers:
      volunteer.stop()
    self.disconnect()


def main():
  folder = tempfile.mkdtemp()
  outside = Outside(folder, *sys.argv[1:])
  try:
    failed = e2e.run([
        ('helm install with a gate', outside.install),
        ('all pods are ready', outside.ready),
        ('a join string by the operator', outside.operator),
        ('the doctors of volunteer and operator', outside.doctors),
        ('a volunteer\'s first step', outside.first_step),
        ('a volunteer enrols while a gate is deleted', outside.one_gate),
        ('the volunteer pauses and goes on', outside.pause),
        ('helm upgrade, and the volunteer goes on', outside.upgrade),
        ('the coordinator is away, and the volunteer goes on', outside.away),
        ('islands have no keys of a bucket', outside.keys),
        ('the run ends for the volunteer', outside.end),
        ('export from outside', outside.export),
        ('the audit log names both volunteers', outside.audit),
        ('no OOM kill', e2e.no_oom_kill),
    ])
  finally:
    outside.close()
  if failed:
    print('%d failed; namespace %s and %s are left as they are' % (
        failed, e2e.NAMESPACE, folder))
    sys.exit(1)
  shutil.rmtree(folder)
  kubectl('delete', 'namespace', e2e.NAMESPACE, '--wait=false')


if __name__ == '__main__':
  main()
