// Bytes a second of the codecs and checksums, in cache (64 KiB) and out of it
// (64 MiB), beside memcpy. Pass --benchmark_format=json for a machine.

#include <cstring>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/codec/crc32c.h"
#include "base/codec/f32.h"
#include "base/codec/sha256.h"
#include "base/codec/xxh3.h"
#include "benchmark/benchmark.h"

namespace atl::codec {
namespace {

std::string Bytes(const benchmark::State& state) {
  std::string bytes(state.range(0), '\0');
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(i % 61);  // Finite as f32.
  }
  return bytes;
}

void CountBytes(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void BM_Memcpy(benchmark::State& state) {
  const std::string bytes = Bytes(state);
  std::string to(bytes.size(), '\0');
  for (auto _ : state) {
    std::memcpy(to.data(), bytes.data(), bytes.size());
    benchmark::ClobberMemory();
  }
  CountBytes(state);
}

void BM_DecodeF32(benchmark::State& state) {
  const std::string bytes = Bytes(state);
  std::vector<float> values(bytes.size() / sizeof(float));
  for (auto _ : state) {
    benchmark::DoNotOptimize(DecodeF32(bytes, absl::MakeSpan(values)));
  }
  CountBytes(state);
}

void BM_Crc32c(benchmark::State& state) {
  const std::string bytes = Bytes(state);
  for (auto _ : state) benchmark::DoNotOptimize(Crc32c(bytes));
  CountBytes(state);
}

void BM_Xxh3(benchmark::State& state) {
  const std::string bytes = Bytes(state);
  for (auto _ : state) benchmark::DoNotOptimize(Xxh3Of(bytes));
  CountBytes(state);
}

void BM_Sha256(benchmark::State& state) {
  const std::string bytes = Bytes(state);
  for (auto _ : state) benchmark::DoNotOptimize(Sha256Of(bytes));
  CountBytes(state);
}

#define ATL_SIZES ->Arg(64 << 10)->Arg(64 << 20)
BENCHMARK(BM_Memcpy) ATL_SIZES;
BENCHMARK(BM_DecodeF32) ATL_SIZES;
BENCHMARK(BM_Crc32c) ATL_SIZES;
BENCHMARK(BM_Xxh3) ATL_SIZES;
BENCHMARK(BM_Sha256) ATL_SIZES;

}  // namespace
}  // namespace atl::codec
