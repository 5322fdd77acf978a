#include "tests/cuda_check/device_checks.h"

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/codec/subset_model.h"
#include "base/codec/top_k.h"
#include "base/status/status_macros.h"
#include "tests/cuda_check/codec_faults.h"
#include "tests/cuda_check/device_codec.h"
#include "worker/engine/tensor/arena.h"

namespace atl::engine::check {
namespace {

constexpr int64_t kBlocks = 37;
constexpr float kWeight = 0.3f;

// Magnitudes from 2^-20 to 2^20, and zeros.
std::vector<float> RandomValues(int64_t count, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) {
    const int exponent = static_cast<int>(random() % 41) - 20;
    value = random() % 16 == 0 ? 0.0f : std::ldexp(normal(random), exponent);
  }
  return values;
}

absl::Status Same(const char* what, const void* a, const void* b,
                  size_t bytes) {
  if (std::memcmp(a, b, bytes) == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, " differ from the CPU's"));
}

struct Outcome {
  std::vector<uint8_t> encoded;
  std::vector<float> left, sums;
};

absl::Status OnCpu(const codec::Codec& codec, size_t n, uint64_t seed,
                   const std::vector<float>& values,
                   const std::vector<float>& sums, Outcome& outcome) {
  const size_t bytes = codec.EncodedBytes(n);
  outcome.encoded.resize(kBlocks * bytes);
  outcome.left = values;
  outcome.sums = sums;
  std::vector<float> decoded(n);
  for (int64_t b = 0; b < kBlocks; ++b) {
    char* const to =
        reinterpret_cast<char*>(outcome.encoded.data()) + b * bytes;
    const absl::Span<const float> block(values.data() + b * n, n);
    codec::BlockFault fault =
        codec.Encode({seed, b * n}, block, absl::MakeSpan(to, bytes));
    if (fault == codec::BlockFault::kNone) {
      fault = codec.Decode({to, bytes}, absl::MakeSpan(decoded));
    }
    for (size_t i = 0; i < n; ++i) outcome.left[b * n + i] -= decoded[i];
    if (fault == codec::BlockFault::kNone) {
      fault = codec.DecodeAccumulate({to, bytes}, kWeight,
                                     absl::MakeSpan(&outcome.sums[b * n], n));
    }
    if (fault != codec::BlockFault::kNone) {
      return absl::InternalError(
          absl::StrCat("the CPU's block ", b, " ", codec::FaultText(fault)));
    }
  }
  return absl::OkStatus();
}

absl::Status OnDevice(const codec::Codec& codec, size_t n, uint64_t seed,
                      const std::vector<float>& values,
                      const std::vector<float>& sums, cuda::CudaOps& ops,
                      Outcome& outcome) {
  const size_t bytes = codec.EncodedBytes(n);
  const int64_t count = kBlocks * static_cast<int64_t>(n);
  float *device_values = nullptr, *device_sums = nullptr;
  codec::cuda::Blocks blocks;
  codec::SubsetModel* model = nullptr;
  const auto take = [&](Arena& arena) {
    device_values = arena.Take<float>(count);
    device_sums = arena.Take<float>(count);
    blocks.encoded = arena.Take<uint8_t>(kBlocks * static_cast<int64_t>(bytes));
    blocks.faults = arena.Take<codec::BlockFault>(kBlocks);
    model = arena.Take<codec::SubsetModel>(1);
  };
  ASSIGN_OR_RETURN(const Arena arena, Arena::CreateFor(take, ops.memory()));
  ops.FromHost(values.size() * sizeof(float), values.data(), device_values);
  ops.FromHost(sums.size() * sizeof(float), sums.data(), device_sums);
  ops.FromHost(sizeof(*model), &codec::TheSubsetModel(), model);
  blocks.count = kBlocks;
  blocks.n = n;
  blocks.bytes = bytes;
  blocks.values = device_values;
  int error =
      codec::cuda::EncodeBlocks(codec.id(), blocks, seed, model, ops.stream());
  blocks.values = device_sums;
  if (error == 0) {
    error = codec::cuda::AccumulateBlocks(codec.id(), blocks, kWeight, model,
                                          ops.stream());
  }
  if (error != 0) {
    return absl::InternalError(absl::StrCat("the launch failed: ", error));
  }
  outcome.encoded.resize(kBlocks * bytes);
  outcome.left.resize(count);
  outcome.sums.resize(count);
  std::vector<codec::BlockFault> faults(kBlocks);
  ops.ToHost(outcome.encoded.size(), blocks.encoded, outcome.encoded.data());
  ops.ToHost(count * sizeof(float), device_values, outcome.left.data());
  ops.ToHost(count * sizeof(float), device_sums, outcome.sums.data());
  ops.ToHost(kBlocks * sizeof(codec::BlockFault), blocks.faults, faults.data());
  for (codec::BlockFault fault : faults) {
    if (fault == codec::BlockFault::kNone) continue;
    return absl::InternalError(
        absl::StrCat("a block ", codec::FaultText(fault)));
  }
  return ops.status();
}

