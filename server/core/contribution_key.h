// A contribution's key as a value that can key maps. Pure. Thread-compatible.

#pragma once

#include <cstdint>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "atoll/v1/plan.pb.h"

namespace atl::server {

struct ContributionKey {
  int64_t run_epoch = 0;
  int32_t fragment = 0;
  int32_t slot = 0;
  int64_t seq = 0;

  static ContributionKey FromProto(const v1::ContributionKey& key) {
    return {key.run_epoch(), key.fragment(), key.slot(), key.seq()};
  }
  // The key of an import of version 0. No run has epoch 0.
  static ContributionKey OfImport(int32_t fragment) {
    return {0, fragment, 0, 0};
  }
  bool is_import() const { return run_epoch == 0; }
  v1::ContributionKey ToProto() const {
    v1::ContributionKey key;
    key.set_run_epoch(run_epoch);
    key.set_fragment(fragment);
    key.set_slot(slot);
    key.set_seq(seq);
    return key;
  }
  // For people: "epoch 1 fragment 0 slot 2 seq 7".
  std::string ToString() const {
    if (is_import()) return absl::StrCat("the import of fragment ", fragment);
    return absl::StrCat("epoch ", run_epoch, " fragment ", fragment, " slot ",
                        slot, " seq ", seq);
  }

  friend bool operator==(const ContributionKey& a, const ContributionKey& b) {
    return a.Tie() == b.Tie();
  }
  friend bool operator<(const ContributionKey& a, const ContributionKey& b) {
    return a.Tie() < b.Tie();
  }

 private:
  std::tuple<int64_t, int32_t, int32_t, int64_t> Tie() const {
    return {run_epoch, fragment, slot, seq};
  }
};

}  // namespace atl::server
