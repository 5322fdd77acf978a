"""Plants each violation and checks that only violations are found."""

import os
import sys
import unittest

_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [_HERE, os.path.join(_HERE, '../integration')]

from harness import cases  # pylint: disable=wrong-import-position
import phrases  # pylint: disable=wrong-import-position
import rules  # pylint: disable=wrong-import-position
import source_text  # pylint: disable=wrong-import-position
import tree  # pylint: disable=wrong-import-position


def found(path, text, rule=None):
  """The messages of the violations in one file."""
  return [
      v.message
      for v in rules.check({path: text})[0]
      if rule is None or v.rule == rule
  ]


def warned(path, text):
  return [v.message for v in rules.check({path: text})[1]]


def including(path, *paths):
  text = ''.join('#include %s\n' % p for p in paths)
  return found(path, text, 'include')


class IncludesTest(unittest.TestCase):

  def refuses(self, path, included):
    self.assertEqual(1, len(including(path, included)), (path, included))

  def allows(self, path, included):
    self.assertEqual([], including(path, included), (path, included))

  def test_a_core_sees_messages_encodings_and_errors(self):
    for program in ('coordinator', 'server', 'worker'):
      path = program + '/core/rounds/round.cc'
      for included in ('<vector>', '"absl/time/time.h"', '"absl/status/status.h"',
                       '"atoll/v1/plan.pb.h"',
                       '"atoll/storage/v1/a_records.pb.h"', '"base/codec/crc32c.h"',
                       '"base/status/check.h"', '"base/layout/layout.h"',
                       '"%s/core/member.h"' % program):
        self.allows(path, included)

  def test_a_core_does_no_io_and_has_no_threads_clock_or_chance(self):
    path = 'coordinator/core/round.cc'
    for included in ('<grpcpp/grpcpp.h>', '"grpcpp/grpcpp.h"', '"rocksdb/db.h"',
                     '<cuda_runtime.h>', '<nccl.h>', '<thread>', '<mutex>',
                     '<random>', '<chrono>', '<fstream>', '<iostream>',
                     '"absl/time/clock.h"', '"absl/random/random.h"',
                     '"absl/synchronization/mutex.h"', '"base/sync/mutex.h"',
                     '"base/obs/log.h"', '"base/io/files.h"', '"base/rpc/certificates/tls.h"',
                     '"atoll/v1/run_service.grpc.pb.h"',
                     '"coordinator/store/store.h"'):
      self.refuses(path, included)

  def test_a_cores_test_may_draw_random_inputs_and_share_between_threads(self):
    self.allows('server/core/merge/mean_test.cc', '<random>')
    self.allows('server/core/merge/mean_test.cc', '<thread>')
    self.allows('server/core/merge/mean_test.cc', '"base/testing/mutator.h"')
    self.refuses('server/core/merge/mean.cc', '"base/testing/mutator.h"')
    self.refuses('server/core/merge/mean_test.cc', '<grpcpp/grpcpp.h>')

  def test_kernels_see_nothing_else_of_ours(self):
    self.allows('server/kernels/sum.cc', '<immintrin.h>')
    self.allows('server/kernels/sum.cc', '"server/kernels/sum.h"')
    self.allows('worker/engine/ops/cpu/ops.cc', '"oneapi/dnnl/dnnl.hpp"')
    self.allows('worker/engine/ops/cpu/ops.cc', '"base/codec/f32.h"')
    self.refuses('server/kernels/sum.cc', '"server/core/merge/merge_rule.h"')
    self.allows('server/core/merge/mean.cc', '"server/kernels/sum.h"')
    self.refuses('coordinator/core/round.cc', '"server/kernels/sum.h"')
    self.refuses('worker/engine/ops/cpu/ops.cc', '"worker/data/batch.h"')
    self.refuses('worker/engine/ops/cpu/ops.cc', '"base/rpc/channel.h"')

  def test_metrics_are_for_shells_and_http_for_one_room_each(self):
    metrics = '"prometheus/counter.h"'
    for path in ('base/metrics/metrics.h', 'base/rpc/call_metrics.cc',
                 'server/store/db.cc', 'coordinator/service/loop.cc'):
      self.allows(path, metrics)
    for path in ('coordinator/core/round.cc', 'server/kernels/add.cc',
                 'worker/engine/ops/matmul.cc', 'worker/core/loop_test.cc'):
      self.refuses(path, metrics)
    self.allows('base/metrics/metrics_listener.cc', '<microhttpd.h>')
    self.allows('base/object_store/testing/server.cc', '<microhttpd.h>')
    self.allows('worker/data/serve/data_server.cc', '<microhttpd.h>')
    self.refuses('worker/data/fetch/open_data.cc', '<microhttpd.h>')
    self.refuses('base/object_store/http.cc', '<microhttpd.h>')
    self.refuses('base/rpc/listener.cc', '<microhttpd.h>')
    self.refuses('coordinator/core/round.cc', '<microhttpd.h>')
    self.allows('cli/ca/publish.cc', '<curl/curl.h>')
    self.allows('base/object_store/http_client.cc', '<curl/curl.h>')
    self.refuses('worker/data/fetch.cc', '<curl/curl.h>')
    self.refuses('server/core/merge.cc', '<curl/curl.h>')

  def test_command_lines_are_for_programs_and_cli11_for_one_file(self):
    flags = '"base/flags/flags.h"'
    for path in ('cli/commands/join.cc', 'server/main.cc',
                 'coordinator/gate/main.cc', 'tests/benchmarks/round.cc',
                 'base/flags/program_flags.h'):
      self.allows(path, flags)
    for path in ('base/rpc/channel.h', 'coordinator/gate/gate.cc',
                 'server/service/push.cc', 'worker/api/island.cc'):
      self.refuses(path, flags)
    self.allows('base/flags/flags.cc', '"CLI/CLI.hpp"')
    self.refuses('base/flags/program_flags.cc', '"CLI/CLI.hpp"')
    self.refuses('cli/commands/join.cc', '"CLI/App.hpp"')

  def test_rocksdb_is_for_the_coordinators_store_and_grpc_is_not(self):
    self.allows('coordinator/store/db.cc', '"rocksdb/db.h"')
    self.refuses('server/store/db.cc', '"rocksdb/db.h"')
    self.refuses('server/store/db.cc', '"grpcpp/grpcpp.h"')
    self.refuses('server/service/push.cc', '"rocksdb/db.h"')
    self.refuses('server/main.cc', '"rocksdb/db.h"')
    self.refuses('cli/commands/run.cc', '"rocksdb/db.h"')

  def test_a_client_knows_no_inside_of_its_program(self):
    self.allows('server/client/client.cc', '"base/rpc/channel.h"')
    self.allows('server/client/client.cc', '"atoll/v1/x.grpc.pb.h"')
    self.refuses('server/client/client.cc', '"server/core/shard_machine.h"')
    self.refuses('coordinator/client/client.cc', '"coordinator/store/store.h"')

  def test_programs_depend_in_one_direction_and_by_their_clients(self):
    self.allows('worker/api/island.cc', '"server/client/parameter_client.h"')
    self.allows('server/service/watch.cc', '"coordinator/client/client.h"')
    self.allows('cli/commands/join.cc', '"worker/api/run_island.h"')
    self.refuses('base/rpc/call.cc', '"server/client/parameter_client.h"')
    self.refuses('coordinator/service/x.cc', '"server/client/x.h"')
    self.refuses('server/service/x.cc', '"worker/api/x.h"')
    self.refuses('worker/api/x.cc', '"server/core/x.h"')
    self.allows('worker/island/testing/x.cc', '"server/core/x.h"')
    self.refuses('worker/island/testing/x.cc', '"server/shard/x.h"')
    self.refuses('worker/core/testing/x.cc', '"server/core/x.h"')
    self.refuses('coordinator/service/testing/x.cc', '"server/core/x.h"')
    self.refuses('cli/commands/x.cc', '"worker/engine/trainer.h"')
    self.refuses('cli/commands/x.cc', '"tests/benchmarks/vectors.h"')

  def test_devices_stay_in_the_engine(self):
    self.allows('worker/engine/ops/cuda/x.cc', '<cuda_runtime.h>')
    self.allows('worker/collective/nccl/x.cc', '<nccl.h>')
    self.refuses('worker/api/x.cc', '<cuda_runtime.h>')


