// Applies a shard's reports as a coordinator does, for tests: it keeps the
// contributions that the shard has reported and not taken back.
// Thread-compatible.

#pragma once

#include <map>
#include <string>

#include "atoll/v1/server_service.pb.h"
#include "server/core/contribution_key.h"

namespace atl::server {

class ToldContributions {
 public:
  // `report`: whole, or of changes since the report before.
  void Take(const v1::ShardReport& report) {
    if (report.base_report_seq() == 0) told_.clear();
    for (const v1::ContributionKey& key : report.gone()) Forget(key);
    for (const auto& stored : report.stored()) Forget(stored.info().key());
    for (const auto& refused : report.refused()) Forget(refused.key());
    for (const v1::StoredContribution& stored : report.stored()) {
      told_[ContributionKey::FromProto(stored.info().key())] +=
          stored.SerializeAsString();
    }
    for (const v1::RefusedContribution& refused : report.refused()) {
      told_[ContributionKey::FromProto(refused.key())] +=
          refused.SerializeAsString();
    }
  }

  friend bool operator==(const ToldContributions& a,
                         const ToldContributions& b) {
    return a.told_ == b.told_;
  }

 private:
  void Forget(const v1::ContributionKey& key) {
    told_.erase(ContributionKey::FromProto(key));
  }

  std::map<ContributionKey, std::string> told_;
};

}  // namespace atl::server
