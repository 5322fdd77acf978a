"""The rules: each takes Manifests and yields (object, message). Pure.

A validator knows the form of a manifest. These rules know what belongs
together: names, labels, ports, volumes, arguments and certificates.
"""

import collections
import re

import manifests as m

Violation = collections.namedtuple('Violation', 'rule where message')


def _is_service(workload):
  """Whether its pods run until they are stopped, or as long as a run."""
  return 'metrics' in m.ports(workload)


def _each_container(all_):
  for workload in all_.workloads():
    for container in m.containers(workload):
      yield workload, container, '%s, container %s' % (m.title(workload),
                                                       container['name'])


def limits(all_, _):
  for _, container, where in _each_container(all_):
    resources = container.get('resources', {})
    for kind in ('cpu', 'memory'):
      request = resources.get('requests', {}).get(kind)
      limit = resources.get('limits', {}).get(kind)
      if request is None or limit is None:
        yield where, 'no request or no limit of %s' % kind
      elif m.quantity(request) > m.quantity(limit):
        yield where, 'requests more %s (%s) than its limit (%s)' % (
            kind, request, limit)


_PROBES = {'startupProbe': '/livez', 'livenessProbe': '/livez',
           'readinessProbe': '/readyz'}


def probes(all_, _):
  for workload in all_.workloads():
    if workload['kind'] != 'Job' and not _is_service(workload):
      yield m.title(workload), 'no port `metrics` for probes'
    for container in m.containers(workload, init=False):
      names = [p.get('name') for p in container.get('ports', [])]
      if 'metrics' not in names:
        continue
      for probe, path in _PROBES.items():
        get = container.get(probe, {}).get('httpGet', {})
        if get.get('path') != path or get.get('port') not in names:
          yield m.title(workload), '%s is not %s on a port it has: %s' % (
              probe, path, get)
      listen = m.flag_values(container).get('--metrics-listen', '')
      if listen.rpartition(':')[2] != str(m.ports(workload)['metrics']):
        yield m.title(workload), '--metrics-listen=%s is not its port' % listen


def _security(workload, container, key):
  return container.get('securityContext', {}).get(
      key, m.pod_spec(workload).get('securityContext', {}).get(key))


def read_only_root(all_, _):
  for _, container, where in _each_container(all_):
    if container.get('securityContext', {}).get(
        'readOnlyRootFilesystem') is not True:
      yield where, 'its root can be written'


def non_root(all_, _):
  for workload, container, where in _each_container(all_):
    if _security(workload, container, 'runAsNonRoot') is not True:
      yield where, 'no runAsNonRoot'
    if _security(workload, container, 'runAsUser') != 65532:
      yield where, 'the user is not 65532'


def capabilities(all_, _):
  for _, container, where in _each_container(all_):
    context = container.get('securityContext', {})
    kept = context.get('capabilities', {})
    if kept.get('drop') != ['ALL'] or kept.get('add'):
      yield where, 'it keeps capabilities: %s' % kept
    if context.get('allowPrivilegeEscalation') is not False:
      yield where, 'allowPrivilegeEscalation is not false'
    if context.get('privileged'):
      yield where, 'privileged'


def seccomp(all_, _):
  for workload, container, where in _each_container(all_):
    profile = _security(workload, container, 'seccompProfile') or {}
    if profile.get('type') != 'RuntimeDefault':
      yield where, 'seccompProfile is %s' % profile


def host(all_, _):
  for workload in all_.workloads():
    spec = m.pod_spec(workload)
    for key in ('hostNetwork', 'hostPID', 'hostIPC'):
      if spec.get(key):
        yield m.title(workload), key
    for volume in spec.get('volumes', []):
      if 'hostPath' in volume:
        yield m.title(workload), 'volume %s is a hostPath' % volume['name']


def images(all_, _):
  for _, container, where in _each_container(all_):
    image = container.get('image', '')
    name = image.rpartition('/')[2]
    if '@sha256:' not in image and (':' not in name or
                                    name.endswith(':latest')):
      yield where, 'image %s names no version' % image


def selectors(all_, _):
  workloads = all_.workloads()
  for workload in workloads:
    if workload['kind'] == 'Job':
      continue
    selector = workload['spec'].get('selector', {}).get('matchLabels', {})
    if not selector:
      yield m.title(workload), 'no selector'
    for other in all_.selected(selector):
      if other is not workload:
        yield m.title(workload), 'selects pods of %s' % m.title(other)
    if workload not in all_.selected(selector):
      yield m.title(workload), 'does not select its own pods'