class CallsTest(unittest.TestCase):

  def test_finds_time_threads_io_and_chance_in_a_core(self):
    for call in ('absl::Now()', 'std::chrono::steady_clock::now()',
                 'std::thread t;', 'absl::SleepFor(d);', 'time(nullptr)',
                 'std::random_device r;', 'absl::BitGen g;', 'std::cerr << 1;',
                 'LOG(INFO) << 1;', 'rand()', 'getenv("A")'):
      text = 'void F() {\n  %s\n}\n' % call
      self.assertEqual(1, len(found('worker/core/a.cc', text, 'call')), call)

  def test_does_not_look_into_comments_and_strings(self):
    text = '// absl::Now() and throw\nconst char* s = "std::thread";\n'
    self.assertEqual([], found('worker/core/a.cc', text))
    text = "auto s = R\"(absl::Now())\"; int n = 1'000; char c = '\"';\n"
    self.assertEqual([], found('worker/core/a.cc', text))

  def test_finds_what_is_banned_everywhere(self):
    for call in ('throw 1;', 'catch (...) {}', 'delete p;', 'using namespace std;', 'atoi(s);',
                 'std::getenv("A");'):
      text = 'void F() {\n  %s\n}\n' % call
      self.assertEqual(1, len(found('base/rpc/a.cc', text, 'call')), call)

  def test_lets_main_read_the_environment(self):
    self.assertEqual([], found('cli/main.cc', 'int main() {\n  std::getenv("A");\n}\n'))

  def test_finds_a_sleep_in_a_test(self):
    text = 'void F() {\n  absl::SleepFor(d);\n}\n'
    self.assertEqual(1, len(found('base/sync/a_test.cc', text)))
    self.assertEqual([], found('base/rpc/retry.cc', text))

  def test_lets_through_what_gives_its_reason(self):
    text = '  // style-ok(call): waits for a real process.\n  usleep(1);\n'
    self.assertEqual([], found('base/sync/a_test.cc', text))
    text = '  // style-ok(call):\n  usleep(1);\n'
    self.assertEqual(1, len(found('base/sync/a_test.cc', text)))


