#include "tests/cuda_check/codec_faults.h"

#include <cstdint>
#include <iostream>
#include <random>
#include <set>
#include <string>

#include "absl/types/span.h"
#include "gtest/gtest.h"

namespace atl::engine::check {
namespace {

using codec::BlockFault;

// Decodes on the CPU's `path`; `report` changes the reported fault.
template <typename Report>
Accumulate OnPath(codec::CodecId id, codec::SimdPath path, Report report) {
  return [id, path, report](FaultyBlocks& blocks) {
    const codec::Codec& codec = codec::GetCodec(id, path);
    const size_t size = codec.EncodedBytes(blocks.n);
    for (size_t b = 0; b < blocks.faults.size(); ++b) {
      blocks.faults[b] = report(codec.DecodeAccumulate(
          {reinterpret_cast<const char*>(blocks.encoded.data()) + b * size,
           size},
          blocks.weight, absl::MakeSpan(blocks.sums).subspan(b * blocks.n,
                                                             blocks.n)));
    }
    return absl::OkStatus();
  };
}

class CodecFaultsTest : public testing::TestWithParam<codec::CodecId> {
 protected:
  CodecFaultsTest() : seed_(std::random_device{}()) {
    std::cout << "seed " << seed_ << std::endl;
  }
  const codec::Codec& codec() const { return codec::GetCodec(GetParam()); }
  // The CPU's faults for the generated blocks.
  std::multiset<BlockFault> Faults(size_t n) const {
    std::multiset<BlockFault> faults;
    EXPECT_TRUE(CheckFaults(codec(), n, seed_,
                            OnPath(GetParam(), codec().path(),
                                   [&](BlockFault fault) {
                                     faults.insert(fault);
                                     return fault;
                                   }))
                    .ok());
    return faults;
  }

  const uint64_t seed_;
};

TEST_P(CodecFaultsTest, ThePlainDefinitionPasses) {
  for (const size_t n : {size_t{4096}, size_t{1}, size_t{513}}) {
    const absl::Status status =
        CheckFaults(codec(), n, seed_,
                    OnPath(GetParam(), codec::SimdPath::kPlain,
                           [](BlockFault fault) { return fault; }));
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST_P(CodecFaultsTest, SomeBlocksAreGoodAndSomeAreNot) {
  const std::multiset<BlockFault> faults = Faults(4096);
  const size_t good = faults.count(BlockFault::kNone);
  EXPECT_GE(good, faults.size() / 8);  // The undamaged ones.
  EXPECT_LT(good, faults.size());
}

TEST_P(CodecFaultsTest, WhoMissesOrInventsAFaultIsFound) {
  EXPECT_FALSE(CheckFaults(codec(), 4096, seed_,
                           OnPath(GetParam(), codec().path(),
                                  [](BlockFault) { return BlockFault::kNone; }))
                   .ok());
  EXPECT_FALSE(CheckFaults(codec(), 4096, seed_,
                           OnPath(GetParam(), codec().path(),
                                  [](BlockFault fault) {
                                    return fault == BlockFault::kNone
                                               ? BlockFault::kBadCode
                                               : fault;
                                  }))
                   .ok());
}

TEST_P(CodecFaultsTest, AnotherSumIsFound) {
  const Accumulate honest = OnPath(GetParam(), codec().path(),
                                   [](BlockFault fault) { return fault; });
  EXPECT_FALSE(CheckFaults(codec(), 4096, seed_,
                           [&](FaultyBlocks& blocks) {
                             const absl::Status status = honest(blocks);
                             blocks.sums[17] += 1;  // Block 0 is good.
                             return status;
                           })
                   .ok());
}

INSTANTIATE_TEST_SUITE_P(
    Codecs, CodecFaultsTest, testing::ValuesIn(codec::AllCodecs()),
    [](const testing::TestParamInfo<codec::CodecId>& info) {
      return std::string(codec::CodecName(info.param));
    });

}  // namespace
}  // namespace atl::engine::check