def services(all_, _):
  for service in all_.of('Service'):
    selected = all_.selected(service['spec'].get('selector', {}))
    if not service['spec'].get('selector') or not selected:
      yield m.title(service), 'selects no pod'
    for port in service['spec']['ports']:
      target = port.get('targetPort', port['port'])
      for workload in selected:
        have = m.ports(workload)
        if target not in have and target not in have.values():
          yield m.title(service), 'port %s: %s has no port %s' % (
              port['name'], m.title(workload), target)
  for workload in all_.of('StatefulSet'):
    service = all_.find('Service', workload['spec'].get('serviceName', ''))
    if not service or workload not in all_.selected(
        service['spec'].get('selector', {})):
      yield m.title(workload), 'no Service %s selects its pods' % (
          workload['spec'].get('serviceName'))
  for route in all_.of('TLSRoute'):
    for rule in route['spec']['rules']:
      for backend in rule['backendRefs']:
        service = all_.find('Service', backend['name'])
        if not service or backend['port'] not in [
            p['port'] for p in service['spec']['ports']
        ]:
          yield m.title(route), 'no Service %(name)s:%(port)s' % backend


def volumes(all_, _):
  for workload in all_.workloads():
    claims = [c['metadata']['name']
              for c in workload['spec'].get('volumeClaimTemplates', [])]
    have = [v['name'] for v in m.pod_spec(workload).get('volumes', [])] + claims
    mounted = set()
    for container in m.containers(workload):
      for mount in container.get('volumeMounts', []):
        mounted.add(mount['name'])
        if mount['name'] not in have:
          yield m.title(workload), 'no volume %s' % mount['name']
        if 'subPath' in mount or 'subPathExpr' in mount:
          yield m.title(workload), 'subPath of %s: does not follow changes' % (
              mount['name'])
    for name in have:
      if name not in mounted:
        yield m.title(workload), 'volume %s is not mounted' % name
    for volume in m.pod_spec(workload).get('volumes', []):
      if 'emptyDir' in volume and 'sizeLimit' not in (volume['emptyDir'] or {}):
        yield m.title(workload), 'emptyDir %s has no sizeLimit' % volume['name']
    retained = workload['spec'].get('persistentVolumeClaimRetentionPolicy', {})
    if claims and set(retained.values()) != {'Retain'}:
      yield m.title(workload), 'its claims are not retained'


def _references(workload):
  """Yields (kind, name) of what a pod needs."""
  spec = m.pod_spec(workload)
  yield 'ServiceAccount', spec.get('serviceAccountName', 'default')
  for volume in spec.get('volumes', []):
    sources = [volume] + volume.get('projected', {}).get('sources', [])
    for source in sources:
      for key, kind, name in (('secret', 'Secret', 'secretName'),
                              ('configMap', 'ConfigMap', 'name'),
                              ('persistentVolumeClaim', 'PersistentVolumeClaim',
                               'claimName')):
        if key in source and not source[key].get('optional'):
          yield kind, source[key].get(name) or source[key].get('name')
  for container in m.containers(workload):
    for variable in container.get('env', []):
      for key, kind in (('secretKeyRef', 'Secret'),
                        ('configMapKeyRef', 'ConfigMap')):
        if key in variable.get('valueFrom', {}):
          yield kind, variable['valueFrom'][key]['name']
    for source in container.get('envFrom', []):
      for key, kind in (('secretRef', 'Secret'), ('configMapRef', 'ConfigMap')):
        if key in source:
          yield kind, source[key]['name']


def references(all_, _):
  issued = all_.issued()
  for workload in all_.workloads():
    for kind, name in _references(workload):
      if not (all_.find(kind, name) or (kind, name) in all_.given or
              (kind == 'Secret' and name in issued)):
        yield m.title(workload), 'nothing makes %s %s' % (kind, name)


def _command(container, helps):
  """The longest key of `helps` that the command begins with, and the rest."""
  words = container.get('command', []) + container.get('args', [])
  for length in range(min(3, len(words)), 0, -1):
    if tuple(words[:length]) in helps:
      return tuple(words[:length]), words[length:]
  return None, words