class SizesTest(unittest.TestCase):

  def test_warns_of_a_file_past_its_target_and_finds_one_past_its_ceiling(self):
    for path, line, target, ceiling in (('base/a.cc', 'int a;\n', 600, 1000),
                                        ('base/a_test.cc', 'a;\n', 1000, 3000),
                                        ('base/testing/a.cc', 'a;\n', 1000, 3000)):
      self.assertEqual([], warned(path, line * target), path)
      self.assertEqual([], found(path, line * ceiling), path)
      self.assertEqual(1, len(warned(path, line * (target + 1))), path)
      self.assertEqual(1, len(warned(path, line * ceiling)), path)
      self.assertEqual(1, len(found(path, line * (ceiling + 1))), path)
      self.assertEqual([], warned(path, line * (ceiling + 1)), path)
    self.assertEqual(1, len(found('base/a.h', '//\n' * 501, 'size')))
    self.assertEqual(1, len(warned('base/a.h', '//\n' * 251)))

  def test_finds_a_long_function_and_not_a_long_namespace(self):
    long_function = 'void F(int a) {\n' + '  a();\n' * 300 + '}\n'
    self.assertEqual(1, len(found('base/a.cc', long_function)))
    shorter = 'void F(int a) {\n' + '  a();\n' * 100 + '}\n'
    self.assertEqual([], found('base/a.cc', shorter))
    self.assertEqual(1, len(warned('base/a.cc', shorter)))
    many = 'namespace a {\nclass B {\n' + 'void G() {\n}\n' * 200 + '};\n}\n'
    self.assertEqual([], found('base/a.cc', many))
    self.assertEqual([], warned('base/a.cc', many))

  def test_finds_a_long_line(self):
    self.assertEqual(1, len(found('base/a.cc', 'int %s;\n' % ('a' * 100))))

  def test_measures_functions_by_their_outermost_body(self):
    code = ('int F() {\n  if (a) {\n    G([] {\n    });\n  }\n}\n'
            'struct S {\n  S() : a(1) {\n  }\n};\n')
    self.assertEqual([(1, 6), (8, 2)], list(source_text.functions(code)))


