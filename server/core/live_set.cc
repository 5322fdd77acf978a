#include "server/core/live_set.h"

namespace atl::server {

bool LiveSet::Merges(const v1::Seal& seal) const {
  if (seal.fragment() != fragment || seal.version() != version ||
      seal.contributions_size() != static_cast<int>(keys.size())) {
    return false;
  }
  for (int i = 0; i < seal.contributions_size(); ++i) {
    const v1::SealedContribution& sealed = seal.contributions(i);
    if (!(ContributionKey::FromProto(sealed.key()) == keys[i]) ||
        sealed.weight() != weights[i]) {
      return false;
    }
  }
  return true;
}

}  // namespace atl::server
