"""The values that the chart is rendered with, and values that it refuses."""

_SIZES = {
    'requests': {'cpu': '100m', 'memory': '1Gi'},
    'limits': {'cpu': 1, 'memory': '1Gi'}
}
_GPUS = {
    'requests': {'cpu': 1, 'memory': '1Gi'},
    'limits': {'cpu': 8, 'memory': '64Gi', 'nvidia.com/gpu': 8}
}
_PLACE = {
    'nodeSelector': {'disk': 'fast'},
    'tolerations': [
        {'key': 'gpu', 'operator': 'Exists', 'effect': effect}
        for effect in ('NoSchedule', 'PreferNoSchedule', 'NoExecute')
    ] + [{'key': 'team', 'operator': 'Equal', 'value': 'a'}],
    'priorityClassName': 'high',
    'podLabels': {'kueue.x-k8s.io/queue-name': 'islands'},
    'terminationGracePeriodSeconds': 90,
}


def island(kind='Job', **more):
  return dict({'name': 'i', 'kind': kind, 'resources': _SIZES}, **more)


def exposed(kind, server='{server-id}.example.org'):
  gateway = {'name': 'gate', 'namespace': 'gates', 'sectionName': 'tls'}
  return {
      'server': {'expose': {'type': kind, 'address': server,
                            'gateway': gateway,
                            'annotations': {'a/b': '{server-id} {ordinal}'}}},
      'coordinator': {'expose': {'type': kind, 'address': 'c.example.org',
                                 'gateway': gateway}},
      'islands': [island()]
  }


_SIDECAR = {
    'name': 'trainer', 'image': 'trainer:1', 'resources': _SIZES,
    'securityContext': {'allowPrivilegeEscalation': False,
                        'capabilities': {'drop': ['ALL']},
                        'readOnlyRootFilesystem': True},
    'env': [{'name': 'ATOLL_SOCKET', 'value': '/state/trainer.sock'}],
    'volumeMounts': [{'name': 'work', 'mountPath': '/state'}]
}

BY_URL = {'url': 'https://data.example.org:8443/text/manifest.json',
          'port': 8443, 'authorities': 'data-ca'}
MIRROR = {'mirror': 's3://models/atoll', 'bandwidth': '20MB/s',
          'credentials': 'bucket', 'authorities': 'mirror-ca'}
BUCKET = {'url': 's3://corpus/tokens/manifest.json', 'credentials': 'bucket'}


def gate(kind, **more):
  """Everything that islands outside need, with addresses of one kind."""
  values = exposed(kind, '192.0.2.7' if kind == 'NodePort' else
                   '{server-id}.example.org')
  expose = dict(values['coordinator']['expose'], address='join.example.org')
  return dict(values, gate=dict({'enabled': True, 'expose': expose}, **more))