class ClassesTest(unittest.TestCase):

  def counts(self, text):
    return list(source_text.classes(source_text.code_only(text)))

  def test_counts_what_a_class_offers(self):
    text = ('class A : public B {\n public:\n  A(int a);\n  ~A() = default;\n'
            '  A(const A&) = delete;\n  int F() const { return a_; }\n'
            '  void G(int b = 0,\n         int c = 0);\n  int O() const override;\n'
            '  template <typename T> T H();\n  friend void I();\n'
            '  using J = K;\n\n protected:\n  void L();\n\n private:\n'
            '  void M();\n  int a_ = N();\n};\n')
    self.assertEqual([(1, 'A', 3)], self.counts(text))

  def test_a_struct_is_public_and_a_class_within_counts_for_itself(self):
    text = 'struct A {\n  int F();\n  class B {\n    int G();\n  };\n};\n'
    self.assertEqual([(3, 'B', 0), (1, 'A', 1)], self.counts(text))

  def test_finds_a_class_with_too_many_public_methods(self):
    text = ('// A.\n#pragma once\nclass A {\n public:\n'
            '%s};\n#endif\n')
    self.assertEqual([], warned('base/a.h', text % ('  int F();\n' * 32)))
    self.assertEqual(1, len(warned('base/a.h', text % ('  int F();\n' * 33))))
    self.assertEqual([], found('base/a.h', text % ('  int F();\n' * 80)))
    self.assertEqual(1, len(found('base/a.h', text % ('  int F();\n' * 81))))


class ManualsTest(unittest.TestCase):

  def test_a_manual_is_bounded_in_bytes(self):
    line = 'a' * 69 + '\n'
    for path, count in (('base/DESIGN.md', 200), ('DESIGN.md', 200),
                        ('deploy/a/README.md', 200), ('README.md', 285),
                        ('SECURITY.md', 285), ('proto/ISLAND.md', 285)):
      self.assertEqual([], found(path, line * count), path)
      self.assertEqual(1, len(found(path, line * (count + 1))), path)
    self.assertEqual(1, len(found('DESIGN.md', 'ä' * 7001)))
    self.assertEqual([], found('tests/benchmarks/results/a.md', line * 300))

  def test_a_manuals_text_is_wrapped(self):
    long = 'word ' * 17
    for text in (long, '- ' + long, 'a\n    ' + long, '- a\n\n    - ' + long):
      self.assertEqual(1, len(found('base/DESIGN.md', text + '\n')), text)
    for text in ('| a | %s |' % long, 'Code:\n\n    b\n\n    ' + long,
                 '[%s](base/DESIGN.md)' % long, '`%s`' % ('a' * 90),
                 '# Top\n\n    ' + long):
      self.assertEqual([], found('base/DESIGN.md', text + '\n'), text)


class NamedTestsTest(unittest.TestCase):

  def test_security_md_names_tests_that_are_there(self):
    text = 'It holds (`base/a_test`, `a_test`,\n`b_test`).\n'
    files = {'base/a_test.cc': 'int a;\n', 'base/c_b_test.py': 'b = 1\n'}
    found_there = [v for v in rules.named_tests({'SECURITY.md': text, **files})]
    self.assertEqual([('SECURITY.md', 2)],
                     [(v.path, v.line) for v in found_there])
    files['tests/b_test.sh'] = ''
    self.assertEqual(
        [], list(rules.named_tests({'SECURITY.md': text, **files})))


class ScriptsAreRunTest(unittest.TestCase):

  def test_a_script_that_no_build_file_has_is_found(self):
    files = {'tests/b_test.py': '', 'tests/a_b_test.sh': '', 'c/d_test.py': '',
             'tests/BUILD': '# T.\ncases_test(name = "a_b_test")\n',
             'tests/tools/torch_islands.py': '"c/d_test.py"'}
    self.assertEqual(['tests/b_test.py'],
                     [v.path for v in rules.scripts_are_run(files)])


