"""The gate in the chart: who reaches it, whom it reaches, what it may read."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [_HERE, os.path.join(_HERE, '../integration')]

from harness import cases  # pylint: disable=wrong-import-position
import chart  # pylint: disable=wrong-import-position
import manifests as m  # pylint: disable=wrong-import-position
import matrix  # pylint: disable=wrong-import-position
import rules  # pylint: disable=wrong-import-position

_KINDS = ('NodePort', 'LoadBalancer', 'TLSRoute')
# A CA of the older kind: it signs everything itself.
_OLD_CA = ('openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 '
           '-nodes -keyout ca.key -out ca.crt -days 30 -subj /CN=old '
           '-addext basicConstraints=critical,CA:TRUE,pathlen:0')


def _find(documents, kind, name):
  return m.Manifests(documents).find(kind, name)


def _policy(documents, component):
  return _find(documents, 'NetworkPolicy', 'atoll-' + component)['spec']


def _peers(rule, side):
  """The components that a policy's rule names; None: it names nobody."""
  return side in rule and [
      p['podSelector']['matchLabels']['app.kubernetes.io/component']
      for p in rule[side]] or None


def _flags(documents, kind, name):
  return m.flag_values(
      m.containers(_find(documents, kind, name), init=False)[0])


def issue_as_the_job(documents, directory):
  """Runs the init containers of the certificates' Job, with `directory` in the
  place of its volumes. Returns what the first that fails complains about."""
  for container in m.pod_spec(_find(documents, 'Job', 'atoll-certificates'))[
      'initContainers']:
    arguments = [a.replace('=/', '=%s/' % directory) for a in container['args']]
    run = subprocess.run([chart.program('atoll')] + arguments, text=True,
                         capture_output=True, timeout=60, check=False,
                         cwd=directory, env={'HOME': directory})
    if run.returncode != 0:
      return '%s: %s' % (container['name'], run.stderr)
  return ''


