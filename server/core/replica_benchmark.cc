// Bytes of theta a second that a replica follows: tiles of four blocks, from
// arrays in DRAM as in a merge.
//
//   bazel run -c opt //server/core:replica_benchmark

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "base/codec/codec.h"
#include "benchmark/benchmark.h"
#include "server/core/replica.h"

namespace atl::server {
namespace {

constexpr int64_t kElements = int64_t{16} << 20;  // 64 MiB.
constexpr int64_t kTileBlocks = 4;

void BM_Advance(benchmark::State& state) {
  const codec::Codec& codec =
      codec::GetCodec(static_cast<codec::CodecId>(state.range(0)));
  state.SetLabel(std::string(codec::CodecName(codec.id())));
  v1::Layout layout;
  layout.set_fragment_count(1);
  v1::TensorSpec* tensor = layout.add_tensors();
  tensor->set_name("w");
  tensor->add_shape(kElements);
  tensor->set_dtype(v1::DATA_TYPE_F32);
  tensor->set_tensor_class(v1::TENSOR_CLASS_MATRIX);
  tensor->mutable_init()->set_kind(v1::INIT_KIND_CONSTANT);
  const RunLayout run_layout = *RunLayout::Create(layout);
  const EncodedLayout encoded_layout(run_layout, 0, codec);
  const int64_t block_count = run_layout.fragment_block_count(0);

  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> theta(kElements), from(kElements), to(kElements);
  for (int64_t i = 0; i < kElements; ++i) {
    from[i] = normal(random);
    theta[i] = from[i] - 0.01f * normal(random);
  }
  std::string encoded(encoded_layout.ByteOffset(block_count), '\0');
  const ReplicaStep step(encoded_layout, {}, 1);
  for (auto _ : state) {
    for (int64_t b = 0; b < block_count; b += kTileBlocks) {
      const int64_t first = run_layout.BlockOffset(0, b);
      const IndexRange blocks = {b, std::min(b + kTileBlocks, block_count)};
      benchmark::DoNotOptimize(step.Advance(
          blocks, theta.data() + first, from.data() + first, to.data() + first,
          encoded.data() + encoded_layout.ByteOffset(b)));
    }
  }
  state.SetBytesProcessed(state.iterations() * kElements *
                          static_cast<int64_t>(sizeof(float)));
}

BENCHMARK(BM_Advance)->DenseRange(2, 7)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace atl::server
