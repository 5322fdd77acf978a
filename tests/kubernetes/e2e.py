"""Tries the chart on a real cluster: the quickstart, faults and an upgrade.

usage: KUBECONFIG=FILE e2e.sh IMAGE:TAG     an image that the nodes have

Makes the namespace atoll-e2e, which admits `restricted` pods only, and deletes
it when all checks have passed. It needs seven volumes that a pod may hold alone
(ReadWriteOncePod). One strict run is left alone; one has its pods deleted,
restarted, upgraded and evicted, and its coordinator's volume emptied and put
back. Both must end with the same SHA-256. Prints one line a check, PASSED or
FAILED, and exits with 1 if one failed.

Where the cluster is on a machine of its own, copy deploy/, tests/ and the tools
there, and set ATOLL_TOOLS.
"""

import base64
import json
import os
import subprocess
import sys
import time

import chart
import faults
import manifests
import matrix

NAMESPACE = 'atoll-e2e'
# Rounds enough that every fault happens before the run ends.
TOKENS = os.environ.get('E2E_TOKENS', '6M')
WAIT_S = 1200
SETS = ('coordinator', 'server', 'cpu')
CLAIM = 'data-atoll-coordinator-0'
KUBECTL = os.path.join(chart.TOOLS, 'bin/kubectl')


class Failed(Exception):
  pass


def call(*command, text=None):
  """(exit status, what it printed, what it complained about)."""
  result = subprocess.run(command, input=text, text=True, capture_output=True,
                          timeout=WAIT_S, check=False)
  return result.returncode, result.stdout, result.stderr


def kubectl(*arguments, text=None):
  status, out, error = call(KUBECTL, '-n', NAMESPACE, *arguments, text=text)
  if status != 0:
    raise Failed('kubectl %s: %s' % (' '.join(arguments), error.strip()))
  return out


def helm(*arguments):
  status, out, error = call(chart.HELM, '-n', NAMESPACE, *arguments)
  if status != 0:
    raise Failed('helm %s: %s' % (' '.join(arguments), error.strip()))
  return out


def wait_for(what, condition, wait_s=WAIT_S):
  end = time.monotonic() + wait_s
  error = ''
  while time.monotonic() < end:
    try:
      value = condition()
      if value:
        return value
    except Failed as failed:
      error = str(failed)
    time.sleep(1)
  raise Failed('no %s within %d s; %s' % (what, wait_s, error))


# A pod with the operator's certificate. The image has no shell, so a
# coordinator of its own, which nobody calls, keeps the pod alive.
def operator_pod(run_job):
  spec = manifests.pod_spec(run_job)
  container = dict(spec['containers'][0], name='operator',
                   command=['atoll-coordinator'],
                   args=['--data-dir=/out/none', '--listen=127.0.0.1:7499'])
  container['resources'] = {'requests': {'cpu': '100m', 'memory': '128Mi'},
                            'limits': {'cpu': '2', 'memory': '1Gi'}}
  container['volumeMounts'] = container['volumeMounts'] + [
      {'name': 'out', 'mountPath': '/out'}]
  init = dict(container, name='init', command=['atoll-coordinator', 'init'],
              args=['--data-dir=/out/none', '--if-empty'])
  return {
      'apiVersion': 'v1', 'kind': 'Pod',
      'metadata': {'name': 'operator', 'labels': run_job['spec']['template'][
          'metadata']['labels']},
      'spec': dict(spec, restartPolicy='Always', containers=[container],
                   initContainers=[init], terminationGracePeriodSeconds=5,
                   volumes=spec['volumes'] + [
                       {'name': 'out', 'emptyDir': {'sizeLimit': '1Gi'}}])
  }


def atoll(*arguments):
  """The data of a command of `atoll`, run as the operator."""
  flags = ['--coordinator=atoll-coordinator.%s.svc.cluster.local:7400' %
           NAMESPACE]
  flags.append('--tls-dir=/etc/atoll/tls/operator')
  out = kubectl('exec', 'operator', '--', 'atoll', *arguments, '-o', 'json',
                *flags)
  return json.loads(out)['data']


def tokens(run):
  return int(atoll('run', 'show', run).get('merged_token_count', 0))