def arguments(all_, helps):
  """`helps`: {words of a command: its flags}, from the programs' --help."""
  for _, container, where in _each_container(all_):
    if container.get('command', ['?'])[0] not in {k[0] for k in helps}:
      if container['name'] in ('coordinator', 'server', 'gate', 'island',
                               'create'):
        yield where, 'runs no program of ours: %s' % container.get('command')
      continue
    command, rest = _command(container, helps)
    if len(command) == 1 and rest and not rest[0].startswith('-'):
      yield where, '%s has no command %s' % (command[0], rest[0])
    for word in rest:
      flag = word.split('=')[0]
      if flag.startswith('--') and flag not in helps[command]:
        yield where, '%s has no flag %s' % (' '.join(command), flag)


def variables(all_, _):
  for workload, container, where in _each_container(all_):
    known = {v['name'] for v in container.get('env', [])}
    for word in container.get('args', []):
      for name in re.findall(r'\$\(([^)]*)\)', word):
        if name not in known:
          yield where, '%s: no variable %s' % (word, name)


def _projected(workload):
  """{volume: paths of its files}, where the manifest names them."""
  files = {}
  for volume in m.pod_spec(workload).get('volumes', []):
    if 'projected' in volume:
      files[volume['name']] = {
          item['path']
          for source in volume['projected']['sources']
          for item in source['secret']['items']
      }
  return files


_WRITTEN = ('--data-dir', '--dir', '--work-dir', '--out', '--data-cache')
_READ = ('--existing', '--from', '--secret-file')
_TLS_FILES = ('tls.crt', 'tls.key', 'ca.crt')
# What `atoll ca issue --role gate` writes besides.
_GATE_FILES = ('island-ca.crt', 'island-ca.key')


def _named_paths(container, has_gate):
  """Yields (flag, path) of the files and directories that a command names."""
  for flag, value in m.flag_values(container).items():
    if flag in ('--ca-dir', '--tls-dir'):
      more = _GATE_FILES if flag == '--ca-dir' else ()
      if has_gate and container['name'] in ('coordinator', 'server'):
        more = _GATE_FILES[:1]
      for name in _TLS_FILES + more:
        yield flag, value + '/' + name
    elif flag in _WRITTEN + _READ and '://' not in value:
      yield flag, value


def paths(all_, _):
  has_gate = all_.find('Deployment', 'atoll-gate') is not None
  for workload, container, where in _each_container(all_):
    mounts = container.get('volumeMounts', [])
    files = _projected(workload)
    for flag, value in _named_paths(container, has_gate):
      for path in m.expanded(value, container, workload):
        mount = next((t for t in mounts
                      if path == t['mountPath'] or
                      path.startswith(t['mountPath'] + '/')), None)
        if not mount:
          yield where, '%s=%s is on no volume' % (flag, path)
        elif flag in _WRITTEN and mount.get('readOnly'):
          yield where, '%s=%s is on a volume that is read only' % (flag, path)
        elif mount['name'] in files and path[
            len(mount['mountPath']) + 1:] not in files[mount['name']]:
          yield where, '%s=%s: no such file' % (flag, path)


def budgets(all_, _):
  counts = collections.Counter()
  for budget in all_.of('PodDisruptionBudget'):
    spec = budget['spec']
    selected = all_.selected(spec['selector'].get('matchLabels', {}))
    if not selected:
      yield m.title(budget), 'selects no pod'
    counts.update(m.name_of(w) for w in selected)
    stateless = {w['kind'] for w in selected} == {'Deployment'}
    if spec.get('minAvailable' if stateless else 'maxUnavailable') != 1:
      yield m.title(budget), 'it does not let one pod go and keep one'
    for workload in selected:
      if stateless and m.replicas(workload) < 2:
        yield m.title(budget), 'a drain of the only pod hangs'
    if spec.get('unhealthyPodEvictionPolicy') != 'AlwaysAllow':
      yield m.title(budget), 'unhealthy pods stop a drain'
  if counts:
    for workload in all_.of('StatefulSet', 'Deployment'):
      if counts[m.name_of(workload)] != 1:
        yield m.title(workload), '%d disruption budgets' % (
            counts[m.name_of(workload)])


def tokens(all_, _):
  for workload in all_.workloads():
    spec = m.pod_spec(workload)
    publishes = any(c.get('args', [])[:2] == ['ca', 'publish']
                    for c in m.containers(workload))
    if spec.get('automountServiceAccountToken') is not publishes:
      yield m.title(workload), 'automountServiceAccountToken is not %s' % (
          publishes)
  for role in all_.of('Role', 'ClusterRole'):
    if role['kind'] == 'ClusterRole' or role['rules'] != [{
        'apiGroups': [''], 'resources': ['secrets'], 'verbs': ['create']}]:
      yield m.title(role), 'permits more than to create Secrets'