class FoldersTest(unittest.TestCase):

  def rules(self, files):
    return [(v.path, v.rule) for v in rules.check(files)[0]]

  def test_a_folder_has_a_bounded_number_of_files(self):
    files = {'base/a/f%d.toml' % i: '' for i in range(48)}
    self.assertEqual([], rules.check(files)[1])
    files['base/a/g.toml'] = ''
    self.assertEqual([('base/a/f0.toml', 'target')],
                     [(v.path, v.rule) for v in rules.check(files)[1]])
    self.assertEqual([], self.rules(files))
    files.update({'base/a/h%d.toml' % i: '' for i in range(48)})
    self.assertEqual([('base/a/f0.toml', 'size')], self.rules(files))

  def test_a_folder_says_what_it_holds(self):
    self.assertEqual([], self.rules({'base/a/BUILD': '# Locks.\n'}))
    self.assertEqual([('base/a/BUILD', 'build')],
                     self.rules({'base/a/BUILD': 'filegroup()\n'}))

  def test_folders_include_each_other_in_one_direction(self):
    files = {
        'base/a/a.cc': '#include "base/b/b.inc"\n',
        'base/b/b.inc': '#include "base/c/c.inc"\n',
        'base/c/c.inc': '',
    }
    self.assertEqual([], self.rules(files))
    files['base/c/c.inc'] = '#include "base/a/d.inc"\n'
    files['base/a/d.inc'] = ''
    self.assertEqual([('base/a/a.cc', 'circle'), ('base/b/b.inc', 'circle'),
                      ('base/c/c.inc', 'circle')], self.rules(files))

  def test_tests_and_programs_stand_above_all_folders(self):
    files = {
        'base/a/a.inc': '#include "base/b/b.inc"\n',
        'base/b/b.inc': '',
        'base/b/b_test.cc': '#include "base/a/a.inc"\n',
        'base/b/testing/c.cc': '#include "base/a/a.inc"\n',
        'base/b/main.cc': '#include "base/a/a.inc"\nint main() {\n}\n',
    }
    self.assertEqual([], self.rules(files))


class SmallRulesTest(unittest.TestCase):

  def test_a_flag_is_spelt_with_dashes(self):
    for path, text in (('base/a.cc', 'F("--run_id");\n'),
                       ('base/a.cc', '// --run_id\n'),
                       ('README.md', 'atoll --run_id\n')):
      self.assertEqual(1, len(found(path, text, 'flag')), text)
    for path, text in (('base/a.cc', 'F("--run-id");\n'),
                       ('base/a.cc', '  --run_count;\n'),
                       ('README.md', '--test_timeout=60\n')):
      self.assertEqual([], found(path, text, 'flag'), text)

  def test_a_todo_has_a_reason(self):
    self.assertEqual(1, len(found('base/a.cc', '// TODO: later\n')))
    self.assertEqual(1, len(found('base/a.cc', '// TODO() later\n')))
    self.assertEqual(1, len(found('base/a.cc', '// FIXME(me): later\n')))
    self.assertEqual([], found('base/a.cc', '// TODO(needs gRPC 1.60): x\n'))
    self.assertEqual([], found('base/a.cc', 'mkdtemp("XXXXXX");\n'))

  def test_names_no_path_of_a_machine_and_no_file_outside(self):
    for text in ('# see /work/main/x\n', '# see shared/plan.md\n',
                 '# as house.md says\n', 'cd /tmp/bz/a/b\n'):
      self.assertGreaterEqual(len(found('deploy/a.sh', text, 'path')), 1, text)
    for text in ('# see DESIGN.md\n', '#include "a/work/b.h"\n',
                 '# proto/DESIGN.md\n'):
      self.assertEqual([], found('deploy/a.sh', text, 'path'), text)

  def test_cpp_is_built_by_our_rules(self):
    text = 'cc_binary(\n    name = "a",\n)\n'
    self.assertEqual(1, len(found('cli/BUILD', '# A.\n' + text)))
    self.assertEqual(
        [], found('cli/BUILD',
                  '# A.\nload("//deploy/bazel:cc.bzl", "cc_binary")\n' + text))
    self.assertEqual([], found('deploy/bazel/external/x/BUILD', text))

  def test_a_build_file_names_its_files_and_its_users(self):
    self.assertEqual(1, len(found('base/a/BUILD', '# A.\nsrcs = glob(["*"])\n')))
    self.assertEqual([], found('base/a/BUILD', '# glob() is banned\n'))
    public = '# A.\nvisibility = ["//visibility:public"]\n'
    self.assertEqual(1, len(found('base/a/BUILD', public)))
    self.assertEqual([], found('worker/sdk/BUILD', public))
    self.assertEqual(1, len(found('base/a/BUILD', '# A.\ncopts=["-march=native"]\n')))
    self.assertEqual(1, len(found('.bazelrc', 'build --copt=-ffast-math\n')))
    self.assertEqual([], found('.bazelrc', '# never -ffast-math\n'))

  def test_a_header_says_what_it_is_and_is_guarded(self):
    good = '// Why.\n\n#pragma once\n\nvoid F();\n'
    self.assertEqual([], found('base/a.h', good))
    self.assertEqual(1, len(found('base/a.h', good.replace('#pragma', '//'))))
    self.assertEqual(1, len(found('base/a.h', good[8:])))

  def test_everything_in_the_contract_has_a_comment(self):
    path = 'proto/atoll/v1/a.proto'
    good = ('// A.\nservice A {\n  // Gets.\n  // Errors:\n  //   NOT_FOUND\n'
            '  rpc Get(B) returns (C);\n}\n// B.\nmessage B {\n  // Id.\n'
            '  string id = 1;\n}\n// E.\nenum E {\n  // None.\n'
            '  E_UNSPECIFIED = 0;\n}\n')
    self.assertEqual([], found(path, good))
    for comment in ('// A.\n', '  // Gets.\n  // Errors:\n  //   NOT_FOUND\n',
                    '// B.\n', '  // Id.\n', '  // None.\n', '  // Errors:\n'):
      self.assertGreaterEqual(
          len(found(path, good.replace(comment, '', 1))), 1, comment)

  def test_a_library_has_a_test_beside_it(self):
    load = '# A.\nload("//deploy/bazel:cc.bzl", "cc_library", "cc_test")\n'
    library = load + 'cc_library(\n    name = "a",\n)\n'
    room = load + 'cc_room(\n    visibility = [],\n)\n'
    test = 'cc_test(\n    name = "a_test",\n)\n'
    testonly = '# A.\npackage(default_testonly = True)\n'

    def count(text, *names):
      files = {'base/a/' + name: '' for name in names}
      return len(rules.check({'base/a/BUILD': text, **files})[0])

    for text in (library, room):
      self.assertEqual(1, count(text, 'a.cc'))
      self.assertEqual(0, count(text + test, 'a.cc'))
      self.assertEqual(0, count(text, 'a.cc', 'a_test.cc'))
      self.assertEqual(0, count(text))  # Headers alone.
      self.assertEqual(0, count(testonly + text[5:], 'a.cc'))