def has_ended(run):
  state = atoll('run', 'show', run)['run']['state']
  if state.endswith('CANCELLED'):
    raise Failed('the run was cancelled')
  return state.endswith('COMPLETED')


def export(run):
  return atoll('run', 'export', run, '/out/' + run)['parameters_sha256']


def items(kind):
  return json.loads(kubectl('get', kind, '-o', 'json'))['items']


def all_ready():
  sets = items('statefulsets')
  return len(sets) == len(SETS) and all(
      s['status'].get('observedGeneration') == s['metadata']['generation'] and
      s['status'].get('readyReplicas') == s['spec']['replicas'] and
      s['status'].get('updatedReplicas') == s['spec']['replicas']
      for s in sets)


def progress(run):
  """Waits for a commit after now."""
  if has_ended(run):
    raise Failed('run %s ended too early: set E2E_TOKENS higher' % run)
  before = tokens(run)
  wait_for('commit', lambda: tokens(run) > before)


def cluster_id():
  """The one that helm keeps."""
  secret = json.loads(kubectl('get', 'secret', 'atoll-cluster', '-o', 'json'))
  return base64.b64decode(secret['data']['cluster-id']).decode()


def init_log():
  return kubectl('logs', 'atoll-coordinator-0', '-c', 'init')


def scale_coordinator(replicas):
  kubectl('scale', 'statefulset/atoll-coordinator', '--replicas=%d' % replicas)
  if replicas == 0:
    kubectl('wait', 'pod/atoll-coordinator-0', '--for=delete', '--timeout=5m')


def restart_counts():
  """{pod: (uid, restarts)} of servers and islands."""
  return {p['metadata']['name']: (
      p['metadata']['uid'],
      [s['restartCount'] for s in p['status']['containerStatuses']])
          for p in items('pods') if p['metadata']['name'].startswith(
              ('atoll-server-', 'atoll-cpu-'))}


_OOM = set()


def note_oom_kills():
  for pod in items('pods'):
    for status in pod['status'].get('containerStatuses', []):
      for state in (status.get('state', {}), status.get('lastState', {})):
        if state.get('terminated', {}).get('reason') == 'OOMKilled':
          _OOM.add(pod['metadata']['name'])


def no_oom_kill():
  if _OOM:
    raise Failed(', '.join(sorted(_OOM)))