# {name: values}
VALUES = {
    'defaults': {},
    'certificates by cert-manager': {
        'tls': {'mode': 'certManager', 'islands': ['kitchen'],
                'certManager': {'issuerRef': {'name': 'ca',
                                              'kind': 'ClusterIssuer'}}},
        'islands': [island()]
    },
    'certificates by an Issuer': {
        'tls': {'mode': 'certManager',
                'certManager': {'issuerRef': {'name': 'ca', 'kind': 'Issuer'}}}
    },
    'certificates that exist': {
        'tls': {'mode': 'existingSecret', 'existingSecret': {'prefix': 'own'}}
    },
    'one server': {'server': {'replicas': 1}},
    'ten servers': {'server': {'replicas': 10}},
    'node ports': exposed('NodePort', '192.0.2.7'),
    'load balancers': exposed('LoadBalancer'),
    'TLS routes': exposed('TLSRoute'),
    'no addresses outside': exposed('None'),
    'a gate at node ports': gate('NodePort', replicas=3, certificateHours=1),
    'a gate at a load balancer': gate('LoadBalancer', **_PLACE),
    'a gate at a TLS route': gate('TLSRoute', resources=_SIZES,
                                  trustedProxies=['10.4.0.0/14', 'fd00::/8']),
    'a gate inside': {'gate': {'enabled': True}},
    'a gate inside, islands outside': gate('LoadBalancer',
                                           expose={'type': 'None'}),
    'a gate with certificates that exist': dict(
        gate('TLSRoute'), islands=[],
        tls={'mode': 'existingSecret', 'existingSecret': {'prefix': 'own'}}),
    'a gate, monitored': dict(
        gate('LoadBalancer'), metrics={'serviceMonitor': {'enabled': True}}),
    'a gate without policies and budgets': dict(
        gate('LoadBalancer'), networkPolicy={'enabled': False},
        podDisruptionBudget={'enabled': False}),
    'no gate': {'gate': {'enabled': False}},
    'an elastic island': {'islands': [island(replicas=3)]},
    'elastic islands in a queue': {
        'islands': [island(backoffLimitPerIndex=3, args=['--up=5Mb/s'],
                           **_PLACE)]
    },
    'strict islands with a class of volumes': {
        'islands': [island('StatefulSet', replicas=2, storageClass='fast',
                           **_PLACE)]
    },
    'elastic islands of several pods': {
        'islands': [island(replicas=2, processes=2, device='cuda',
                           mesh='dp_shard=4,tp=2')]
    },
    'strict islands of several pods': {
        'islands': [island('StatefulSet', replicas=2, processes=3)]
    },
    'islands on GPUs': {
        'islands': [island('StatefulSet', device='cuda', mesh='dp_shard=8',
                           image={'repository': 'r.example.org/atoll-cuda',
                                  'digest': 'sha256:' + 'a' * 64},
                           **dict(_PLACE, resources=_GPUS))]
    },
    'a trainer beside an island': {
        'islands': [island(args=['--trainer=unix:/var/lib/atoll/trainer.sock'],
                           extraContainers=[_SIDECAR])]
    },
    'two kinds of islands': {
        'islands': [island(name='a'), island('StatefulSet', name='b')]
    },
    'a run file': {
        'run': {'preset': '', 'file': 'name = "mine"\nserver_count = 2\n'}
    },
    'a run with other counts': {
        'run': {'servers': 2, 'islands': 5, 'tokens': '20B'}
    },
    'no run': {'run': {'create': False}},
    'data on a volume': {
        'data': {'path': '/data',
                 'volume': {'persistentVolumeClaim': {'claimName': 'corpus'}}},
        'islands': [island()]
    },
    'data by URL': {'data': BY_URL, 'islands': [
        island(), island('StatefulSet', name='s', processes=2)]},
    'checkpoints in a bucket': {'checkpoint': MIRROR},
    'a coordinator that is lost': {
        'checkpoint': MIRROR, 'coordinator': {'restoreSecret': 'log-secret'}},
    'checkpoints and data in buckets': {
        'checkpoint': dict(MIRROR, bandwidth='', port=9000), 'data': BUCKET},
    'data in a bucket': {'data': BUCKET, 'dataCache': {'size': '1Ti'},
                         'islands': [island()]},
    'data by URL of a run file': {
        'data': {'url': 'https://data.example.org/manifest.json'},
        'run': {'preset': '', 'file': 'preset = "eager"\n[data]\nurl = "https:'
                '//data.example.org/manifest.json"\norder = "by_file"\n'}
    },
    'data by URL and volunteers': dict(gate('NodePort'), data=BY_URL),
    'load balancers at other ports': dict(
        gate('LoadBalancer'),
        coordinator={'expose': {'type': 'LoadBalancer', 'port': 7402,
                                'address': 'c.example.org'}}),
    'monitoring': {
        'metrics': {'serviceMonitor': {'enabled': True, 'labels': {'a': 'b'}},
                    'prometheusRule': {'enabled': True, 'labels': {'a': 'b'}},
                    'dashboard': {'enabled': True}},
        'islands': [island()]
    },
    'no policies and no budgets': {
        'networkPolicy': {'enabled': False},
        'podDisruptionBudget': {'enabled': False}
    },
    'other placement': {
        'coordinator': dict(_PLACE, logLevel='warning',
                            persistence={'accessMode': 'ReadWriteOnce'}),
        'server': dict(_PLACE, logLevel='error',
                       persistence={'storageClass': 'fast'})
    },
    'other logs': {
        'coordinator': {'logLevel': 'error'},
        'server': {'logLevel': 'warning',
                   'persistence': {'accessMode': 'ReadWriteOnce'}}
    },
    'other names': {
        'fullnameOverride': 'blue', 'clusterDomain': 'cluster.local',
        'imagePullSecrets': [{'name': 'registry'}], 'islands': [island()]
    },
    'always pulled': {'image': {'pullPolicy': 'Always'}},
    'never pulled': {'image': {'pullPolicy': 'Never', 'tag': '1.2.3'}},
}

