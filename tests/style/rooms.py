"""Which room may include what: the architecture, as includes show it.

The package_groups of BUILD say the same; this also checks system headers, which
every compilation can reach.
"""

import collections
import re

PROGRAMS = ('coordinator', 'server', 'worker')
SHIPPED = ('base',) + PROGRAMS + ('cli',)
OURS = ('base', 'coordinator', 'server', 'worker', 'cli', 'tests', 'deploy',
        'proto', 'atoll')

# Our headers that every pure room may include: messages (never stubs),
# encodings, the layout's tables, features, addresses, error values, rates, and
# times in messages.
_PURE_OURS = (r'^(base/(codec|features|identity|layout|status)/|'
              r'base/(host_port/host_port|time/(proto_time|token_bucket))\.h$|'
              r'atoll/([a-z0-9]+/)*[a-z_]+(?<!\.grpc)\.pb\.h$)')

_NETWORK = r'^(grpc|grpcpp|grpc\+\+|sys/socket|netinet|arpa)/|\.grpc\.pb\.h$'
_ROCKSDB = r'^rocksdb/'
_DEVICE = r'^(cuda|cublas|cudnn|nccl)'
_METRICS = r'^prometheus/'
_THREADS = (r'^(thread|mutex|shared_mutex|condition_variable|future|semaphore|'
            r'barrier|latch|stop_token|pthread\.h|omp\.h)$'
            r'|^absl/synchronization/')
_TIME_AND_CHANCE = r'^(chrono|ctime|time\.h|absl/time/clock\.h)$|^absl/random/'
_FILES = (r'^(fstream|filesystem|iostream|cstdio|stdio\.h|unistd\.h|fcntl\.h|'
          r'dirent\.h)$|^sys/')

# allowed: None, or a pattern of the only paths of ours that it may include.
# forbidden: (pattern, reason) for any path.
Room = collections.namedtuple('Room', 'name allowed forbidden')


def _own(program, *rooms):
  return '|'.join('^%s/%s/' % (program, room) for room in rooms)


def _core(path, program):
  forbidden = [
      (_NETWORK, 'a core does not call'),
      (_ROCKSDB, 'a core does not store'),
      (_DEVICE, 'a core does not compute'),
      (_METRICS, 'the shell counts'),
      (_TIME_AND_CHANCE, 'time and random numbers are handed to a core'),
  ]
  if not is_test(path):
    forbidden += [(_THREADS, 'a core has no threads'),
                  (_FILES, 'a core does no I/O'),
                  (r'^random$', 'random numbers are counter-based and keyed')]
  allowed = _PURE_OURS + '|' + _own(program, 'core', 'kernels')
  if is_test(path):
    allowed += '|^base/testing/'
  return Room('core', allowed, forbidden)


def _kernels(path, program, folder):
  forbidden = [
      (_NETWORK, 'a kernel does not call'),
      (_ROCKSDB, 'a kernel does not store'),
      (_METRICS, 'the shell counts'),
  ]
  if not is_test(path):
    forbidden.append((_FILES, 'a kernel does no I/O'))
  tensors = '|^worker/engine/tensor/' if program == 'worker' else ''
  allowed = r'^base/(codec|status)/|^%s/' % folder + tensors
  return Room('kernels', allowed, forbidden)


def room_of(path):
  """The Room of `path`; None: only directions are checked."""
  parts = path.split('/')
  program = parts[0]
  if program not in PROGRAMS or len(parts) < 3:
    return None
  room = parts[1]
  if room == 'core':
    return _core(path, program)
  if path.startswith('worker/engine/ops/'):
    return _kernels(path, program, 'worker/engine/ops')
  if room == 'kernels':
    return _kernels(path, program, '%s/kernels' % program)
  if room == 'store':
    forbidden = [
        (_NETWORK, 'a store does not call'),
        (r'^base/rpc/', 'a store does not call'),
        (_own(program, 'service', 'client'), 'a store knows only its core'),
    ]
    if program != 'coordinator':
      forbidden.append((_ROCKSDB, 'the coordinator alone has a RocksDB'))
    return Room('store', None, forbidden)
  if room == 'service':
    return Room('service', None,
                [(_ROCKSDB, 'a service sees its store by interface')])
  if room == 'client':
    return Room('client', None, [
        (_ROCKSDB, 'a client stores nothing'),
        (_own(program, 'core', 'store', 'service'),
         'a client knows protos, base and other clients'),
    ])
  return None


# For each root folder: the paths of ours that it may include.
_DIRECTIONS = {
    'base': r'^(base|atoll)/',
    'coordinator': r'^(base|atoll|coordinator)/',
    'server': r'^(base|atoll|server|coordinator/client)/',
    'worker': r'^(base|atoll|worker|coordinator/client|server/client)/',
    'cli': (r'^(base|atoll|cli|coordinator/client|server/client|'
            r'server/replay|worker/api|worker/sdk)/'),
}


def is_test(path):
  return bool(re.search(r'(_test|_benchmark)\.(cc|cu|py)$', path)) or (
      path.startswith('tests/') or '/testing/' in path)


def refusal(path, included, quoted):
  """Why `path` may not include `included`; None if it may."""
  first = included.split('/')[0]
  ours = quoted and first in OURS
  if ours:
    direction = _DIRECTIONS.get(path.split('/')[0])
    seen = included
    if '/testing/' in path:  # A test double may use the cores of those below.
      seen = re.sub(r'^(\w+)/core/', r'\1/client/', included)
    if direction and not re.search(direction, seen):
      return '%s/ may not depend on %s/' % (path.split('/')[0], first)
    if included.startswith('tests/') and not path.startswith('tests/'):
      return 'nothing depends on tests/'
  room = room_of(path)
  if room:
    for pattern, why in room.forbidden:
      if re.search(pattern, included):
        return why
    if ours and room.allowed and not re.search(room.allowed, included):
      return 'the room %s does not see it' % room.name
  elif re.search(_ROCKSDB, included) and not path.startswith('tests/'):
    return 'the coordinator alone has a RocksDB'
  if re.search(_DEVICE, included) and not re.match(
      r'worker/(engine|collective)/|tests/cuda_check/', path):
    return 'devices are used by worker/engine and worker/collective alone'
  if included == 'microhttpd.h' and not re.match(
      r'base/net/http_daemon|'
      r'(base/metrics|base/object_store/testing|worker/data/serve|tests)/',
      path):
    return 'base/metrics and worker/data/serve alone serve HTTP'
  if included.startswith('CLI/') and path not in (
      'base/flags/flags.cc', 'tests/build/libraries_test.cc'):
    return 'base/flags/flags.h stands for CLI11, which is slow to compile'
  if included.startswith('base/flags/') and not re.match(
      r'(base/flags|cli|tests)/|[a-z]+/(gate/)?main\.cc$', path):
    return 'programs alone read a command line; rooms take values'
  if included.startswith('curl/') and not re.match(
      r'(base/object_store|cli|tests)/', path):
    return 'base/object_store and the command line alone call over HTTP'
  return None
