"""Rendered manifests as objects that rules ask questions of. Pure."""

import re

WORKLOADS = ('StatefulSet', 'Job', 'Deployment', 'DaemonSet')


class Manifests:
  """All documents of one rendering.

  `given` holds (kind, name) of objects that the user makes, such as a claim
  for data.
  """

  def __init__(self, documents, given=()):
    self.documents = [d for d in documents if d]
    self.given = set(given)

  def of(self, *kinds):
    return [d for d in self.documents if d.get('kind') in kinds]

  def workloads(self):
    return self.of(*WORKLOADS)

  def find(self, kind, name):
    return next((d for d in self.of(kind) if name_of(d) == name), None)

  def selected(self, selector):
    """The workloads with a pod that `selector`, a map of labels, matches."""
    return [
        w for w in self.workloads()
        if any(matches(selector, labels) for labels in pod_labels(w))
    ]

  def issued(self):
    """{Secret's name: hosts} of the certificates that the chart makes."""
    made = {}
    for certificate in self.of('Certificate'):
      spec = certificate['spec']
      made[spec['secretName']] = (
          spec.get('dnsNames', []) + spec.get('ipAddresses', []))
    for job in self.of('Job'):
      issues, prefix, source = [], None, None
      for container in containers(job):
        arguments = flag_values(container)
        verbs = container.get('args', [])[:2]
        if verbs == ['ca', 'issue']:
          issues.append((arguments.get('--out', ''),
                         arguments.get('--host', '').split(',')))
        elif verbs == ['ca', 'publish']:
          prefix, source = arguments.get('--prefix'), arguments.get('--from')
      for out, hosts in issues:
        folder, _, name = out.rpartition('/')
        if source == folder:
          made['%s-%s-tls' % (prefix, name)] = hosts
    return made


def name_of(document):
  return document.get('metadata', {}).get('name', '')


def title(document):
  return '%s %s' % (document.get('kind'), name_of(document))


def pod_spec(workload):
  return workload['spec']['template']['spec']


def containers(workload, init=True):
  spec = pod_spec(workload)
  return (spec.get('initContainers', []) if init else []) + spec['containers']


def replicas(workload):
  spec = workload['spec']
  if workload['kind'] == 'Job':
    return spec.get('completions', 1)
  return spec.get('replicas', 1)


def pod_names(workload):
  return ['%s-%d' % (name_of(workload), i) for i in range(replicas(workload))]


def pod_labels(workload):
  """The labels of each of its pods, with those that Kubernetes adds."""
  labels = workload['spec']['template'].get('metadata', {}).get('labels', {})
  for index, name in enumerate(pod_names(workload)):
    more = {}
    if workload['kind'] == 'StatefulSet':
      more = {
          'statefulset.kubernetes.io/pod-name': name,
          'apps.kubernetes.io/pod-index': str(index)
      }
    elif workload['spec'].get('completionMode') == 'Indexed':
      more = {'batch.kubernetes.io/job-completion-index': str(index)}
    yield dict(labels, **more)


def matches(selector, labels):
  return all(labels.get(key) == value for key, value in selector.items())


def ports(workload):
  """{name: number} of a workload's container ports."""
  return {
      p.get('name'): p['containerPort']
      for c in containers(workload)
      for p in c.get('ports', [])
  }


def flag_values(container):
  """{flag: value} of arguments that are spelt --flag=value."""
  return dict(
      a.split('=', 1)
      for a in container.get('args', [])
      if isinstance(a, str) and a.startswith('--') and '=' in a)


def expansions(container, workload):
  """{variable: its value in each pod}, for what the pod's place decides."""
  result = {}
  for variable in container.get('env', []):
    path = variable.get('valueFrom', {}).get('fieldRef', {}).get('fieldPath', '')
    if path == 'metadata.name':
      result[variable['name']] = pod_names(workload)
    elif re.search(r"index'\]$", path):
      result[variable['name']] = [str(i) for i in range(replicas(workload))]
  return result


def expanded(text, container, workload):
  """`text` as each pod sees it."""
  texts = [text]
  for name, values in expansions(container, workload).items():
    if '$(%s)' % name in text:
      texts = [t.replace('$(%s)' % name, v) for t in texts for v in values]
  return texts


_SUFFIXES = {'m': 1e-3, 'k': 1e3, 'M': 1e6, 'G': 1e9, 'T': 1e12, 'P': 1e15,
             'Ki': 2**10, 'Mi': 2**20, 'Gi': 2**30, 'Ti': 2**40, 'Pi': 2**50}


def quantity(value):
  match = re.fullmatch(r'([0-9.]+)([a-zA-Z]*)', str(value))
  return float(match.group(1)) * _SUFFIXES.get(match.group(2), 1)