# Made by the user, not by the chart.
GIVEN = {('PersistentVolumeClaim', 'corpus')} | {
    ('Secret', 'own-%s-tls' % name)
    for name in ('coordinator', 'server-0', 'server-1', 'operator', 'gate')
} | {('ConfigMap', 'data-ca'), ('ConfigMap', 'mirror-ca'), ('Secret', 'bucket'),
     ('Secret', 'log-secret')}

# {name: (values, a word of the message)}
REFUSED = {
    'an unknown key': ({'servers': 3}, 'servers'),
    'an unknown key below': ({'server': {'replica': 3}}, 'replica'),
    'a mode that does not exist': ({'tls': {'mode': 'none'}}, 'mode'),
    'cert-manager without an issuer': ({'tls': {'mode': 'certManager'}},
                                       'name'),
    'no server': ({'server': {'replicas': 0}}, 'replicas'),
    'a text for a number': ({'server': {'replicas': 'three'}}, 'replicas'),
    'a cluster id of another form': (
        {'coordinator': {'clusterId': 'AB' * 16}}, 'clusterId'),
    'two coordinators': ({'coordinator': {'replicas': 2}}, 'replicas'),
    'an address outside that is missing': (
        {'server': {'expose': {'type': 'NodePort'}}}, 'address'),
    'one address for all load balancers': (
        exposed('LoadBalancer', 's.example.org'), 'address'),
    'a route without a Gateway': (
        {'server': {'expose': {'type': 'TLSRoute',
                               'address': '{server-id}.example.org'}}}, 'name'),
    'a node port out of range': (
        {'server': {'expose': {'nodePort': 80}}}, 'nodePort'),
    'one gate': (gate('TLSRoute', replicas=1), 'replicas'),
    'a gate without an address': (
        gate('LoadBalancer', expose={'type': 'LoadBalancer'}), 'address'),
    'a gate behind a route without a Gateway': (
        gate('TLSRoute', expose={'type': 'TLSRoute', 'address': 'a.b'}),
        'name'),
    'a gate at a port out of range': (
        gate('NodePort', expose={'type': 'NodePort', 'address': 'a.b',
                                 'nodePort': 443}), 'nodePort'),
    'a gate with a log level': (
        gate('TLSRoute', logLevel='info'), 'logLevel'),
    'certificates of two days by a gate': (
        gate('TLSRoute', certificateHours=48), 'certificateHours'),
    'a proxy of a gate that is no network': (
        gate('TLSRoute', trustedProxies=['lb.example.org']), 'trustedProxies'),
    'a gate of which islands reach no coordinator': (
        dict(gate('TLSRoute'), coordinator={}), 'set coordinator.expose.type'),
    'a gate of which islands reach no server': (
        dict(gate('TLSRoute'), server={}), 'set server.expose.type'),
    'a gate with certificates by cert-manager': (
        dict(gate('TLSRoute'), tls={
            'mode': 'certManager',
            'certManager': {'issuerRef': {'name': 'ca', 'kind': 'Issuer'}}}),
        'tls.mode generate or existingSecret'),
    'an island with the name of the gate': (
        dict(gate('TLSRoute'), islands=[island(name='gate')]),
        'the gate has the name gate'),
    'an island with the name of the gate\'s Service': (
        dict(gate('TLSRoute'), islands=[island(name='gate-public')]),
        'the gate has the name gate-public'),
    'an island outside with the name of the gate': (
        dict(gate('TLSRoute'), tls={'islands': ['gate']}),
        'two certificates are called gate'),
    'an island without limits': (
        {'islands': [{'name': 'i', 'kind': 'Job', 'resources': {
            'requests': _SIZES['requests']}}]}, 'limits'),
    'an island without a kind': (
        {'islands': [{'name': 'i', 'resources': _SIZES}]}, 'kind'),
    'an island of another kind': (
        {'islands': [island('Deployment')]}, 'kind'),
    'an island with the name of a server': (
        {'islands': [island(name='server')]}, 'name'),
    'an island with a name that is no label': (
        {'islands': [island(name='A_b')]}, 'name'),
    'two islands with one name': (
        {'islands': [island(), island('StatefulSet')]}, 'i-0'),
    'a device that does not exist': (
        {'islands': [island(device='gpu')]}, 'device'),
    'a mesh that is misspelt': ({'islands': [island(mesh='dp=8')]}, 'mesh'),
    'memory without a number': (
        {'server': {'resources': {'requests': {'cpu': 1, 'memory': 'much'},
                                  'limits': _SIZES['limits']}}}, 'memory'),
    'the newest image': ({'image': {'tag': 'latest'}}, 'tag'),
    'a digest that is too short': ({'image': {'digest': 'sha256:12'}},
                                   'digest'),
    'a preset that does not exist': ({'run': {'preset': 'fast'}}, 'preset'),
    'a preset and a file': ({'run': {'file': 'a = 1'}}, 'run'),
    'an island outside with the name of the CA': (
        {'tls': {'islands': ['ca']}}, 'islands'),
    'a path that is not absolute': ({'data': {'path': 'data'}}, 'path'),
    'a URL and a volume': (
        {'data': dict(BY_URL, volume={'configMap': {'name': 'a'}})},
        'exclude each other'),
    'a URL in plaintext': (
        {'data': {'url': 'http://data.example.org/manifest.json'}}, 'url'),
    'a URL that is no manifest\'s': (
        {'data': {'url': 'https://data.example.org'}}, 'url'),
    'a port that is not the URL\'s': (
        {'data': dict(BY_URL, port=443)}, 'data.port is 443'),
    'keys without a bucket': (
        {'data': dict(BY_URL, credentials='bucket')}, 'data.credentials'),
    'keys of a mirror that is not there': (
        {'checkpoint': {'credentials': 'bucket'}}, 'checkpoint.mirror'),
    'a lost coordinator without a mirror': (
        {'coordinator': {'restoreSecret': 'log-secret'}}, 'checkpoint.mirror'),
    'a mirror that is a file': (
        {'checkpoint': {'mirror': 'file:///mnt/atoll'}}, 'mirror'),
    'a mirror with other keys than the data': (
        {'checkpoint': dict(MIRROR, credentials='other'), 'data': BUCKET},
        'two Secrets'),
    'a mirror with other authorities than the data': (
        {'checkpoint': MIRROR, 'data': BY_URL}, 'two ConfigMaps'),
    'authorities without a URL': (
        {'data': {'authorities': 'data-ca'}}, 'data.authorities'),
    'a run file with another URL': (
        {'data': BY_URL, 'run': {'preset': '', 'file': 'preset = "eager"\n'}},
        'another url'),
    'a cache without a unit': ({'dataCache': {'size': '20'}}, 'size'),
    'a volume on the host': (
        {'data': {'volume': {'hostPath': {'path': '/data'}}}}, 'hostPath'),
}