def island_ca(all_, _):
  """Gates alone can sign for islands, and can read nothing else."""
  for workload in all_.workloads():
    names_ = {c['name'] for c in m.containers(workload)}
    for volume in m.pod_spec(workload).get('volumes', []):
      if 'secret' in volume and 'publish' not in names_:
        yield m.title(workload), 'mounts all of a Secret'
      for source in volume.get('projected', {}).get('sources', []):
        secret = source['secret']
        if secret['name'].endswith('-gate-tls') is not ('gate' in names_):
          yield m.title(workload), 'mounts Secret %s' % secret['name']
        if 'gate' not in names_ and 'island-ca.key' in [
            item['key'] for item in secret['items']]:
          yield m.title(workload), 'can read island-ca.key'


def network(all_, _):
  policies = all_.of('NetworkPolicy')
  for policy in policies:
    spec = policy['spec']
    labels = spec['podSelector'].get('matchLabels', {})
    selected = all_.selected(labels)
    if not selected and labels.get(
        'app.kubernetes.io/component') != 'operator':  # Some are made by hand.
      yield m.title(policy), 'selects no pod'
    for way, side in (('ingress', 'from'), ('egress', 'to')):
      if spec.get(way) and way.capitalize() not in spec['policyTypes']:
        yield m.title(policy), '%s rules without that policyType' % way
      for rule in spec.get(way, []):
        peers = []
        for peer in rule.get(side, []):
          if 'podSelector' in peer:
            peers += all_.selected(peer['podSelector'].get('matchLabels', {}))
            if not all_.selected(peer['podSelector'].get('matchLabels', {})):
              # Islands may all be outside of the cluster.
              component = peer['podSelector']['matchLabels'].get(
                  'app.kubernetes.io/component')
              if component not in ('island', 'operator'):
                yield m.title(policy), 'peer %s: no such pod' % component
        ends = selected if way == 'ingress' else peers
        for port in rule.get('ports', []):
          if isinstance(port['port'], str) and ends and not any(
              port['port'] in m.ports(w) for w in ends):
            yield m.title(policy), 'no pod has a port %s' % port['port']
  if policies:
    for workload in all_.workloads():
      covered = {
          t for policy in policies for t in policy['spec']['policyTypes']
          if any(m.matches(policy['spec']['podSelector'].get('matchLabels', {}),
                           labels) for labels in m.pod_labels(workload))
      }
      if covered != {'Ingress', 'Egress'}:
        yield m.title(workload), 'no policy denies it by default'


def _dialled(all_, container):
  """Yields (word, Service, its port) of what a program dials by a name."""
  for word in container.get('args', []):
    match = re.search(r'([a-z0-9-]+)\.[a-z0-9-]+\.svc\.[a-z.]+:(\d+)$', word)
    service = match and all_.find('Service', match.group(1))
    if not service or word.startswith(('--advertise', '--island-coordinator')):
      continue
    for port in service['spec']['ports']:
      if port['port'] == int(match.group(2)):
        yield word, service, port


def _admits(all_, workload, way, other, port):
  """Whether the policies of `workload` let `other` through at a named port."""
  side = {'ingress': 'from', 'egress': 'to'}[way]
  for policy in all_.of('NetworkPolicy'):
    if workload not in all_.selected(
        policy['spec']['podSelector'].get('matchLabels', {})):
      continue
    for rule in policy['spec'].get(way, []):
      peers = [p.get('podSelector', {}).get('matchLabels')
               for p in rule.get(side, [])]
      names_ = [p['port'] for p in rule.get('ports', [])]
      if (not peers or any(p and other in all_.selected(p)
                           for p in peers)) and (not names_ or port in names_):
        return True
  return False


def dials(all_, _):
  """Who dials a name gets through, and at a port that serves it."""
  for workload, container, where in _each_container(all_):
    for word, service, port in _dialled(all_, container):
      name = port.get('targetPort')
      for target in all_.selected(service['spec']['selector']):
        if all_.of('NetworkPolicy') and not (
            _admits(all_, workload, 'egress', target, name) and
            _admits(all_, target, 'ingress', workload, name)):
          yield where, '%s: policies stop it' % word
        if container['args'][:2] != ['join', word]:
          continue
        flags = m.flag_values(m.containers(target, init=False)[0])
        listen = flags.get('--island-listen', flags.get('--listen', ''))
        if listen.rpartition(':')[2] != str(m.ports(target).get(name)):
          yield where, '%s is not the port for islands, %s' % (word, listen)