class E2e:

  def __init__(self, image):
    repository, _, tag = image.rpartition(':')
    self.values = ['-f', os.path.join(chart.CHART, 'quickstart.yaml'),
                   '--set', 'image.repository=' + repository,
                   '--set', 'image.tag=' + tag,
                   '--set', 'run.tokens=' + TOKENS]
    self.sha = {}
    self.started = 0.

  def upgrade(self, *values):
    self.values += [part for v in values for part in ('--set', v)]
    helm('upgrade', 'atoll', chart.CHART, *self.values, '--timeout', '5m')

  def install(self):
    kubectl('create', 'namespace', NAMESPACE)
    kubectl('label', 'namespace', NAMESPACE,
            'pod-security.kubernetes.io/enforce=restricted')
    self.started = time.monotonic()
    helm('install', 'atoll', chart.CHART, *self.values, '--set', 'run.id=first',
         '--timeout', '5m')

  def ready(self):
    wait_for('ready pod of each kind', all_ready)
    return '%.0f s after install' % (time.monotonic() - self.started)

  def first_commit(self):
    job = wait_for('Job of the run', lambda: next(
        (j for j in items('jobs')
         if j['metadata']['name'].startswith('atoll-run')), None))
    labels = job['spec']['template']['metadata']['labels']
    for key in list(labels):
      if 'job-name' in key or 'controller-uid' in key:
        del labels[key]
    kubectl('apply', '-f', '-', text=json.dumps(operator_pod(job)))
    kubectl('wait', 'pod/operator', '--for=condition=Ready', '--timeout=5m')
    wait_for('commit', lambda: tokens('first') > 0)
    return '%.0f s after install' % (time.monotonic() - self.started)

  def undisturbed(self):
    wait_for('end of the run', lambda: has_ended('first'))
    self.sha['first'] = export('first')
    loss = atoll('eval', '--model', '/out/first', '--data',
                 '/usr/share/atoll/text')
    return 'sha256 %s, %s' % (self.sha['first'], json.dumps(loss))

  def second_run(self):
    self.upgrade('run.id=second')
    wait_for('run', lambda: tokens('second') > 0)
    wait_for('ready pod of each kind', all_ready)

  def force_delete(self, kind):
    kubectl('delete', 'pod', 'atoll-%s-0' % kind, '--force', '--grace-period=0')
    wait_for('ready pod of each kind', all_ready)
    progress('second')

  def restart(self):
    for kind in SETS:
      kubectl('rollout', 'restart', 'statefulset/atoll-' + kind)
    for kind in SETS:
      kubectl('rollout', 'status', 'statefulset/atoll-' + kind,
              '--timeout=10m')
    progress('second')

  def other_version(self):
    self.upgrade('server.podLabels.revision=b', 'coordinator.podLabels.revision=b',
                 'islands[0].podLabels.revision=b')
    wait_for('ready pod of each kind', all_ready)
    progress('second')

  def evict(self):
    def evict_one(name):
      body = {'apiVersion': 'policy/v1', 'kind': 'Eviction',
              'metadata': {'name': name, 'namespace': NAMESPACE}}
      return call(KUBECTL, 'create', '--raw',
                  '/api/v1/namespaces/%s/pods/%s/eviction' % (NAMESPACE, name),
                  '-f', '-', text=json.dumps(body))
    status, _, error = evict_one('atoll-server-0')
    if status != 0:
      raise Failed('the first was refused: ' + error)
    status, _, error = evict_one('atoll-server-1')
    if status == 0:
      raise Failed('the second was not refused')
    wait_for('ready pod of each kind', all_ready)
    progress('second')
    return error.strip()

  def emptied_volume(self):
    """A new log under the old id: all refuse it and wait for the old one."""
    volume = json.loads(kubectl('get', 'pvc', CLAIM, '-o', 'json'))['spec'][
        'volumeName']
    kubectl('patch', 'pv', volume, '--patch', json.dumps(
        {'spec': {'persistentVolumeReclaimPolicy': 'Retain'}}))
    before = restart_counts()
    scale_coordinator(0)
    kubectl('delete', 'pvc', CLAIM)
    scale_coordinator(1)
    wait_for('ready pod of each kind', all_ready)
    made = init_log()
    if cluster_id() not in made or 'made the log' not in made:
      raise Failed('no log of cluster %s: %s' % (cluster_id(), made))
    refused = ['refused island %s of run second' % name
               if name.startswith('atoll-cpu-') else 'refused server ' + name
               for name in before]
    wait_for('refused peer of each name', lambda: all(
        line + ': OTHER_CLUSTER' in kubectl('logs', 'atoll-coordinator-0')
        for line in refused))
    scale_coordinator(0)
    claim, = json.loads(kubectl('get', 'statefulset', 'atoll-coordinator', '-o',
                                'json'))['spec']['volumeClaimTemplates']
    kubectl('delete', 'pvc', CLAIM)
    kubectl('patch', 'pv', volume, '--patch', json.dumps(
        {'spec': {'claimRef': None}}))
    kubectl('apply', '-f', '-', text=json.dumps(dict(
        claim, apiVersion='v1', kind='PersistentVolumeClaim', status={},
        metadata={'name': CLAIM},
        spec=dict(claim['spec'], volumeName=volume))))
    scale_coordinator(1)
    wait_for('ready pod of each kind', all_ready)
    progress('second')
    after = restart_counts()
    if before != after:
      raise Failed('%s is not %s' % (after, before))
    return '%d peers waited' % len(before)

  def other_id(self):
    """The log's id wins over the values'."""
    self.upgrade('coordinator.clusterId=' + 'ab' * 16)
    wait_for('ready pod of each kind', all_ready)
    warning = init_log()
    if cluster_id() not in warning or 'WARN' not in warning:
      raise Failed('no warning: ' + warning)
    progress('second')
    self.upgrade('coordinator.clusterId=')
    wait_for('ready pod of each kind', all_ready)
    if init_log().split() != [cluster_id()]:
      raise Failed('a warning: ' + init_log())
    progress('second')

  def same_bits(self):
    wait_for('end of the run', lambda: has_ended('second'))
    self.sha['second'] = export('second')
    if self.sha['first'] != self.sha['second']:
      raise Failed('%(first)s is not %(second)s' % self.sha)
    return self.sha['second']

  def reinstall(self):
    kept = cluster_id()
    helm('uninstall', 'atoll', '--wait', '--timeout', '5m')
    helm('install', 'atoll', chart.CHART, *self.values, '--timeout', '5m')
    wait_for('ready pod of each kind', all_ready)
    if [kept] != init_log().split() or cluster_id() != kept:
      raise Failed('%s, not %s: %s' % (cluster_id(), kept, init_log()))
    if not has_ended('second'):
      raise Failed('the run is lost')
    return 'cluster ' + kept

  def bad_values(self):
    for name, (values, _) in matrix.REFUSED.items():
      try:
        chart.render(values=values)
      except chart.Refused:
        continue
      raise Failed('accepted: ' + name)
    return '%d refused by the schema' % len(matrix.REFUSED)

  def bad_manifests(self):
    kubectl('label', 'namespace', NAMESPACE, '--overwrite',
            'pod-security.kubernetes.io/warn=restricted')

    def try_on(change):
      documents = [d for d in chart.render('quickstart.yaml')]
      change(documents)
      for document in documents:
        document['metadata']['namespace'] = NAMESPACE
        # Other names than those that run, which may not change.
        document['metadata']['name'] = 'try-' + document['metadata']['name']
      return call(KUBECTL, 'apply', '--dry-run=server',
                  '--warnings-as-errors', '-f', '-',
                  text='\n---\n'.join(json.dumps(d) for d in documents))

    status, _, error = try_on(lambda documents: None)
    if status != 0:
      raise Failed('the server refuses what has no fault: ' + error)
    for fault in faults.REFUSED_BY_SERVER:
      if try_on(fault)[0] == 0:
        raise Failed('accepted: ' + fault.__name__)
    return '%d refused by the server' % len(faults.REFUSED_BY_SERVER)


