"""Seeded faults: a change of rules_test's documents and who notices it.

Each is (the rule that finds it, a change). `rules_test` shows that each
rule finds its faults.
"""


def document(documents, kind, name):
  return next(d for d in documents if d['kind'] == kind and
              d['metadata']['name'].startswith(name))


def _spec(documents, name, kind='StatefulSet'):
  return document(documents, kind, name)['spec']


def _pod(documents, name, kind='StatefulSet'):
  return _spec(documents, name, kind)['template']['spec']


def _container(documents, name, kind='StatefulSet'):
  return _pod(documents, name, kind)['containers'][0]


def _replace(values, old, new):
  """Replaces `old` in the one text of `values` that holds it."""
  index = next(i for i, v in enumerate(values) if old in v)
  values[index] = values[index].replace(old, new)


def _first(values, name):
  return next(v for v in values if v['name'] == name)


def no_memory_limit(d):
  del _container(d, 'atoll-server')['resources']['limits']['memory']


def request_above_limit(d):
  _container(d, 'atoll-cpu')['resources']['requests']['cpu'] = '9'


def no_readiness_probe(d):
  del _container(d, 'atoll-server')['readinessProbe']


def probe_of_another_port(d):
  _container(d, 'atoll-coordinator')['livenessProbe']['httpGet']['port'] = 'http'


def liveness_is_readiness(d):
  _container(d, 'atoll-server')['livenessProbe']['httpGet']['path'] = '/readyz'


def metrics_on_another_port(d):
  _replace(_container(d, 'atoll-server')['args'], ':7490', ':7491')


def writable_root(d):
  _container(d, 'atoll-run', 'Job')['securityContext'][
      'readOnlyRootFilesystem'] = False


def root_user(d):
  _pod(d, 'atoll-server')['securityContext']['runAsUser'] = 0


def maybe_root(d):
  del _pod(d, 'atoll-certificates', 'Job')['securityContext']['runAsNonRoot']


def added_capability(d):
  _container(d, 'atoll-cpu')['securityContext']['capabilities']['add'] = [
      'NET_ADMIN'
  ]


def escalation(d):
  del _container(d, 'atoll-server')['securityContext'][
      'allowPrivilegeEscalation']


def no_seccomp(d):
  del _pod(d, 'atoll-coordinator')['securityContext']['seccompProfile']


def host_network(d):
  _pod(d, 'atoll-server')['hostNetwork'] = True


def host_path(d):
  _first(_pod(d, 'atoll-server')['volumes'], 'tmp').pop('emptyDir')
  _first(_pod(d, 'atoll-server')['volumes'], 'tmp')['hostPath'] = {
      'path': '/tmp'
  }


def latest_image(d):
  _container(d, 'atoll-server')['image'] = 'registry:5000/atoll:latest'


def unversioned_image(d):
  _container(d, 'atoll-server')['image'] = 'registry:5000/atoll'


def selector_of_no_pod(d):
  _spec(d, 'atoll-server')['selector']['matchLabels'][
      'app.kubernetes.io/component'] = 'servers'


def selector_of_all_pods(d):
  labels = _spec(d, 'atoll-server')['selector']['matchLabels']
  del labels['app.kubernetes.io/component']


def service_without_pods(d):
  _spec(d, 'atoll-coordinator', 'Service')['selector'][
      'app.kubernetes.io/component'] = 'coordinators'


def service_of_an_unknown_port(d):
  _spec(d, 'atoll-server', 'Service')['ports'][0]['targetPort'] = 'rpc'


def service_name_that_is_missing(d):
  _spec(d, 'atoll-server')['serviceName'] = 'atoll-servers'


def mount_without_volume(d):
  _container(d, 'atoll-server')['volumeMounts'].append({
      'name': 'cache',
      'mountPath': '/cache'
  })


def volume_without_mount(d):
  _pod(d, 'atoll-server')['volumes'].append({
      'name': 'cache',
      'emptyDir': {'sizeLimit': '1Gi'}
  })


def claim_that_is_not_mounted(d):
  claims = _spec(d, 'atoll-cpu')['volumeClaimTemplates']
  claims.append({'metadata': {'name': 'spare'}, 'spec': claims[0]['spec']})


def endless_scratch(d):
  _first(_pod(d, 'atoll-cpu')['volumes'], 'tmp')['emptyDir'] = {}


def frozen_certificate(d):
  mounts = _container(d, 'atoll-coordinator')['volumeMounts']
  _first(mounts, 'tls')['subPath'] = 'coordinator'


def claims_deleted_with_the_set(d):
  _spec(d, 'atoll-server')['persistentVolumeClaimRetentionPolicy'][
      'whenDeleted'] = 'Delete'


def secret_that_nothing_makes(d):
  tls = _first(_pod(d, 'atoll-cpu')['volumes'], 'tls')
  tls['projected']['sources'][0]['secret']['name'] = 'atoll-gpu-0-tls'


def account_that_is_missing(d):
  _pod(d, 'atoll-server')['serviceAccountName'] = 'atoll-server'