def _told(all_):
  """The ports outside that the programs' flags name."""
  for workload, container, _ in _each_container(all_):
    for flag in ('--advertise', '--island-coordinator'):
      port = m.flag_values(container).get(flag, '').rpartition(':')[2]
      first = re.fullmatch(r'\{ordinal\+(\d+)\}', port)
      for ordinal in range(m.replicas(workload)):
        if first:
          yield int(first.group(1)) + ordinal
      if port.isdigit():
        yield int(port)


def outside(all_, _):
  """Strangers and islands outside are told ports that are there."""
  told = set(_told(all_))
  gates = all_.of('Deployment')
  for service in all_.of('Service'):
    key = {'NodePort': 'nodePort', 'LoadBalancer': 'port'}.get(
        service['spec'].get('type'))
    if not key or not gates and m.name_of(service).endswith('-islands'):
      continue  # Without a gate the operator tells islands the address.
    for port in service['spec']['ports']:
      if port[key] not in told:
        yield m.title(service), 'nobody is told port %s' % port[key]


def data(all_, _):
  """The host of data by URL can be reached by all that read it, inside."""
  for file in all_.of('ConfigMap'):
    match = re.search(r'^url = "(?:https|s3)://[^/:]+:?(\d*)',
                      file.get('data', {}).get('run.toml', ''), re.M)
    if not match or not all_.of('NetworkPolicy'):
      continue
    for workload, container, where in _each_container(all_):
      reads = (container.get('args', [''])[0] == 'join' or
               container.get('args', [])[:2] == ['run', 'create'])
      if reads and not _admits(all_, workload, 'egress', None,
                               int(match.group(1) or 443)):
        yield where, 'policies stop what it reads'
      if reads and '--data' in m.flag_values(container):
        yield where, '--data, and the run has a URL'


def monitors(all_, _):
  for monitor in all_.of('ServiceMonitor', 'PodMonitor'):
    labels = monitor['spec']['selector']['matchLabels']
    if monitor['kind'] == 'ServiceMonitor':
      have = [{p['name'] for p in s['spec']['ports']}
              for s in all_.of('Service')
              if m.matches(labels, s['metadata']['labels'])]
      ends = monitor['spec']['endpoints']
    else:
      have = [set(m.ports(w)) for w in all_.selected(labels)]
      ends = monitor['spec']['podMetricsEndpoints']
    for end in ends:
      if not any(end['port'] in names_ for names_ in have):
        yield m.title(monitor), 'nothing has a port %s' % end['port']


def names(all_, _):
  seen = collections.Counter((d['kind'], m.name_of(d)) for d in all_.documents)
  spaces = {d['metadata'].get('namespace') for d in all_.documents
            if d['kind'] != 'Namespace'}
  if len(spaces) > 1 or None in spaces:
    yield 'all', 'several or no namespaces: %s' % spaces
  for (kind, name), count in seen.items():
    if count > 1:
      yield '%s %s' % (kind, name), 'is there %d times' % count
    if not re.fullmatch(r'[a-z]([a-z0-9-]{0,61}[a-z0-9])?', name) or (
        kind == 'StatefulSet' and len(name) > 52):
      yield '%s %s' % (kind, name), 'no good name'


def jobs(all_, _):
  for workload in all_.workloads():
    policy = m.pod_spec(workload).get('restartPolicy', 'Always')
    spec = workload['spec']
    if workload['kind'] != 'Job':
      if policy != 'Always':
        yield m.title(workload), 'restartPolicy %s' % policy
      continue
    if policy not in ('Never', 'OnFailure'):
      yield m.title(workload), 'restartPolicy %s' % policy
    if ('backoffLimitPerIndex' in spec or 'podFailurePolicy' in spec) and (
        policy != 'Never' or spec.get('completionMode') != 'Indexed'):
      yield m.title(workload), 'backoffLimitPerIndex needs Indexed and Never'
    if spec.get('completions', 1) != spec.get('parallelism', 1):
      yield m.title(workload), 'its islands do not run all at once'
    for rule in spec.get('podFailurePolicy', {}).get('rules', []):
      name = rule.get('onExitCodes', {}).get('containerName')
      if name and name not in [c['name'] for c in m.containers(workload)]:
        yield m.title(workload), 'podFailurePolicy: no container %s' % name


