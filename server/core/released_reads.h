// Released versions of one fragment that are still read.
//
// Who reads a version keeps its file, and its bytes on the disk, after it was
// released: one whose link is slow comes to an end, although newer versions
// are committed meanwhile. That may be so of a few versions at a time. When
// there are more, one of them is given up, and those who read it start over at
// the newest: the one that fewest ask for. A caller is worth as much as any
// other, and divides that among the released versions that it reads, so that
// one who reads them all keeps none of them from others. Of equals it is the
// newest, for what has gone on for longest is nearest to its end.
//
// Pure: no thread, no clock, no I/O. Thread-compatible.

#ifndef SERVER_CORE_RELEASED_READS_H_
#define SERVER_CORE_RELEASED_READS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace atl::server {

class ReleasedReads {
 public:
  // Released versions that may be read at a time.
  static constexpr int kVersionCountMax = 4;

  // `reader`, a number of its own, reads `version` on behalf of `caller`.
  void Begin(int64_t reader, int64_t version, std::string caller);
  // It reads no more.
  void End(int64_t reader);
  // A version that is read no more, and who has to end for it. They are named
  // once, and count for nothing until they have ended.
  struct GivenUp {
    int64_t version = 0;
    std::vector<int64_t> readers;  // Empty: nothing is given up.
  };
  // `version` is released now.
  GivenUp OnReleased(int64_t version);

 private:
  struct Version {
    std::map<int64_t, std::string> callers_of;  // Readers.
    bool is_released = false;
    bool is_given_up = false;
  };

  // Released, and not given up.
  static bool IsLate(const Version& version) {
    return version.is_released && !version.is_given_up;
  }
  // The late version that fewest ask for; versions_.end() if few are late.
  std::map<int64_t, Version>::iterator FindOneTooMany();

  std::map<int64_t, Version> versions_;  // That are read.
  std::map<int64_t, int64_t> versions_of_;  // By reader.
};

}  // namespace atl::server

#endif  // SERVER_CORE_RELEASED_READS_H_