class GateTest(unittest.TestCase):

  def setUp(self):
    self.directory = tempfile.mkdtemp(dir=os.environ.get('TEST_TMPDIR'))
    self.addCleanup(shutil.rmtree, self.directory)

  def rendered(self, kind='LoadBalancer', **more):
    return chart.render(values=matrix.gate(kind, **more))

  def test_two_gates_without_state_share_the_nodes(self):
    gates = _find(self.rendered(), 'Deployment', 'atoll-gate')
    self.assertEqual(2, gates['spec']['replicas'])
    spread, = m.pod_spec(gates)['topologySpreadConstraints']
    self.assertEqual('kubernetes.io/hostname', spread['topologyKey'])
    self.assertTrue(m.matches(spread['labelSelector']['matchLabels'],
                              next(m.pod_labels(gates))))
    self.assertEqual({'tls', 'tmp'},
                     {v['name'] for v in m.pod_spec(gates)['volumes']})

  def test_a_drain_leaves_one_gate(self):
    budget = _find(self.rendered(), 'PodDisruptionBudget', 'atoll-gate')
    self.assertEqual(1, budget['spec']['minAvailable'])

  def test_anyone_reaches_the_gate_s_port_alone(self):
    for kind in _KINDS:
      policy = _policy(self.rendered(kind), 'gate')
      self.assertEqual([{'ports': [{'protocol': 'TCP', 'port': 'gate'}]}],
                       policy['ingress'], kind)

  def test_nobody_reaches_a_gate_without_an_address(self):
    policy = _policy(self.rendered(expose={'type': 'None'}), 'gate')
    self.assertIn('Ingress', policy['policyTypes'])
    self.assertNotIn('ingress', policy)

  def test_a_gate_reaches_the_coordinator_and_names_alone(self):
    documents = self.rendered()
    gates = _find(documents, 'Deployment', 'atoll-gate')
    egress = [
        (_peers(rule, 'to'), [p['port'] for p in rule['ports']])
        for policy in m.Manifests(documents).of('NetworkPolicy')
        for rule in policy['spec'].get('egress', [])
        if m.matches(policy['spec']['podSelector']['matchLabels'],
                     next(m.pod_labels(gates)))]
    self.assertCountEqual([(None, [53, 53]), (['coordinator'], ['grpc'])],
                          egress)

  def test_only_a_coordinator_with_a_gate_admits_gates(self):
    for documents, gates in ((self.rendered(), ['gate']),
                             (chart.render('quickstart.yaml'), [])):
      policy = _policy(documents, 'coordinator')
      self.assertEqual(['server', 'island', 'operator'] + gates,
                       _peers(policy['ingress'][0], 'from'))
      self.assertNotIn('gate',
                       str(_policy(documents, 'server')['ingress']))

  def test_strangers_and_islands_are_told_outer_addresses(self):
    for kind, gate, coordinator in (
        ('NodePort', 'join.example.org:30401', 'c.example.org:30400'),
        ('LoadBalancer', 'join.example.org:443', 'c.example.org:443'),
        ('TLSRoute', 'join.example.org:443', 'c.example.org:443')):
      flags = _flags(self.rendered(kind), 'Deployment', 'atoll-gate')
      self.assertEqual(gate, flags['--advertise'])
      self.assertEqual(coordinator, flags['--island-coordinator'])
      self.assertEqual('atoll-coordinator.atoll.svc.cluster.local:7400',
                       flags['--coordinator'])

  def test_without_addresses_they_are_told_inner_ones(self):
    flags = _flags(chart.render(values={'gate': {'enabled': True}}),
                   'Deployment', 'atoll-gate')
    self.assertEqual('atoll-gate.atoll.svc.cluster.local:7402',
                     flags['--advertise'])
    self.assertEqual(flags['--coordinator'], flags['--island-coordinator'])

  def test_the_outer_service_has_the_gate_s_port_and_ready_gates(self):
    for kind in _KINDS:
      service = _find(self.rendered(kind), 'Service', 'atoll-gate-public')
      self.assertEqual(['gate'], [p['targetPort']
                                  for p in service['spec']['ports']])
      self.assertNotIn('publishNotReadyAddresses', service['spec'])
      # A gate limits each address, which a node must not replace.
      self.assertEqual(
          'Local' if kind == 'LoadBalancer' else None,
          service['spec'].get('externalTrafficPolicy'))

  def test_a_route_passes_tls_through(self):
    route = _find(self.rendered('TLSRoute'), 'TLSRoute', 'atoll-gate-public')
    self.assertEqual(['join.example.org'], route['spec']['hostnames'])
    self.assertEqual([{'name': 'atoll-gate-public', 'port': 7402}],
                     route['spec']['rules'][0]['backendRefs'])

  def test_hours_of_a_certificate_are_told_in_seconds(self):
    flags = _flags(self.rendered(certificateHours=2), 'Deployment',
                   'atoll-gate')
    self.assertEqual('7200', flags['--certificate-s'])

  def test_proxies_are_trusted_if_they_are_named(self):
    for named, expected in (([], None),
                            (['10.4.0.0/14'], '10.4.0.0/14'),
                            (['10.4.0.0/14', 'fd00::/8'],
                             '10.4.0.0/14,fd00::/8')):
      flags = _flags(self.rendered('TLSRoute', trustedProxies=named),
                     'Deployment', 'atoll-gate')
      self.assertEqual(expected, flags.get('--trusted-proxy'))

  def test_listeners_trust_the_island_ca_only_with_a_gate(self):
    for name, path in (('coordinator', 'coordinator'),
                       ('server', '$(POD_NAME)')):
      flags = _flags(self.rendered(), 'StatefulSet', 'atoll-' + name)
      self.assertEqual('/etc/atoll/tls/' + path, flags['--tls-dir'])
      tls = m.pod_spec(_find(self.rendered(), 'StatefulSet', 'atoll-' + name))[
          'volumes'][0]['projected']['sources'][0]['secret']['items']
      self.assertIn('island-ca.crt', [item['key'] for item in tls])
    self.assertNotIn('island-ca', chart.render_text('quickstart.yaml'))
    self.assertNotIn('gate', chart.render_text('quickstart.yaml'))

  def test_the_island_ca_s_key_is_in_the_gate_s_secret_alone(self):
    documents = self.rendered()
    holders = [m.title(d) for d in documents if 'island-ca.key' in str(d)]
    self.assertEqual(['Deployment atoll-gate'], holders)
    sources = m.pod_spec(_find(documents, 'Deployment', 'atoll-gate'))[
        'volumes'][0]['projected']['sources']
    self.assertEqual(['atoll-gate-tls'], [s['secret']['name'] for s in sources])

  def test_a_gate_is_added_to_a_release_without_replacing_what_is_there(self):
    before = chart.render(values=dict(matrix.gate('TLSRoute'), gate={}))
    after = chart.render(values=matrix.gate('TLSRoute'))
    self.assertEqual([], list(rules.unchangeable(before, after)))
    names = {(d['kind'], m.name_of(d)) for d in after}
    gone = {(d['kind'], m.name_of(d)) for d in before} - names
    self.assertEqual(set(), gone)

  def test_gates_are_scraped(self):
    documents = chart.render(values=matrix.VALUES['a gate, monitored'])
    monitor = _find(documents, 'ServiceMonitor', 'atoll-gate')
    self.assertEqual('gate', monitor['spec']['selector']['matchLabels'][
        'app.kubernetes.io/component'])

  def test_the_notes_say_how_to_make_a_token(self):
    command = 'atoll token create --run volunteers'
    for values, expected in (({}, True), ({'gate': {'enabled': False}}, False)):
      text = chart.helm('install', 'atoll', chart.CHART, '--dry-run=client',
                        '--kubeconfig', os.devnull, '-f',
                        os.path.join(chart.CHART, 'volunteers.yaml'),
                        values=values)
      self.assertIs(expected, command in text.partition('NOTES:')[2])

  def test_the_job_issues_what_the_pods_mount(self):
    documents = self.rendered()
    os.mkdir(os.path.join(self.directory, 'existing'))
    self.assertEqual('', issue_as_the_job(documents, self.directory))
    certificates = os.path.join(self.directory, 'certificates')
    for kind, name in (('Deployment', 'atoll-gate'),
                       ('StatefulSet', 'atoll-coordinator'),
                       ('StatefulSet', 'atoll-server')):
      for source in m.pod_spec(_find(documents, kind, name))['volumes'][0][
          'projected']['sources']:
        if source['secret'].get('optional'):  # Made once one is revoked.
          self.assertEqual('atoll-crl', source['secret']['name'])
          continue
        identity = source['secret']['name'][len('atoll-'):-len('-tls')]
        have = set(os.listdir(os.path.join(certificates, identity)))
        self.assertLessEqual({i['key'] for i in source['secret']['items']},
                             have, name)

  def test_the_job_says_what_an_older_ca_lacks(self):
    existing = os.path.join(self.directory, 'existing')
    os.mkdir(existing)
    subprocess.run(_OLD_CA.split(), cwd=existing, check=True,
                   capture_output=True, timeout=60)
    # Without a gate it is good.
    before = chart.render(values=dict(matrix.gate('TLSRoute'), gate={}))
    self.assertEqual('', issue_as_the_job(before, self.directory))
    shutil.rmtree(os.path.join(self.directory, 'certificates'))
    self.assertIn('a gate needs an island CA',
                  issue_as_the_job(self.rendered(), self.directory))


if __name__ == '__main__':
  cases.main()
