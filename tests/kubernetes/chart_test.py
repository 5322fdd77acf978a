"""The chart renders what Kubernetes and our own rules accept, for all values."""

import base64
import functools
import json
import os
import shutil
import sys
import tempfile
import unittest

_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [_HERE, os.path.join(_HERE, '../integration')]

from harness import cases  # pylint: disable=wrong-import-position
import chart  # pylint: disable=wrong-import-position
import manifests  # pylint: disable=wrong-import-position
import matrix  # pylint: disable=wrong-import-position
import rules  # pylint: disable=wrong-import-position

# chart puts it on the path.
import kubernetes_validate  # pylint: disable=wrong-import-position
from kubernetes_validate import utils  # pylint: disable=wrong-import-position

# It parses some megabytes, for each document if nothing keeps them.
utils.schema_contents = functools.cache(utils.schema_contents)

VERSIONS = ('1.31', '1.37')
FILES = ('quickstart.yaml', 'production.yaml', 'volunteers.yaml')
# Kinds that others define: the validator has no schema of them.
_OTHERS = ('Certificate', 'PodMonitor', 'PrometheusRule', 'ServiceMonitor',
           'TLSRoute')


_VALID = set()  # Most documents are the same in many renderings.


def invalid(documents):
  """What the API's schemas refuse, strictly, in each version."""
  for document in documents:
    text = json.dumps(document, sort_keys=True)
    if document['kind'] in _OTHERS or text in _VALID:
      continue
    faults = list(_invalid(document))
    yield from faults
    if not faults:
      _VALID.add(text)


def _invalid(document):
  for version in VERSIONS:
    try:
      kubernetes_validate.validate(document, version, strict=True)
    except kubernetes_validate.ValidationError as error:
      yield '%s, %s: %s' % (manifests.title(document), version, error.message)


def _leaves(values, path=()):
  """Yields (path, value); entries of a list share a path."""
  if isinstance(values, dict):
    for key, value in values.items():
      yield from _leaves(value, path + (key,))
  elif isinstance(values, list):
    for value in values:
      yield from _leaves(value, path + ('[]',))
  else:
    yield path, values


def _choices(schema, path=()):
  """Yields (path, value) for each choice that a schema gives."""
  values = schema.get('enum', [])
  if schema.get('type') == 'boolean':
    values = [True, False]
  for value in values:
    yield path, value
  for key, below in schema.get('properties', {}).items():
    yield from _choices(below, path + (key,))
  if 'items' in schema:
    yield from _choices(schema['items'], path + ('[]',))