class OwnIncludesTest(unittest.TestCase):

  def found(self, files):
    files = dict(files)
    files['deploy/bazel/precompiled/library.h'] = (
        '// x\n#pragma once\n'
        '#include <vector>\n#include "absl/status/status.h"\n'
        '#include <google/protobuf/message.h>\n#endif\n')
    return [(v.path, v.line) for v in rules.check(files)[0]
            if v.rule == 'include']

  def test_a_file_includes_what_the_precompiled_header_has_too(self):
    use = '\nstd::vector<absl::Status> a;\n'
    self.assertEqual([('base/a.cc', 2), ('base/a.cc', 2)],
                     self.found({'base/a.cc': use}))
    self.assertEqual([('base/a.cc', 3)],
                     self.found({'base/a.cc': '#include <vector>\n' + use}))
    both = '#include <vector>\n#include "absl/status/status.h"\n'
    self.assertEqual([], self.found({'base/a.cc': both + use}))

  def test_a_header_of_ours_brings_what_it_includes_itself(self):
    use = '#include "base/b/b.h"\nstd::vector<int> a;\n'
    header = ('// x\n#pragma once\n'
              '#include <vector>\n#endif\n')
    between = ('// x\n#pragma once\n'
               '#include "base/b/c.h"\n#endif\n')
    self.assertEqual([], self.found({
        'base/a.cc': use, 'base/b/b.h': between, 'base/b/c.h': header}))
    self.assertEqual([('base/a.cc', 2)], self.found({
        'base/a.cc': use, 'base/b/c.h': header}))

  def test_names_that_are_not_hidden_are_the_compilers_to_find(self):
    self.assertEqual([], self.found({'base/a.cc': 'std::set<int> a;\n'}))

  def test_comments_and_strings_use_nothing(self):
    text = '// std::vector\nconst char* a = "absl::Status";\n'
    self.assertEqual([], self.found({'base/a.cc': text}))

  def test_a_precompiled_header_is_known_by_its_names(self):
    files = {'deploy/bazel/precompiled/test.h':
             '// x\n#pragma once\n'
             '#include <regex>\n#endif\n'}
    self.assertEqual(1, len(self.found(files)))