def certificate_that_is_not_issued(d):
  jobs = _pod(d, 'atoll-certificates', 'Job')
  jobs['initContainers'] = [
      c for c in jobs['initContainers'] if c['name'] != 'server-1'
  ]


def unknown_flag(d):
  _replace(_container(d, 'atoll-server')['args'], '--data-dir', '--data-path')


def flag_of_another_command(d):
  _container(d, 'atoll-run', 'Job')['args'].append('--mesh=dp_shard=2')


def unknown_command(d):
  _container(d, 'atoll-cpu')['args'][0] = 'attend'


def variable_that_is_missing(d):
  container = _container(d, 'atoll-coordinator')
  container['env'] = [v for v in container['env'] if v['name'] != 'POD_IP']


def data_on_no_volume(d):
  _replace(_container(d, 'atoll-server')['args'], '/var/lib/atoll',
           '/var/lib/server')


def data_on_a_volume_to_read(d):
  mounts = _container(d, 'atoll-server')['volumeMounts']
  _first(mounts, 'data')['readOnly'] = True


def certificate_of_another_pod(d):
  _spec(d, 'atoll-server')['replicas'] = 3


def budget_of_no_pod(d):
  _spec(d, 'atoll-server', 'PodDisruptionBudget')['selector']['matchLabels'][
      'app.kubernetes.io/component'] = 'servers'


def budget_that_stops_drains(d):
  _spec(d, 'atoll-coordinator', 'PodDisruptionBudget')['maxUnavailable'] = 0


def budget_that_keeps_no_gate(d):
  _spec(d, 'atoll-gate', 'PodDisruptionBudget')['minAvailable'] = 0


def budget_of_one_gate(d):
  _spec(d, 'atoll-gate', 'Deployment')['replicas'] = 1


def no_budget_of_gates(d):
  d.remove(document(d, 'PodDisruptionBudget', 'atoll-gate'))


def token_in_a_pod(d):
  _pod(d, 'atoll-cpu')['automountServiceAccountToken'] = True


def account_that_reads_secrets(d):
  document(d, 'Role', 'atoll')['rules'][0]['verbs'].append('get')


def island_ca_key_in_a_server(d):
  tls = _first(_pod(d, 'atoll-server')['volumes'], 'tls')
  tls['projected']['sources'][0]['secret']['items'].append({
      'key': 'island-ca.key',
      'path': 'island-ca.key'
  })


def gates_certificate_in_a_server(d):
  tls = _first(_pod(d, 'atoll-server')['volumes'], 'tls')
  tls['projected']['sources'][0]['secret']['name'] = 'atoll-gate-tls'


def operators_certificate_in_a_gate(d):
  sources = [_first(_pod(d, name, kind)['volumes'], 'tls')['projected']['sources']
             for name, kind in (('atoll-gate', 'Deployment'),
                                ('atoll-run', 'Job'))]
  sources[0] += sources[1]


def the_ca_in_a_coordinator(d):
  tmp = _first(_pod(d, 'atoll-coordinator')['volumes'], 'tmp')
  del tmp['emptyDir']
  tmp['secret'] = {'secretName': 'atoll-ca'}


def policy_of_no_pod(d):
  _spec(d, 'atoll-server', 'NetworkPolicy')['podSelector']['matchLabels'][
      'app.kubernetes.io/component'] = 'servers'


def policy_of_an_unknown_port(d):
  _spec(d, 'atoll-coordinator', 'NetworkPolicy')['ingress'][0]['ports'][0][
      'port'] = 'rpc'


def nothing_denied(d):
  d.remove(document(d, 'NetworkPolicy', 'atoll-default'))


def other_namespace(d):
  document(d, 'Service', 'atoll-server')['metadata']['namespace'] = 'default'


def job_without_restart_policy(d):
  del _pod(d, 'atoll-run', 'Job')['restartPolicy']


def no_grace(d):
  _pod(d, 'atoll-server')['terminationGracePeriodSeconds'] = 5


def name_that_does_not_resolve(d):
  _replace(_container(d, 'atoll-cpu')['args'], 'atoll-coordinator.',
           'atoll-control.')


def port_that_is_not_served(d):
  _replace(_container(d, 'atoll-cpu')['args'], ':7402', ':7403')


def islands_at_the_operators_port(d):
  _replace(_container(d, 'atoll-cpu')['args'], ':7402', ':7400')


def policy_that_stops_islands(d):
  _spec(d, 'atoll-island', 'NetworkPolicy')['egress'][0]['ports'][0][
      'port'] = 'grpc'


def coordinator_that_admits_no_server(d):
  del _spec(d, 'atoll-coordinator', 'NetworkPolicy')['ingress'][0]['from'][0]


def gate_at_a_port_that_nobody_is_told(d):
  _spec(d, 'atoll-gate-public', 'Service')['ports'][0]['port'] = 7402


def server_at_a_port_that_nobody_is_told(d):
  _spec(d, 'atoll-server-1', 'Service')['ports'][0]['port'] = 7401


