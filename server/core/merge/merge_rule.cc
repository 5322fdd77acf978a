#include "server/core/merge/merge_rule.h"

namespace atl::server {

std::unique_ptr<MergeRule> MakeMergeRule(const v1::OuterSpec& spec) {
  // Tokens, samples and uniform differ in the weights alone, which the seal
  // has.
  return MakeWeightedMean();
}

}  // namespace atl::server
