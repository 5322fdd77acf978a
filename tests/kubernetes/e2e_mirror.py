"""Loses volumes on a real cluster, and restores the run from a mirror.

usage: KUBECONFIG=FILE e2e.sh IMAGE:TAG s3://BUCKET/PREFIX

PREFIX is empty. The pods get this process's AWS_*, and trust the CAs in the file
AWS_CA_BUNDLE. Any S3 does that honours If-None-Match. moto checks no signatures,
and its bucket must be made first; ADDRESS is an IP that the pods reach:

    openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=s3 \\
        -addext subjectAltName=IP:ADDRESS -keyout s3.key -out s3.crt
    VENV/bin/moto_server --host ADDRESS --port 9000 \\
        --ssl-cert s3.crt --ssl-key s3.key       # pip install moto[server,s3]
    curl --cacert s3.crt --request PUT https://ADDRESS:9000/BUCKET
    export AWS_ENDPOINT_URL=https://ADDRESS:9000 AWS_CA_BUNDLE=$PWD/s3.crt \\
        AWS_REGION=us-east-1 AWS_ACCESS_KEY_ID=id AWS_SECRET_ACCESS_KEY=secret

Two islands train a strict run. Then the volume of a server is deleted, and that
of the coordinator; at last the whole namespace, and the run continues in another
one, on three servers, to its end. Needs 7 volumes that a pod may hold alone
(ReadWriteOncePod) and 6 that a node may (ReadWriteOnce). Prints one line a
check.
"""

import json
import os
import re
import sys
import time

import chart
import e2e
import manifests
from e2e import Failed, kubectl, wait_for

RUN = 'mirrored'
OTHER_NAMESPACE = 'atoll-e2e-other'
OTHER_SERVERS = 3
ISLANDS = 2
_KEYS = ('AWS_ACCESS_KEY_ID', 'AWS_SECRET_ACCESS_KEY', 'AWS_REGION',
         'AWS_ENDPOINT_URL')
_CA_FILE = os.environ.get('AWS_CA_BUNDLE', '')
_FILE = """preset = "laptop"
[schedule]
min_quorum = %d
[checkpoint]
every_round_count = 2
mirror = true
""" % ISLANDS


def values(image, mirror):
  repository, _, tag = image.rpartition(':')
  port = re.search(r':(\d+)/?$', os.environ.get('AWS_ENDPOINT_URL', ''))
  result = ['image.repository=' + repository, 'image.tag=' + tag,
            'checkpoint.mirror=' + mirror, 'checkpoint.credentials=bucket',
            'checkpoint.port=%s' % (port.group(1) if port else 443),
            'server.persistence.accessMode=ReadWriteOnce',
            'islands[0].replicas=%d' % ISLANDS, 'run.id=' + RUN, 'run.preset=',
            'run.islands=%d' % ISLANDS, 'run.file=' + _FILE,
            'run.tokens=' + e2e.TOKENS]
  if _CA_FILE:
    result.append('checkpoint.authorities=mirror-ca')
  return [part for value in result for part in ('--set', value)]