class ChartTest(unittest.TestCase):

  @classmethod
  def setUpClass(cls):
    cls.helps = chart.helps()

  def accept(self, *files, values=None):
    documents = chart.render(*files, values=values)
    found = rules.check(documents, self.helps, matrix.GIVEN)
    self.assertEqual([], [str(v) for v in found] + list(invalid(documents)))

  def test_helm_finds_no_fault_in_the_chart(self):
    for file in FILES:
      with self.subTest(file):
        chart.helm('lint', '--strict', chart.CHART, '-f',
                   os.path.join(chart.CHART, file))

  def test_a_validator_without_a_schema_is_noticed(self):
    with self.assertRaises(kubernetes_validate.SchemaNotFoundError):
      list(invalid([{'kind': 'Other', 'apiVersion': 'example.org/v1',
                     'metadata': {'name': 'a'}}]))

  def test_a_misspelt_field_is_noticed(self):
    documents = chart.render('quickstart.yaml')
    next(d for d in documents if d['kind'] == 'StatefulSet')['spec'][
        'replica'] = 1
    self.assertEqual(len(VERSIONS), len(list(invalid(documents))))

  def test_each_choice_of_the_schema_is_in_the_matrix(self):
    path = os.path.join(chart.CHART, 'values.schema.json')
    with open(path, encoding='utf-8') as file:
      schema = json.load(file)
    covered = set()
    sources = list(matrix.VALUES.values())
    for name in FILES + ('values.yaml',):
      with open(os.path.join(chart.CHART, name), encoding='utf-8') as file:
        sources += chart.parse(file.read())
    for values in sources:
      covered.update(_leaves(values))
    wanted = {c for c in _choices(schema) if c[0] != ('run', 'preset') and
              c[0][:3] != ('islands', '[]', 'image')}
    self.assertEqual(set(), wanted - covered)

  def test_the_schema_knows_each_preset(self):
    path = os.path.join(chart.CHART, 'values.schema.json')
    with open(path, encoding='utf-8') as file:
      schema = json.load(file)
    known = schema['properties']['run']['properties']['preset']['enum']
    config = os.path.join(chart.ROOT, 'deploy/config')
    presets = [n[:-5] for n in os.listdir(config) if n.endswith('.toml')]
    self.assertEqual(sorted(presets + ['']), sorted(known))

  def test_the_rendered_quickstart_is_the_chart_s(self):
    with open(chart.RENDERED, encoding='utf-8') as file:
      self.assertEqual(chart.quickstart(), file.read(),
                       'run tests/kubernetes/render.py')

  def coordinators_init(self, documents):
    """(its init container, the program's --data-dir)."""
    spec = manifests.pod_spec(next(
        d for d in documents if d['kind'] == 'StatefulSet' and
        d['metadata']['name'] == 'atoll-coordinator'))
    self.assertEqual(1, len(spec['initContainers']))
    return spec['initContainers'][0], manifests.flag_values(
        spec['containers'][0])['--data-dir']

  def test_an_init_container_makes_the_log_with_an_id_that_helm_keeps(self):
    documents = chart.render()
    init, directory = self.coordinators_init(documents)
    self.assertEqual(['atoll-coordinator', 'init'], init['command'])
    self.assertEqual(['--data-dir=' + directory, '--if-empty',
                      '--cluster-id=$(CLUSTER_ID)'], init['args'])
    reference = init['env'][0]['valueFrom']['secretKeyRef']
    secret = next(d for d in documents if d['kind'] == 'Secret')
    self.assertEqual(reference['name'], secret['metadata']['name'])
    self.assertEqual('keep', secret['metadata']['annotations'][
        'helm.sh/resource-policy'])
    self.assertRegex(base64.b64decode(
        secret['data'][reference['key']]).decode(), '^[0-9a-f]{32}$')

  def test_a_cluster_id_of_the_values_needs_no_secret(self):
    documents = chart.render(values={'coordinator': {'clusterId': 'ab' * 16}})
    init, _ = self.coordinators_init(documents)
    self.assertEqual([{'name': 'CLUSTER_ID', 'value': 'ab' * 16}], init['env'])
    self.assertNotIn('Secret', [d['kind'] for d in documents])

  def test_a_log_is_restored_on_the_coordinator_s_volume(self):
    documents = chart.render(values=dict(
        matrix.VALUES['a coordinator that is lost']))
    coordinator = next(d for d in documents if d['kind'] == 'StatefulSet' and
                       d['metadata']['name'] == 'atoll-coordinator')
    template, = coordinator['spec']['volumeClaimTemplates']
    claim, = [d for d in documents if d['kind'] == 'PersistentVolumeClaim']
    self.assertEqual('%s-%s-0' % (template['metadata']['name'],
                                  coordinator['metadata']['name']),
                     claim['metadata']['name'])
    self.assertEqual(template['spec'], claim['spec'])
    job = next(d for d in documents if d['kind'] == 'Job' and
               d['metadata']['name'] == 'atoll-restore')
    restore, = manifests.containers(job)
    init, directory = self.coordinators_init(documents)
    self.assertEqual(init['env'], restore['env'])
    flags = manifests.flag_values(restore)
    self.assertEqual((directory, 's3://models/atoll'),
                     (flags['--data-dir'], flags['--from']))
    # A release has none of it.
    self.assertNotIn('atoll-restore', [d['metadata']['name']
                                       for d in chart.render()])

  def test_an_upgrade_changes_only_what_may_change(self):
    before = chart.render('quickstart.yaml')
    job = {'islands': [matrix.island()]}
    upgrades = [
        {'image': {'tag': '9.9.9'}}, {'server': {'replicas': 4}},
        {'run': {'id': 'next', 'tokens': '1B'}},
        {'server': {'podLabels': {'a': 'b'}, 'priorityClassName': 'high'}},
    ]
    for values in upgrades:
      with self.subTest(values):
        after = chart.render('quickstart.yaml', values=values)
        self.assertEqual([], list(rules.unchangeable(before, after)))
        self.assertEqual([], list(rules.unchangeable(
            chart.render(values=job),
            chart.render(values=dict(job, **values)))))

  def test_a_new_version_of_the_chart_changes_only_what_may_change(self):
    with tempfile.TemporaryDirectory() as folder:
      newer = os.path.join(folder, 'atoll')
      shutil.copytree(chart.CHART, newer)
      path = os.path.join(newer, 'Chart.yaml')
      with open(path, encoding='utf-8') as file:
        text = file.read().replace('0.1.0', '9.9.9')
      os.chmod(path, 0o644)
      with open(path, 'w', encoding='utf-8') as file:
        file.write(text)
      values = {'islands': [matrix.island(), matrix.island(
          'StatefulSet', name='s')]}
      after = chart.parse(chart.render_text(values=values, chart=newer))
      self.assertIn('9.9.9', str(after))
      self.assertEqual([], list(rules.unchangeable(
          chart.render(values=values), after)))


def _add(name, body):
  setattr(ChartTest, 'test_' + name.replace(' ', '_'), body)


for _file in FILES:
  _add('accepts ' + _file, lambda self, f=_file: self.accept(f))
for _name, _values in matrix.VALUES.items():
  _add('accepts ' + _name,
       lambda self, v=_values: self.accept(values=v))


def _refuse(self, values, word):
  with self.assertRaises(chart.Refused) as caught:
    chart.render(values=values)
  self.assertIn(word, str(caught.exception))


for _name, (_values, _word) in matrix.REFUSED.items():
  _add('refuses ' + _name,
       lambda self, v=_values, w=_word: _refuse(self, v, w))

if __name__ == '__main__':
  cases.main()
