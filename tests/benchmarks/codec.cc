// Speed of the codecs on every path of this CPU, compared with a copy.
//
// usage: codec [--json] [--codecs=int8,top_k] [--paths=avx512] [--mib=256]
//              [--repetitions=5]
//
// One thread. Values are f32, in DRAM (--mib of each array, huge pages if
// available) or in L2 (128 KiB of each array, repeatedly). Speeds are bytes of
// f32 a second, the median of the repetitions. Operations:
//
//   encode      values -> bytes
//   feedback    gradient, e -> bytes, next e
//   decode      bytes -> values
//   accumulate  bytes, sum -> sum
//
// `traffic` is what an operation reads and writes, with encoded bytes. It is
// compared with a copy in the same place right before and after. In DRAM a copy
// shows what one core can move with ordinary stores; in L2 only loads and
// stores limit it. With --json, standard output has one JSON object per result
// and nothing else.

#include "base/codec/codec.h"

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "base/codec/block_grid.h"

namespace atl::benchmarks {
namespace {

constexpr size_t kBlock = static_cast<size_t>(codec::kBlockElements);
constexpr size_t kCacheBlocks = 8;  // 128 KiB.
// Blocks for the plain definitions, which are slow.
constexpr size_t kPlainBlocks = 512;
constexpr double kSecondsMin = 0.02;  // Of one repetition.

struct Arguments {
  bool json = false;
  int mib = 256;
  int repetitions = 5;
  std::vector<std::string> codecs;
  std::vector<std::string> paths;
};

// CPU time of this thread: other programs on the core do not count.
double Seconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) +
         1e-9 * static_cast<double>(time.tv_nsec);
}

// Touched memory with huge pages. Never freed.
template <typename T>
absl::Span<T> Allocate(size_t count) {
  const size_t bytes = (count * sizeof(T) + (2 << 20)) & ~size_t{(2 << 20) - 1};
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return {};
  madvise(memory, bytes, MADV_HUGEPAGE);
  std::memset(memory, 1, bytes);
  return {static_cast<T*>(memory), count};
}

// All arrays, of whole blocks.
struct Arrays {
  size_t blocks = 0;
  absl::Span<float> values, before, after;
  absl::Span<char> encoded;

  bool Make(size_t block_count) {
    blocks = block_count;
    values = Allocate<float>(blocks * kBlock);
    before = Allocate<float>(blocks * kBlock);
    after = Allocate<float>(blocks * kBlock);
    encoded = Allocate<char>(blocks * kBlock * sizeof(float));
    if (values.empty() || before.empty() || after.empty() || encoded.empty()) {
      return false;
    }
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0.0f, 1e-3f);
    // One mebibyte of values, repeated: drawing all takes too long.
    const size_t drawn = std::min(values.size(), size_t{1} << 18);
    for (size_t i = 0; i < drawn; ++i) values[i] = normal(random);
    for (size_t i = drawn; i < values.size(); ++i)
      values[i] = values[i - drawn];
    for (size_t i = 0; i < before.size(); ++i) before[i] = 0.1f * values[i];
    return true;
  }
};

// Median GB/s of f32 of `pass` over `blocks` blocks.
double Speed(size_t blocks, int repetitions,
             const std::function<void()>& pass) {
  pass();
  std::vector<double> speeds;
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    int64_t passes = 0;
    const double start = Seconds();
    double now = start;
    do {
      pass();
      ++passes;
      now = Seconds();
    } while (now - start < kSecondsMin);
    speeds.push_back(static_cast<double>(passes) *
                     static_cast<double>(blocks * kBlock * sizeof(float)) /
                     (now - start) / 1e9);
  }
  absl::c_sort(speeds);
  return speeds[speeds.size() / 2];
}

// Bytes read and written per second by a copy of `blocks` blocks.
double CopyTraffic(Arrays& arrays, size_t blocks, int repetitions) {
  const size_t bytes = blocks * kBlock * sizeof(float);
  return 2 * Speed(blocks, repetitions, [&] {
           std::memcpy(arrays.after.data(), arrays.values.data(), bytes);
           asm volatile("" : : "r"(arrays.after.data()) : "memory");
         });
}

struct Operation {
  const char* name;
  double traffic;  // f32 arrays read and written; encoded bytes are extra.
  std::function<codec::BlockFault(size_t block)> run;
};

std::vector<Operation> MakeOperations(const codec::Codec& codec,
                                      Arrays& arrays) {
  const size_t bytes = codec.EncodedBytes(kBlock);
  const auto values = [&arrays](size_t b) {
    return arrays.values.subspan(b * kBlock, kBlock);
  };
  const auto before = [&arrays](size_t b) {
    return arrays.before.subspan(b * kBlock, kBlock);
  };
  const auto after = [&arrays](size_t b) {
    return arrays.after.subspan(b * kBlock, kBlock);
  };
  const auto encoded = [&arrays, bytes](size_t b) {
    return arrays.encoded.subspan(b * bytes, bytes);
  };
  const auto written = [encoded](size_t b) {
    return absl::string_view(encoded(b).data(), encoded(b).size());
  };
  return {
      {"encode", 1,
       [=, &codec](size_t b) {
         return codec.Encode({1, b * kBlock}, values(b), encoded(b));
       }},
      {"feedback", 3,
       [=, &codec](size_t b) {
         return codec.EncodeWithFeedback({1, b * kBlock}, values(b), 0.95f,
                                         before(b), after(b), encoded(b));
       }},
      {"decode", 1,
       [=, &codec](size_t b) { return codec.Decode(written(b), after(b)); }},
      {"accumulate", 2,
       [=, &codec](size_t b) {
         return codec.DecodeAccumulate(written(b), 1e-3f, after(b));
       }},
  };
}