class Mirrored:

  def __init__(self, image, mirror):
    self.mirror = mirror
    self.values = values(image, mirror)
    self.job = None     # The run's, of which operator pods are made.
    self.secret = ''    # Of the coordinator's log.

  def helm(self, verb, *more):
    return e2e.helm(verb, 'atoll', chart.CHART, '-f',
                    os.path.join(chart.CHART, 'quickstart.yaml'), *self.values,
                    *more)

  def install(self, *more):
    kubectl('create', 'namespace', e2e.NAMESPACE)
    kubectl('label', 'namespace', e2e.NAMESPACE,
            'pod-security.kubernetes.io/enforce=restricted')
    kubectl('create', 'secret', 'generic', 'bucket',
            *['--from-literal=%s=%s' % (key, os.environ[key])
              for key in _KEYS if key in os.environ])
    if _CA_FILE:
      kubectl('create', 'configmap', 'mirror-ca', '--from-file=ca.crt=' + _CA_FILE)
    self.helm('install', '--timeout', '5m', *more)

  def first_install(self):
    self.install()
    wait_for('ready pod of each kind', e2e.all_ready)

  def operator(self):
    if not self.job:
      self.job = wait_for('Job of the run', lambda: next(
          (j for j in e2e.items('jobs')
           if j['metadata']['name'].startswith('atoll-run')), None))
      labels = self.job['spec']['template']['metadata']['labels']
      for key in [k for k in labels if 'job-name' in k or 'controller-uid' in k]:
        del labels[key]
      # The run's file is in this namespace alone.
      spec = manifests.pod_spec(self.job)
      for entries in (spec['volumes'], spec['containers'][0]['volumeMounts']):
        entries[:] = [entry for entry in entries if entry['name'] != 'run']
    kubectl('apply', '-f', '-', text=json.dumps(e2e.operator_pod(self.job)))
    kubectl('wait', 'pod/operator', '--for=condition=Ready', '--timeout=5m')

  def shown(self):
    return e2e.atoll('run', 'show', RUN)

  def mirrored(self):
    """Waits for a checkpoint in the mirror that is newer than now."""
    before = int(self.shown().get('commit_seq', 0))
    return wait_for('checkpoint in the mirror', lambda: int(
        self.shown().get('mirror', {}).get('commit_seq', 0)) > before and
                    'commit %s' % self.shown()['mirror']['commit_seq'])

  def commits(self, lost_s):
    """Waits for two commits of this run_epoch. Returns how long after `lost_s`,
    a monotonic time, the first was seen."""
    seen_s = []
    for _ in range(2):
      before = int(self.shown()['commit_seq'])
      wait_for('commit', lambda b=before: int(self.shown()['commit_seq']) > b)
      seen_s.append(time.monotonic())
    if e2e.has_ended(RUN):
      raise Failed('the run ended too early: set E2E_TOKENS higher')
    wait_for('ready pod of each kind', e2e.all_ready)
    return 'a commit %.0f s after the loss' % (seen_s[0] - lost_s)

  def epoch(self):
    return int(self.shown()['run']['run_epoch'])

  def first_checkpoint(self):
    self.operator()
    note = self.mirrored()
    self.secret = kubectl('exec', 'atoll-coordinator-0', '--',
                          'atoll-coordinator', 'secret',
                          '--data-dir=/var/lib/atoll/data')
    return note

  def lost_server(self):
    self.mirrored()
    epoch = self.epoch()
    pods = self.island_pods()
    lost_s = time.monotonic()
    kubectl('delete', 'pvc', 'data-atoll-server-0', '--wait=false')
    kubectl('delete', 'pod', 'atoll-server-0')
    run, = e2e.atoll('server', 'replace', 'atoll-server-0', '--yes')['runs']
    note = self.commits(lost_s)
    if self.epoch() != epoch + 1:
      raise Failed('run_epoch %d, not %d' % (self.epoch(), epoch + 1))
    self.check_islands(pods)
    return '%s: %s, %s tokens lost' % (note, run['pin_id'],
                                       run['lost_token_count'])

  def lost_coordinator(self):
    self.mirrored()
    epoch = self.epoch()
    pods = self.island_pods()
    kubectl('create', 'secret', 'generic', 'log-secret',
            '--from-literal=secret=' + self.secret)
    lost_s = time.monotonic()
    e2e.scale_coordinator(0)
    kubectl('delete', 'pvc', e2e.CLAIM)
    kubectl('apply', '-f', '-', text=self.helm(
        'template', '--set', 'coordinator.restoreSecret=log-secret',
        '--show-only', 'templates/restore.yaml'))
    status = wait_for('end of the Job', self.job_status)
    said = kubectl('logs', 'job/atoll-restore').strip()
    if status.get('failed'):
      raise Failed(said)
    kubectl('delete', 'job/atoll-restore', 'networkpolicy/atoll-restore')
    e2e.scale_coordinator(1)
    wait_for('answer of the coordinator', self.shown)
    note = self.commits(lost_s)
    if self.epoch() <= epoch:
      raise Failed('run_epoch %d after %d' % (self.epoch(), epoch))
    self.check_islands(pods)
    return '%s: %s' % (note, ' '.join(said.split()))

  def job_status(self):
    """Of the Job that restores the log, once it has ended."""
    status = json.loads(kubectl('get', 'job', 'atoll-restore', '-o', 'json'))[
        'status']
    return status if 'failed' in status or 'succeeded' in status else None

  def island_pods(self):
    return {p['metadata']['uid'] for p in e2e.items('pods')
            if p['metadata']['name'].startswith('atoll-cpu-')}

  def check_islands(self, pods):
    if self.island_pods() != pods:
      raise Failed('an island is another pod')

  def lost_namespace(self):
    self.mirrored()
    lost_s = time.monotonic()
    kubectl('delete', 'namespace', e2e.NAMESPACE, '--timeout=10m')
    e2e.NAMESPACE = OTHER_NAMESPACE
    self.install('--set', 'run.create=false',
                 '--set', 'server.replicas=%d' % OTHER_SERVERS)
    # Islands are not ready without a run.
    kubectl('rollout', 'status', 'statefulset/atoll-server', '--timeout=10m')
    self.operator()
    e2e.atoll('run', 'restore', self.mirror, '--run-id', RUN,
              '--server-count', str(OTHER_SERVERS), '--yes')
    shown = self.shown()
    servers = {s['placement']['server_id'] for s in shown['servers']}
    if len(servers) != OTHER_SERVERS:
      raise Failed('on the servers %s' % sorted(servers))
    return '%s: %s' % (self.commits(lost_s),
                       shown['run']['restored']['pin_id'])

  def end(self):
    wait_for('end of the run', lambda: e2e.has_ended(RUN))
    self.mirrored()
    exported = e2e.export(RUN)
    kept = e2e.atoll('checkpoint', 'export', self.mirror, '--output',
                     '/out/mirror')['parameters_sha256']
    if kept != exported:
      raise Failed('the mirror has %s, the run %s' % (kept, exported))
    return 'sha256 ' + exported


def main():
  mirrored = Mirrored(*sys.argv[1:])
  failed = e2e.run([
      ('helm install with a mirror', mirrored.first_install),
      ('a checkpoint is in the mirror', mirrored.first_checkpoint),
      ('a server\'s volume is deleted', mirrored.lost_server),
      ('the coordinator\'s volume is deleted', mirrored.lost_coordinator),
      ('the namespace is deleted, and another has the run',
       mirrored.lost_namespace),
      ('the run ends, and its export is the mirror\'s', mirrored.end),
      ('no OOM kill', e2e.no_oom_kill),
  ])
  if failed:
    print('%d failed; namespace %s is left as it is' % (failed, e2e.NAMESPACE))
  else:
    kubectl('delete', 'namespace', e2e.NAMESPACE, '--wait=false')
  sys.exit(1 if failed else 0)


if __name__ == '__main__':
  main()