class PhrasesTest(unittest.TestCase):

  def found(self, path, text):
    """[(phrase, line)] in one file."""
    return [(phrase, line)
            for phrase, places in phrases.find({path: text}).items()
            for _, line in places]

  def finds(self, phrase, path, text, line):
    self.assertEqual([(phrase, line)], self.found(path, text), text)

  def test_a_sentence_has_a_subject(self):
    of, who = list(phrases.find({}))[:2]
    self.finds(of, 'base/a.h', 'int a;  // Of the last row.\n', 1)
    self.finds(of, 'base/a.proto', '\n// Of two numbers the lower wins.\n', 2)
    self.finds(of, 'base/a.py', 'a = 1  # Of a file.\n', 1)
    self.finds(of, 'base/a.cc', '// Merges.\n// Of two\n// the lower.\n', 2)
    self.finds(who, 'base/a.cc', '/* Ends. Whoever asks waits. */\n', 1)
    self.finds(who, 'base/a.cu', '// Empty: What is left.\n', 1)
    self.finds(who, 'base/a.py', '"""Ends.\n\nWho asks: a.\n"""\n', 3)
    for text in ('// The sum Of it.\n', '// `What` is a name.\n',
                 'const char* a = "Of it. What now?";\n'):
      self.assertEqual([], self.found('base/a.cc', text), text)

  def test_private_phrases_are_found_in_comments_and_in_texts(self):
    for phrase, text in (
        ('nobody', 'Nobody asks'), ('goes on', 'the run goes on'),
        ('goes on', 'it cannot go on'), ('there is none', 'if there is none'),
        ('no more', 'takes no more calls'), ('beside', 'a file beside it'),
        ('is to', 'the run is to end'), ('that which', 'that which is left')):
      self.finds(phrase, 'base/a.h', '\n  // ' + text + '.\n', 2)
      self.finds(phrase, 'base/a.cc', 'F(\n"%s");\n' % text, 2)
      self.finds(phrase, 'base/a.cc', 'F(R"(\n%s)");\n' % text, 2)
      self.finds(phrase, 'base/a.py', '"""A.\n\n%s."""\n' % text, 3)
    for text in ('no more bytes than', 'no more than', 'go on the list',
                 'what is `nobody`', 'besides', 'it is today'):
      self.assertEqual([], self.found('base/a.h', '// %s.\n' % text), text)

  def test_a_phrase_may_cross_lines(self):
    self.finds('there is none', 'base/a.h',
               '\n// null if there\n// is none.\n', 2)
    self.finds('there is none', 'base/a.cc',
               'F("if there "\n  "is none");\n', 1)
    self.assertEqual([], self.found('base/a.cc', 'F("there ", "is none");\n'))
    self.assertEqual([], self.found(
        'base/a.h', 'int a;  // there\n// is none\n'))

  def test_the_product_alone_is_checked(self):
    text = '// Nobody asks.\n'
    for path in ('base/a_test.cc', 'tests/a.py', 'base/testing/a.h',
                 'base/a.md'):
      self.assertEqual([], self.found(path, text), path)

  def test_one_place_more_than_the_limit_fails_and_lists_all(self):
    files = {'base/a.proto': '// Nobody asks.\n',
             'base/b.proto': '\n// It asks nobody.\n'}
    self.assertEqual([], list(phrases.excess(files, {'nobody': 2})))
    places = [p[:2] for p in phrases.excess(files, {'nobody': 1})]
    self.assertEqual([('base/a.proto', 1), ('base/b.proto', 2)], places)

  def test_a_limit_that_is_too_high_is_told(self):
    files = {'base/a.proto': '// Nobody asks.\n'}
    self.assertEqual([], phrases.slack(files, {'nobody': 1}))
    lower = phrases.slack(files, {'nobody': 3})
    self.assertEqual(1, len(lower))
    self.assertIn('from 3 to 1', lower[0])

  def test_the_rules_count_phrases(self):
    text = '// It asks nobody.\n' * (phrases.LIMITS['nobody'] + 1)
    self.assertEqual(phrases.LIMITS['nobody'] + 1,
                     len(found('base/a.proto', text, 'phrase')))
    self.assertEqual(0, len(found('base/a.proto', text[19:], 'phrase')))


class TreeTest(unittest.TestCase):

  def test_reads_sources_and_leaves_out_what_is_made(self):
    for path in ('base/a.cc', 'BUILD', '.bazelrc', '.ci/run', 'README.md'):
      self.assertTrue(tree.is_checked(path), path)
    for path in ('bazel-bin/a.cc', '.git/config.py', 'quickstart-out/a.json',
                 'a/__pycache__/b.py', 'a/b.png', 'tests/style/rules.py'):
      self.assertFalse(tree.is_checked(path), path)


if __name__ == '__main__':
  cases.main()