bool RunCase(const codec::Codec& codec, bool in_dram, Arrays& arrays,
             const Arguments& arguments) {
  size_t blocks = in_dram ? arrays.blocks : kCacheBlocks;
  if (codec.path() == codec::SimdPath::kPlain) {
    blocks = std::min(blocks, kPlainBlocks);
  }
  const double encoded_share = static_cast<double>(codec.EncodedBytes(kBlock)) /
                               (kBlock * sizeof(float));
  for (const Operation& operation : MakeOperations(codec, arrays)) {
    codec::BlockFault fault = codec::BlockFault::kNone;
    const double copy_before = CopyTraffic(arrays, blocks, 3);
    const double speed = Speed(blocks, arguments.repetitions, [&] {
      for (size_t block = 0; block < blocks; ++block) {
        const codec::BlockFault found = operation.run(block);
        if (found != codec::BlockFault::kNone) fault = found;
      }
    });
    const double copy = std::max(copy_before, CopyTraffic(arrays, blocks, 3));
    if (fault != codec::BlockFault::kNone) {
      std::fprintf(stderr, "a block %s\n",
                   std::string(codec::FaultText(fault)).c_str());
      return false;
    }
    const double traffic = speed * (operation.traffic + encoded_share);
    const std::string name(codec::CodecName(codec.id()));
    const std::string path(codec::PathName(codec.path()));
    const char* place = in_dram ? "dram" : "l2";
    if (arguments.json) {
      std::printf(
          "{\"case\": \"%s\", \"operation\": \"%s\", \"path\": \"%s\", "
          "\"place\": \"%s\", \"gb_per_second\": %.3f, "
          "\"traffic_gb_per_second\": %.3f, \"copy_gb_per_second\": %.3f, "
          "\"memory_share\": %.4f, \"ratio\": %.3f}\n",
          name.c_str(), operation.name, path.c_str(), place, speed, traffic,
          copy, traffic / copy, 1 / encoded_share);
    } else {
      std::printf("%-15s %-10s %-6s %-4s %8.2f GB/s, %5.2f of a copy's %.1f\n",
                  name.c_str(), operation.name, path.c_str(), place, speed,
                  traffic / copy, copy);
    }
    std::fflush(stdout);
  }
  return true;
}

bool ParseNumber(absl::string_view text, int most, int* number) {
  return absl::SimpleAtoi(text, number) && *number >= 1 && *number <= most;
}

bool Parse(int argc, char** argv, Arguments* arguments) {
  for (const codec::CodecId id : codec::AllCodecs()) {
    arguments->codecs.emplace_back(codec::CodecName(id));
  }
  for (const codec::SimdPath path : codec::SupportedPaths()) {
    arguments->paths.emplace_back(codec::PathName(path));
  }
  const std::vector<std::string> codecs = arguments->codecs;
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (argument == "--json") {
      arguments->json = true;
    } else if (absl::ConsumePrefix(&argument, "--codecs=")) {
      arguments->codecs = absl::StrSplit(argument, ',');
    } else if (absl::ConsumePrefix(&argument, "--paths=")) {
      arguments->paths = absl::StrSplit(argument, ',');
    } else if (absl::ConsumePrefix(&argument, "--mib=")) {
      if (!ParseNumber(argument, 4096, &arguments->mib)) return false;
    } else if (absl::ConsumePrefix(&argument, "--repetitions=")) {
      if (!ParseNumber(argument, 1000, &arguments->repetitions)) return false;
    } else {
      return false;
    }
  }
  return absl::c_all_of(arguments->codecs, [&](const std::string& name) {
    return absl::c_linear_search(codecs, name);
  });
}

int Main(int argc, char** argv) {
  Arguments arguments;
  if (!Parse(argc, argv, &arguments)) {
    std::fprintf(stderr,
                 "usage: codec [--json] [--codecs=int8,top_k] [--paths=avx512] "
                 "[--mib=256] [--repetitions=5]\n");
    return 2;
  }
  Arrays arrays;
  if (!arrays.Make(static_cast<size_t>(arguments.mib) << 6)) {
    std::fprintf(stderr, "no memory for four arrays of %d MiB\n",
                 arguments.mib);
    return 1;
  }
  for (const codec::CodecId id : codec::AllCodecs()) {
    if (!absl::c_linear_search(arguments.codecs, codec::CodecName(id)))
      continue;
    for (const codec::SimdPath path : codec::SupportedPaths()) {
      if (!absl::c_linear_search(arguments.paths, codec::PathName(path))) {
        continue;
      }
      for (const bool in_dram : {true, false}) {
        if (!RunCase(codec::GetCodec(id, path), in_dram, arrays, arguments)) {
          return 1;
        }
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace atl::benchmarks

int main(int argc, char** argv) { return atl::benchmarks::Main(argc, argv); }
