"""Data by URL in the chart: who fetches it, with what keys and into what."""

import os
import sys
import unittest

_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [_HERE, os.path.join(_HERE, '../integration')]

from harness import cases  # pylint: disable=wrong-import-position
import chart  # pylint: disable=wrong-import-position
import manifests as m  # pylint: disable=wrong-import-position
import matrix  # pylint: disable=wrong-import-position


def _containers(documents):
  """{name: container}, without the one that issues certificates."""
  return {c['name']: c for w in m.Manifests(documents).workloads()
          for c in m.containers(w, init=False) if c['name'] != 'publish'}


def _file(documents):
  return m.Manifests(documents).find('ConfigMap', 'atoll-run')['data'][
      'run.toml']


class DataTest(unittest.TestCase):

  def rendered(self, data, **more):
    return chart.render(values=dict(matrix.gate('LoadBalancer'), data=data,
                                    **more))

  def test_a_preset_reads_the_url(self):
    documents = self.rendered(matrix.BY_URL)
    self.assertEqual(
        'preset = "laptop"\n[data]\nurl = "%s"\norder = "by_file"\n' %
        matrix.BY_URL['url'], _file(documents))
    self.assertEqual(['run', 'create', '/etc/atoll/run/run.toml'],
                     _containers(documents)['create']['args'][:3])

  def test_a_run_of_volunteers_waits_for_none_of_them(self):
    self.assertIn('preset = "volunteers"\n',
                  _file(chart.render('volunteers.yaml')))

  def test_another_url_is_another_job(self):
    jobs = [[m.name_of(d) for d in self.rendered(data) if d['kind'] == 'Job' and
             m.name_of(d).startswith('atoll-run')]
            for data in (matrix.BY_URL,
                         dict(matrix.BY_URL, authorities='', port=443,
                              url='https://data.example.org/b/manifest.json'))]
    self.assertNotEqual(*jobs)

  def test_a_pod_has_a_cache_of_the_size_and_no_path(self):
    documents = self.rendered(matrix.BY_URL, dataCache={'size': '5Gi'})
    flags = m.flag_values(_containers(documents)['island'])
    self.assertEqual('5GB', flags['--cache-size'])
    self.assertNotIn('--data', flags)
    islands, = [w for w in m.Manifests(documents).workloads()
                if m.containers(w)[0]['name'] == 'island']
    cache, = [v for v in m.pod_spec(islands)['volumes'] if v['name'] == 'cache']
    self.assertEqual({'sizeLimit': '5Gi'}, cache['emptyDir'])

  def test_without_a_url_there_is_no_cache(self):
    island = _containers(chart.render('quickstart.yaml'))['island']
    flags = m.flag_values(island)
    self.assertIn('--data', flags)
    self.assertNotIn('--data-cache', flags)

  def test_the_coordinator_and_the_run_s_job_alone_get_keys(self):
    keys = [{'secretRef': {'name': 'bucket'}}]
    have = {name: c.get('envFrom')
            for name, c in _containers(self.rendered(matrix.BUCKET)).items()}
    self.assertEqual({'create': keys, 'coordinator': keys, 'island': None,
                      'server': None, 'gate': None}, have)

  def test_those_who_fetch_trust_the_authorities(self):
    for name, container in _containers(self.rendered(matrix.BY_URL)).items():
      trusted = [v['mountPath'] for v in container['volumeMounts']
                 if v['name'] == 'authorities']
      self.assertEqual(
          ['/etc/ssl/certs'] if name in ('island', 'create') else [], trusted,
          name)

  def test_those_who_reach_the_mirror_trust_its_authorities(self):
    for name, container in _containers(self.rendered(
        {}, checkpoint=matrix.MIRROR, coordinator=dict(
            matrix.gate('LoadBalancer')['coordinator'],
            restoreSecret='log-secret'))).items():
      trusted = [v['mountPath'] for v in container['volumeMounts']
                 if v['name'] == 'authorities']
      self.assertEqual([] if name in ('island', 'gate') else ['/etc/ssl/certs'],
                       trusted, name)

  def test_the_notes_ask_volunteers_for_no_data_of_their_own(self):
    for data, command in ((matrix.BY_URL, '`atoll join -`'),
                          ({}, '`atoll join - --data DIR`')):
      text = chart.helm('install', 'atoll', chart.CHART, '--dry-run=client',
                        '--kubeconfig', os.devnull,
                        values=dict(matrix.gate('NodePort'), data=data))
      self.assertIn(command, text.partition('NOTES:')[2])


if __name__ == '__main__':
  cases.main()
