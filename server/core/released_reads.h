// Tracks readers of one fragment's released versions.
//
// A reader keeps a released version's file on the disk, so that a slow download
// can finish while newer versions are committed. If too many released versions
// are held, the one with the least weight is given up, and its readers start
// over at the newest. All callers have the same weight, divided among the
// released versions that they read: a caller that reads all of them displaces
// no other caller's version. Among versions of equal weight the newest is given
// up, because the oldest read is nearest to its end. Pure: no thread, no clock,
// no I/O. Thread-compatible.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace atl::server {

class ReleasedReads {
 public:
  // Released versions that may be held at a time.
  static constexpr int kVersionCountMax = 4;

  // `reader`, a unique number, starts to read `version` on behalf of `caller`.
  void Begin(int64_t reader, int64_t version, std::string caller);
  void End(int64_t reader);
  // A version that is given up, and its readers, which must end. They are
  // returned once, and no longer count.
  struct GivenUp {
    int64_t version = 0;
    std::vector<int64_t> readers;  // Empty: nothing is given up.
  };
  // Records the release of `version`; may give up one version.
  GivenUp OnReleased(int64_t version);

 private:
  struct Version {
    std::map<int64_t, std::string> callers_of;  // Readers.
    bool is_released = false;
    bool is_given_up = false;
  };

  static bool IsLate(const Version& version) {
    return version.is_released && !version.is_given_up;
  }
  // The late version with the least weight; versions_.end() if none must go.
  std::map<int64_t, Version>::iterator FindOneTooMany();

  std::map<int64_t, Version> versions_;  // Versions that are being read.
  std::map<int64_t, int64_t> versions_of_;  // By reader.
};

}  // namespace atl::server
