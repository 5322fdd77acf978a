#include "base/codec/codec.h"

#include <array>

#include "base/codec/bf16.h"
#include "base/codec/e3m0.h"
#include "base/codec/f32.h"
#include "base/codec/int8.h"
#include "base/codec/top_k.h"
#include "base/codec/two_bit.h"
#include "base/status/check.h"

namespace atl::codec {
namespace {

constexpr std::array kAll = {
    CodecId::kF32,  CodecId::kBf16, CodecId::kBf16Stochastic,
    CodecId::kInt8, CodecId::kE3m0, CodecId::kTwoBit,
    CodecId::kTopK};

bool HasAvx512() {
  // As Highway compiles for HWY_AVX3. Its own question would link libhwy,
  // which measures the clock for 3 ms at every program's start.
  return __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}

}  // namespace

absl::Span<const CodecId> AllCodecs() { return kAll; }

absl::string_view CodecName(CodecId id) {
  switch (id) {
    case CodecId::kF32:
      return "f32";
    case CodecId::kBf16:
      return "bf16";
    case CodecId::kBf16Stochastic:
      return "bf16_stochastic";
    case CodecId::kInt8:
      return "int8";
    case CodecId::kE3m0:
      return "e3m0";
    case CodecId::kTwoBit:
      return "two_bit";
    case CodecId::kTopK:
      return "top_k";
  }
  return "unknown";
}

std::vector<SimdPath> SupportedPaths() {
  std::vector<SimdPath> paths = {SimdPath::kPlain, SimdPath::kAvx2};
  if (HasAvx512()) paths.push_back(SimdPath::kAvx512);
  return paths;
}

absl::string_view PathName(SimdPath path) {
  switch (path) {
    case SimdPath::kPlain:
      return "plain";
    case SimdPath::kAvx2:
      return "avx2";
    case SimdPath::kAvx512:
      return "avx512";
  }
  return "unknown";
}

absl::string_view FaultText(BlockFault fault) {
  switch (fault) {
    case BlockFault::kNone:
      return "is right";
    case BlockFault::kNotFinite:
      return "has a value that is not finite";
    case BlockFault::kWrongSize:
      return "has a wrong size";
    case BlockFault::kBadScale:
      return "has a scale that no encoder writes";
    case BlockFault::kBadCode:
      return "has a code that no encoder writes";
    case BlockFault::kBadPadding:
      return "has bits past its last element";
    case BlockFault::kBadIndex:
      return "has an index past its last element";
  }
  return "has a fault";
}

const Codec& GetCodec(CodecId id, SimdPath path) {
  CHECK(path != SimdPath::kAvx512 || HasAvx512());
  switch (id) {
    case CodecId::kF32:
      return F32Codec(path);
    case CodecId::kBf16:
      return Bf16Codec(path);
    case CodecId::kBf16Stochastic:
      return Bf16StochasticCodec(path);
    case CodecId::kInt8:
      return Int8Codec(path);
    case CodecId::kE3m0:
      return E3m0Codec(path);
    case CodecId::kTwoBit:
      return TwoBitCodec(path);
    case CodecId::kTopK:
      return TopKCodec(path);
  }
  CHECK(false);
  return F32Codec(path);
}

const Codec& GetCodec(CodecId id) {
  return GetCodec(id, HasAvx512() ? SimdPath::kAvx512 : SimdPath::kAvx2);
}

const Codec* FindCodec(int32_t number) {
  for (const CodecId id : kAll) {
    if (static_cast<int32_t>(id) == number) return &GetCodec(id);
  }
  return nullptr;
}

}  // namespace atl::codec