// Decodes, on the device, bytes that may be faulty.
absl::Status AccumulateOnDevice(const codec::Codec& codec, cuda::CudaOps& ops,
                                FaultyBlocks& faulty) {
  codec::cuda::Blocks blocks;
  blocks.count = static_cast<int64_t>(faulty.faults.size());
  blocks.n = faulty.n;
  blocks.bytes = codec.EncodedBytes(faulty.n);
  codec::SubsetModel* model = nullptr;
  const auto take = [&](Arena& arena) {
    blocks.values =
        arena.Take<float>(static_cast<int64_t>(faulty.sums.size()));
    blocks.encoded =
        arena.Take<uint8_t>(static_cast<int64_t>(faulty.encoded.size()));
    blocks.faults = arena.Take<codec::BlockFault>(blocks.count);
    model = arena.Take<codec::SubsetModel>(1);
  };
  ASSIGN_OR_RETURN(const Arena arena, Arena::CreateFor(take, ops.memory()));
  ops.FromHost(faulty.sums.size() * sizeof(float), faulty.sums.data(),
               blocks.values);
  ops.FromHost(faulty.encoded.size(), faulty.encoded.data(), blocks.encoded);
  ops.FromHost(sizeof(*model), &codec::TheSubsetModel(), model);
  const int error = codec::cuda::AccumulateBlocks(
      codec.id(), blocks, faulty.weight, model, ops.stream());
  if (error != 0) {
    return absl::InternalError(absl::StrCat("the launch failed: ", error));
  }
  ops.ToHost(faulty.sums.size() * sizeof(float), blocks.values,
             faulty.sums.data());
  ops.ToHost(faulty.faults.size() * sizeof(codec::BlockFault), blocks.faults,
             faulty.faults.data());
  return ops.status();
}

}  // namespace

absl::Status CheckCodec(codec::CodecId id, uint64_t seed, cuda::CudaOps& ops) {
  const codec::Codec& codec = codec::GetCodec(id);
  std::mt19937_64 random(seed);
  for (size_t n : {size_t{4096}, size_t{1}, size_t{513}}) {
    const int64_t count = kBlocks * static_cast<int64_t>(n);
    const std::vector<float> values = RandomValues(count, random);
    const std::vector<float> sums = RandomValues(count, random);
    Outcome cpu, device;
    RETURN_IF_ERROR(OnCpu(codec, n, seed, values, sums, cpu));
    RETURN_IF_ERROR(OnDevice(codec, n, seed, values, sums, ops, device));
    RETURN_IF_ERROR(Same("encoded bytes", cpu.encoded.data(),
                         device.encoded.data(), cpu.encoded.size()));
    RETURN_IF_ERROR(Same("residuals", cpu.left.data(), device.left.data(),
                         count * sizeof(float)));
    RETURN_IF_ERROR(Same("sums", cpu.sums.data(), device.sums.data(),
                         count * sizeof(float)));
    RETURN_IF_ERROR(CheckFaults(
        codec, n, random(), [&codec, &ops](FaultyBlocks& faulty) {
          return AccumulateOnDevice(codec, ops, faulty);
        }));
  }
  return absl::OkStatus();
}

}  // namespace atl::engine::check