def policy_that_stops_data(d):
  _spec(d, 'atoll-island', 'NetworkPolicy')['egress'][-1]['ports'][0][
      'port'] = 80


def data_by_url_and_by_path(d):
  _container(d, 'atoll-cpu')['args'].append('--data=/data')


def keys_that_nothing_makes(d):
  _container(d, 'atoll-cpu')['envFrom'] = [{'secretRef': {'name': 'keys'}}]


def cache_on_no_volume(d):
  _replace(_container(d, 'atoll-cpu')['args'], '--data-cache=/var/cache/atoll',
           '--data-cache=/var/cache')


def name_outside_of_the_certificate(d):
  _replace(_container(d, 'atoll-server')['args'],
           '--advertise={server-id}.', '--advertise={ordinal}.')


def gate_outside_of_its_certificate(d):
  _replace(_container(d, 'atoll-gate', 'Deployment')['args'],
           '--advertise=join.', '--advertise=joins.')


def coordinator_outside_of_its_certificate(d):
  _replace(_container(d, 'atoll-gate', 'Deployment')['args'],
           '--island-coordinator=c.', '--island-coordinator=d.')


def gate_without_the_island_ca(d):
  tls = _first(_pod(d, 'atoll-gate', 'Deployment')['volumes'], 'tls')
  del tls['projected']['sources'][0]['secret']['items'][-1]


def no_island_ca_for_a_server(d):
  tls = _first(_pod(d, 'atoll-server')['volumes'], 'tls')
  del tls['projected']['sources'][1]['secret']['items'][-1]


def monitor_of_an_unknown_port(d):
  _spec(d, 'atoll-server', 'ServiceMonitor')['endpoints'][0]['port'] = 'http'


FAULTS = [
    ('limits', no_memory_limit),
    ('limits', request_above_limit),
    ('probes', no_readiness_probe),
    ('probes', probe_of_another_port),
    ('probes', liveness_is_readiness),
    ('probes', metrics_on_another_port),
    ('read_only_root', writable_root),
    ('non_root', root_user),
    ('non_root', maybe_root),
    ('capabilities', added_capability),
    ('capabilities', escalation),
    ('seccomp', no_seccomp),
    ('host', host_network),
    ('host', host_path),
    ('images', latest_image),
    ('images', unversioned_image),
    ('selectors', selector_of_no_pod),
    ('selectors', selector_of_all_pods),
    ('services', service_without_pods),
    ('services', service_of_an_unknown_port),
    ('services', service_name_that_is_missing),
    ('volumes', mount_without_volume),
    ('volumes', volume_without_mount),
    ('volumes', claim_that_is_not_mounted),
    ('volumes', endless_scratch),
    ('volumes', frozen_certificate),
    ('volumes', claims_deleted_with_the_set),
    ('references', secret_that_nothing_makes),
    ('references', account_that_is_missing),
    ('references', certificate_that_is_not_issued),
    ('references', keys_that_nothing_makes),
    ('arguments', unknown_flag),
    ('arguments', flag_of_another_command),
    ('arguments', unknown_command),
    ('variables', variable_that_is_missing),
    ('paths', data_on_no_volume),
    ('paths', data_on_a_volume_to_read),
    ('paths', certificate_of_another_pod),
    ('paths', gate_without_the_island_ca),
    ('paths', no_island_ca_for_a_server),
    ('paths', cache_on_no_volume),
    ('budgets', budget_of_no_pod),
    ('budgets', budget_that_stops_drains),
    ('budgets', budget_that_keeps_no_gate),
    ('budgets', budget_of_one_gate),
    ('budgets', no_budget_of_gates),
    ('tokens', token_in_a_pod),
    ('tokens', account_that_reads_secrets),
    ('island_ca', island_ca_key_in_a_server),
    ('island_ca', gates_certificate_in_a_server),
    ('island_ca', operators_certificate_in_a_gate),
    ('island_ca', the_ca_in_a_coordinator),
    ('network', policy_of_no_pod),
    ('network', policy_of_an_unknown_port),
    ('network', nothing_denied),
    ('dials', islands_at_the_operators_port),
    ('dials', policy_that_stops_islands),
    ('dials', coordinator_that_admits_no_server),
    ('outside', gate_at_a_port_that_nobody_is_told),
    ('outside', server_at_a_port_that_nobody_is_told),
    ('data', policy_that_stops_data),
    ('data', data_by_url_and_by_path),
    ('monitors', monitor_of_an_unknown_port),
    ('names', other_namespace),
    ('jobs', job_without_restart_policy),
    ('grace', no_grace),
    ('addresses', name_that_does_not_resolve),
    ('addresses', port_that_is_not_served),
    ('addresses', name_outside_of_the_certificate),
    ('addresses', gate_outside_of_its_certificate),
    ('addresses', coordinator_outside_of_its_certificate),
]

# Those that a real API server finds, where its namespace admits `restricted`.
REFUSED_BY_SERVER = [
    request_above_limit, root_user, maybe_root, added_capability, escalation,
    no_seccomp, host_network, host_path, selector_of_no_pod,
    mount_without_volume, job_without_restart_policy
]