def main():
  e2e = E2e(sys.argv[1])
  checks = [
      ('helm install in a restricted namespace', e2e.install),
      ('all pods are ready', e2e.ready),
      ('the first commit', e2e.first_commit),
      ('a run to its end, its export and its loss', e2e.undisturbed),
      ('a second run by helm upgrade', e2e.second_run),
  ] + [('force-delete of a %s' % kind, lambda k=kind: e2e.force_delete(k))
       for kind in SETS] + [
      ('rollout restart of all', e2e.restart),
      ('helm upgrade', e2e.other_version),
      ('two evictions, the second refused', e2e.evict),
      ('the coordinator\'s volume emptied, and put back', e2e.emptied_volume),
      ('another cluster id in the values', e2e.other_id),
      ('the same SHA-256', e2e.same_bits),
      ('helm uninstall and install', e2e.reinstall),
      ('no OOM kill', no_oom_kill),
      ('faults in values', e2e.bad_values),
      ('faults in manifests', e2e.bad_manifests),
  ]
  failed = run(checks)
  if failed:
    print('%d failed; namespace %s is left as it is' % (failed, NAMESPACE))
  else:
    kubectl('delete', 'namespace', NAMESPACE, '--wait=false')
  sys.exit(1 if failed else 0)


def run(checks):
  """Makes each check of [(name, function)]. Returns how many failed."""
  failed = 0
  for name, check in checks:
    begin = time.monotonic()
    try:
      note = check() or ''
      outcome = 'PASSED'
    except (Failed, subprocess.TimeoutExpired, KeyError, ValueError) as error:
      outcome, note = 'FAILED', '%s: %s' % (type(error).__name__, error)
      failed += 1
    print('%s  %s (%.0f s) %s' % (outcome, name, time.monotonic() - begin, note),
          flush=True)
    try:
      note_oom_kills()
    except Failed as error:
      print('cannot look for OOM kills: %s' % error, flush=True)
  return failed


if __name__ == '__main__':
  main()