def grace(all_, _):
  for workload in all_.workloads():
    if _is_service(workload) and m.pod_spec(workload).get(
        'terminationGracePeriodSeconds', 0) < 30:
      yield m.title(workload), 'less than 30 s to end'


def addresses(all_, _):
  """Names that programs dial exist, and are in the certificate there."""
  issued = all_.issued()
  domain = r'\.([a-z0-9-]+)\.svc\.[a-z.]+:(\d+|\{port\})$'
  for _, container, where in _each_container(all_):
    for word in container.get('args', []):
      match = re.search(r'([a-z0-9-]+)' + domain, word)
      if not match:
        continue
      service = all_.find('Service', match.group(1))
      if not service or service['metadata']['namespace'] != match.group(2):
        yield where, '%s: no Service %s' % (word, match.group(1))
      elif match.group(3) != '{port}' and int(match.group(3)) not in [
          p['port'] for p in service['spec']['ports']
      ]:
        yield where, '%s: the Service has no such port' % word
  if not issued:
    return
  for flag, owner in (('--advertise', 'gate'),
                      ('--island-coordinator', 'coordinator')):
    for workload in all_.of('Deployment'):
      host_ = m.flag_values(m.containers(workload)[0])[flag].rpartition(':')[0]
      if not any(host_ in hosts for secret, hosts in issued.items()
                 if secret.endswith('-%s-tls' % owner)):
        yield m.title(workload), '%s is not in the certificate of the %s' % (
            host_, owner)
  for workload in all_.of('StatefulSet'):
    for container in m.containers(workload, init=False):
      flags = m.flag_values(container)
      secrets = {
          item['path']: source['secret']['name']
          for v in m.pod_spec(workload)['volumes'] if 'projected' in v
          for source in v['projected']['sources']
          for item in source['secret']['items']
      }
      for ordinal, pod in enumerate(m.pod_names(workload)):
        if '--advertise' not in flags:
          continue
        name = flags['--advertise'].rpartition(':')[0]
        name = name.replace('{server-id}', pod).replace(
            '{ordinal}', str(ordinal))
        secret = secrets.get(pod + '/tls.crt')
        if name not in issued.get(secret, []):
          yield m.title(workload), '%s is not in the certificate of %s' % (
              name, secret)
      dialled = '%s.%s.svc.cluster.local' % (
          m.name_of(workload), workload['metadata']['namespace'])
      if container['name'] == 'coordinator' and dialled not in issued.get(
          secrets.get('coordinator/tls.crt'), []):
        yield m.title(workload), '%s is not in its certificate' % dialled


ALL = [
    limits, probes, read_only_root, non_root, capabilities, seccomp, host,
    images, selectors, services, volumes, references, arguments, variables,
    paths, budgets, tokens, island_ca, network, dials, outside, data, monitors,
    names, jobs, grace, addresses
]


def check(documents, helps, given=()):
  """All violations."""
  all_ = m.Manifests(documents, given)
  return [
      Violation(rule.__name__, where, message)
      for rule in ALL
      for where, message in rule(all_, helps)
  ]


# Fields that the API server lets change.
_CHANGEABLE = {
    'StatefulSet': {'replicas', 'template', 'updateStrategy', 'ordinals',
                    'persistentVolumeClaimRetentionPolicy', 'minReadySeconds'},
    'Deployment': {'replicas', 'template', 'strategy', 'minReadySeconds'},
    'Job': {'parallelism', 'completions', 'suspend', 'activeDeadlineSeconds',
            'ttlSecondsAfterFinished'},
}


def unchangeable(before, after):
  """Violations of an upgrade: fields that differ and may not."""
  for old in before:
    new = next((d for d in after if d['kind'] == old['kind'] and
                m.name_of(d) == m.name_of(old)), None)
    if not new or old['kind'] not in _CHANGEABLE:
      continue
    if 'helm.sh/hook' in old['metadata'].get('annotations', {}):
      continue  # Deleted before it is made again.
    keys = (set(old['spec']) | set(new['spec'])) - _CHANGEABLE[old['kind']]
    for key in sorted(keys):
      if old['spec'].get(key) != new['spec'].get(key):
        yield Violation('unchangeable', m.title(old),
                        '%s may not change' % key)
